// Charts over time, drawn by uPlot in the page's own colours, with the values under the pointer written below.
import uPlot from "./vendor/uPlot.js";
import { h, text } from "./dom.js";
import { spellTime } from "./format.js";

const root = document.documentElement;
const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();
const font = () => `12px ${colour("--sans")}`;

const minute = { hour: "2-digit", minute: "2-digit" };
const second = { ...minute, second: "2-digit" };
const day = { day: "numeric", month: "short" };
const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400, 172_800, 604_800, 2_592_000, 31_536_000]; // of an axis of time, in seconds
const wholes = Array.from({ length: 19 }, (_, k) => [1, 2, 5].map((n) => n * 10 ** k)).flat(); // steps of an axis that has no fractions
const clock = (step) => (step < 60 ? second : step < 86_400 ? minute : day);

// drawn are the charts on the page, to be drawn again in other colours.
const drawn = new Set();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const chart of drawn) chart.recolour();
});

// fitted is the range of an axis that shows what there is and little else; from is a value that must be on it.
const fitted = (from) => (u, low, high) => {
  if (low === null) return [0, 1];
  if (high === from) return [from, from + 1]; // A line at nothing has no steps of its own.
  if (from !== undefined) low = Math.min(low, from);
  const room = (high - low || Math.abs(high) || 1) * 0.06;
  return [low === from ? low : low - room, high + room];
};

// alone lists the places of values that have a gap on both sides.
function alone(values) {
  const gone = (v) => v === null || v === undefined;
  return values.flatMap((v, i) => (!gone(v) && gone(values[i - 1]) && gone(values[i + 1]) ? [i] : []));
}

// plot makes a chart. Its options:
//   label   what it shows, for those who don't see it
//   series  [{ name, colour: "--accent", style: "line" | "step" | "dots" | "bars", spell? }]
//   spell   how a value is written, x how a place is, where it is no time in seconds
//   height  in pixels; from: a value that is always on the axis; margin: the least width of the left axis; whole: values have no fractions
//   marks   (u, context) draws over it; zoomed([from, to] | null) hears of a selection by hand
export function plot({ label, series, spell, x, height = 200, from, marks, zoomed, margin = 48, whole }) {
  const place = h("div", { class: "plot", role: "img", "aria-label": label });
  const none = h("p", { class: "plot-none soft", hidden: true });
  const values = series.map((s) => h("b", {}));
  const at = h("span", { class: "plot-at" });
  const legend = h("p", { class: "plot-legend" }, series.map((s, i) => {
    const key = h("i", {});
    key.style.setProperty("--key", `var(${s.colour})`);
    return h("span", {}, key, s.name, " ", values[i]);
  }), at);
  const element = h("div", { class: "plot-box" }, place, none, legend);
  let columns = null;
  let shown = null; // the part that is zoomed to
  let u = null;
  let described = "";
  // named says what is shown, and of which time, for those who don't see it.
  const named = () => {
    const { min, max } = u?.scales.x ?? {};
    const spelt = x ?? ((v) => spellTime(max - min < 86_400 ? second : { ...day, ...minute }, v * 1000));
    const range = Number.isFinite(min) && Number.isFinite(max) ? `, ${spelt(min)} to ${spelt(max)}` : "";
    place.setAttribute("aria-label", `${label}${range}${described && `. ${described}`}`);
  };
  const wide = () => Math.max(200, Math.floor(place.clientWidth) || 640);

  const axis = (more) => ({
    stroke: () => colour("--soft"), font: font(), ticks: { show: false }, grid: { stroke: () => colour("--line"), width: 1 }, ...more,
  });
  // cut says that words beneath a place would not fit on the chart.
  const cut = (self, v) => self.bbox.width > 0 && self.valToPos(v, "x") > self.bbox.width / devicePixelRatio - 18;
  const line = (s) => {
    const stroke = () => colour(s.colour);
    const wash = () => `${colour(s.colour)}${s.style === "bars" ? "" : "1f"}`;
    return {
      label: s.name, stroke, width: 1.6, spanGaps: false,
      // A value without neighbours is a dot: no line would show it.
      points: { show: true, size: 4, width: 0, fill: stroke, stroke, filter: (_, i) => alone(columns[i]) },
      ...(s.style === "dots" && { paths: () => null, points: { show: true, size: 4, width: 0, fill: stroke, stroke } }),
      ...(s.style === "step" && { paths: uPlot.paths.stepped({ align: 1 }), points: { show: false } }),
      ...(s.style === "bars" && { paths: uPlot.paths.bars({ size: [0.8, 60] }), fill: wash, width: 0, points: { show: false } }),
      ...(s.fill && { fill: wash }),
    };
  };
  const options = (width) => ({
    width, height, legend: { show: false }, padding: [8, 8, 0, 0],
    cursor: { drag: { x: Boolean(zoomed), y: false, setScale: false }, y: false, points: { size: 7 }, bind: { dblclick: () => () => zoomed?.(null) } },
    scales: { x: { time: !x, range: (_, low, high) => (low === null ? [0, 1] : low === high ? [low - 1, high + 1] : [low, high]) }, y: { range: fitted(from) } },
    axes: [
      axis({ space: 76, size: 28, gap: 6, grid: { show: false }, values: (self, splits, i, space, step) => splits.map((v) => (cut(self, v) ? "" : x ? x(v) : spellTime(clock(step), v * 1000))), incrs: x ? wholes : steps }),
      axis({
        space: height < 120 ? 20 : 36, gap: 8, ...(whole && { incrs: wholes }), values: (_, splits) => splits.map((v) => spell(v)),
        size: (self, all) => {
          if (!all) return margin;
          self.ctx.save();
          self.ctx.font = font();
          const most = Math.max(...all.map((t) => self.ctx.measureText(t).width));
          self.ctx.restore();
          return Math.max(margin, Math.ceil(most) + 14);
        },
      }),
    ],
    series: [{}, ...series.map(line)],
    hooks: {
      setCursor: [tell],
      setSelect: [(self) => {
        const { left, width: w } = self.select;
        if (w < 8) return;
        self.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        zoomed?.([self.posToVal(left, "x"), self.posToVal(left + w, "x")]);
      }],
      setScale: [(self, key) => { if (key === "x" && u) named(); }],
      draw: [(self) => {
        if (!marks) return;
        const g = self.ctx;
        g.save();
        g.scale(devicePixelRatio, devicePixelRatio);
        const box = { left: self.bbox.left / devicePixelRatio, top: self.bbox.top / devicePixelRatio, width: self.bbox.width / devicePixelRatio, height: self.bbox.height / devicePixelRatio };
        g.beginPath();
        g.rect(box.left, box.top - 8, box.width, box.height + 8);
        g.clip();
        marks({ g, box, colour, font: font(), x: (v) => self.valToPos(v, "x") + box.left });
        g.restore();
      }],
    },
  });

  // tell writes the values under the pointer; without one, the latest of a chart over time, and none of another chart.
  function tell() {
    if (!u || !columns) return;
    const i = u.cursor.idx;
    const away = i === null || i === undefined;
    series.forEach((s, n) => {
      if (away && x) {
        text(values[n], "");
        return;
      }
      const v = away ? columns[n + 1].findLast((y) => y !== null && y !== undefined) : columns[n + 1][i];
      text(values[n], v === null || v === undefined ? "–" : (s.spell ?? spell)(v));
    });
    text(at, away ? "" : x ? x(columns[0][i]) : spellTime({ ...day, ...second }, columns[0][i] * 1000));
  }

  function draw() {
    const empty = !columns || columns[0].length === 0;
    none.hidden = !empty;
    place.hidden = legend.hidden = empty;
    if (empty || !place.isConnected) return;
    u ??= new uPlot(options(wide()), columns, place);
    u.setData(columns, false);
    const xs = columns[0];
    u.setScale("x", shown ? { min: shown[0], max: shown[1] } : { min: xs[0], max: xs.at(-1) });
    tell();
  }
  const chart = {
    element,
    // set shows columns of numbers: places in order, then the values of each series; null is a gap.
    set(next, { empty = "Nothing yet.", describe } = {}) {
      columns = next;
      none.textContent = empty;
      described = describe ?? "";
      named();
      draw();
    },
    zoom(next) {
      shown = next;
      draw();
    },
    recolour() {
      if (!place.isConnected) drawn.delete(chart);
      else u?.redraw(true, true);
    },
  };
  drawn.add(chart);
  new ResizeObserver(() => {
    if (u && place.clientWidth > 0 && u.width !== wide()) u.setSize({ width: wide(), height });
    else if (!u) draw(); // It was not on the page before.
  }).observe(element);
  return chart;
}

// pick is a row of buttons of which one is pressed.
export function pick(label, choices, chosen) {
  const buttons = choices.map(([name, value]) => h("button", { type: "button", class: "quiet", "aria-pressed": "false", onclick: () => choose(value) }, name));
  const choose = (value) => {
    press(value);
    chosen(value);
  };
  const press = (value) => buttons.forEach((b, i) => b.setAttribute("aria-pressed", String(choices[i][1] === value)));
  press(choices[0][1]);
  return { element: h("div", { class: "pick", role: "group", "aria-label": label }, buttons), press };
}

