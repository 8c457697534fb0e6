import { h, fill } from "../dom.js";
import { head, card, list } from "../ui.js";
import { money, when } from "../format.js";
import { query } from "../api.js";

export default async function accounts(ctx) {
  fill(ctx.root, head("Accounts"), card(null, list(ctx, {
    caption: "Accounts", none: "No account’s id begins so.",
    path: (f) => `/v1/admin/accounts${query(f)}`,
    filters: [{ name: "prefix", label: "Id begins with", placeholder: "alice" }],
    columns: [
      { name: "Account", lead: true, cell: (a) => h("a", { href: `/console/accounts/${encodeURIComponent(a.id)}` }, a.id) },
      { name: "Available", num: true, cell: (a) => money(a.available, a.currency) },
      { name: "Held", num: true, cell: (a) => (a.held > 0 ? money(a.held, a.currency) : "–") },
      { name: "Made", cell: (a) => when(a.created_at) },
    ],
  }).element));
}
