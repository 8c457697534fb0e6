// The wait-for graph: who waits for whom. Owners stand on a ring, an arrow leads from the one that waits to the one it waits for.
import { h, svgTitle } from "./dom.js";

const most = 60; // Owners that are drawn; more make no picture.

// cyclic finds the owners on a cycle: those that reach themselves.
function cyclic(edges) {
  const next = new Map();
  for (const e of edges) next.set(e.from, [...(next.get(e.from) ?? []), e.to]);
  const on = new Set();
  for (const start of next.keys()) {
    const seen = new Set();
    const stack = [...next.get(start)];
    while (stack.length > 0) {
      const at = stack.pop();
      if (at === start) {
        on.add(start);
        break;
      }
      if (!seen.has(at)) {
        seen.add(at);
        stack.push(...(next.get(at) ?? []));
      }
    }
  }
  return on;
}

const clip = (s, n) => (s.length > n ? `${s.slice(0, n - 1)}…` : s);

// graph draws edges of { from, to, key }; holders are the owners that hold something.
export function graph(edges, holders) {
  const owners = [...new Set(edges.flatMap((e) => [e.from, e.to]))];
  if (owners.length === 0) return h("p", { class: "empty" }, "Nobody waits.");
  if (owners.length > most) return h("p", { class: "empty" }, `${owners.length} owners wait for each other: too many to draw. The list of waiters has them.`);
  const held = new Set(holders);
  const cycle = cyclic(edges);
  const pairs = new Map(); // one arrow a pair, with its keys
  for (const e of edges) {
    const id = JSON.stringify([e.from, e.to]);
    pairs.set(id, { ...e, keys: [...(pairs.get(id)?.keys ?? []), e.key] });
  }
  const box = { w: 116, h: 30 };
  const radius = owners.length === 2 ? 110 : Math.max(120, (owners.length * 118) / (2 * Math.PI));
  const wide = radius * 1.35;
  const tall = owners.length === 2 ? 0 : radius * 0.8;
  const width = 2 * wide + box.w + 24;
  const height = 2 * tall + box.h + (owners.length === 2 ? 70 : 24);
  const spot = new Map(owners.map((o, i) => {
    const a = (2 * Math.PI * i) / owners.length - (owners.length === 2 ? Math.PI : Math.PI / 2);
    return [o, owners.length === 1 ? [width / 2, height / 2] : [width / 2 + wide * Math.cos(a), height / 2 + tall * Math.sin(a)]];
  }));
  // border is where a line from the middle of a box leaves it.
  const border = ([x, y], dx, dy) => {
    const t = Math.min(Math.abs((box.w / 2 + 3) / (dx || 1e-9)), Math.abs((box.h / 2 + 3) / (dy || 1e-9)));
    return [x + dx * t, y + dy * t];
  };
  const arrows = [...pairs.values()].map((p) => {
    const [a, b] = [spot.get(p.from), spot.get(p.to)];
    const [dx, dy] = [b[0] - a[0], b[1] - a[1]];
    const length = Math.hypot(dx, dy) || 1;
    // A bend to one side keeps two that wait for each other apart.
    const [mx, my] = [(a[0] + b[0]) / 2 - (dy / length) * 26, (a[1] + b[1]) / 2 + (dx / length) * 26];
    const [sx, sy] = border(a, mx - a[0], my - a[1]);
    const [ex, ey] = border(b, mx - b[0], my - b[1]);
    const angle = Math.atan2(ey - my, ex - mx);
    const tip = (turn) => `${(ex - 9 * Math.cos(angle + turn)).toFixed(1)},${(ey - 9 * Math.sin(angle + turn)).toFixed(1)}`;
    const bad = cycle.has(p.from) && cycle.has(p.to) ? "cycle" : "";
    return h("g", {},
      h("path", { class: `edge ${bad}`, d: `M${sx.toFixed(1)} ${sy.toFixed(1)}Q${mx.toFixed(1)} ${my.toFixed(1)} ${ex.toFixed(1)} ${ey.toFixed(1)}` }),
      h("polygon", { class: `arrow ${bad}`, points: `${ex.toFixed(1)},${ey.toFixed(1)} ${tip(0.42)} ${tip(-0.42)}` }),
      h("text", { class: "on", x: ((mx + (a[0] + b[0]) / 2) / 2).toFixed(1), y: ((my + (a[1] + b[1]) / 2) / 2 + 4).toFixed(1) }, clip(p.keys.join(", "), 22)));
  });
  const nodes = owners.map((o) => {
    const [x, y] = spot.get(o);
    return h("g", {}, svgTitle(o),
      h("rect", { class: `node ${held.has(o) ? "holds" : ""} ${cycle.has(o) ? "cycle" : ""}`, x: x - box.w / 2, y: y - box.h / 2, width: box.w, height: box.h, rx: 7 }),
      h("text", { x, y: y + 4 }, clip(o, 16)));
  });
  return h("svg", { class: "graph", viewBox: `0 0 ${width.toFixed(0)} ${height.toFixed(0)}`, role: "img", "aria-label": `${owners.length} owners, ${pairs.size} waits${cycle.size > 0 ? `, a cycle of ${cycle.size}` : ""}` }, arrows, nodes);
}
