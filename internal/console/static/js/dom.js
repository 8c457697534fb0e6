// Elements are made here and nowhere else. Text becomes text: there is no way to hand markup in.

const svgNames = new Set(["svg", "g", "path", "circle", "rect", "line", "polyline", "text", "title", "polygon"]);
const svgSpace = "http://www.w3.org/2000/svg";

// h makes an element. Members of props that begin with "on" are listeners, "class" and "data-…", "aria-…" are attributes; true
// sets an attribute without a value, and false, null and undefined leave it away. Children are nodes, texts, numbers, or lists.
export function h(tag, props, ...children) {
  const isSVG = svgNames.has(tag) && tag !== "title";
  const e = isSVG ? document.createElementNS(svgSpace, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) e.addEventListener(name.slice(2), value);
    else if (name === "value") e.value = value;
    else if (name === "width%") e.style.width = `${value}%`; // By way of the object model: a style attribute is refused.
    else e.setAttribute(name, value === true ? "" : String(value));
  }
  return add(e, ...children);
}

// add appends children as h takes them.
export function add(e, ...children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    e.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return e;
}

// fill replaces what an element has.
export function fill(e, ...children) {
  e.replaceChildren();
  return add(e, ...children);
}

// svgTitle names a drawing for those who don't see it.
export function svgTitle(text) {
  const e = document.createElementNS(svgSpace, "title");
  e.textContent = text;
  return e;
}

// text sets an element's text if it differs, so that nothing is announced or painted again.
export function text(e, value) {
  const s = String(value);
  if (e.textContent !== s) e.textContent = s;
}
