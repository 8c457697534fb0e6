import { h, fill } from "../dom.js";
import { head, card, list } from "../ui.js";
import { badge, short, when } from "../format.js";
import { query } from "../api.js";

export default async function publications(ctx) {
  fill(ctx.root, head("Publications"), card(null, list(ctx, {
    caption: "Publications", none: "No publication is like that.",
    path: (f) => `/v1/publications${query(f)}`,
    filters: [{ name: "status", label: "Status", options: ["draft", "scheduled", "publishing", "published", "failed", "cancelled"] }],
    columns: [
      { name: "Publication", cell: (p) => h("a", { href: `/console/publications/${p.id}` }, short(p.id)) },
      { name: "Target", cell: (p) => p.target },
      { name: "Status", cell: (p) => badge(p.status) },
      { name: "Attempts", num: true, cell: (p) => p.attempts },
      { name: "Due", cell: (p) => when(p.next_attempt_at ?? p.actual_publish_at) },
      { name: "Last error", cell: (p) => p.last_error ?? h("span", { class: "soft" }, "–") },
    ],
  }).element));
}
