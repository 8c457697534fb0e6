// What this server measured over the last hour, as charts. The samples are the server's; a page asks for new ones as they come.
import { h, fill } from "./dom.js";
import { get } from "./api.js";
import { every } from "./ui.js";
import { plot } from "./plot.js";
import { clockTime, count, span, when } from "./format.js";

const rate = (n) => (n >= 100 ? count(Math.round(n)) : String(Number(n.toPrecision(2))));
const colours = ["--accent", "--flash", "--bad", "--blue", "--violet", "--soft"];

// Which series each chart shows. One with each shows a line for each series whose name begins so, the five greatest and the rest.
const charts = {
  throughput: { title: "Throughput, a second", series: [["requests", "requests"], ["commands", "commands"], ["failures", "failed requests"]], spell: rate, from: 0 },
  latency: { title: "Latency", series: [["latency p50", "requests p50"], ["latency p99", "requests p99"], ["commit p99", "commits p99"]], spell: (v) => (v === 0 ? "0" : span(v)), from: 0 },
  refusals: { title: "Refusals a minute, by reason", each: "refused ", times: 60, spell: rate, from: 0, none: "Nothing was refused" },
  locks: { title: "Time that requests for locks took", series: [["lock wait p50", "p50"], ["lock wait p99", "p99"]], spell: (v) => (v === 0 ? "0" : span(v)), from: 0, none: "Nobody asked for a lock" },
  waiting: { title: "Requests that wait for a lock", series: [["locks waiting", "waiting, on all servers"]], spell: rate, from: 0, whole: true },
  published: { title: "Published a minute, by target", each: "attempts published ", times: 60, spell: rate, from: 0, none: "Nothing was published" },
  unpublished: { title: "Failed attempts a minute, by target", each: "attempts failed ", times: 60, spell: rate, from: 0, none: "No attempt failed" },
};

const few = 5; // lines of a chart with a line for each reason or target

// lines are the series of a chart, as { name, values }.
function lines(chart, series, called) {
  const times = chart.times ?? 1;
  const scaled = (values) => values.map((v) => (v === null ? null : v * times));
  if (chart.series) return chart.series.map(([name, title]) => ({ name: title, values: scaled(series.get(name) ?? []) }));
  const sum = (values) => values.reduce((a, b) => a + (b ?? 0), 0);
  const found = [...series].filter(([name]) => name.startsWith(chart.each)).map(([name, values]) => ({ name: name.slice(chart.each.length), values, sum: sum(values) }))
    .filter((s) => s.sum > 0).sort((a, b) => b.sum - a.sum);
  const out = found.slice(0, few).map((s) => ({ name: called(s.name), values: scaled(s.values.map((v) => v ?? 0)) }));
  const rest = found.slice(few);
  if (rest.length > 0) out.push({ name: `${rest.length} more`, values: scaled(rest[0].values.map((_, i) => rest.reduce((a, s) => a + (s.values[i] ?? 0), 0))) });
  return out;
}

// hour is a card of charts. called gives the names of what the server names by an id.
export function hour(ctx, names, called = (name) => name.replaceAll("_", " ")) {
  const note = h("p", { class: "small soft" });
  const shown = names.map((name) => {
    const place = h("div", {});
    return { chart: charts[name], place, made: "", plot: null, element: h("div", { class: "hour" }, h("h3", {}, charts[name].title), place) };
  });
  const samples = { began: "", last: 0, at: [], series: new Map() };

  function take(m) {
    if (m.began_at !== samples.began) Object.assign(samples, { began: m.began_at, at: [], series: new Map() });
    const before = samples.at.length;
    samples.last = m.last;
    samples.at.push(...m.at.map((t) => Date.parse(t) / 1000));
    const more = Math.max(0, samples.at.length - 3600 / m.every_seconds);
    samples.at.splice(0, more);
    for (const s of m.series) {
      const values = samples.series.get(s.name) ?? new Array(before).fill(null);
      values.push(...s.values);
      values.splice(0, more);
      samples.series.set(s.name, values);
    }
  }

  function draw() {
    for (const s of shown) {
      const found = lines(s.chart, samples.series, called);
      const key = JSON.stringify(found.map((l) => l.name));
      if (key !== s.made) {
        s.made = key;
        s.plot = plot({
          label: `${s.chart.title}, over the last hour`, spell: s.chart.spell, from: s.chart.from, whole: s.chart.whole, height: 160,
          series: (found.length > 0 ? found : [{ name: "" }]).map((l, i) => ({ name: l.name, colour: colours[i], style: "line" })),
        });
        fill(s.place, s.plot.element);
      }
      const latest = samples.at.at(-1);
      s.plot.zoom([Math.min(samples.at[0], latest - 600), latest]);
      const some = found.some((l) => l.values.some((v) => v !== null));
      s.plot.set(some ? [samples.at, ...found.map((l) => l.values)] : [[]], {
        empty: samples.at.length === 0 ? "The first sample comes ten seconds after the server’s start." : `${s.chart.none ?? "Nothing was measured"} by ${clockTime(latest * 1000)}.`,
        describe: some ? found.map((l) => `${l.name} ${s.chart.spell(l.values.findLast((v) => v !== null) ?? 0)} at last`).join(", ") : "",
      });
    }
  }

  const element = h("section", { class: "card stack" }, h("div", {}, h("h2", {}, "The last hour"), note), h("div", { class: "hours" }, shown.map((s) => s.element)));
  every(ctx, 10_000, async () => {
    let m = await get(`/v1/admin/measurements?since=${samples.last}`, ctx.signal);
    if (samples.began && m.began_at !== samples.began && samples.last > 0) m = await get("/v1/admin/measurements?since=0", ctx.signal); // Another process.
    take(m);
    fill(note, `Measured by the server that answers this page (${m.server}), which began at `, when(m.began_at), ". Every server has its own; a restart begins anew.");
    draw();
  }, { shows: element });
  return element;
}
