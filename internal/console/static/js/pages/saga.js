import { h, fill } from "../dom.js";
import { get } from "../api.js";
import { action, card, copy, facts, head, table } from "../ui.js";
import { badge, when } from "../format.js";
import { trail } from "./trail.js";

export default async function saga(ctx) {
  const base = `/v1/sagas/${ctx.params.id}`;
  const s = await get(base, ctx.signal);
  ctx.title(s.name);
  const audit = { object: s.id };
  const actions = [];
  if (s.status === "pending") {
    actions.push(action("Retry", { title: `Retry ${s.name}`, explain: "It is tried at once, and not when its pause is over. Steps that are done stay done.", path: `${base}/retry`, audit, done: ctx.reload }));
    // What is decided to commit is only carried out.
    if (!s.in_doubt) actions.push(action("Compensate", { title: `Compensate ${s.name}`, explain: "It is given up: steps that are not done are cancelled, those that are done are undone in reverse. This can't be taken back.", danger: true, path: `${base}/compensate`, audit, done: ctx.reload }));
  }
  const tone = { done: "good", refused: "bad", compensated: "warn" };
  fill(ctx.root, head(s.name, { crumb: ["Sagas", "/console/sagas"], badges: [badge(s.status), s.stuck && badge("stuck", "bad"), s.in_doubt && badge("in doubt", "warn"), s.cancelled && badge("given up", "warn")].filter(Boolean), actions }),
    s.last_error && h("p", { class: "note bad" }, s.last_error),
    card("Steps", table([
      { name: "Step", lead: true, cell: (x) => x.name },
      { name: "Status", cell: (x) => badge(x.status, tone[x.status]) },
      { name: "Made", cell: (x) => (x.result ? h("code", {}, x.result) : h("span", { class: "soft" }, "–")) },
      { name: "Undone by", cell: (x) => (x.undone ? h("code", {}, x.undone) : h("span", { class: "soft" }, "–")) },
      { name: "Reason", cell: (x) => x.reason || h("span", { class: "soft" }, "–") },
    ], s.steps, { caption: "Steps" })),
    card("Facts", facts([
      ["Protocol", s.protocol === "twophase" ? "two-phase commit" : "steps and compensations"], ["Reason", s.reason], ["Failed attempts in a row", s.attempts], ["Term", s.term],
      ["Tried next", s.next_at && when(s.next_at)], ["Given up", s.deadline_at && when(s.deadline_at)], ["Begun", when(s.created_at)], ["Ended", s.ended_at && when(s.ended_at)], ["Id", copy(s.id)],
    ])),
    trail(ctx, s.id));
}
