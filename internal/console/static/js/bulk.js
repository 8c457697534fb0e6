// One action on many things: each has its own request, key and result.
import { h, fill, text } from "./dom.js";
import { act, get, newKey } from "./api.js";
import { count } from "./format.js";
import { typed, problem } from "./ui.js";
import { refill } from "./refill.js";

const atOnce = 4; // requests under way

// bulk asks, then does it to each of rows. verb names the action on n things; keep the way out; path(row) and label(row) are of a row.
export function bulk({ title, explain, verb, keep, danger, rows, path, label, done }) {
  const items = rows.map((row) => ({ row, key: newKey(), state: "waiting", cell: h("span", { class: "soft" }, "waiting") }));
  const bar = h("progress", { max: items.length, value: 0, "aria-label": "Progress", hidden: true });
  const told = h("p", { role: "status" });
  const table = h("ul", { class: "results", tabindex: 0, "aria-label": "Results" }, items.map((i) => h("li", {}, h("span", { class: "break" }, label(i.row)), i.cell)));
  const go = h("button", { type: "submit", class: danger ? "danger solid" : "primary" }, verb);
  const leave = h("button", { type: "button", onclick: () => { stopped = true; if (!running) dialog.close(); } }, keep);
  const gate = typed(items.length, go);
  let running = false;
  let stopped = false;
  let began = false;

  async function one(i) {
    i.state = "running";
    fill(i.cell, "…");
    try {
      await act("POST", path(i.row), undefined, i.key);
      i.state = "done";
      fill(i.cell, h("span", { class: "badge good" }, "done"));
    } catch (e) {
      i.state = e.outcome === "unknown" || e.retryable ? "again" : "refused";
      fill(i.cell, h("span", { class: `badge ${i.state === "again" ? "warn" : "bad"}` }, i.state === "again" ? "no answer" : "refused"), " ", h("span", { class: "small" }, e.message));
    }
  }

  async function run() {
    running = began = true;
    stopped = false;
    go.disabled = true;
    gate?.element.remove();
    bar.hidden = false;
    text(leave, "Stop");
    const todo = items.filter((i) => i.state === "waiting" || i.state === "again");
    const next = async () => {
      for (let i = todo.shift(); i && !stopped; i = todo.shift()) {
        await one(i);
        tell();
      }
    };
    await Promise.all(Array.from({ length: atOnce }, next));
    running = false;
    tell();
    const left = items.filter((i) => i.state !== "done" && i.state !== "refused");
    text(leave, "Close");
    go.hidden = left.length === 0;
    go.disabled = false;
    text(go, `Go on with ${count(left.length)}`);
  }

  const summary = () => {
    const n = (state) => items.filter((i) => i.state === state).length;
    return [`${count(n("done"))} done`, n("refused") && `${count(n("refused"))} refused`, n("again") && `${count(n("again"))} without an answer`, n("waiting") && `${count(n("waiting"))} not tried`].filter(Boolean).join(", ");
  };
  const tell = () => {
    bar.value = items.filter((i) => i.state === "done" || i.state === "refused").length;
    text(told, `${summary()}.`);
  };

  const dialog = h("dialog", { class: "bulk", "aria-labelledby": "dialog-title" }, h("form", { method: "dialog", onsubmit: (e) => {
    e.preventDefault();
    if (!running) run().catch((error) => fill(told, problem(error)));
  } },
    h("h2", { id: "dialog-title" }, title), h("p", {}, explain, " Each is a request of its own, with its own idempotency key: going on after a pause repeats none."),
    bar, told, table, gate?.element, h("div", { class: "actions" }, leave, go)));
  dialog.addEventListener("cancel", (e) => { if (running) { e.preventDefault(); stopped = true; } });
  dialog.addEventListener("close", () => {
    dialog.remove();
    if (began) done?.();
  });
  document.body.append(dialog);
  dialog.showModal();
}

// boxesOf lets rows of a list be chosen, for actions on all of them.
export function boxesOf({ label, actions }, ctx, path, reload) {
  const most = 1000; // of a list, that are chosen at once
  const chosen = new Map(); // id → row
  const element = h("div", { class: "chosen row", role: "group", "aria-label": "What is chosen", hidden: true });
  const draw = () => {
    element.hidden = chosen.size === 0;
    const rows = [...chosen.values()];
    refill(element, h("span", { role: "status" }, `${count(rows.length)} chosen`), actions.map((a) => {
      const fit = rows.filter(a.can);
      return fit.length > 0 && h("button", { type: "button", class: a.danger ? "danger" : null, onclick: () => bulk({
        ...a, title: a.title(fit.length), verb: a.title(fit.length), rows: fit, label, done: () => { clear(); reload(); },
      }) }, `${a.label} ${count(fit.length)}`);
    }), h("button", { type: "button", class: "quiet", onclick: all }, "Choose the whole list"), h("button", { type: "button", class: "quiet", onclick: clear }, "Choose none"));
  };
  const clear = () => {
    chosen.clear();
    draw();
    for (const box of document.querySelectorAll("main .chooses")) box.checked = false;
  };
  async function all() {
    let after = "";
    do {
      const base = path();
      const page = await get(`${base}${base.includes("?") ? "&" : "?"}limit=200${after ? `&after=${encodeURIComponent(after)}` : ""}`, ctx.signal);
      for (const r of page.items) chosen.set(r.id, r);
      after = page.next;
    } while (after && chosen.size < most);
    draw();
    for (const box of document.querySelectorAll("main .chooses")) box.checked = true;
  }
  const choose = (box, rows) => {
    for (const r of rows) {
      if (box.checked) chosen.set(r.id, r);
      else chosen.delete(r.id);
    }
    draw();
  };
  // What is chosen is as it was last read.
  const renew = (rows) => {
    const before = JSON.stringify([...chosen.values()]);
    for (const r of rows) if (chosen.has(r.id)) chosen.set(r.id, r);
    if (JSON.stringify([...chosen.values()]) !== before) draw();
  };
  const column = (rows) => (renew(rows), {
    name: "Chosen", act: true,
    head: () => h("input", { type: "checkbox", class: "chooses", "aria-label": "Choose all on this page", checked: rows.length > 0 && rows.every((r) => chosen.has(r.id)), onchange: (e) => {
      choose(e.target, rows);
      for (const box of e.target.closest("table").querySelectorAll("tbody .chooses")) box.checked = e.target.checked;
    } }),
    cell: (r) => h("input", { type: "checkbox", class: "chooses", "aria-label": `Choose ${label(r)}`, checked: chosen.has(r.id), onchange: (e) => choose(e.target, [r]) }),
  });
  return { element, column, clear };
}
