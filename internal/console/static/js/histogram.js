// How often a multi-draw has drawn what: bars of a range, or a line for each prize, beside what is to be expected.
import { h, fill, text } from "./dom.js";
import { table } from "./ui.js";
import { count, share } from "./format.js";
import { plot } from "./plot.js";
import { bins } from "./verify/multidraw.js";

const most = 50; // prizes that are shown
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 4 });
const spell = (v) => (Math.abs(v) < 1e6 ? count(v) : compact.format(v));
const about = (v) => (v >= 100 ? count(Math.round(v)) : String(Number(v.toFixed(1))));

// histogram returns { element, draw(counts, of) }; counts are as the verification counts them, of says which draws they are of.
export function histogram(m) {
  const note = h("p", { class: "small soft" });
  const place = h("div", {});
  const element = h("div", { class: "stack-small" }, place, note);
  if (m.prizes?.length > 0) {
    const weights = m.prizes.reduce((sum, p) => sum + p.weight, 0);
    return { element, draw(counts, of) {
      const total = counts.reduce((a, b) => a + b, 0);
      const greatest = Math.max(1, ...counts, ...m.prizes.map((p) => (total * p.weight) / weights));
      fill(place, table([
        { name: "Prize", lead: true, cell: (r) => r.prize.name || r.prize.id },
        { name: "Share", cell: (r) => share(r.drawn, greatest) },
        { name: "Drawn", num: true, cell: (r) => count(r.drawn) },
        { name: "Expected", num: true, cell: (r) => about((total * r.prize.weight) / weights) },
      ], m.prizes.slice(0, most).map((prize, i) => ({ prize, drawn: counts[i] })), { caption: "How often each prize was drawn" }));
      text(note, [of, m.prizes.length > most ? `The first ${most} of ${count(m.prizes.length)} prizes.` : ""].filter(Boolean).join(" "));
    } };
  }
  const least = m.range.min;
  const n = BigInt(m.range.max) - BigInt(least) + 1n;
  const { each, number } = bins(n);
  const name = (i) => (Number.isInteger(i) && i >= 0 && i < number ? spell(least + i * Number(each)) : "");
  const chart = plot({
    label: `How often each ${each === 1n ? "number" : "part of the range"} was drawn`, spell: about, x: name, height: 200, from: 0, whole: true,
    series: [{ name: "drawn", colour: "--accent", style: "bars" }, { name: "expected", colour: "--flash", style: "line" }],
  });
  place.append(chart.element);
  return { element, draw(counts, of) {
    const total = counts.reduce((a, b) => a + b, 0);
    const expected = counts.map((_, i) => (total * Number(i === number - 1 ? n - BigInt(i) * each : each)) / Number(n));
    chart.set([counts.map((_, i) => i), counts, expected], { describe: `From ${count(Math.min(...counts))} to ${count(Math.max(...counts))} times` });
    chart.zoom([-0.7, number - 0.3]);
    text(note, [of, each === 1n ? "" : `A bar is ${spell(Number(each))} numbers wide, and named by its first.`].filter(Boolean).join(" "));
  } };
}

// countsOf counts results as the server lists them: numbers, or the prizes' ids.
export function countsOf(m, results) {
  if (m.prizes?.length > 0) {
    const places = new Map(m.prizes.map((p, i) => [p.id, i]));
    const counts = new Array(m.prizes.length).fill(0);
    for (const r of results) counts[places.get(r?.id ?? r)]++;
    return counts;
  }
  const { each, number } = bins(BigInt(m.range.max) - BigInt(m.range.min) + 1n);
  const counts = new Array(number).fill(0);
  for (const r of results) counts[Math.min(number - 1, Math.floor((r - m.range.min) / Number(each)))]++;
  return counts;
}
