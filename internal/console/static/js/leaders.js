// A leaderboard, in the console and in public.
import { h } from "./dom.js";
import { table } from "./ui.js";
import { badge } from "./format.js";

// leaderTable draws standing bids by rank; who draws the bidder, me tells whether a line is the visitor's.
export function leaderTable(items, spell, who, me = () => false) {
  const t = table([
    { name: "Rank", cell: (i) => i.rank },
    { name: "Bidder", lead: true, cell: (i) => [who(i), me(i) && " – you"] },
    { name: "Bid", num: true, cell: (i) => spell(i.amount) },
    { name: "Place", cell: (i) => (i.winning ? badge("winning", "good") : h("span", { class: "soft" }, "behind")) },
  ], items, { caption: "Leaderboard", row: (i) => [i.winning && "winning", me(i) && "me"].filter(Boolean).join(" ") || null });
  // Four short columns fit the narrowest screen as a table, which ranks read better in.
  t.className = "leaders";
  return t;
}
