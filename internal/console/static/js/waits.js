// The wait-for graph: who waits for whom. Owners that wait for nobody stand at the top, those that wait for them below, and so on; a line
// leads from a box up to the one that it waits for. All boxes stand in the columns of one grid, and lines run between them only, so that
// none crosses a box, and words stand in boxes only, so that none covers another.
import { h, fill, svgTitle } from "./dom.js";
import { count, span } from "./format.js";
import { serverNow } from "./server.js";

const most = 100; // owners that are drawn; more make no picture
const sizes = (width) => (width < 520 ? { box: { w: 132, h: 46 }, gap: { x: 18, y: 30 }, reach: 14 } : { box: { w: 176, h: 46 }, gap: { x: 26, y: 30 }, reach: 22 });

// graphOf finds who waits for whom, for what and since when. Where a key is held, who waits for it waits for its holder; the order of
// asking is another matter. It returns owners by name: { name, waits: Map(owner → keys), since, depth, blocks, longest, cycle }.
function graphOf({ holders, waiters, edges }) {
  const holder = new Map(holders.flatMap((x) => Object.keys(x.tokens).map((k) => [k, x.owner])));
  const owners = new Map();
  const owner = (name) => {
    if (!owners.has(name)) owners.set(name, { name, waits: new Map(), since: null, depth: 0, blocks: 0, longest: null, cycle: false });
    return owners.get(name);
  };
  for (const e of edges) {
    if (holder.has(e.key) && holder.get(e.key) !== e.to) continue;
    const from = owner(e.from);
    owner(e.to);
    from.waits.set(e.to, [...(from.waits.get(e.to) ?? []), e.key]);
  }
  for (const w of waiters) {
    const o = owners.get(w.owner);
    const since = Date.parse(w.since);
    if (o && (o.since === null || since < o.since)) o.since = since;
  }
  const all = [...owners.values()];
  const behind = new Map(all.map((o) => [o.name, []]));
  for (const o of all) for (const to of o.waits.keys()) behind.get(to).push(o);
  for (const o of all) {
    const seen = new Set();
    const stack = [...behind.get(o.name)];
    while (stack.length > 0) {
      const w = stack.pop();
      if (seen.has(w)) continue;
      seen.add(w);
      stack.push(...behind.get(w.name));
    }
    o.cycle = seen.delete(o);
    o.blocks = seen.size;
    for (const w of seen) if (w.since !== null && (o.longest === null || w.since < o.longest)) o.longest = w.since;
  }
  // The depth is the longest way up to one that waits for nobody. A cycle has no such way: within one, all stand equally deep.
  for (let changed = true, turn = 0; changed && turn <= all.length; turn++) {
    changed = false;
    for (const o of all) {
      for (const name of o.waits.keys()) {
        const to = owners.get(name);
        const least = to.depth + (o.cycle && to.cycle ? 0 : 1);
        if (o.depth < least) {
          o.depth = least;
          changed = true;
        }
      }
    }
  }
  return owners;
}

const pen = document.createElement("canvas").getContext("2d");

// fit shortens words to what has room in so many pixels, as they are really written.
function fit(words, width, font) {
  pen.font = font;
  if (pen.measureText(words).width <= width) return words;
  const letters = [...words];
  let low = 0;
  let high = letters.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (pen.measureText(`${letters.slice(0, middle).join("")}…`).width <= width) low = middle;
    else high = middle - 1;
  }
  return `${letters.slice(0, low).join("")}…`;
}

const blocks = (o, now) => `blocks ${count(o.blocks)}${o.longest === null ? "" : `, longest ${span((now - o.longest) / 1000)}`}`;

// picture draws owners in a width. held are those that hold something.
function picture(owners, held, width, now) {
  const sans = getComputedStyle(document.documentElement).getPropertyValue("--sans").trim();
  const { box, gap, reach } = sizes(width); // reach: how far apart the lines in a gap may be
  const columns = Math.max(1, Math.floor((width - gap.x) / (box.w + gap.x)));
  // Layers by depth; within one, those for the same owner stand together, and the longest wait is first. One that is too long goes on
  // in the next row.
  const rows = [];
  const deepest = Math.max(...[...owners.values()].map((o) => o.depth));
  for (let depth = 0; depth <= deepest; depth++) {
    const layer = [...owners.values()].filter((o) => o.depth === depth)
      .sort((a, b) => b.blocks - a.blocks || [...a.waits.keys()].join().localeCompare([...b.waits.keys()].join()) || (a.since ?? 0) - (b.since ?? 0) || a.name.localeCompare(b.name));
    for (let i = 0; i < layer.length; i += columns) rows.push(layer.slice(i, i + columns));
  }
  const used = Math.max(...rows.map((r) => r.length));
  const left = Math.max(gap.x, (width - used * box.w - (used - 1) * gap.x) / 2);
  const spot = new Map();
  rows.forEach((row, r) => {
    const first = Math.floor((used - row.length) / 2);
    row.forEach((o, i) => spot.set(o.name, { x: left + (first + i) * (box.w + gap.x), y: 8 + r * (box.h + gap.y), lane: first + i + (r % 2) / 2 }));
  });
  const height = rows.length * (box.h + gap.y) - gap.y + 16;
  const lines = (o) => [...o.waits.keys()].map((to) => {
    const a = spot.get(o.name);
    const b = spot.get(to);
    // Each owner that is waited for has a place of its own in the gaps, so that lines to different ones are told apart.
    const shift = (b.lane / (used - 0.5) - 0.5) * reach;
    const gutter = a.x - gap.x / 2 + shift;
    const bus = b.y + box.h + 4 + gap.y / 2 + shift / 2;
    const end = b.x + box.w / 2;
    const foot = b.y + box.h + 2;
    const bad = o.cycle && owners.get(to).cycle ? "cycle" : "";
    return [h("path", { class: `edge ${bad}`, d: `M${a.x} ${a.y + box.h / 2}H${gutter.toFixed(1)}V${bus.toFixed(1)}H${end}V${foot + 6}` }),
      h("polygon", { class: `arrow ${bad}`, points: `${end},${foot} ${end - 4},${foot + 7} ${end + 4},${foot + 7}` })];
  });
  const nodes = [...owners.values()].map((o) => {
    const { x, y } = spot.get(o.name);
    const keys = [...new Set([...o.waits.values()].flat())].join(", ");
    const waited = o.since === null ? "" : span((now - o.since) / 1000);
    const root = o.waits.size === 0;
    const plain = `12px ${sans}`;
    // On a narrow screen the number alone must do; the words above the picture say which it is.
    const second = !root ? `${waited} for ${keys}` : fit(blocks(o, now), box.w - 20, plain) === blocks(o, now) ? blocks(o, now) : blocks(o, now).replace("longest ", "");
    return h("g", {}, svgTitle(`${o.name}: ${[root ? "waits for nobody" : `waits ${waited} for ${keys}`, o.blocks > 0 && blocks(o, now)].filter(Boolean).join("; ")}`),
      lines(o),
      h("rect", { class: `node ${held.has(o.name) ? "holds" : ""} ${root ? "root" : ""} ${o.cycle ? "cycle" : ""}`, x, y, width: box.w, height: box.h, rx: 7 }),
      h("text", { x: x + 10, y: y + 19 }, fit(o.name, box.w - 20, `600 12px ${sans}`)),
      h("text", { class: "what", x: x + 10, y: y + 35 }, fit(second, box.w - 20, plain)));
  });
  return h("svg", { class: "graph", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${count(owners.size)} owners in ${deepest + 1} layers` }, nodes);
}

// waits returns { element, draw(snapshot) }: the graph, and in words who is in the way.
export function waits() {
  const words = h("p", { class: "small" });
  const place = h("div", { class: "graph-box" });
  let last = null;
  let drawn = 0;
  function draw() {
    const owners = graphOf(last);
    const width = Math.floor(place.clientWidth);
    if (owners.size === 0) {
      fill(words);
      fill(place, h("p", { class: "empty" }, "Nobody waits."));
      return;
    }
    const now = serverNow();
    const roots = [...owners.values()].filter((o) => o.waits.size === 0 && o.blocks > 0).sort((a, b) => b.blocks - a.blocks);
    const cycle = [...owners.values()].filter((o) => o.cycle);
    fill(words, roots.slice(0, 3).map((o) => [h("b", {}, o.name), ` ${blocks(o, now)}. `]), roots.length > 3 && `${roots.length - 3} more block others. `,
      cycle.length > 0 && h("b", {}, `A deadlock of ${cycle.length}: one of the requests is about to be refused.`));
    if (owners.size > most) fill(place, h("p", { class: "empty" }, `${count(owners.size)} owners wait for each other: too many to draw. The list of waiters has them.`));
    else if (width > 0) fill(place, picture(owners, new Set(last.holders.map((x) => x.owner)), width, now));
    drawn = width;
  }
  new ResizeObserver(() => {
    if (last && Math.floor(place.clientWidth) !== drawn) draw();
  }).observe(place);
  return {
    element: h("div", { class: "stack-small" }, words, place),
    draw(snapshot) {
      last = snapshot;
      draw();
    },
  };
}
