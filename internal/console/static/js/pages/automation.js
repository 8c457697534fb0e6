import { h, fill } from "../dom.js";
import { get } from "../api.js";
import { action, card, copy, facts, head, list, watch } from "../ui.js";
import { badge, duration, when } from "../format.js";
import { named } from "../names.js";
import { rule, toggle, tones } from "./automations.js";
import { trail } from "./trail.js";

export default async function automation(ctx) {
  const base = `/v1/automations/${ctx.params.id}`;
  const a = await get(base, ctx.signal);
  ctx.title(a.name);
  fill(ctx.root, head(a.name, { crumb: ["Automations", "/console/automations"], badges: [badge(a.status, tones[a.status])], actions: a.status === "cancelled" ? [] : [
    toggle(a, ctx.reload), action("Cancel", { title: `Cancel ${a.name}`, verb: "Cancel the automation", keep: "Keep the automation", explain: "It never fires again. What is scheduled already is sent. This can't be undone.", danger: true, path: `${base}/cancel`, audit: { object: a.id }, done: ctx.reload }),
  ] }),
    card("Facts", facts([
      ["Rule", rule(a)], ["Next", when(a.next_at)], ["Target", h("a", { href: `/console/targets/${encodeURIComponent(a.target)}` }, a.target)], ["Takes", { first: "the oldest draft", last: "the newest draft", random: "a random draft" }[a.pick]], ["A day at most", a.daily_quota ?? "any number"], ["Jitter", a.jitter && duration(a.jitter)], ["Made", when(a.created_at)], ["Id", copy(a.id)],
    ])),
    card("What it fired", list(ctx, {
      caption: "Firings", none: "It has not fired yet.", path: () => `/v1/admin/automations/${a.id}/firings`,
      columns: [
        { name: "Time of the rule", lead: true, cell: (f) => when(f.scheduled_for) },
        { name: "Fired", cell: (f) => when(f.fired_at) },
        { name: "Outcome", cell: (f) => badge(f.outcome, f.outcome === "scheduled" ? "good" : "warn") },
        { name: "Publication", cell: (f) => (f.publication ? named(f.publication, "publication") : h("span", { class: "soft" }, "none")) },
        { name: "Missed before", num: true, cell: (f) => f.skipped || "–" },
      ],
    }).element),
    trail(ctx, a.id));
  watch(ctx, base, a);
}
