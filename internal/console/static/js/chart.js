// Small drawings over time, as SVG: they scale, print, and take their colours from the style sheet.
import { h, fill, svgTitle } from "./dom.js";
import { count } from "./format.js";

// spark is a line of the last values; null is a moment without one.
export function spark(label) {
  const width = 180;
  const height = 30;
  const line = h("path", { class: "line", "vector-effect": "non-scaling-stroke" });
  const element = h("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": label }, line);
  const values = [];
  return {
    element,
    push(v) {
      values.push(v);
      if (values.length > 60) values.shift();
      const top = Math.max(...values.filter((x) => x !== null), 1e-9);
      let d = "";
      let pen = "M";
      values.forEach((x, i) => {
        if (x === null) {
          pen = "M";
          return;
        }
        d += `${pen}${(((60 - values.length + i) / 59) * width).toFixed(1)} ${(height - 2 - (x / top) * (height - 4)).toFixed(1)}`;
        pen = "L";
      });
      line.setAttribute("d", d);
    },
  };
}

// nice rounds up to 1, 2 or 5 times a power of ten.
function nice(x) {
  const power = 10 ** Math.floor(Math.log10(Math.max(x, 1)));
  return [1, 2, 5, 10].map((m) => m * power).find((m) => m >= x);
}

// bidChart draws bids over time: a dot a bid, a line along the highest so far, and marks where rounds begin and where a late bid
// moved a round's end.
export function bidChart(spell) {
  const height = 240;
  const pad = { left: 64, right: 12, top: 14, bottom: 26 };
  const element = h("svg", { class: "chart", role: "img" });
  let width = 0;
  let last = null;
  const caption = h("p", { class: "small soft" });
  const time = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
  // Drawn in the pixels of its place, so that its words have the size of other words.
  const place = () => {
    const room = Math.max(300, Math.round(element.clientWidth) || 720);
    if (room === width) return false;
    width = room;
    element.setAttribute("viewBox", `0 0 ${width} ${height}`);
    return true;
  };
  place();
  const chart = {
    element: h("div", {}, element, caption),
    draw(what) {
      last = what;
      place();
      const { bids, marks, total, until } = what;
      if (bids.length === 0) {
        fill(element, svgTitle("No bids yet"), h("text", { x: width / 2, y: height / 2, "text-anchor": "middle" }, "No bids yet"));
        caption.textContent = "";
        return;
      }
      const starts = marks.filter((m) => m.type === "round.started");
      const snipes = marks.filter((m) => m.type === "round.extended");
      const at = (x) => Date.parse(x.at);
      const from = Math.min(at(bids[0]), ...starts.map(at));
      const to = Math.max(at(bids.at(-1)), ...marks.map(at), until ?? 0, from + 1000);
      let highest = 1;
      for (const b of bids) highest = Math.max(highest, b.amount);
      const top = nice(highest * 1.05);
      const x = (t) => pad.left + ((t - from) / (to - from)) * (width - pad.left - pad.right);
      const y = (v) => height - pad.bottom - (v / top) * (height - pad.top - pad.bottom);
      let dots = "";
      let line = "";
      let best = 0;
      let round = 0;
      for (const b of bids) {
        const px = x(at(b)).toFixed(1);
        dots += `M${px} ${y(b.amount).toFixed(1)}m-1.3-1.3h2.6v2.6h-2.6z`;
        if (b.round !== round) {
          round = b.round;
          best = 0;
        }
        if (b.amount > best) {
          line += line && best > 0 ? `H${px}V${y(b.amount).toFixed(1)}` : `M${px} ${y(b.amount).toFixed(1)}`;
          best = b.amount;
        }
      }
      fill(element,
        svgTitle(`Bids over time, up to ${spell(highest)}`),
        [0, 0.5, 1].map((f) => [h("line", { class: "grid", x1: pad.left, x2: width - pad.right, y1: y(top * f), y2: y(top * f) }), h("text", { x: pad.left - 8, y: y(top * f) + 4, "text-anchor": "end" }, spell(top * f).replace(/ [A-Z0-9]+$/, ""))]),
        h("text", { x: pad.left, y: height - 6 }, time.format(from)),
        h("text", { x: width - pad.right, y: height - 6, "text-anchor": "end" }, time.format(to)),
        starts.map((m) => [h("line", { class: "round", x1: x(at(m)), x2: x(at(m)), y1: pad.top, y2: height - pad.bottom }), h("text", { x: x(at(m)) + 4, y: pad.top + 8 }, `Round ${m.data?.round ?? ""}`)]),
        snipes.map((m) => {
          const px = x(at(m));
          const base = height - pad.bottom;
          return [h("line", { class: "snipe-line", x1: px, x2: px, y1: pad.top + 14, y2: base }), h("polygon", { class: "snipe", points: `${px - 4},${base} ${px + 4},${base} ${px},${base - 7}` })];
        }),
        h("path", { class: "line", d: line }),
        h("path", { class: "dots", d: dots }));
      caption.textContent = [
        bids.length < total ? `A sample of ${count(bids.length)} of ${count(total)} bids.` : `${count(total)} bid${total === 1 ? "" : "s"}.`,
        snipes.length > 0 ? `${count(snipes.length)} late bid${snipes.length === 1 ? "" : "s"} moved a round's end (▲).` : "",
      ].filter(Boolean).join(" ");
    },
  };
  new ResizeObserver(() => {
    if (place() && last) chart.draw(last);
  }).observe(element);
  return chart;
}
