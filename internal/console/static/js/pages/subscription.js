// A subscription: how far it has come with each topic, and why not further.
import { h, fill } from "../dom.js";
import { age } from "../ages.js";
import { get } from "../api.js";
import { action, card, copy, facts, head, list, watch } from "../ui.js";
import { badge, when } from "../format.js";
import { home } from "../names.js";
import { stateBadge, targetLink, toggle } from "./subscriptions.js";
import { trail } from "./trail.js";

const tones = { current: "good", behind: "", retrying: "warn", stopped: "bad" };

export default async function subscription(ctx) {
  const base = `/v1/subscriptions/${ctx.params.id}`;
  const s = await get(base, ctx.signal);
  ctx.title(s.name);
  const topics = list(ctx, {
    caption: "Topics", none: "It has not come to any topic yet.", path: () => `${base}/topics`,
    columns: [
      { name: "Topic", lead: true, cell: (t) => topicLink(t.topic) },
      { name: "State", cell: (t) => badge(t.state, tones[t.state]) },
      { name: "Delivered up to", num: true, cell: (t) => t.seq },
      { name: "Behind by", num: true, cell: (t) => t.lag || "–" },
      { name: "Last delivery", cell: (t) => (t.delivered_at ? when(t.delivered_at) : h("span", { class: "soft" }, "none")) },
      { name: "Last error", cell: (t) => (t.last_error ? `${t.last_error.message}, ${t.attempts} ${t.attempts === 1 ? "time" : "times"}` : "–") },
      { name: "Actions", act: true, cell: (t) => replay(s, t, () => topics.reload()) },
    ],
  });
  fill(ctx.root, head(s.name, { crumb: ["Subscriptions", "/console/subscriptions"], badges: [stateBadge(s)], actions: [
    toggle(s, ctx.reload),
    action("Delete", { title: `Delete ${s.name}`, verb: "Delete the subscription", keep: "Keep the subscription", explain: "It delivers nothing any more, and forgets how far it has come. This can't be undone.", danger: true, method: "DELETE", path: base, audit: { object: s.id }, done: () => ctx.go("/console/subscriptions") }),
  ] }),
    s.paused_at && h("p", { class: `note ${s.paused_reason === "refused" ? "bad" : "warn"}` }, s.paused_reason === "refused" ? `Paused: its target has refused ${s.refusals} events in a row for good. Mend the receiver, and resume it.` : ["An operator paused it ", age(s.paused_at), " ago. Its events wait until it is resumed."]),
    card("Facts", facts([
      ["Target", targetLink(s)], ["Topics", s.topics.join(", ")], ["Types of events", s.types.length ? s.types.join(", ") : "all"], ["Envelope", s.envelope === "cloudevents" ? "CloudEvents" : "plain"], ["Made", when(s.created_at)], ["Id", copy(s.id)],
    ])),
    card("Progress", topics.element),
    trail(ctx, s.id));
  watch(ctx, base, s);
}

function topicLink(topic) {
  const [kind, id] = topic.split(":");
  return h("a", { href: home(kind, id) }, topic);
}

// replay asks after which event a topic is delivered again.
function replay(s, t, done) {
  return action("Replay", { title: `Replay ${t.topic}`, verb: "Replay the topic", keep: "Replay nothing", explain: `All events after the number that you give are delivered again, in order. Repeats have the ids that they had. It has delivered the events up to ${t.seq}, of ${t.head}.`, path: `/v1/subscriptions/${s.id}/replay`, fields: [{ name: "after", label: "After number", type: "number", required: true, value: String(t.seq) }], body: (f) => ({ topic: t.topic, after: Number(f.after) }), audit: { object: s.id }, done });
}
