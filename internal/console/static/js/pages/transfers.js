// Transfers: all, newest first; or those of an account, which are its entries.
import { h, fill } from "../dom.js";
import { head, card, list } from "../ui.js";
import { badge, money, short, when } from "../format.js";
import { query } from "../api.js";
import { account } from "../names.js";

export default async function transfers(ctx) {
  const of = () => ctx.query.get("account");
  fill(ctx.root, head("Transfers", { note: "Every movement of money: its intent, and what became of it. Those of one account are the completed ones." }), card(null, list(ctx, {
    caption: "Transfers", none: "No transfer matches.",
    empty: { says: "A transfer moves money from one account to another, once. There is none yet.", curl: ["/v1/transfers", { from: "alice", to: "shop", amount: 250 }] },
    path: (f) => (f.account ? `/v1/admin/accounts/${encodeURIComponent(f.account)}/entries` : `/v1/admin/transfers${query({ status: f.status })}`),
    filters: [{ name: "status", label: "Status", options: ["pending", "completed", "failed"], clears: ["account"] }, { name: "account", label: "Account", placeholder: "alice", clears: ["status"] }],
    columns: [
      { name: "Transfer", cell: (t) => h("a", { href: `/console/transfers/${t.transfer ?? t.id}` }, short(t.transfer ?? t.id)) },
      { name: "Kind", cell: (t) => h("span", { class: "nowrap" }, t.kind) },
      { name: "From", cell: (t) => account(t.from ?? (t.amount < 0 ? of() : t.counterparty)) },
      { name: "To", cell: (t) => account(t.to ?? (t.amount < 0 ? t.counterparty : of())) },
      { name: "Amount", num: true, cell: (t) => money(Math.abs(t.amount), t.currency) },
      { name: "Status", cell: (t) => h("span", {}, badge(t.status ?? "completed"), t.reason && [" ", h("span", { class: "small soft" }, t.reason.replaceAll("_", " "))]) },
      { name: "When", cell: (t) => when(t.created_at ?? t.at) },
    ],
  }).element));
}
