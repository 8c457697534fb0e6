import { fill } from "../dom.js";
import { head, card, list, making } from "../ui.js";
import { account } from "../names.js";
import { money, when } from "../format.js";
import { query } from "../api.js";

export default async function accounts(ctx) {
  fill(ctx.root, head("Accounts", { actions: [making("New account", "account")] }), card(null, list(ctx, {
    caption: "Accounts", none: "No account’s id begins with this.",
    empty: { says: "An account has a balance in one currency. Campaigns and auctions make their own; there is none yet.", make: ["New account", "/console/new/account"], curl: ["/v1/accounts", { id: "shop", currency: "EUR" }] },
    path: (f) => `/v1/admin/accounts${query(f)}`,
    filters: [{ name: "prefix", label: "Id begins with", placeholder: "alice" }],
    columns: [
      { name: "Account", lead: true, cell: (a) => account(a.id) },
      { name: "Available", num: true, cell: (a) => money(a.available, a.currency) },
      { name: "Held", num: true, cell: (a) => (a.held > 0 ? money(a.held, a.currency) : "–") },
      { name: "Made", cell: (a) => when(a.created_at) },
    ],
  }).element));
}
