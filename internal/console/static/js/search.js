// The search over everything, by ⌘K or Ctrl-K: a combobox in a dialog.
import { h, fill, text } from "./dom.js";
import { get, query } from "./api.js";
import { badge, short } from "./format.js";
import { home } from "./names.js";

const pause = 150; // ms of rest after which the server is asked
const kinds = { multidraw: "multi-draw", key: "API key" };

// search prepares the dialog; pages are [name, path], go shows a page.
export function search(button, pages, go, allowed) {
  const mac = /Mac|iPhone|iPad/.test(navigator.platform);
  fill(button, h("span", {}, "Search"), h("kbd", {}, mac ? "⌘K" : "Ctrl K"));
  button.addEventListener("click", open);
  document.addEventListener("keydown", (e) => {
    if (e.key.toLowerCase() !== "k" || !(e.metaKey || e.ctrlKey) || e.altKey || e.shiftKey || !allowed()) return;
    e.preventDefault();
    if (!document.querySelector("dialog[open]")) open();
  });

  function open() {
    let options = []; // { href, element }
    let at = 0;
    let turn = 0;
    let timer = 0;
    const box = h("ul", { id: "found", role: "listbox", "aria-label": "Results" });
    const status = h("p", { class: "small soft", role: "status" }, "An id, a transfer’s reference, the beginning of an account, or a name.");
    const input = h("input", {
      type: "search", name: "q", role: "combobox", "aria-label": "Search for an id, reference, account or name", "aria-controls": "found", "aria-expanded": "false", "aria-autocomplete": "list",
      autocomplete: "off", spellcheck: "false", placeholder: "Search everything", oninput: () => { clearTimeout(timer); timer = setTimeout(look, pause); },
    });
    const dialog = h("dialog", { class: "search", "aria-label": "Search" }, h("form", { method: "dialog", onsubmit: (e) => { e.preventDefault(); choose(); } }, input, box, status));
    dialog.addEventListener("close", () => dialog.remove());
    dialog.addEventListener("click", (e) => { if (e.target === dialog) dialog.close(); });
    input.addEventListener("keydown", (e) => {
      if (e.key === "Escape") return dialog.close(); // By itself, the field would only be emptied.
      const to = { ArrowDown: at + 1, ArrowUp: at - 1 + options.length, Home: 0, End: options.length - 1 }[e.key];
      if (to === undefined || options.length === 0 || ((e.key === "Home" || e.key === "End") && input.selectionStart !== input.selectionEnd)) return;
      e.preventDefault();
      mark(to % options.length);
    });

    function choose() {
      if (!options[at]) return;
      dialog.close();
      go(options[at].href);
    }

    function mark(i) {
      at = i;
      options.forEach((o, n) => o.element.setAttribute("aria-selected", String(n === at)));
      if (options[at]) input.setAttribute("aria-activedescendant", options[at].element.id);
      else input.removeAttribute("aria-activedescendant");
      options[at]?.element.scrollIntoView({ block: "nearest" });
    }

    function draw(rows) {
      options = rows.map((r, i) => ({
        href: r.href, element: h("li", { id: `found-${i}`, role: "option", "aria-selected": "false", onclick: () => { at = i; choose(); } },
          h("span", { class: "what" }, r.what), h("span", { class: "break" }, r.title, r.id && [" ", h("span", { class: "soft small" }, short(r.id))]), r.status && badge(r.status)),
      }));
      fill(box, options.map((o) => o.element));
      input.setAttribute("aria-expanded", String(options.length > 0));
      mark(0);
    }

    async function look() {
      const q = input.value.trim();
      const mine = ++turn;
      if (!q) {
        draw([]);
        return text(status, "");
      }
      const own = pages.filter(([name]) => name.toLowerCase().includes(q.toLowerCase())).map(([title, href]) => ({ what: "page", title, href }));
      const elsewhere = [{ what: "locks", title: `Locks with “${q}” in owner or key`, href: `/console/locks${query({ q })}` }, { what: "audit", title: `Audit log of the object “${q}”`, href: `/console/audit${query({ object: q })}` }];
      text(status, "Searching…");
      try {
        const { items } = await get(`/v1/admin/search${query({ q })}`);
        if (mine !== turn) return;
        draw([...items.map((f) => ({ what: kinds[f.kind] ?? f.kind, title: f.title, id: f.id === f.title ? "" : f.id, status: f.status, href: home(f.kind, f.id) })), ...own, ...elsewhere]);
        text(status, items.length === 0 ? "Nothing has this id, reference or name." : `${items.length} found.`);
      } catch (e) {
        if (mine !== turn) return;
        draw([...own, ...elsewhere]);
        text(status, e.message);
      }
    }

    document.body.append(dialog);
    dialog.showModal();
    input.focus();
  }
}
