// A leaderboard, in the console and in public.
import { h, fill } from "./dom.js";
import { refill } from "./refill.js";
import { table } from "./ui.js";
import { badge } from "./format.js";

// leaderTable draws standing bids by rank; who draws the bidder, outbid tells whether a bid has lost its winning place, me whether a line
// is the visitor's.
export function leaderTable(items, spell, who, outbid, me = () => false) {
  const t = table([
    { name: "Rank", cell: (i) => i.rank },
    { name: "Bidder", lead: true, cell: (i) => [who(i), me(i) && " – you"] },
    { name: "Bid", num: true, cell: (i) => spell(i.amount) },
    { name: "Place", cell: (i) => (i.winning ? badge("winning", "good") : outbid(i) ? badge("outbid", "warn") : h("span", { class: "soft" }, "behind")) },
  ], items, { caption: "Leaderboard", row: (i) => [i.winning && "winning", outbid(i) && "outbid", me(i) && "me"].filter(Boolean).join(" ") || null, key: (i) => i.account ?? i.alias });
  // Four short columns fit the narrowest screen as a table, which ranks read better in.
  t.className = "leaders";
  return t;
}

// noWinners says why an auction has none.
export function noWinners({ rounds, status }) {
  if (rounds.some((r) => r.status === "completed" && !r.cancelled)) return "Nobody bid in the rounds that have ended.";
  return status === "cancelled" ? "It was cancelled before a round was closed." : "No round has ended.";
}

// topTen draws a leaderboard into element: ten places, or all if somebody wants them; then it calls changed, which draws again.
export function topTen(element, { all = false, changed }) {
  const board = h("div", {});
  const button = h("button", { type: "button", class: "quiet", hidden: true, onclick: () => {
    top.all = !top.all;
    changed();
  } }, "Show all");
  fill(element, board, button);
  const top = {
    all,
    draw(items, none, table) {
      refill(board, items.length === 0 ? h("p", { class: "empty" }, none) : table(top.all ? items : items.slice(0, 10)));
      button.hidden = items.length <= 10;
      button.textContent = top.all ? "Show the first 10" : "Show all";
    },
  };
  return top;
}
