import { h, fill } from "../dom.js";
import { head, card, list } from "../ui.js";
import { badge, count, when } from "../format.js";
import { query } from "../api.js";

export default async function auctions(ctx) {
  fill(ctx.root, head("Auctions"), card(null, list(ctx, {
    caption: "Auctions", none: "No auction is like that.",
    path: (f) => `/v1/admin/auctions${query(f)}`,
    filters: [{ name: "status", label: "Status", options: ["pending", "active", "completed", "cancelled"] }],
    columns: [
      { name: "Auction", lead: true, cell: (a) => h("a", { href: `/console/auctions/${a.id}` }, a.title) },
      { name: "Status", cell: (a) => badge(a.status) },
      { name: "Round", num: true, cell: (a) => a.current_round || "–" },
      { name: "Bids", num: true, cell: (a) => count(a.total_bids) },
      { name: "Made", cell: (a) => when(a.created_at) },
    ],
  }).element));
}
