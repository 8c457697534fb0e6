// What is shown is drawn again where it is: who has the focus, a ticked box or marked text in it keeps that.
import { fill } from "./dom.js";

const rows = new WeakMap(); // of a table's rows: { key, state }
const controls = "a[href], button, input, select, textarea, summary, [tabindex]";

// known tells what a table's row is of: key names the thing, and two rows of the same state look and do the same.
export const known = (tr, key, state) => rows.set(tr, { key, state });

// refill replaces what an element has. Rows of a table that comes first stay if their state is the same; where the focus was in what is
// replaced, what has its place gets it: in a table, that in the row of the same thing.
export function refill(element, ...children) {
  const held = focusIn(element);
  const fresh = fill(document.createElement("div"), ...children);
  const [old, next] = [element.firstElementChild, fresh.firstElementChild];
  if (old?.tBodies && next?.tBodies) {
    patch(old, next);
    next.remove();
    element.replaceChildren(old, ...fresh.childNodes);
  } else {
    element.replaceChildren(...fresh.childNodes);
  }
  if (held && !element.contains(document.activeElement)) held();
}

// patch makes old show what next does, and moves no row that stays.
function patch(old, next) {
  old.tHead.replaceChildren(...next.tHead.children);
  const body = old.tBodies[0];
  const same = new Map([...body.rows].map((tr) => [rows.get(tr)?.state, tr]));
  const wanted = [...next.tBodies[0].rows].map((tr) => {
    const { state } = rows.get(tr);
    const stays = same.get(state);
    same.delete(state);
    return stays ?? tr;
  });
  const staying = new Set(wanted);
  for (const tr of [...body.rows]) if (!staying.has(tr)) tr.remove();
  let at = body.firstElementChild;
  for (const tr of wanted) {
    if (tr === at) at = at.nextElementSibling;
    else body.insertBefore(tr, at);
  }
}

// focusIn returns what gives the focus back, or null where it is elsewhere.
function focusIn(element) {
  const active = document.activeElement;
  if (!active || active === element || !element.contains(active)) return null;
  const tr = active.closest("tr");
  const key = rows.get(tr)?.key;
  const within = key === undefined ? (tr?.closest("thead") ?? element) : tr;
  const n = [...within.querySelectorAll(controls)].indexOf(active);
  return () => {
    const place = key !== undefined ? [...element.querySelectorAll("tbody tr")].find((r) => rows.get(r)?.key === key) : within === element ? element : element.querySelector("thead");
    const found = place?.querySelectorAll(controls)[n];
    // The thing is gone: the keyboard goes on from where it was.
    if (!found) element.tabIndex = -1;
    (found ?? element).focus({ preventScroll: true });
  };
}
