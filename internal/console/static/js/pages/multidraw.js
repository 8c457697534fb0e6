import { h, fill, text } from "../dom.js";
import { get, getBytes } from "../api.js";
import { action, card, copy, facts, head, list, problem, watch } from "../ui.js";
import { badge, count, share, when } from "../format.js";
import { follow } from "../live.js";
import { countsOf, histogram } from "../histogram.js";
import { show } from "../verify/viewer.js";
import { trail } from "./trail.js";

export default async function multidraw(ctx) {
  const base = `/v1/multidraws/${ctx.params.id}`;
  const m = await get(base, ctx.signal);
  ctx.title(m.lock_key);
  const audit = { object: m.id };
  const actions = [];
  if (m.status === "interrupted") actions.push(action("Resume", { title: `Resume ${m.lock_key}`, verb: `Draw the remaining ${count(m.total_count - m.completed_count)}`, keep: "Leave it interrupted", explain: "It goes on at the first draw that is not saved. The result is the one that an unbroken run would have had.", path: `${base}/resume`, audit, done: ctx.reload }));
  if (m.status === "interrupted" || m.status === "completed") actions.push(action("Roll back", { title: `Roll back ${m.lock_key}`, verb: `Roll back ${count(m.completed_count)} draws`, keep: "Keep the draws", affects: m.completed_count, explain: "The draws no longer count; their history stays. The lock key becomes free.", danger: true, path: `${base}/rollback`, audit, done: ctx.reload }));
  const done = h("span", {}, count(m.completed_count));
  const bar = h("div", {}, share(m.completed_count, m.total_count));
  fill(ctx.root, head(m.lock_key, { crumb: ["Multi-draws", "/console/multidraws"], badges: [badge(m.status)], actions }),
    card("Progress", bar, h("p", {}, done, ` of ${count(m.total_count)} drawn`)),
    card("Facts", facts([
      ["Drawn from", m.range ? `${count(m.range.min)} to ${count(m.range.max)}` : `${count(m.prizes?.length ?? 0)} weighted prizes`],
      ["Commitment", copy(m.seed_commitment)], ["Seed", m.seed && copy(m.seed)],
      ["Begun", when(m.start_time)], ["Last saved", when(m.last_update_time)], ["Completed", m.completed_at && when(m.completed_at)], ["Rolled back", m.rolled_back_at && when(m.rolled_back_at)], ["Id", copy(m.id)],
    ])),
    drawnCard(ctx, m, base),
    card("Results", list(ctx, {
      caption: "Results", none: "Nothing is drawn yet.", limit: 20, path: () => `${base}/results`,
      columns: [{ name: "Result", lead: true, cell: (r) => (typeof r === "object" ? JSON.stringify(r) : String(r)) }],
    }).element),
    trail(ctx, m.id));
  watch(ctx, base, m, (d) => d.status);
  if (m.status === "running") {
    follow(`multidraw:${m.id}`, { signal: ctx.signal, on: (e) => {
      if (e.type !== "progress") return;
      text(done, count(e.data.completed_count));
      fill(bar, share(e.data.completed_count, e.data.total_count));
      if (e.data.completed_count === e.data.total_count) setTimeout(() => { if (!ctx.signal.aborted) ctx.reload(); }, 500);
    } });
  }
}

const sample = 10_000; // draws that the histogram is of until all are made again

// drawnCard shows how often what was drawn, and verifies all draws in this browser, which counts them too.
function drawnCard(ctx, m, base) {
  const picture = histogram(m);
  const result = h("div", { id: "proof" });
  const button = h("button", { type: "button", class: "primary", onclick: async () => {
    button.disabled = true;
    try {
      const verdict = await show(result, await getBytes(`${base}/proof`, ctx.signal), { commitment: m.seed_commitment, signal: ctx.signal });
      if (verdict.valid) picture.draw(verdict.counts, `All ${count(m.total_count)} draws, made again in this browser.`);
    } catch (e) {
      if (e.name !== "AbortError") fill(result, problem(e));
    }
    button.disabled = false;
  } }, "Verify in this browser");
  get(`${base}/results?limit=${sample}`, ctx.signal).then((page) => {
    if (page.items.length === 0) fill(picture.element, h("p", { class: "empty" }, "Nothing is drawn yet."));
    else picture.draw(countsOf(m, page.items), page.items.length < m.total_count ? `The first ${count(page.items.length)} of ${count(m.total_count)} draws; the verification counts all.` : `All ${count(m.total_count)} draws.`);
  }).catch((e) => {
    if (!ctx.signal.aborted) fill(picture.element, problem(e));
  });
  return h("section", { class: "card stack" },
    h("div", { class: "row spread" }, h("h2", {}, "How often each was drawn"), m.status === "completed" && h("div", { class: "actions" }, button, h("a", { class: "button", href: `${base}/proof`, download: `proof-${m.id}.json` }, "Download the proof"))),
    result, picture.element);
}
