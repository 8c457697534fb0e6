// Pieces that pages are made of.
import { h, fill, text } from "./dom.js";
import { get, act, newKey, query } from "./api.js";
import { clockTime } from "./format.js";
import { away, onBack } from "./server.js";
import { mayNot } from "./who.js";
import { empty as explain } from "./empty.js";
import { boxesOf } from "./bulk.js";
import { known, refill } from "./refill.js";

// head is a page's heading, with where it belongs and what can be done.
export function head(title, { crumb, badges = [], actions = [], note } = {}) {
  return h("header", { class: "page-head" },
    crumb && h("p", { class: "crumb" }, h("a", { href: crumb[1] }, crumb[0])),
    h("div", { class: "row spread" }, h("div", { class: "row" }, h("h1", {}, title), badges), actions.length > 0 && h("div", { class: "actions" }, actions)),
    note && h("p", { class: "soft" }, note));
}

export const card = (title, ...children) => h("section", { class: "card" }, title && h("h2", {}, title), children);

// facts is a list of names and values; rows without a value are left away.
export function facts(rows) {
  return h("dl", { class: "facts" }, rows.filter((r) => r && r[1] !== null && r[1] !== undefined && r[1] !== false && r[1] !== "").map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

// problem tells what went wrong.
export function problem(e) {
  return h("p", { class: "note bad", role: "alert" }, e.message, e.requestID && h("span", { class: "small" }, ` Request ${e.requestID}.`));
}

// copy is a value with a button that copies it; shown is how the value is shown.
export function copy(value, shown = h("code", {}, value)) {
  const button = h("button", { type: "button", class: "copy quiet", "aria-label": "Copy", onclick: async () => {
    try {
      await navigator.clipboard.writeText(value);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Select it by hand";
    }
    setTimeout(() => (button.textContent = "Copy"), 1500);
  } }, "Copy");
  return h(shown.tagName === "PRE" ? "div" : "span", { class: "break" }, shown, button);
}

// table draws rows. A column is { name, cell(row), num, lead, act }: lead names the row on narrow screens, act has its buttons. key names
// what a row is of, for refill.
export function table(columns, rows, { caption, row: decorate, key = (r) => r.id } = {}) {
  const cls = (c) => [c.num && "num", c.lead && "lead", c.act && "act"].filter(Boolean).join(" ") || null;
  return h("table", { class: "list" },
    caption && h("caption", { class: "visually-hidden" }, caption),
    h("thead", {}, h("tr", {}, columns.map((c) => h("th", { scope: "col", class: c.num && "num" }, c.head ? c.head() : c.act ? h("span", { class: "visually-hidden" }, c.name) : c.name)))),
    h("tbody", {}, rows.map((r) => line(r))));

  function line(r) {
    const tr = h("tr", { class: decorate?.(r) }, columns.map((c) => h("td", { class: cls(c), "data-label": c.name }, c.cell(r))));
    const state = JSON.stringify([r, decorate?.(r)]);
    known(tr, key(r) ?? state, state);
    return tr;
  }
}

// list is a table of an API's list: filters, pages by cursor, and the state of both in the address.
// The page that is shown is read again every 10 seconds, also while somebody is in it.
//   path(filters) → the list's path; filters: [{ name, label, options?, placeholder?, suggest? }], where suggest reads what may be typed, and
//   words spell the options, and clears names the filters that it can’t be combined with;
//   columns as of table; none: what an empty list says, or empty, as empty.js has it; prefix tells lists on one page apart in the address;
//   select: { label(row), actions: [{ label, can(row), … as bulk.js has it }] } adds boxes. It returns { element, reload }.
export function list(ctx, { path, columns, filters = [], none = "There is nothing here.", empty, limit = 50, caption, prefix = "", row, select }) {
  const body = h("div", { "aria-live": "off" });
  const place = `${prefix}after`;
  const back = history.state?.[place] ?? []; // the places before this one
  const name = (f) => prefix + f;
  const current = () => Object.fromEntries(filters.map((f) => [f.name, ctx.query.get(name(f.name)) ?? ""]));
  let after = ctx.query.get(place) ?? "";
  let next = null;
  let pending = 0;
  let shown; // what the table was made of

  const newest = h("button", { type: "button", onclick: () => { after = back.pop() ?? ""; move(); } }, "Back");
  const older = h("button", { type: "button", onclick: () => { back.push(after); after = next; move(); } }, "More");
  const where = h("span", { class: "soft small" });
  const pager = h("nav", { class: "pager", "aria-label": caption ? `Pages of ${caption.toLowerCase()}` : "Pages" }, newest, where, older);

  async function read(again) {
    const turn = ++pending;
    try {
      const base = path(current());
      const page = await get(base + (base.includes("?") ? "&" : "?") + `limit=${limit}` + (after ? `&after=${encodeURIComponent(after)}` : ""), ctx.signal);
      const content = JSON.stringify(page);
      if (turn !== pending || (again && content === shown)) return;
      shown = content;
      if (form) form.hidden = page.items.length === 0 && !after && !narrowed();
      next = page.next;
      refill(body, page.items.length === 0 ? nothing() : table(boxes ? [boxes.column(page.items), ...columns] : columns, page.items, { caption, row }));
      newest.disabled = !after;
      newest.textContent = after && back.length === 0 ? "To the first page" : "Back";
      older.disabled = !next;
      pager.hidden = !after && !next;
      where.textContent = after && back.length === 0 ? "A later page" : `Page ${back.length + 1}`;
    } catch (e) {
      if (e.name === "AbortError" || turn !== pending) return;
      if (again && shown) throw e;
      shown = undefined;
      pager.hidden = true; // Where this list goes on is not known.
      fill(body, after && e.status === 400 ? h("p", { class: "note bad", role: "alert" }, "The address of this page names a place that this list does not have. It may be of other filters, or cut off.") : problem(e), after && h("button", { type: "button", onclick: () => { back.length = 0; after = ""; move(); } }, "To the first page"));
    }
  }
  const load = () => read(false);
  const narrowed = () => Object.values(current()).some(Boolean);
  const nothing = () => {
    if (after) return h("p", { class: "empty" }, "There is nothing more.");
    if (!narrowed()) return empty ? explain(empty) : h("p", { class: "empty" }, none);
    return h("div", { class: "empty" }, h("p", {}, none), h("button", { type: "button", onclick: () => { for (const f of filters) form.elements[f.name].value = ""; apply(); } }, "Clear the filters"));
  };
  const boxes = select && !mayNot() && boxesOf(select, ctx, () => path(current()), load);

  // move shows another page, which the address then names.
  function move() {
    ctx.place({ [place]: after }, { state: { [place]: [...back] } });
    load();
  }

  const form = filters.length > 0 && h("form", { class: "filters", role: "search", onsubmit: (e) => { e.preventDefault(); apply(); } },
    filters.map((f) => h("label", {}, f.label, f.options
      ? h("select", { name: f.name, onchange: () => apply(f) }, h("option", { value: "" }, "All"), f.options.map((o) => h("option", { value: o, selected: current()[f.name] === o }, f.words?.[o] ?? o.replaceAll("_", " "))))
      : [h("input", { name: f.name, type: "search", value: current()[f.name], placeholder: f.placeholder, list: f.suggest && suggestions(f.suggest, ctx), autocomplete: "off", spellcheck: "false", onchange: () => apply(f) })])));

  function apply(changed) {
    if (changed && form.elements[changed.name].value.trim()) for (const other of changed.clears ?? []) form.elements[other].value = "";
    for (const f of filters) {
      const value = form.elements[f.name].value.trim();
      if (value) ctx.query.set(name(f.name), value);
      else ctx.query.delete(name(f.name));
    }
    back.length = 0;
    after = "";
    boxes?.clear();
    move();
  }

  load();
  const all = h("div", {}, boxes?.element, body, pager);
  every(ctx, 10_000, () => read(true), { shows: all, later: true });
  return { element: h("div", { class: "stack" }, form, all), reload: load };
}

let lists = 0;

// suggestions is the id of a list of what a field may have.
export function suggestions(read, ctx) {
  const element = h("datalist", { id: `suggestions-${++lists}` });
  document.body.append(element);
  ctx.signal.addEventListener("abort", () => element.remove());
  read(ctx.signal).then((values) => fill(element, values.map((value) => h("option", { value })))).catch(() => {});
  return element.id;
}

// typed is a field that has to get a number before button works: that of what is affected, when it is large. Null when it is not.
export function typed(n, button) {
  const large = 100;
  if (n < large) return null;
  button.disabled = true;
  const input = h("input", { name: "typed", inputmode: "numeric", autocomplete: "off", required: true, oninput: () => (button.disabled = !fits()) });
  const fits = () => input.value.replaceAll(/[\s,.’']/g, "") === String(n);
  return { element: h("label", {}, `Type ${n} to confirm`, input), fits };
}

// confirm asks before something is done, does it, and tells what became of it. The request has one key for as long as the dialog
// is open: sending it again after an answer that never came cannot do it twice.
// keep names the way out, verb the action. affects is how many things it changes: the number has to be typed when it is large.
export function confirm({ title, explain, verb, keep, danger = false, method = "POST", path, body, fields = [], affects = 0, audit, said, done }) {
  const key = newKey();
  const trouble = h("div");
  const leave = h("button", { type: "button", onclick: () => dialog.close() }, keep);
  const go = h("button", { type: "submit", class: danger ? "danger solid" : "primary" }, verb);
  const gate = typed(affects, go);
  let doubtful = false; // an attempt may have done it
  const inputs = fields.map((f) => [f, h("input", { name: f.name, type: f.type ?? "text", value: f.value ?? "", required: f.required, placeholder: f.placeholder, autocomplete: "off" })]);
  const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, h("form", { method: "dialog", onsubmit: async (e) => {
    e.preventDefault();
    if (gate && !gate.fits()) return;
    go.disabled = true;
    leave.textContent = "Close"; // Leaving keeps nothing any more: the request is sent.
    fill(trouble);
    const slow = setTimeout(() => fill(trouble, h("p", { class: "small soft", role: "status" }, "There is no answer yet. It may be done all the same; closing this does not stop it.")), 3000);
    try {
      const content = typeof body === "function" ? body(Object.fromEntries(inputs.map(([f, i]) => [f.name, i.value.trim()]))) : body;
      const answer = await act(method, path, content, key);
      dialog.close();
      toast(said ?? `${title}: done.`, audit && { label: "Audit log", href: `/console/audit${query(audit)}` });
      done?.(answer.body);
    } catch (error) {
      const settled = [402, 409, 422].includes(error.status) && !error.retryable; // The answer is that of the key, whatever came before.
      doubtful = !settled && (doubtful || error.outcome === "unknown");
      go.disabled = false;
      go.textContent = doubtful ? "Ask again" : verb;
      leave.textContent = doubtful ? "Close" : keep;
      fill(trouble, problem(error), doubtful && h("p", { class: "small soft" }, "It may have been done. Asking again under the same key gives the true answer and cannot do it twice."));
    } finally {
      clearTimeout(slow);
    }
  } },
    h("h2", { id: "dialog-title" }, title),
    explain && h("p", {}, explain),
    inputs.map(([f, i]) => h("label", {}, f.label, i)),
    gate?.element,
    h("p", { class: "small soft" }, h("code", {}, `${method} ${path}`)),
    trouble,
    h("div", { class: "actions" }, leave, go)));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

// action is a button that asks first. The options may be a function, which reads what the dialog tells when it is opened.
export function action(label, options, { danger = options.danger } = {}) {
  return button(label, async () => confirm({ danger, ...(typeof options === "function" ? await options() : options) }), danger && "danger");
}

// button does what changes something; it is off for who may not.
export function button(label, onclick, cls) {
  return h("button", { type: "button", class: cls || null, disabled: mayNot() !== "", title: mayNot() || null, onclick }, label);
}

// making links to the form that makes something.
export const making = (label, kind) => (mayNot() ? button(label) : h("a", { class: "button", href: `/console/new/${kind}` }, label));

// toast says something for a while.
function toast(message, link, tone) {
  const e = h("div", { class: `toast ${tone ?? ""}` }, message, link && [" ", h("a", { href: link.href }, link.label)]);
  document.getElementById("toasts").append(e);
  setTimeout(() => e.remove(), 7000);
}

// every calls f now and then each period, while the page is shown and seen and the server answers. When f fails, what it shows (by
// default the whole page) is marked as stale, and f is called less often until it succeeds. It returns the first call, unless that comes
// later, and now, which calls f at once.
export function every(ctx, ms, f, { shows = ctx.root, later = false } = {}) {
  let timer = 0;
  let busy = false;
  let pause = ms;
  let good = Date.now(); // the last success
  const tick = async () => {
    clearTimeout(timer);
    if (ctx.signal.aborted || busy) return;
    if (!document.hidden && !away()) {
      busy = true;
      try {
        await f();
        pause = ms;
        good = Date.now();
        markStale(shows, "");
      } catch (e) {
        if (e.name !== "AbortError") markStale(shows, `Not read since ${clockTime(good)}: ${e.message}`);
        pause = Math.min(pause * 2, Math.max(ms, 30_000));
      }
      busy = false;
    }
    if (!ctx.signal.aborted) timer = setTimeout(tick, pause);
  };
  document.addEventListener("visibilitychange", () => { if (!document.hidden) tick(); }, { signal: ctx.signal });
  onBack(tick, ctx.signal);
  ctx.signal.addEventListener("abort", () => clearTimeout(timer));
  if (later) timer = setTimeout(tick, ms);
  return { first: later ? null : tick(), now: tick };
}

// markStale greys what could not be read again, and says why; an empty text takes that back.
function markStale(element, why) {
  element.classList.toggle("stale", why !== "");
  let note = element.querySelector(":scope > .stale-note");
  if (!why) return note?.remove();
  if (!note) element.append(note = h("p", { class: "stale-note small" }));
  text(note, why);
}

// watch keeps a page as new as the document it was made of: the page is shown again when what pick takes of the document changes.
export function watch(ctx, path, shown, pick = (d) => d) {
  const was = JSON.stringify(pick(shown));
  every(ctx, 5000, async () => {
    if (JSON.stringify(pick(await get(path, ctx.signal))) !== was && !document.querySelector("dialog[open]")) ctx.reload();
  }, { later: true });
}
