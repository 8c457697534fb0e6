// The public page of an auction: the clock, the leaderboard, the bids.
import { h, fill, text } from "./dom.js";
import { card, table } from "./ui.js";
import { badge, clock, count, duration, money } from "./format.js";
import { bidChart, pace, perSecond } from "./auction-chart.js";
import { leaderTable, noWinners, topTen } from "./leaders.js";
import { aliasField, id, isMine, remember, run, shortAlias } from "./public.js";

function build(main, first) {
  document.title = first.title;
  const spell = (n) => money(n, first.currency);
  const status = h("span");
  const time = h("div", { class: "clock", role: "timer" });
  const under = h("p", { class: "soft" });
  const floor = h("p", { class: "big", role: "status" });
  const speed = h("p", { class: "soft" });
  const leaders = h("div");
  const won = h("div");
  const drawing = bidChart(spell);
  const measured = pace();
  const top = topTen(leaders, { changed: () => board() });
  const mine = h("input", { name: "alias", autocomplete: "off", spellcheck: "false", value: remember.get("alias") });
  const led = new Set(); // who has had a winning place in this round, while the page was open
  let last = first;
  let skew = 0;

  const me = () => mine.value.trim();
  mine.addEventListener("input", () => {
    remember.set("alias", mine.value.trim());
    board();
  });

  function board() {
    top.draw(last.leaderboard, "No bids.", (items) => leaderTable(items, spell, (i) => h("code", {}, shortAlias(i.alias)), (i) => led.has(i.alias), (i) => isMine(i.alias, me())));
    fill(won, last.winners.length === 0 ? h("p", { class: "empty" }, noWinners(last)) : table([
      { name: "Round", lead: true, cell: (w) => `Round ${w.round}, rank ${w.rank}` },
      { name: "Winner", cell: (w) => h("code", {}, shortAlias(w.alias)) },
      { name: "Paid", num: true, cell: (w) => spell(w.amount) },
    ], last.winners, { caption: "Winners", row: (w) => (isMine(w.alias, me()) ? "me" : null) }));
  }

  const tick = () => {
    const r = last.rounds.find((x) => x.status === "active");
    if (!r) {
      text(time, { completed: "Over", cancelled: "Cancelled" }[last.status] ?? "Between rounds");
      text(under, `${first.rounds.length} round${first.rounds.length === 1 ? "" : "s"}`);
      time.classList.remove("soon");
      return;
    }
    const left = Date.parse(r.ends_at) - Date.now() - skew;
    text(time, left > 0 ? clock(left) : "Closing…");
    time.classList.toggle("soon", left < 10_000);
    text(under, `left in round ${r.round} of ${last.rounds.length}${r.extensions > 0 ? `, extended ${r.extensions}×` : ""}`);
  };
  setInterval(tick, 100);

  const anti = first.anti_snipe;
  fill(main,
    h("header", { class: "public-head" }, status, h("h1", {}, first.title), time, under, floor, speed),
    card("Bids over time", drawing.element),
    h("section", { class: "card asks" }, h("h2", {}, "Leaderboard"), aliasField(mine), leaders),
    card("Winners", won),
    h("footer", { class: "foot" }, anti.max_extensions > 0 && h("span", {}, `A bid in the last ${duration(anti.window)} of a round moves its end by ${duration(anti.extension)}, up to ${anti.max_extensions} times.`), h("span", {}, "Read-only. Accounts appear by alias.")));

  return (s) => {
    if (s.current_round !== last.current_round) led.clear();
    for (const i of s.leaderboard) if (i.winning) led.add(i.alias);
    last = s;
    skew = Date.parse(s.now) - Date.now();
    fill(status, badge(s.status === "active" ? "open" : s.status));
    text(floor, s.min_winning_bid === null ? "" : `${spell(s.min_winning_bid)} would win now`);
    const rate = measured(s.total_bids, Date.parse(s.now));
    text(speed, `${count(s.total_bids)} bids${s.status === "active" && rate !== null ? `, ${perSecond(rate)} a second` : ""}`);
    board();
    tick();
    drawing.draw({ bids: s.chart.bids, marks: s.chart.marks, rounds: s.rounds, total: s.total_bids });
    return s.status === "active";
  };
}

run("auctions", build);
