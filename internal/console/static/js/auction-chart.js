// An auction's bids over time: each bid, the highest so far, where rounds begin, where a late bid moved an end, and how many bids there
// were a second. One round can be looked at by itself, and so can any part that is marked with the mouse.
import { h, text } from "./dom.js";
import { count } from "./format.js";
import { pick, plot } from "./plot.js";

const at = (x) => Date.parse(x.at) / 1000;
const most = 60; // bars of the chart of bids a second
const widths = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 43_200, 86_400, 604_800];

// columns makes the chart's columns of bids: times, amounts, the highest of the round so far. Between rounds there is a gap.
function columns(bids) {
  const out = [[], [], []];
  let round = 0;
  let best = 0;
  for (const b of bids) {
    if (b.round !== round) {
      if (round !== 0) [at(b), null, null].forEach((v, i) => out[i].push(v));
      round = b.round;
      best = 0;
    }
    best = Math.max(best, b.amount);
    [at(b), b.amount, best].forEach((v, i) => out[i].push(v));
  }
  return out;
}

// rates counts bids a second, in bars of equal width. Of a sample, the numbers of the events tell how many there were between two.
export function rates(bids, total, from, to) {
  const width = widths.find((w) => (to - from) / w <= most) ?? (to - from) / most;
  const first = Math.floor(from / width) * width;
  const bars = new Array(Math.max(1, Math.ceil((to - first) / width + 1e-9))).fill(0);
  const all = bids.length >= total;
  bids.forEach((b, i) => {
    const n = all || i === 0 ? 1 : b.seq - bids[i - 1].seq;
    const end = at(b);
    const begin = n === 1 ? end : at(bids[i - 1]);
    const low = Math.floor((begin - first) / width);
    const high = Math.floor((end - first) / width);
    for (let bar = Math.max(0, low); bar <= Math.min(high, bars.length - 1); bar++) {
      const part = end > begin ? Math.max(0, Math.min(end, first + (bar + 1) * width) - Math.max(begin, first + bar * width)) / (end - begin) : bar === high ? 1 : 0;
      bars[bar] += n * part;
    }
  });
  return { times: bars.map((_, i) => first + (i + 0.5) * width), values: bars.map((n) => n / width), from: first, to: first + bars.length * width };
}

// pace tells how many bids there were a second lately: call it with the number of all bids whenever that is known.
export function pace() {
  const seen = [];
  return (total, now = Date.now()) => {
    seen.push([now, total]);
    while (seen.length > 2 && seen[1][0] <= now - 10_000) seen.shift();
    const [[began, before]] = seen;
    return now - began < 1000 ? null : (1000 * (total - before)) / (now - began);
  };
}

const few = (n) => (Number.isInteger(n) || n >= 10 ? count(Math.round(n)) : n.toFixed(1));
export const perSecond = (n) => (n === null ? "–" : few(n));

// bidChart returns { element, draw({ bids, marks, rounds, total }) }. It begins with a round, or with all of them; changed gets another one
// that is chosen.
export function bidChart(spell, { round = 0, changed = () => {} } = {}) {
  const bare = (v) => spell(Math.round(v)).replace(/ [A-Z0-9]+$/, "");
  const caption = h("span", {});
  const choices = h("div", {});
  let last = null;
  let window = null; // what is zoomed to; null: everything
  let chosen = round; // what is zoomed to; 0: all
  let buttons = null;
  const chart = plot({
    label: "Bids over time", spell: bare, height: 230, zoomed: byHand, margin: 68,
    series: [{ name: "Bid", colour: "--soft", style: "dots", spell }, { name: "Highest of the round", colour: "--accent", style: "step", spell }],
    marks: ({ g, box, colour, font, x }) => {
      g.font = font;
      g.textAlign = "left";
      g.textBaseline = "alphabetic";
      let free = box.left; // up to where words have been written
      for (const m of last.marks) {
        const px = x(at(m));
        if (px < box.left - 1 || px > box.left + box.width + 1) continue;
        if (m.type === "round.started") {
          g.strokeStyle = g.fillStyle = colour("--soft");
          g.setLineDash([2, 3]);
          g.beginPath();
          g.moveTo(px, box.top);
          g.lineTo(px, box.top + box.height);
          g.stroke();
          const words = `Round ${m.data?.round ?? ""}`;
          if (px >= free && px + 4 + g.measureText(words).width < box.left + box.width) {
            g.fillText(words, px + 4, box.top + 4);
            free = px + 12 + g.measureText(words).width;
          }
        } else if (m.type === "round.extended") {
          g.fillStyle = colour("--flash");
          g.beginPath();
          g.moveTo(px - 4, box.top + box.height);
          g.lineTo(px + 4, box.top + box.height);
          g.lineTo(px, box.top + box.height - 8);
          g.fill();
        }
      }
    },
  });
  const speed = plot({ label: "Bids a second", spell: few, height: 92, from: 0, margin: 68, zoomed: byHand, series: [{ name: "Bids a second", colour: "--soft", style: "bars" }] });

  function byHand(range) {
    window = range;
    chosen = range ? -1 : 0;
    buttons?.press(chosen);
    changed(0);
    show();
  }

  // span is the time that is shown: all, a round, or what was marked.
  function span() {
    const { bids, marks, rounds } = last;
    const starts = marks.filter((m) => m.type === "round.started");
    const from = Math.min(at(bids[0]), ...starts.map(at));
    const to = Math.max(at(bids.at(-1)), ...marks.map(at), from + 10);
    if (window) return window;
    if (chosen <= 0) return [from, to];
    const own = bids.filter((b) => b.round === chosen).map(at);
    const start = starts.find((m) => m.data?.round === chosen);
    const r = rounds[chosen - 1];
    const ends = r?.status === "completed" && !r.cancelled ? Date.parse(r.ends_at) / 1000 : -Infinity;
    const begin = Math.min(start ? at(start) : Infinity, own[0] ?? Infinity);
    return Number.isFinite(begin) ? [begin, Math.max(begin + 1, own.at(-1) ?? 0, ends)] : [from, to];
  }

  function show() {
    const { bids, total } = last;
    const [from, to] = span();
    let highest = 0;
    for (const b of bids) highest = Math.max(highest, b.amount);
    chart.set(columns(bids), { describe: `Up to ${spell(highest)}, ${count(total)} bids` });
    const r = rates(bids, total, from, to);
    chart.zoom([r.from, r.to]);
    speed.set([r.times, r.values], { describe: `At most ${few(Math.max(...r.values))}` });
    speed.zoom([r.from, r.to]);
  }

  return {
    element: h("div", { class: "stack-small" }, choices, chart.element, speed.element,
      h("p", { class: "small soft" }, caption, h("span", { class: "mouse" }, "Mark a part with the mouse to see more of it; a double click shows all."))),
    draw(what) {
      last = what;
      const begun = what.marks.filter((m) => m.type === "round.started").map((m) => m.data?.round).filter(Boolean);
      const key = begun.join();
      if (begun.length > 1 && key !== choices.dataset.rounds) {
        choices.dataset.rounds = key;
        buttons = pick("Part of the auction that is shown", [["All", 0], ...begun.slice(-12).map((n) => [`Round ${n}`, n])], (n) => {
          chosen = n;
          window = null;
          changed(n);
          show();
        });
        buttons.press(chosen);
        choices.replaceChildren(buttons.element);
      }
      speed.element.hidden = what.bids.length === 0;
      if (what.bids.length === 0) {
        chart.set([[]], { empty: "No bids." });
        text(caption, "");
        return;
      }
      const snipes = what.marks.filter((m) => m.type === "round.extended").length;
      text(caption, [
        what.bids.length < what.total ? `A sample of ${count(what.bids.length)} of ${count(what.total)} bids.` : "",
        snipes > 0 ? `${count(snipes)} late bid${snipes === 1 ? "" : "s"} moved a round’s end (▲).` : "",
      ].filter(Boolean).map((s) => `${s} `).join(""));
      show();
    },
  };
}
