import { h, fill } from "../dom.js";
import { get } from "../api.js";
import { action, card, copy, every, facts, head, list, watch } from "../ui.js";
import { badge, count, share, short, when } from "../format.js";
import { trail } from "./trail.js";

export default async function publication(ctx) {
  const base = `/v1/publications/${ctx.params.id}`;
  const p = await get(base, ctx.signal);
  ctx.title(`To ${p.target}`);
  const audit = { object: p.id };
  const act = (verb, label, explain, danger) => action(label, { title: `${label}, to ${p.target}`, explain, danger, ...words[verb], path: `${base}/${verb}`, audit, done: ctx.reload });
  const words = {
    retry: { verb: "Retry it now", keep: "Leave it failed" }, publish: { verb: "Publish it now", keep: p.status === "draft" ? "Keep the draft" : "Keep its time" }, cancel: { verb: "Cancel the publication", keep: "Keep the publication" },
  };
  const actions = [];
  if (p.status === "failed") actions.push(act("retry", "Retry", "It is due at once, with a full set of attempts. The target sees the same webhook-id and a higher version."));
  if (p.status === "draft" || p.status === "scheduled") actions.push(act("publish", "Publish now", "It is due at once, without jitter."), act("cancel", "Cancel", "It is never sent. This can't be undone.", true));
  const running = h("div", {});
  const target = h("a", { href: `/console/targets/${encodeURIComponent(p.target)}` }, p.target);
  fill(ctx.root, head(`To ${p.target}`, { crumb: ["Publications", "/console/publications"], badges: [badge(p.status)], actions }),
    p.last_error && h("p", { class: "note bad" }, p.last_error),
    p.status === "publishing" && card("Attempt under way", running),
    h("div", { class: "cols" },
      card("Facts", facts([
        ["Target", target], ["Asked for", p.publish_at && when(p.publish_at)], ["With jitter", p.actual_publish_at && when(p.actual_publish_at)], ["Next attempt", p.next_attempt_at && when(p.next_attempt_at)],
        ["Published", p.published_at && when(p.published_at)], ["Id at the target", p.external_id], ["Attempts", p.attempts],
        ["Claimed", p.execution_locked_at && h("span", {}, when(p.execution_locked_at), " by ", short(p.execution_lock_id))], ["Version", p.execution_version],
        ["Made", when(p.created_at)], ["Id", copy(p.id)],
      ])),
      card("Payload", h("pre", { tabindex: 0 }, JSON.stringify(p.payload ?? null, null, 2)))),
    card("Attempts", list(ctx, {
      caption: "Attempts", none: "It was not tried yet.", path: () => `/v1/admin/publications/${p.id}/attempts`,
      columns: [
        { name: "Attempt", lead: true, cell: (x) => `Version ${x.version}` },
        { name: "Result", cell: (x) => badge(x.result ?? "running") },
        { name: "Status", num: true, cell: (x) => x.status_code ?? "–" },
        { name: "Began", cell: (x) => when(x.started_at) },
        { name: "Ended", cell: (x) => when(x.ended_at) },
        { name: "Stage", cell: doing },
        { name: "Error", cell: (x) => x.error ?? h("span", { class: "soft" }, "–") },
      ],
    }).element),
    trail(ctx, p.id));
  watch(ctx, base, p, ({ current_attempt, ...rest }) => rest);
  if (p.status !== "publishing") return;
  progress(running, p.current_attempt);
  every(ctx, 3000, async () => progress(running, (await get(base, ctx.signal)).current_attempt), { later: true });
}

// doing spells what an attempt was doing at its last heartbeat.
function doing(x) {
  if (!x.stage) return h("span", { class: "soft" }, "–");
  return x.sent_bytes === null ? x.stage : `${x.stage}, ${count(x.sent_bytes)}${x.total_bytes ? ` of ${count(x.total_bytes)}` : ""} bytes`;
}

// progress shows the attempt under way, as its last heartbeat left it.
function progress(place, x) {
  if (!x) return;
  fill(place, x.total_bytes && share(x.sent_bytes ?? 0, x.total_bytes),
    facts([["Doing", doing(x)], ["Began", when(x.started_at)], ["Last sign of life", when(x.heartbeat_at ?? x.started_at)]]));
}
