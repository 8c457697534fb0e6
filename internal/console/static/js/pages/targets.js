import { h, fill } from "../dom.js";
import { age, left } from "../ages.js";
import { action, card, head, list, making } from "../ui.js";
import { badge, duration } from "../format.js";
import { get } from "../api.js";
import { hour } from "../hour.js";

export default async function targets(ctx) {
  const names = new Map((await get("/v1/admin/targets?limit=200", ctx.signal)).items.map((t) => [t.id, t.name]));
  const all = list(ctx, {
    caption: "Targets", path: () => "/v1/admin/targets",
    empty: { says: "A target is where publications are sent: a webhook’s URL, or a DeviantArt account. There is none yet.", make: ["New target", "/console/new/target"], curl: ["/v1/targets", { name: "newsroom", kind: "webhook", url: "https://example.com/hook" }] },
    columns: [
      { name: "Target", lead: true, cell: (t) => h("a", { href: `/console/targets/${t.id}` }, t.name) },
      { name: "Kind", cell: (t) => h("span", { class: "nowrap" }, t.kind) },
      { name: "State", cell: state },
      { name: "Last success", cell: (t) => (t.health.last_success_at ? h("span", { class: "nowrap" }, age(t.health.last_success_at), " ago") : h("span", { class: "soft" }, "never")) },
      { name: "Last error", cell: (t) => lastError(t.health.last_error) },
      { name: "URL", cell: (t) => h("span", { class: "break small mono" }, t.url) },
      { name: "Actions", act: true, cell: (t) => toggle(t, () => all.reload()) },
    ],
  });
  fill(ctx.root, head("Targets", { actions: [making("New target", "target")], note: "Where publications go. A target that answers 429 is slowed down; after several such answers its circuit is tripped, and it is left alone for a while." }), card(null, all.element), hour(ctx, ["published", "unpublished"], (id) => names.get(id) ?? id));
}

const tones = { delivering: "good", idle: "", failing: "bad", slowed: "warn", circuit_open: "bad", paused: "warn" };
const words = { circuit_open: "circuit tripped", idle: "no result yet" };

export const stateBadge = (t) => badge(words[t.health.state] ?? t.health.state, tones[t.health.state]);

// state is how a target fares, and what that means.
export const state = (t) => h("span", {}, stateBadge(t), " ", h("span", { class: "small" }, why(t)));

function why(t) {
  switch (t.health.state) {
    case "paused":
      return t.paused_reason === "auth_expired" ? "its authorization has expired" : ["by an operator, for ", age(t.paused_at)];
    case "circuit_open":
      return t.pace.state === "open" ? ["for ", left(t.pace.open_until), " more"] : "the next publication will tell";
    case "slowed":
      return t.pace.interval === "0s" ? "one publication at a time" : `one publication every ${duration(t.pace.interval).replaceAll(" ", "\u00a0")}`;
  }
  return null;
}

export const causes = { dns: "DNS", refused: "Connection refused", network: "Network", tls: "TLS", timeout: "Timeout", status: "Status", address: "Address not allowed", other: "Other" };

// lastError spells the last failure by its cause.
export function lastError(e) {
  if (!e) return h("span", { class: "soft" }, "none");
  return h("span", {}, h("b", { class: "nowrap" }, e.cause === "status" ? `${causes.status} ${e.status_code}` : causes[e.cause] ?? e.cause), ", ", h("span", { class: "soft nowrap" }, age(e.at), " ago"));
}

// toggle pauses a target or lets it go on.
export function toggle(t, done) {
  const audit = { object: t.id };
  return t.paused_at
    ? action("Resume", { title: `Resume ${t.name}`, keep: "Leave it paused", verb: `Resume ${t.name}`, explain: t.paused_reason === "auth_expired" ? "What is due is sent from now on, with the credentials that it has. They have expired: unless they were renewed on the other side, it is paused again." : "What is due is sent from now on.", path: `/v1/targets/${t.id}/resume`, audit, done })
    : action("Pause", { title: `Pause ${t.name}`, keep: "Keep sending", verb: `Pause ${t.name}`, explain: "Nothing more is sent to it until it is resumed; attempts under way go on. What becomes due waits.", path: `/v1/targets/${t.id}/pause`, audit, done });
}
