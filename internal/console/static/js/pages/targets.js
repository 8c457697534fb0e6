import { h, fill } from "../dom.js";
import { head, card, list } from "../ui.js";
import { badge, when } from "../format.js";

export default async function targets(ctx) {
  const open = (t) => t.pace.open_until && Date.parse(t.pace.open_until) > Date.now();
  fill(ctx.root, head("Targets", { note: "Where publications go. A target that fails is left alone for a while; one that answers 429 is slowed down." }), card(null, list(ctx, {
    caption: "Targets", none: "There are no targets.", path: () => "/v1/targets",
    columns: [
      { name: "Target", lead: true, cell: (t) => t.name },
      { name: "Kind", cell: (t) => t.kind },
      { name: "URL", cell: (t) => h("code", {}, t.url) },
      { name: "State", cell: (t) => (open(t) ? h("span", {}, badge("circuit open", "bad"), " until ", when(t.pace.open_until)) : t.pace.interval !== "0s" ? badge(`one in ${t.pace.interval}`, "warn") : badge("open", "good")) },
      { name: "Made", cell: (t) => when(t.created_at) },
    ],
  }).element));
}
