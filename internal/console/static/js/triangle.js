// A campaign's positions on a canvas: a dot each while there is room for dots, else a bar a layer, tinted by how much of it is
// sold. However many positions there are, what is drawn is bounded by the pixels.
import { h } from "./dom.js";
import { count } from "./format.js";

const tallest = 480; // CSS pixels of a drawing by bars.
const smallestDot = 3; // CSS pixels from one dot to the next.

// bits reads the map's bit string.
function bits(base64) {
  if (!base64) return null;
  return Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
}

// triangle returns { element, draw(map, winners), sell(layer, number) }.
export function triangle() {
  const canvas = h("canvas", { class: "triangle", role: "img" });
  let map = null;
  let sold = null;
  let firsts = [];
  let won = new Set();
  const fresh = new Map(); // ordinals sold a moment ago, and when
  let frame = 0;
  const calm = matchMedia("(prefers-reduced-motion: reduce)");

  function paint() {
    frame = 0;
    if (!map || !canvas.isConnected) return;
    const width = canvas.clientWidth;
    if (width === 0) return;
    const ratio = window.devicePixelRatio || 1;
    const rows = map.layers.length;
    const widest = map.layers.reduce((m, l) => Math.max(m, l.positions), 1);
    const step = Math.min(26, width / widest);
    const dots = sold && step >= smallestDot;
    // Layers thinner than a pixel are drawn together, and every bar is whole pixels high: there are no seams.
    const group = dots ? 1 : Math.ceil(rows / tallest);
    const bars = Math.ceil(rows / group);
    const rowHeight = dots ? step * 0.9 : Math.max(1, Math.min(16, Math.floor(tallest / bars)));
    const height = Math.max(24, Math.ceil(bars * rowHeight));
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      canvas.style.height = `${height}px`;
    }
    const style = getComputedStyle(canvas);
    const colour = (name) => style.getPropertyValue(name).trim();
    const [empty, full, winner, flash] = ["--empty", "--accent", "--flash", "--good"].map(colour);
    const g = canvas.getContext("2d");
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.clearRect(0, 0, width, height);
    const now = performance.now();
    if (dots) {
      const radius = Math.max(1, step * 0.38);
      // One path a colour: twenty thousand dots are four fills.
      const paths = new Map([[empty, new Path2D()], [full, new Path2D()], [flash, new Path2D()], [winner, new Path2D()]]);
      map.layers.forEach((layer, row) => {
        const y = row * rowHeight + rowHeight / 2;
        const left = width / 2 - (layer.positions - 1) * step / 2;
        for (let i = 0; i < layer.positions; i++) {
          const o = firsts[row] + i;
          const isSold = (sold[o >> 3] & (0x80 >> (o & 7))) !== 0;
          const c = won.has(o) ? winner : !isSold ? empty : fresh.has(o) ? flash : full;
          const p = paths.get(c);
          const x = left + i * step;
          p.moveTo(x + radius, y);
          p.arc(x, y, radius, 0, 7);
        }
      });
      for (const [c, p] of paths) {
        g.fillStyle = c;
        g.fill(p);
      }
    } else {
      for (let row = 0; row < rows; row += group) {
        let positions = 0;
        let taken = 0;
        for (const l of map.layers.slice(row, row + group)) {
          positions += l.positions;
          taken += l.sold;
        }
        const w = Math.max(2, ((positions / Math.min(group, rows - row)) / widest) * width);
        const y = (row / group) * rowHeight;
        const part = positions > 0 ? taken / positions : 0;
        const thick = rowHeight > 4 ? rowHeight - 1 : rowHeight;
        g.fillStyle = empty;
        g.fillRect((width - w) / 2, y, w, thick);
        g.globalAlpha = part === 0 ? 0 : 0.1 + 0.9 * part;
        g.fillStyle = full;
        g.fillRect((width - w) / 2, y, w, thick);
        g.globalAlpha = 1;
      }
    }
    for (const [o, at] of fresh) if (now - at > 900) fresh.delete(o);
    if (fresh.size > 0) setTimeout(plan, 120);
  }

  const plan = () => {
    if (!frame) frame = requestAnimationFrame(paint);
  };
  const describe = () => canvas.setAttribute("aria-label", `${count(map.sold_positions)} of ${count(map.total_positions)} positions sold, in ${count(map.layers.length)} layers`);

  new ResizeObserver(plan).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", plan);
  return {
    element: canvas,
    draw(next, winners = []) {
      map = next;
      sold = bits(next.sold);
      firsts = [];
      let first = 0;
      for (const l of next.layers) {
        firsts.push(first);
        first += l.positions;
      }
      won = new Set(winners.map((w) => firsts[w.layer - 1] + w.number - 1));
      describe();
      plan();
    },
    // sell counts a sale that the map's counts don't have. Its dot may be there already: it is read after the counts.
    sell(layer, number) {
      const o = firsts[layer - 1] + number - 1;
      if (sold) {
        sold[o >> 3] |= 0x80 >> (o & 7);
        if (!calm.matches) fresh.set(o, performance.now());
      }
      map.layers[layer - 1].sold++;
      map.sold_positions++;
      describe();
      plan();
    },
  };
}
