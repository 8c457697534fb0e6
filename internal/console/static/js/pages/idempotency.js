// What became of a request: the answer that is kept under its key.
import { h, fill } from "../dom.js";
import { get, query } from "../api.js";
import { card, facts, head, problem } from "../ui.js";
import { badge, when } from "../format.js";

export default async function idempotency(ctx) {
  const result = h("div", { role: "status" });
  const field = (name, label, value, hint) => h("label", {}, label, h("input", { name, value: ctx.query.get(name) ?? value, required: true, autocomplete: "off", spellcheck: "false", placeholder: hint }));
  const look = async (members) => {
    try {
      const k = await get(`/v1/admin/idempotency${query(members)}`, ctx.signal);
      fill(result, card("What is kept", facts([["Answered", badge(k.status, k.status < 300 ? "good" : "warn")], ["Kept since", when(k.created_at)], ["Execution", h("code", {}, k.execution)]]), h("pre", { tabindex: 0 }, JSON.stringify(k.body, null, 2))));
    } catch (e) {
      if (e.name === "AbortError") return;
      fill(result, e.code === "not_found" ? h("p", { class: "note" }, "Nothing is kept under this key: no request with it was decided, or its time is over. The same request, sent again with this key, is executed once.") : problem(e));
    }
  };
  const form = h("form", { class: "filters", onsubmit: (e) => {
    e.preventDefault();
    const members = Object.fromEntries(new FormData(form));
    history.replaceState(null, "", `/console/idempotency${query(members)}`);
    look(members);
  } },
    field("key", "Idempotency-Key", "", "order-4711"), field("method", "Method", "POST"), field("path", "Path", "", "/v1/transfers"), field("principal", "Principal", ctx.me.principal, "key:ID or user:SUB"),
    h("button", { type: "submit", class: "primary" }, "Look it up"));
  fill(ctx.root, head("Idempotency keys", { note: "A key is scoped by who sent it, method and path, and kept only as a hash of all four: to find it, give all four." }), card(null, form), result);
  if (ctx.query.get("key") && ctx.query.get("path")) await look({ key: ctx.query.get("key"), method: ctx.query.get("method") ?? "POST", path: ctx.query.get("path"), principal: ctx.query.get("principal") ?? ctx.me.principal });
}
