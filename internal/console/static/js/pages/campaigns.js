import { h, fill } from "../dom.js";
import { head, card, list } from "../ui.js";
import { badge, count, share, when } from "../format.js";
import { query } from "../api.js";

export default async function campaigns(ctx) {
  const campaigns = list(ctx, {
    caption: "Campaigns", none: "No campaign is like that.",
    path: (f) => `/v1/admin/campaigns${query(f)}`,
    filters: [{ name: "status", label: "Status", options: ["pending", "active", "drawing", "completed", "cancelled"] }],
    columns: [
      { name: "Campaign", lead: true, cell: (c) => h("a", { href: `/console/campaigns/${c.id}` }, c.name) },
      { name: "Status", cell: (c) => badge(c.status) },
      { name: "Sold", cell: (c) => h("span", { class: "nowrap" }, share(c.sold_positions, c.total_positions), ` ${count(c.sold_positions)} of ${count(c.total_positions)}`) },
      { name: "Made", cell: (c) => when(c.created_at) },
    ],
  });
  fill(ctx.root, head("Campaigns"), card(null, campaigns.element));
}
