// The system at a glance: is the money right, is it fast, what waits.
import { h, fill, text } from "../dom.js";
import { refill } from "../refill.js";
import { get } from "../api.js";
import { head, card, table, every } from "../ui.js";
import { count, span } from "../format.js";
import { age } from "../ages.js";
import { spark } from "../chart.js";
import { hour } from "../hour.js";

const period = 2000;

// diff is what a histogram took in between two looks.
function diff(now, then) {
  if (!then || now.count < then.count) return { count: 0, sum: 0, buckets: [] };
  return { count: now.count - then.count, sum: now.sum - then.sum, buckets: now.buckets.map((b, i) => ({ le: b.le, count: b.count - (then.buckets[i]?.count ?? 0) })) };
}

const merge = (list) => list.reduce((a, b) => ({
  count: a.count + b.count, sum: a.sum + b.sum, buckets: b.buckets.map((x, i) => ({ le: x.le, count: x.count + (a.buckets[i]?.count ?? 0) })),
}), { count: 0, sum: 0, buckets: [] });

// quantile reads a histogram, between the bounds of the bucket that has it; null without observations.
function quantile(hist, q) {
  if (hist.count === 0) return null;
  const rank = q * hist.count;
  let low = 0;
  let below = 0;
  for (const b of hist.buckets) {
    if (b.count >= rank) return low + ((b.le - low) * (rank - below)) / Math.max(1, b.count - below);
    low = b.le;
    below = b.count;
  }
  return low;
}

function tile(what, drawing) {
  const value = h("div", { class: "value" }, "–");
  const more = h("div", { class: "more" });
  return { element: h("div", { class: "tile" }, h("div", { class: "what" }, what), value, more, drawing?.element), value, more, drawing };
}

const rate = (n) => (n >= 100 ? count(Math.round(n)) : n >= 10 ? n.toFixed(0) : n.toFixed(1));

export default async function overview(ctx) {
  const { root, signal } = ctx;
  const integrity = tile("Integrity of the money");
  const commands = tile("Commands", spark("Commands a second over the last two minutes"));
  const commits = tile("Commit latency p99", spark("Commit latency p99 over the last two minutes"));
  const batch = tile("Commands per commit", spark("Commands per commit over the last two minutes"));
  const requests = tile("Requests", spark("Requests a second over the last two minutes"));
  const failures = tile("Failed requests", spark("Failed requests a second over the last two minutes"));
  const waiting = h("ul", { class: "waiting" });
  const services = h("div");
  const note = h("p", { class: "soft small" });
  const shared = h("div");
  fill(root, head("Overview", { note }),
    h("div", { class: "tiles" }, [integrity, commands, commits, batch, requests, failures].map((t) => t.element)),
    shared, h("div", { class: "cols wide-left" }, card("By service", services), card("Waiting now", waiting)),
    hour({ signal }, ["throughput", "latency", "refusals", "locks"]));

  let then = null;
  const look = async () => {
    const now = await get("/v1/admin/overview", signal);
    const seconds = then ? (Date.parse(now.at) - Date.parse(then.at)) / 1000 : 0;
    const before = Object.fromEntries((then?.lanes ?? []).map((l) => [l.service, l]));
    const lanes = now.lanes.map((l) => ({ service: l.service, queue: l.queue, refused: l.refused, batch: diff(l.batch, before[l.service]?.batch), commit: diff(l.commit, before[l.service]?.commit), all: l }));
    const all = { batch: merge(lanes.map((l) => l.batch)), commit: merge(lanes.map((l) => l.commit)) };
    text(note, `This server (${now.version}), ${seconds > 0 ? `over the last ${Math.round(seconds)} s` : "whose rates come with the next look"}; “Waiting now” is of all servers.`);
    if (then && seconds > 0) {
      const set = (t, value, unit, more, point) => {
        fill(t.value, value, unit && h("small", {}, unit));
        text(t.more, more);
        t.drawing.push(point);
      };
      const p99 = quantile(all.commit, 0.99);
      const p50 = quantile(all.commit, 0.5);
      const mean = all.batch.count > 0 ? all.batch.sum / all.batch.count : null;
      set(commands, rate(all.batch.sum / seconds), "a second", `${rate(all.commit.count / seconds)} commits a second`, all.batch.sum / seconds);
      set(commits, p99 === null ? "–" : span(p99), "", p50 === null ? "nothing was committed" : `p50 ${span(p50)}`, p99);
      set(batch, mean === null ? "–" : mean.toFixed(1), "", `${count(Math.max(0, ...lanes.map((l) => l.queue)))} in the longest queue`, mean);
      const latency = quantile(diff(now.latency, then.latency), 0.99);
      set(requests, rate((now.requests - then.requests) / seconds), "a second", latency === null ? "" : `p99 ${span(latency)}`, (now.requests - then.requests) / seconds);
      set(failures, count(now.failures), "", `since the start, of ${count(now.requests)}`, (now.failures - then.failures) / seconds);
    }
    then = now;
    fill(services, table([
      { name: "Service", lead: true, cell: (l) => l.service },
      { name: "Commands/s", num: true, cell: (l) => (seconds > 0 ? rate(l.batch.sum / seconds) : "–") },
      { name: "Per commit", num: true, cell: (l) => (l.all.batch.count > 0 ? (l.all.batch.sum / l.all.batch.count).toFixed(1) : "–") },
      { name: "p50", num: true, cell: (l) => { const q = quantile(l.all.commit, 0.5); return q === null ? "–" : span(q); } },
      { name: "p99", num: true, cell: (l) => { const q = quantile(l.all.commit, 0.99); return q === null ? "–" : span(q); } },
      { name: "Refused", num: true, cell: (l) => count(l.refused) },
    ], lanes, { caption: "Services" }), h("p", { class: "small soft" }, "Commands per commit and commit latency since this server started."));
    drawWaiting(waiting, now.backlog);
    drawShared(shared, now.shared_targets);
  };
  const check = async () => {
    const i = await get("/v1/integrity", signal, 60_000); // It recomputes the books.
    fill(integrity.value, h("span", { class: `lamp ${i.valid ? "good" : "bad"}` }), i.valid ? "Valid" : "Broken");
    fill(integrity.more, i.valid ? h("span", {}, "recomputed ", age(i.checked_at), " ago") : h("span", {}, i.first_bad_account ? ["first bad account ", h("a", { href: `/console/accounts/${encodeURIComponent(i.first_bad_account)}` }, i.first_bad_account)] : `difference ${i.difference}, ${i.bad_transfers} bad transfers`));
  };
  await look();
  every(ctx, period, look, { later: true });
  every(ctx, 30_000, check, { shows: integrity.element });
}

function drawWaiting(element, b) {
  const rows = [
    ["Campaigns drawing", b.campaigns_drawing, "/console/campaigns?status=drawing", b.oldest_drawing, 60],
    ["Auctions' rounds overdue", b.rounds_overdue, "/console/auctions?status=active", null, 0],
    ["Publications failed", b.publications_failed, "/console/publications?status=failed", null, 0],
    ["Publications due", b.publications_due, "/console/publications?status=scheduled", b.oldest_due, 60],
    ["Publications being sent", b.publications_running, "/console/publications?status=publishing", b.oldest_claim, 600],
    ["Requests waiting for a lock", b.locks_waited, "/console/locks", null, -1],
    ["Multi-draws interrupted", b.multidraws_interrupted, "/console/multidraws", null, 0],
    ["Transfers pending", b.transfers_pending, "/console/transfers?status=pending", null, -1],
    ["Sagas stuck", b.sagas_stuck, "/console/sagas?stuck=stuck", null, 0],
    ["Sagas under way", b.sagas_pending, "/console/sagas?status=pending", null, -1],
    ["Campaigns on sale", b.campaigns_active, "/console/campaigns?status=active", null, -1],
    ["Auctions under way", b.auctions_active, "/console/auctions?status=active", null, -1],
    ["Locks held", b.locks_held, "/console/locks", null, -1],
  ];
  refill(element, rows.map(([name, n, href, oldest, limit]) => {
    // Zero: any is too many; above it: seconds after which the oldest is.
    const alarm = n > 0 && limit >= 0 && (limit === 0 || (oldest && Date.now() - Date.parse(oldest) > limit * 1000));
    return h("li", { class: alarm ? "alarm" : n === 0 ? "calm" : null }, h("b", {}, n >= 1000 ? "1,000+" : n), h("span", {}, href ? h("a", { href }, name) : name, oldest && n > 0 && h("span", { class: "soft" }, ", the oldest for ", age(oldest))));
  }));
}

// drawShared names the auctions and campaigns that this server works on in turns with others.
function drawShared(element, targets) {
  fill(element, targets.length > 0 && card("Hot targets that several servers work on", h("div", {}, table([
    { name: "Target", lead: true, cell: (t) => { const [kind, id] = t.target.split(":"); return h("a", { href: kind === "auction" ? `/console/auctions/${id}` : `/console/campaigns/${id}` }, t.target); } },
    { name: "Changed by others", num: true, cell: (t) => `${rate(t.changes_per_second)} a second` },
  ], targets, { caption: "Shared targets" }), h("p", { class: "small soft" }, "Each of these servers reads anew what the others commit. Let the proxy send all commands for one target to one server."))));
}
