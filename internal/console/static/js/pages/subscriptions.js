// Subscriptions: what is delivered to webhooks as it happens.
import { h, fill } from "../dom.js";
import { action, card, head, list } from "../ui.js";
import { badge, when } from "../format.js";

export default async function subscriptions(ctx) {
  const all = list(ctx, {
    caption: "Subscriptions", path: () => "/v1/subscriptions",
    empty: { says: "A subscription delivers the events of auctions, campaigns and multi-draws to a webhook, in order. There is none yet.", curl: ["/v1/subscriptions", { name: "Bids", target: "shop", topics: ["auction:*"], types: ["bid.placed"] }] },
    columns: [
      { name: "Subscription", lead: true, cell: (s) => h("a", { href: `/console/subscriptions/${s.id}` }, s.name) },
      { name: "State", cell: stateBadge },
      { name: "Topics", cell: (s) => named(s.topics) },
      { name: "Target", cell: (s) => targetLink(s) },
      { name: "Made", cell: (s) => when(s.created_at) },
      { name: "Actions", act: true, cell: (s) => toggle(s, () => all.reload()) },
    ],
  });
  fill(ctx.root, head("Subscriptions", { note: "Each delivers the events of its topics to a webhook, in order within each topic." }), card(null, all.element));
}

const named = (topics) => (topics.length > 2 ? `${topics.slice(0, 2).join(", ")} and ${topics.length - 2} more` : topics.join(", "));

export const targetLink = (s) => h("a", { href: `/console/targets/${encodeURIComponent(s.target)}` }, s.target);

export const stateBadge = (s) => (s.paused_at ? badge(s.paused_reason === "refused" ? "refused" : "paused", s.paused_reason === "refused" ? "bad" : "warn") : badge("active", "good"));

// toggle pauses what goes and resumes what rests.
export function toggle(s, done) {
  const audit = { object: s.id };
  return s.paused_at
    ? action("Resume", { title: `Resume ${s.name}`, verb: `Resume ${s.name}`, keep: "Leave it paused", explain: "It goes on where it was: everything that came meanwhile is delivered, in order.", path: `/v1/subscriptions/${s.id}/resume`, audit, done })
    : action("Pause", { title: `Pause ${s.name}`, verb: `Pause ${s.name}`, keep: "Keep it delivering", explain: "Its events wait until it is resumed. At most one event of each topic is still sent.", path: `/v1/subscriptions/${s.id}/pause`, audit, done });
}
