import { h, fill } from "../dom.js";
import { head, card, list, making } from "../ui.js";
import { badge, count, when } from "../format.js";
import { query } from "../api.js";

export default async function auctions(ctx) {
  fill(ctx.root, head("Auctions", { actions: [making("New auction", "auction")] }), card(null, list(ctx, {
    caption: "Auctions", none: "No auction has this status.",
    empty: {
      says: "An auction has rounds, each with its winners; bids are held on their accounts until they are outbid or win. There is none yet.", make: ["New auction", "/console/new/auction"],
      curl: ["/v1/auctions", { title: "A brass sextant", currency: "EUR", seller: "shop", rounds: [{ winners: 1, duration: "30m" }] }],
    },
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
