// Pieces that pages are made of.
import { h, fill, add } from "./dom.js";
import { get, act, newKey, query } from "./api.js";

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
  return h("dl", { class: "facts" }, rows.filter((r) => r && r[1] !== null && r[1] !== undefined && r[1] !== "").map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

// problem tells what went wrong.
export function problem(e) {
  return h("p", { class: "note bad", role: "alert" }, e.message, e.requestID && h("span", { class: "small" }, ` Request ${e.requestID}.`));
}

// copy is a value with a button that copies it.
export function copy(value) {
  const button = h("button", { type: "button", class: "copy quiet", "aria-label": "Copy", onclick: async () => {
    try {
      await navigator.clipboard.writeText(value);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Select it by hand";
    }
    setTimeout(() => (button.textContent = "Copy"), 1500);
  } }, "Copy");
  return h("span", { class: "break" }, h("code", {}, value), button);
}

// table draws rows. A column is { name, cell(row), num, lead, act }: lead names the row on narrow screens, act has its buttons.
export function table(columns, rows, { caption, row: decorate } = {}) {
  const cls = (c) => [c.num && "num", c.lead && "lead", c.act && "act"].filter(Boolean).join(" ") || null;
  return h("table", { class: "list" },
    caption && h("caption", { class: "visually-hidden" }, caption),
    h("thead", {}, h("tr", {}, columns.map((c) => h("th", { scope: "col", class: c.num && "num" }, c.act ? h("span", { class: "visually-hidden" }, c.name) : c.name)))),
    h("tbody", {}, rows.map((r) => h("tr", { class: decorate?.(r) }, columns.map((c) => h("td", { class: cls(c), "data-label": c.name }, c.cell(r)))))));
}

// list is a table of an API's list: filters, pages by cursor, and the state of both in the address.
//   path(filters) → the list's path; filters: [{ name, label, options?, placeholder? }]; columns as of table; none: what an
//   empty list says. It returns { element, reload }.
export function list(ctx, { path, columns, filters = [], none = "There is nothing here.", limit = 50, caption, prefix = "", row }) {
  const body = h("div", { "aria-live": "off" });
  const back = [];
  const name = (f) => prefix + f;
  const current = () => Object.fromEntries(filters.map((f) => [f.name, ctx.query.get(name(f.name)) ?? ""]));
  let after = "";
  let next = null;
  let pending = 0;

  const newest = h("button", { type: "button", onclick: () => { after = back.pop() ?? ""; load(); } }, "Back");
  const older = h("button", { type: "button", onclick: () => { back.push(after); after = next; load(); } }, "More");
  const where = h("span", { class: "soft small" });
  const pager = h("nav", { class: "pager", "aria-label": caption ? `Pages of ${caption.toLowerCase()}` : "Pages" }, newest, where, older);

  async function load() {
    const turn = ++pending;
    try {
      const base = path(current());
      const page = await get(base + (base.includes("?") ? "&" : "?") + `limit=${limit}` + (after ? `&after=${encodeURIComponent(after)}` : ""), ctx.signal);
      if (turn !== pending) return;
      next = page.next;
      fill(body, page.items.length === 0 ? h("p", { class: "empty" }, none) : table(columns, page.items, { caption, row }));
      newest.disabled = back.length === 0;
      older.disabled = !next;
      pager.hidden = back.length === 0 && !next;
      where.textContent = `Page ${back.length + 1}`;
    } catch (e) {
      if (e.name !== "AbortError" && turn === pending) fill(body, problem(e));
    }
  }

  const form = filters.length > 0 && h("form", { class: "filters", role: "search", onsubmit: (e) => { e.preventDefault(); apply(); } },
    filters.map((f) => h("label", {}, f.label, f.options
      ? h("select", { name: f.name, onchange: () => apply() }, h("option", { value: "" }, "All"), f.options.map((o) => h("option", { value: o, selected: current()[f.name] === o }, o.replaceAll("_", " "))))
      : h("input", { name: f.name, type: "search", value: current()[f.name], placeholder: f.placeholder, autocomplete: "off", spellcheck: "false", onchange: () => apply() }))));

  function apply() {
    for (const f of filters) {
      const value = form.elements[f.name].value.trim();
      if (value) ctx.query.set(name(f.name), value);
      else ctx.query.delete(name(f.name));
    }
    const q = ctx.query.toString();
    history.replaceState(null, "", location.pathname + (q ? `?${q}` : ""));
    back.length = 0;
    after = "";
    load();
  }

  load();
  return { element: h("div", { class: "stack" }, form, h("div", {}, body, pager)), reload: load };
}

// confirm asks before something is done, does it, and tells what became of it. The request has one key for as long as the dialog
// is open: sending it again after an answer that never came cannot do it twice.
export function confirm({ title, explain, verb, danger = false, method = "POST", path, body, fields = [], audit, done }) {
  const key = newKey();
  const trouble = h("div");
  const go = h("button", { type: "submit", class: danger ? "danger solid" : "primary" }, verb);
  const inputs = fields.map((f) => [f, h("input", { name: f.name, type: f.type ?? "text", value: f.value ?? "", required: f.required, placeholder: f.placeholder, autocomplete: "off" })]);
  const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, h("form", { method: "dialog", onsubmit: async (e) => {
    e.preventDefault();
    go.disabled = true;
    fill(trouble);
    try {
      const content = typeof body === "function" ? body(Object.fromEntries(inputs.map(([f, i]) => [f.name, i.value.trim()]))) : body;
      const answer = await act(method, path, content, key);
      dialog.close();
      toast(`${title}: done.`, audit && { label: "Audit log", href: `/console/audit${query(audit)}` });
      done?.(answer.body);
    } catch (error) {
      go.disabled = false;
      go.textContent = error.outcome === "unknown" ? "Ask again" : verb;
      add(trouble, problem(error), error.outcome === "unknown" && h("p", { class: "small soft" }, "It may have been done. Asking again under the same key gives the true answer and cannot do it twice."));
    }
  } },
    h("h2", { id: "dialog-title" }, title),
    explain && h("p", {}, explain),
    inputs.map(([f, i]) => h("label", {}, f.label, i)),
    h("p", { class: "small soft" }, h("code", {}, `${method} ${path}`)),
    trouble,
    h("div", { class: "actions" }, h("button", { type: "button", onclick: () => dialog.close() }, "Leave it"), go)));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

// action is a button that asks first.
export function action(label, options) {
  return h("button", { type: "button", class: options.danger ? "danger" : null, onclick: () => confirm({ verb: label, ...options }) }, label);
}

// toast says something for a while.
export function toast(message, link, tone) {
  const e = h("div", { class: `toast ${tone ?? ""}` }, message, link && [" ", h("a", { href: link.href }, link.label)]);
  document.getElementById("toasts").append(e);
  setTimeout(() => e.remove(), 7000);
}

// every calls f now and then each period, while the page is shown and seen.
export function every(ctx, ms, f) {
  let timer = 0;
  const tick = async () => {
    clearTimeout(timer);
    if (ctx.signal.aborted) return;
    if (!document.hidden) {
      try {
        await f();
      } catch (e) {
        if (e.name !== "AbortError") console.debug("refresh", e.message);
      }
    }
    if (!ctx.signal.aborted) timer = setTimeout(tick, ms);
  };
  document.addEventListener("visibilitychange", () => { if (!document.hidden) tick(); }, { signal: ctx.signal });
  ctx.signal.addEventListener("abort", () => clearTimeout(timer));
  return tick();
}
