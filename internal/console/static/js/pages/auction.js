// An auction as it goes: the clock, who leads, and every bid.
import { h, fill, text } from "../dom.js";
import { get } from "../api.js";
import { action, card, copy, every, facts, head, list, table } from "../ui.js";
import { badge, clock, count, duration, money, when } from "../format.js";
import { bidChart } from "../chart.js";
import { leaderTable } from "../leaders.js";
import { follow } from "../live.js";
import { trail } from "./trail.js";

const account = (id) => h("a", { href: `/console/accounts/${encodeURIComponent(id)}` }, id);
const board = 50; // places of the leaderboard that are shown
const refresh = 1000; // ms between two looks at it, however many bids come
const sample = 600; // bids that the chart shows

export default async function auction(ctx) {
  const base = `/v1/auctions/${ctx.params.id}`;
  const [a, chart] = await Promise.all([get(base, ctx.signal), get(`/v1/admin/auctions/${ctx.params.id}/chart`, ctx.signal)]);
  ctx.title(a.title);
  const spell = (n) => money(n, a.currency);
  const audit = { object: a.id };
  const actions = [];
  if (a.status === "pending") actions.push(action("Start", { title: `Start ${a.title}`, explain: "The first round opens at once.", path: `${base}/start`, audit, done: ctx.reload }));
  if (a.status === "pending" || a.status === "active") actions.push(action("Cancel", { title: `Cancel ${a.title}`, explain: "Every hold is released. This can't be taken back.", danger: true, path: `${base}/cancel`, audit, done: ctx.reload }));
  if (a.status !== "pending") actions.push(h("a", { class: "button", href: `/p/auctions/${a.id}`, target: "_blank", rel: "noopener" }, "Public page"));

  const time = h("div", { class: "clock", role: "timer" });
  const roundName = h("p", { class: "soft" });
  const total = h("span", {}, count(a.total_bids));
  const seq = h("span", {}, count(a.seq));
  const live = h("span", { role: "status" }, a.status === "active" ? "connecting…" : "at rest");
  const floor = h("span", {}, "–");
  const leaders = h("div");
  const drawing = bidChart(spell);
  const rounds = h("div");

  const current = () => a.rounds.find((r) => r.status === "active");
  const drawRounds = () => fill(rounds, table([
    { name: "Round", lead: true, cell: (r) => h("span", { class: "nowrap" }, `Round ${r.round}`) },
    { name: "Status", cell: (r) => badge(r.status) },
    { name: "Winners", num: true, cell: (r) => count(r.winners) },
    { name: "Ends", cell: (r) => when(r.ends_at) },
    { name: "Extended", num: true, cell: (r) => (r.extensions > 0 ? `▲ ${r.extensions}` : "–") },
  ], a.rounds, { caption: "Rounds" }));

  const history = list(ctx, {
    caption: "Bids", none: "No bids yet.", limit: 10, path: () => `/v1/admin/auctions/${a.id}/bids`,
    columns: [
      { name: "Account", lead: true, cell: (b) => account(b.account) },
      { name: "Amount", num: true, cell: (b) => spell(b.amount) }, { name: "Before", num: true, cell: (b) => (b.previous_amount ? spell(b.previous_amount) : "–") },
      { name: "Round", num: true, cell: (b) => b.round }, { name: "Event", num: true, cell: (b) => b.seq }, { name: "When", cell: (b) => when(b.at) },
    ],
  });
  fill(ctx.root, head(a.title, { crumb: ["Auctions", "/console/auctions"], badges: [badge(a.status)], actions }),
    h("div", { class: "cols wide-left" },
      h("div", { class: "stack" },
        card("Leaderboard", leaders),
        card("Bids over time", drawing.element)),
      h("div", { class: "stack" },
        card(null, time, roundName, h("p", { class: "soft small" }, anti(a.anti_snipe))),
        card("Facts", facts([
          ["Bids", total], ["Event", h("span", {}, seq, " ", h("span", { class: "soft" }, live))],
          ["Would win now", floor],
          ["Least bid", `${spell(a.min_bid)}, raises by ${spell(a.min_increment)}`],
          ["Cooldown", duration(a.cooldown)], ["Same amounts", a.unique_amounts ? "refused" : "allowed"],
          ["Seller", account(a.seller)], ["Started", a.started_at && when(a.started_at)], ["Ended", a.ended_at && when(a.ended_at)], ["Id", copy(a.id)],
        ])),
        card("Rounds", rounds))),
    card("Winners", list(ctx, {
      caption: "Winners", none: "No round has ended.", limit: 20, path: () => `${base}/winners`,
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
  let dirty = false;
  let busy = false;
  async function redraw() {
    if (busy) return void (dirty = true);
    busy = true;
    dirty = false;
    try {
      drawing.draw({ bids: points, marks, total: a.total_bids });
      const l = await get(`${base}/leaderboard?limit=${board}`, ctx.signal);
      fill(leaders, l.items.length === 0 ? h("p", { class: "empty" }, "Nobody leads.") : leaderTable(l.items, spell, (i) => account(i.account)));
      if (current()) text(floor, spell((await get(`${base}/min-winning-bid`, ctx.signal)).amount));
      else text(floor, "–");
    } catch (e) {
      if (e.name === "AbortError") return;
    }
    setTimeout(() => {
      busy = false;
      if (dirty && !ctx.signal.aborted) redraw();
    }, refresh);
  }
  redraw();

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
  ctx.signal.addEventListener("abort", () => clearInterval(timer));
  tick();
  if (a.status !== "active") return;

  every(ctx, 3000, async () => {
    if (a.seq === shown || history.element.contains(document.activeElement)) return;
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
          points.push({ seq: e.seq, amount: e.data.amount, round: e.data.round, at: e.at });
          // The chart keeps a sample of what was: every other bid of the older half goes.
          if (points.length > sample) points.splice(0, sample / 2, ...points.slice(0, sample / 2).filter((_, i) => i % 2 === 0));
          redraw();
          break;
        case "round.extended": {
          const r = a.rounds[e.data.round - 1];
          r.ends_at = e.data.ends_at;
          r.extensions = e.data.extensions;
          marks.push({ seq: e.seq, type: e.type, at: e.at, data: e.data });
          drawRounds();
          redraw();
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
