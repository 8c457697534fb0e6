// Forms for what can be made: fields with hints, and the server's word on each shown where it belongs.
import { h, fill, add, text } from "./dom.js";
import { act, newKey } from "./api.js";
import { mayNot } from "./who.js";
import { suggestions } from "./ui.js";
import { instant } from "./zone.js";

// A field is { name, label, type?, hint?, required?, value?, says?, codes?, options?, suggest?, … }: says are the server's words for it besides
// its name, codes the problems that are about it, hint a text or a function of the value and the form. type is text, whole, check, choice,
// time, json or long. { name, label, each: [fields], least, add } are rows; { name, label, of: [fields] } is an object.

let ids = 0;

// one makes a field: its element, its value for the request (undefined: absent), and how it is told what is wrong.
function one(f, ctx, form) {
  const id = `field-${++ids}`;
  const wrong = h("span", { class: "wrong", id: `${id}-wrong` });
  const hint = h("span", { class: "hint", id: `${id}-hint` });
  const shared = { id, name: f.name, required: f.required, "aria-describedby": `${id}-hint ${id}-wrong`, oninput: () => { tell(""); form.hint(); } };
  const input = {
    choice: () => h("select", shared, f.options.map(([value, label]) => h("option", { value, selected: value === f.value }, label))),
    check: () => h("input", { ...shared, type: "checkbox", checked: f.value }),
    json: () => h("textarea", { ...shared, value: f.value ?? "", spellcheck: "false" }),
    time: () => h("input", { ...shared, type: "datetime-local", step: 1 }),
    whole: () => h("input", { ...shared, inputmode: "numeric", pattern: "[0-9]+", title: "A whole number", value: f.value ?? "", autocomplete: "off" }),
  }[f.type]?.() ?? h("input", {
    ...shared, type: f.secret ? "password" : "text", value: f.value ?? "", placeholder: f.placeholder, pattern: f.pattern, title: f.title, maxlength: f.most, autocomplete: f.secret ? "new-password" : "off",
    spellcheck: "false", list: f.suggest && suggestions(f.suggest, ctx),
  });
  const tell = (why) => {
    text(wrong, why);
    if (why) input.setAttribute("aria-invalid", "true");
    else input.removeAttribute("aria-invalid");
  };
  const value = () => {
    if (f.type === "check") return input.checked;
    const v = input.value.trim();
    if (v === "") return undefined;
    return { whole: Number, time: instant, json: JSON.parse }[f.type]?.(v) ?? v;
  };
  const check = () => {
    let why = input.validity.valueMissing ? "This is needed." : input.validity.patternMismatch ? `${f.title ?? "A whole number"}.` : "";
    if (!why && f.type === "json" && input.value.trim()) {
      try {
        JSON.parse(input.value);
      } catch (e) {
        why = `This is not JSON: ${e.message}.`;
      }
    }
    tell(why);
    return why === "" ? null : input;
  };
  const label = f.type === "check" ? h("label", { class: "check", for: id }, input, f.label) : [h("label", { for: id }, h("span", {}, f.label, !f.required && h("span", { class: "small" }, " (optional)"))), input];
  const element = h("div", { class: "field" }, label, hint, wrong);
  const says = [f.name, ...(f.says ?? [])];
  return {
    element, check, value,
    hint: () => text(hint, typeof f.hint === "function" ? f.hint(value(), form.value) : f.hint ?? ""),
    shown: () => (element.hidden = f.when ? !f.when(form.value) : false),
    // claim shows a problem that is about this field, and returns where to go.
    claim: (e) => {
      if (element.hidden || !(f.codes?.includes(e.code) || says.some((s) => names(e.message, s)))) return null;
      tell(e.message);
      return input;
    },
  };
}

// names reports whether a problem's text is about a field: by its name at the beginning, or in the path of a member.
const names = (message, name) => message.startsWith(`${name} `) || message.split(" ").some((word) => word.startsWith("/") && word.split("/").includes(name));

const empty = (v) => v === undefined || (typeof v === "object" && v !== null && Object.values(v).every(empty));

// several are fields under one name: of an object, or of each row.
function several(f, ctx, form) {
  const wrong = h("span", { class: "wrong", role: "alert" });
  const place = h("div", { class: "stack" });
  const rows = [];
  const makeRow = () => {
    const row = { fields: (f.each ?? f.of).map((x) => make(x, ctx, form)) };
    row.element = h("div", { class: "part" }, row.fields.map((x) => x.element),
      f.each && h("button", { type: "button", class: "quiet", "aria-label": `Remove from ${f.label.toLowerCase()}`, onclick: () => {
        if (rows.length <= f.least) return;
        rows.splice(rows.indexOf(row), 1);
        row.element.remove();
      } }, "Remove"));
    rows.push(row);
    add(place, row.element);
  };
  for (let i = 0; i < (f.each ? Math.max(1, f.least) : 1); i++) makeRow();
  const element = h("fieldset", {}, h("legend", {}, f.label), f.note && h("p", { class: "hint" }, f.note), place, wrong, f.each && h("div", {}, h("button", { type: "button", onclick: () => { makeRow(); form.hint(); } }, f.add)));
  const all = () => rows.flatMap((r) => r.fields);
  const object = (fields) => Object.fromEntries(fields.map((x, i) => [(f.each ?? f.of)[i].name, x.value()]).filter(([, v]) => v !== undefined));
  return {
    element,
    check: () => all().map((x) => x.check()).find(Boolean) ?? null,
    value: () => {
      const values = rows.map((r) => object(r.fields));
      return f.each ? values : empty(values[0]) ? undefined : values[0];
    },
    hint: () => all().forEach((x) => x.hint()),
    shown: () => {
      element.hidden = f.when ? !f.when(form.value) : false;
      all().forEach((x) => x.shown());
    },
    claim: (e) => {
      text(wrong, "");
      const at = all().map((x) => x.claim(e)).find(Boolean);
      if (at) return at;
      if (element.hidden || !((f.says ?? []).some((s) => e.message.startsWith(s)) || names(e.message, f.name) || f.codes?.includes(e.code))) return null;
      text(wrong, e.message);
      return element.querySelector("input, select");
    },
  };
}

const make = (f, ctx, form) => (f.each || f.of ? several : one)(f, ctx, form);

// form asks for what path takes and makes it. body may change what is sent; done gets what was made.
export function makingForm(ctx, { fields, path, verb, body = (v) => v, done }) {
  const trouble = h("div");
  const state = { value: {}, hint: () => {} };
  const made = fields.map((f) => make(f, ctx, state));
  const read = () => Object.fromEntries(made.map((x, i) => [x, fields[i]]).filter(([x]) => !x.element.hidden).map(([x, f]) => [f.name, x.value()]).filter(([, v]) => v !== undefined));
  state.hint = () => {
    try {
      state.value = read();
    } catch {
      return; // A text that is not JSON yet.
    }
    made.forEach((x) => { x.shown(); x.hint(); });
  };
  const go = h("button", { type: "submit", class: "primary", disabled: mayNot() !== "" }, verb);
  let sent = ""; // what was sent last, under key
  let key = "";
  const element = h("form", { class: "making", novalidate: true, onsubmit: async (e) => {
    e.preventDefault();
    fill(trouble);
    const first = made.filter((x) => !x.element.hidden).map((x) => x.check()).find(Boolean);
    if (first) return first.focus();
    const content = JSON.stringify(body(read()));
    // The same again is the same request: what may have been made is not made twice.
    if (content !== sent) key = newKey();
    sent = content;
    go.disabled = true;
    try {
      const answer = await act("POST", path, JSON.parse(content), key);
      done(answer.body);
    } catch (error) {
      go.disabled = false;
      if (error.outcome === "unknown") {
        go.textContent = "Ask again";
        fill(trouble, h("p", { class: "note bad", role: "alert" }, error.message, " It may have been made. Asking again without a change gives the true answer, and makes it once."));
        return;
      }
      go.textContent = verb;
      const at = made.map((x) => x.claim(error)).find(Boolean);
      fill(trouble, h("p", { class: "note bad", role: "alert" }, at ? `Not made: ${error.message}` : error.message, ".", error.requestID && h("span", { class: "small" }, ` Request ${error.requestID}.`)));
      at?.focus();
    }
  } }, made.map((x) => x.element), trouble, mayNot() && h("p", { class: "note warn" }, mayNot()), h("div", { class: "actions" }, go));
  state.hint();
  return element;
}
