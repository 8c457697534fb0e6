import { h, fill } from "../dom.js";
import { head, card, list } from "../ui.js";
import { badge, count, share, when } from "../format.js";

export default async function multidraws(ctx) {
  fill(ctx.root, head("Multi-draws"), card(null, list(ctx, {
    caption: "Multi-draws", path: () => "/v1/admin/multidraws",
    empty: { says: "A multi-draw draws many times under one lock key, and goes on where it was after a crash. There is none yet.", curl: ["/v1/multidraws", { lock_key: "daily", count: 100, range: { min: 1, max: 49 } }] },
    columns: [
      { name: "Lock key", lead: true, cell: (m) => h("a", { href: `/console/multidraws/${m.id}` }, m.lock_key) },
      { name: "Status", cell: (m) => badge(m.status) },
      { name: "Drawn", cell: (m) => h("span", {}, share(m.completed_count, m.total_count), ` ${count(m.completed_count)} of ${count(m.total_count)}`) },
      { name: "Begun", cell: (m) => when(m.start_time) },
    ],
  }).element));
}
