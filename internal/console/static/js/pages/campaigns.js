import { h, fill } from "../dom.js";
import { head, card, list, making } from "../ui.js";
import { badge, count, share, when } from "../format.js";
import { query } from "../api.js";

export default async function campaigns(ctx) {
  const campaigns = list(ctx, {
    caption: "Campaigns", none: "No campaign has this status.",
    empty: {
      says: "A campaign sells the positions of a triangle, one of each, and draws its winners when the last is sold. There is none yet.", make: ["New campaign", "/console/new/campaign"],
      curl: ["/v1/campaigns", { name: "Regatta", base_length: 4, price: 250, currency: "EUR", beneficiary: "shop", prizes: [{ name: "A pennant", quantity: 1 }] }],
    },
    path: (f) => `/v1/admin/campaigns${query(f)}`,
    filters: [{ name: "status", label: "Status", options: ["pending", "active", "drawing", "completed", "cancelled"] }],
    columns: [
      { name: "Campaign", lead: true, cell: (c) => h("a", { href: `/console/campaigns/${c.id}` }, c.name) },
      { name: "Status", cell: (c) => badge(c.status) },
      { name: "Sold", cell: (c) => h("span", { class: "nowrap" }, share(c.sold_positions, c.total_positions), ` ${count(c.sold_positions)} of ${count(c.total_positions)}`) },
      { name: "Made", cell: (c) => when(c.created_at) },
    ],
  });
  fill(ctx.root, head("Campaigns", { actions: [making("New campaign", "campaign")] }), card(null, campaigns.element));
}
