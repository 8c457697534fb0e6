import { h, fill, text } from "../dom.js";
import { get } from "../api.js";
import { action, card, copy, facts, head, list } from "../ui.js";
import { badge, count, share, when } from "../format.js";
import { follow } from "../live.js";
import { trail } from "./trail.js";

export default async function multidraw(ctx) {
  const base = `/v1/multidraws/${ctx.params.id}`;
  const m = await get(base, ctx.signal);
  ctx.title(m.lock_key);
  const audit = { object: m.id };
  const actions = [];
  if (m.status === "interrupted") actions.push(action("Resume", { title: `Resume ${m.lock_key}`, explain: "It goes on at the first draw that is not saved. The result is the one that an unbroken run would have had.", path: `${base}/resume`, audit, done: ctx.reload }));
  if (m.status === "interrupted" || m.status === "completed") actions.push(action("Roll back", { title: `Roll back ${m.lock_key}`, explain: "The draws no longer count; their history stays. The lock key becomes free.", danger: true, path: `${base}/rollback`, audit, done: ctx.reload }));
  const done = h("span", {}, count(m.completed_count));
  const bar = h("div", {}, share(m.completed_count, m.total_count));
  fill(ctx.root, head(m.lock_key, { crumb: ["Multi-draws", "/console/multidraws"], badges: [badge(m.status)], actions }),
    card("Progress", bar, h("p", {}, done, ` of ${count(m.total_count)} drawn`)),
    card("Facts", facts([
      ["Drawn from", m.range ? `${count(m.range.min)} to ${count(m.range.max)}` : `${count(m.prizes?.length ?? 0)} weighted prizes`],
      ["Commitment", copy(m.seed_commitment)], ["Seed", m.seed && copy(m.seed)],
      ["Begun", when(m.start_time)], ["Last saved", when(m.last_update_time)], ["Completed", m.completed_at && when(m.completed_at)], ["Rolled back", m.rolled_back_at && when(m.rolled_back_at)], ["Id", copy(m.id)],
    ])),
    card("Results", list(ctx, {
      caption: "Results", none: "Nothing is drawn yet.", path: () => `${base}/results`,
      columns: [{ name: "Result", lead: true, cell: (r) => (typeof r === "object" ? JSON.stringify(r) : String(r)) }],
    }).element),
    trail(ctx, m.id));
  if (m.status === "running") {
    follow(`multidraw:${m.id}`, { signal: ctx.signal, on: (e) => {
      if (e.type !== "progress") return;
      text(done, count(e.data.completed_count));
      fill(bar, share(e.data.completed_count, e.data.total_count));
      if (e.data.completed_count === e.data.total_count) setTimeout(() => { if (!ctx.signal.aborted) ctx.reload(); }, 500);
    } });
  }
}
