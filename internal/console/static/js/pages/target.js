// A target: whether it is being delivered to, why not, and what its last attempts came to.
import { h, fill } from "../dom.js";
import { age, left } from "../ages.js";
import { get } from "../api.js";
import { card, copy, facts, head, watch } from "../ui.js";
import { duration, short, when } from "../format.js";
import { lastError, stateBadge, toggle } from "./targets.js";
import { trail } from "./trail.js";

export default async function target(ctx) {
  const base = `/v1/targets/${await idOf(ctx.params.id, ctx.signal)}`;
  const t = await get(base, ctx.signal);
  ctx.title(t.name);
  const e = t.health.last_error;
  const good = t.health.last_success_at;
  fill(ctx.root, head(t.name, { crumb: ["Targets", "/console/targets"], badges: [stateBadge(t)], actions: [
    h("a", { class: "button", href: `/console/publications?target=${encodeURIComponent(t.name)}` }, "Its publications"), toggle(t, ctx.reload),
  ] }),
    verdict(t),
    h("div", { class: "cols" },
      card("Deliveries", facts([
        ["Last success", good ? h("span", {}, when(good), ", ", age(good), " ago") : "never"],
        ["Last error", lastError(e)],
        ["What it said", e?.message],
        ["Publication", e && h("a", { href: `/console/publications/${e.publication}` }, short(e.publication))],
        ["Slowed to", t.pace.interval === "0s" ? null : `one publication every ${duration(t.pace.interval)}`],
        ["Answers 429 in a row", t.pace.refusals || null],
      ])),
      card("Facts", facts([["Kind", t.kind], ["URL", h("code", {}, t.url)], ["Timeout of an attempt", duration(t.timeout)], ["Old secret signs until", t.overlap_until && when(t.overlap_until)], ["Made", when(t.created_at)], ["Id", copy(t.id)]]))),
    trail(ctx, t.id));
  watch(ctx, base, t);
}

// verdict says in a sentence what the state means, and what can be done.
function verdict(t) {
  const note = (tone, ...text) => h("p", { class: `note ${tone}` }, text);
  switch (t.health.state) {
    case "paused":
      return t.paused_reason === "auth_expired"
        ? note("warn", "Paused for ", age(t.paused_at), ": its authorization has expired. New credentials resume it: ", h("code", {}, `POST /v1/targets/${t.id}/credentials`), ".")
        : note("warn", "An operator paused it ", age(t.paused_at), " ago. Its publications wait until it is resumed.");
    case "circuit_open":
      return t.pace.state === "open"
        ? note("bad", `Its circuit is tripped after ${t.pace.refusals} answers 429 in a row. Nothing is sent for `, left(t.pace.open_until), " more; then one publication will tell whether it accepts again.")
        : note("bad", "Its circuit was tripped. The next publication that is due will tell whether it accepts again.");
    case "slowed":
      return note("warn", "It has answered 429: it is sent one publication at a time. Each delivery makes it a little faster.");
    case "failing":
      return note("bad", "The last attempt failed: ", t.health.last_error.message, final(t.health.last_error)
        ? ". Such an answer ends the publication, which has failed: retry it when the target is mended."
        : ". What may succeed later is tried again, with a growing pause.");
    case "idle":
      return note("", "No attempt to deliver to it has ended yet.");
  }
  return null;
}

// final says whether an attempt that failed so is not tried again by itself.
const final = (e) => e.cause === "address" || (e.cause === "status" && e.status_code < 500 && e.status_code !== 429);

// idOf finds a target by its name where the address has no id: a publication names its target.
async function idOf(text, signal) {
  if (/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(text)) return text;
  for (let after = ""; after !== null;) {
    const page = await get(`/v1/targets?limit=200${after ? `&after=${encodeURIComponent(after)}` : ""}`, signal);
    const found = page.items.find((t) => t.name === text);
    if (found) return found.id;
    after = page.next;
  }
  return encodeURIComponent(text);
}
