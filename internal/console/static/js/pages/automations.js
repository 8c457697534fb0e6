// Rules that schedule drafts by themselves.
import { h, fill } from "../dom.js";
import { action, card, head, list } from "../ui.js";
import { badge, duration, when } from "../format.js";

const rule = (a) => (a.every ? `every ${duration(a.every)}` : `${a.weekdays?.length === 7 || !a.weekdays ? "daily" : a.weekdays.join(", ")} at ${a.times.join(", ")}, ${a.time_zone}`);

export default async function automations(ctx) {
  const all = list(ctx, {
    caption: "Automations", path: () => "/v1/admin/automations",
    empty: { says: "An automation takes drafts of a target and schedules them, by times of the day or an interval. There is none yet.", curl: ["/v1/automations", { name: "Weekly digest", target: "newsroom", weekdays: ["mon"], times: ["09:00"] }] },
    columns: [
      { name: "Automation", lead: true, cell: (a) => h("a", { href: `/console/automations/${a.id}` }, a.name) },
      { name: "State", cell: (a) => badge(a.status, tones[a.status]) },
      { name: "Rule", cell: rule },
      { name: "Target", cell: (a) => h("a", { href: `/console/targets/${encodeURIComponent(a.target)}` }, a.target) },
      { name: "Next", cell: (a) => when(a.next_at) },
      { name: "Actions", act: true, cell: (a) => toggle(a, () => all.reload()) },
    ],
  });
  fill(ctx.root, head("Automations", { note: "Each takes drafts of its target and schedules them by its rule." }), card(null, all.element));
}

// toggle pauses what runs and resumes what rests; what has ended stays so.
export function toggle(a, done) {
  const audit = { object: a.id };
  if (a.status === "cancelled") return null;
  return a.status === "active"
    ? action("Pause", { title: `Pause ${a.name}`, verb: `Pause ${a.name}`, keep: "Keep it running", explain: "It schedules nothing until it is resumed. What is scheduled already is sent.", path: `/v1/automations/${a.id}/pause`, audit, done })
    : action("Resume", { title: `Resume ${a.name}`, verb: `Resume ${a.name}`, keep: "Leave it paused", explain: "It goes on at its next time. What was missed is not made up for.", path: `/v1/automations/${a.id}/resume`, audit, done });
}

export const tones = { active: "good", paused: "warn", cancelled: "" };
export { rule };
