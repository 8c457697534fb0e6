import { h, fill } from "../dom.js";
import { head, card, list } from "../ui.js";
import { badge, money, short, when } from "../format.js";
import { query } from "../api.js";

export default async function transfers(ctx) {
  const account = (id) => h("a", { href: `/console/accounts/${encodeURIComponent(id)}` }, id);
  fill(ctx.root, head("Transfers", { note: "Every movement of money: its intent, and what became of it." }), card(null, list(ctx, {
    caption: "Transfers", none: "No transfer is like that.",
    path: (f) => `/v1/admin/transfers${query(f)}`,
    filters: [{ name: "status", label: "Status", options: ["pending", "completed", "failed"] }],
    columns: [
      { name: "Transfer", cell: (t) => h("a", { href: `/console/transfers/${t.id}` }, short(t.id)) },
      { name: "Kind", cell: (t) => t.kind },
      { name: "From", cell: (t) => account(t.from) },
      { name: "To", cell: (t) => account(t.to) },
      { name: "Amount", num: true, cell: (t) => money(t.amount, t.currency) },
      { name: "Status", cell: (t) => badge(t.status) },
      { name: "When", cell: (t) => when(t.created_at) },
    ],
  }).element));
}
