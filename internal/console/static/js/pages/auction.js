// An auction as it goes: the clock, who leads, and every bid.
import { h, fill, text } from "../dom.js";
import { get, query } from "../api.js";
import { action, card, copy, every, facts, head, list, table, watch } from "../ui.js";
import { badge, clock, count, duration, money, when } from "../format.js";
import { bidChart, pace, perSecond } from "../auction-chart.js";
import { leaderTable, noWinners, topTen } from "../leaders.js";
import { follow } from "../live.js";
import { account } from "../names.js";
import { trail } from "./trail.js";

const board = 200; // places of the leaderboard that are shown at most
const refresh = 1000; // ms between two looks at it, however many bids come
const sample = 600; // bids that the chart shows

export default async function auction(ctx) {
  const base = `/v1/auctions/${ctx.params.id}`;
  const [a, chart] = await Promise.all([get(base, ctx.signal), get(`/v1/admin/auctions/${ctx.params.id}/chart`, ctx.signal)]);
  ctx.title(a.title);
  const spell = (n) => money(n, a.currency);
  const audit = { object: a.id };
  const actions = [];
  if (a.status === "pending") actions.push(action("Start", { title: `Start ${a.title}`, verb: "Start the auction", keep: "Leave it pending", explain: "The first round opens at once.", path: `${base}/start`, audit, done: ctx.reload }));
  if (a.status === "pending" || a.status === "active") actions.push(action("Cancel", () => ({
    title: `Cancel ${a.title}`, verb: a.total_bids > 0 ? `Cancel auction with ${count(a.total_bids)} bids, and release every hold` : "Cancel the auction", keep: a.status === "active" ? "Keep the auction open" : "Keep the auction",
    affects: a.total_bids, explain: "Every hold is released, and nobody wins what was not closed yet. This can't be undone.", path: `${base}/cancel`, audit, done: ctx.reload,
  }), { danger: true }));
  if (a.status !== "pending") actions.push(h("a", { class: "button", href: `/p/auctions/${a.id}`, target: "_blank", rel: "noopener" }, "Public page"));

  const time = h("div", { class: "clock", role: "timer" });
  const roundName = h("p", { class: "soft" });
  const total = h("span", {}, count(a.total_bids));
  const seq = h("span", {}, count(a.seq));
  const live = h("span", { role: "status" }, a.status === "active" ? "connecting…" : "at rest");
  const floor = h("span", {}, "–");
  const speed = h("span", {}, "–");
  const measured = pace();
  const leaders = h("div");
  const top = topTen(leaders, { all: ctx.query.get("places") === "all", changed: () => {
    ctx.place({ places: top.all ? "all" : "" });
    dirty = true;
    look.now();
  } });
  const drawing = bidChart(spell, { round: Number(ctx.query.get("round")) || 0, changed: (round) => ctx.place({ round: round || "" }) });
  const rounds = h("div");

  const current = () => a.rounds.find((r) => r.status === "active");
  const drawRounds = () => fill(rounds, table([
    { name: "Round", lead: true, cell: (r) => h("span", { class: "nowrap" }, `Round ${r.round}`) },
    { name: "Status", cell: (r) => badge(r.cancelled ? "cancelled" : r.status) },
    { name: "Places", num: true, cell: (r) => count(r.winners) },
    { name: "Ends", cell: (r) => when(r.cancelled && r.ends_at ? a.ended_at : r.ends_at) },
    { name: "Extended", num: true, cell: (r) => (r.extensions > 0 ? `▲ ${r.extensions}` : "–") },
  ], a.rounds, { caption: "Rounds" }));

  const history = list(ctx, {
    caption: "Bids", none: "No bid matches.", limit: 10, path: (f) => `/v1/admin/auctions/${a.id}/bids${query(f)}`,
    empty: { says: "There are no bids.", curl: a.status === "active" && [`/v1/auctions/${a.id}/bids`, { account: "alice", amount: a.min_bid }] },
    filters: [{ name: "account", label: "Account", placeholder: "alice" }],
    columns: [
      { name: "Account", lead: true, cell: (b) => account(b.account) },
      { name: "Amount", num: true, cell: (b) => spell(b.amount) }, { name: "Before", num: true, cell: (b) => (b.previous_amount ? spell(b.previous_amount) : "–") },
      { name: "Round", num: true, cell: (b) => b.round }, { name: "Event", num: true, cell: (b) => b.seq }, { name: "When", cell: (b) => when(b.at) },
    ],
  });
  fill(ctx.root, head(a.title, { crumb: ["Auctions", "/console/auctions"], badges: [badge(a.status)], actions }),
    h("section", { class: "card stack", "aria-label": "The auction now" },
      h("div", { class: "now" },
        h("div", {}, time, roundName),
        [["would win now", floor], ["bids", total], ["bids a second", speed]].map(([what, value]) => h("div", {}, h("div", { class: "figure" }, value), h("p", { class: "soft" }, what)))),
      drawing.element),
    h("div", { class: "cols wide-left" },
      card("Leaderboard", leaders),
      card("Facts", facts([
        ["Late bids", anti(a.anti_snipe)],
        ["Event", h("span", {}, seq, " ", h("span", { class: "soft" }, live))],
        ["Least bid", `${spell(a.min_bid)}, raises by ${spell(a.min_increment)}`],
        ["Cooldown", duration(a.cooldown)], ["Same amounts", a.unique_amounts ? "refused" : "allowed"],
        ["Seller", account(a.seller)], ["Started", a.started_at && when(a.started_at)], ["Ended", a.ended_at && when(a.ended_at)], ["Id", copy(a.id)],
      ]))),
    card("Rounds", rounds),
    card("Winners", list(ctx, {
      caption: "Winners", none: noWinners(a), limit: 20, prefix: "winners.", path: () => `${base}/winners`,
      columns: [
        { name: "Account", lead: true, cell: (w) => account(w.account) },
        { name: "Round", num: true, cell: (w) => w.round }, { name: "Rank", num: true, cell: (w) => w.rank }, { name: "Paid", num: true, cell: (w) => spell(w.amount) },
      ],
    }).element),
    card("Bids, newest first", history.element),
    trail(ctx, a.id));
  drawRounds();

  // What is shown follows the events; the table and the chart are redrawn at most once a second.
  const points = chart.bids;
  const marks = chart.marks;
  const outbid = new Set(); // accounts that lost a winning place in this round, while the page was open
  let dirty = true; // what is shown is older than the events
  const look = every(ctx, refresh, async () => {
    if (!dirty) return;
    dirty = false;
    try {
      drawing.draw({ bids: points, marks, rounds: a.rounds, total: a.total_bids });
      const l = await get(`${base}/leaderboard?limit=${top.all ? board : 11}`, ctx.signal);
      top.draw(l.items, "Nobody leads.", (items) => leaderTable(items, spell, (i) => account(i.account), (i) => outbid.has(i.account)));
      text(floor, current() ? spell((await get(`${base}/min-winning-bid`, ctx.signal)).amount) : "–");
    } catch (e) {
      dirty = true;
      text(floor, "–");
      throw e;
    }
  }, { shows: leaders });

  // Counters are painted a few times a second: nobody reads two hundred.
  let telling = 0;
  const tell = () => {
    telling ||= setTimeout(() => {
      telling = 0;
      text(seq, count(a.seq));
      text(total, count(a.total_bids));
    }, 150);
  };
  let shown = a.seq; // the event that the list of bids is as new as
  let skew = 0; // how far the server's clock is ahead of this one, in ms
  const tick = () => {
    const r = current();
    if (!r) {
      text(time, { pending: "Not started", completed: "Over", cancelled: "Cancelled" }[a.status] ?? "Between rounds");
      text(roundName, `${a.rounds.length} round${a.rounds.length === 1 ? "" : "s"}`);
      return;
    }
    const left = Date.parse(r.ends_at) - Date.now() - skew;
    text(time, left > 0 ? clock(left) : "Closing…");
    time.classList.toggle("soon", left < 10_000);
    text(roundName, `left in round ${r.round} of ${a.rounds.length}${r.extensions > 0 ? `, extended ${r.extensions}×` : ""}`);
  };
  const timer = setInterval(tick, 100);
  const paces = setInterval(() => text(speed, current() ? perSecond(measured(a.total_bids)) : "–"), 1000);
  ctx.signal.addEventListener("abort", () => [timer, paces].forEach(clearInterval));
  tick();
  watch(ctx, base, a, (d) => [d.status, d.rounds.map((r) => r.status)]);
  if (a.status !== "active") return;

  every(ctx, 3000, async () => {
    if (a.seq === shown) return;
    shown = a.seq;
    await history.reload();
  });
  follow(`auction:${a.id}`, {
    since: a.seq, signal: ctx.signal, state: (s) => text(live, s === "live" ? "live" : "reconnecting…"),
    on: (e) => {
      if (e.type === "countdown") {
        skew = Date.parse(e.data.ends_at) - e.data.remaining_ms - Date.now();
        return;
      }
      a.seq = e.seq;
      tell();
      switch (e.type) {
        case "bid.placed":
          a.total_bids++;
          for (const o of e.data.outbid ?? []) outbid.add(o.account); // Old servers don't say.
          points.push({ seq: e.seq, amount: e.data.amount, round: e.data.round, at: e.at });
          // The chart keeps a sample of what was: every other bid of the older half goes.
          if (points.length > sample) points.splice(0, sample / 2, ...points.slice(0, sample / 2).filter((_, i) => i % 2 === 0));
          dirty = true;
          break;
        case "round.extended": {
          const r = a.rounds[e.data.round - 1];
          r.ends_at = e.data.ends_at;
          r.extensions = e.data.extensions;
          marks.push({ seq: e.seq, type: e.type, at: e.at, data: e.data });
          drawRounds();
          dirty = true;
          break;
        }
        case "round.started":
        case "round.completed":
        case "auction.completed":
        case "auction.cancelled":
          setTimeout(() => { if (!ctx.signal.aborted) ctx.reload(); }, 300);
      }
    },
  });
}

function anti(s) {
  if (s.max_extensions === 0 || s.window === "0s" || s.extension === "0s") return "The end is not moved by late bids.";
  return `A bid in the last ${duration(s.window)} moves the end by ${duration(s.extension)}, up to ${s.max_extensions} times.`;
}
