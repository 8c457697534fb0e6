// Who holds what, who waits for whom, since when.
import { h, fill } from "../dom.js";
import { refill } from "../refill.js";
import { get } from "../api.js";
import { action, card, every, head, table } from "../ui.js";
import { count, when } from "../format.js";
import { empty } from "../empty.js";
import { age, left } from "../ages.js";
import { waits } from "../waits.js";
import { hour } from "../hour.js";

export default async function locks(ctx) {
  const holders = h("div");
  const waiters = h("div");
  const graph = waits();
  const deadlocks = h("div");
  const filter = h("input", { name: "q", type: "search", placeholder: "owner or key", value: ctx.query.get("q") ?? "", autocomplete: "off", spellcheck: "false" });
  let snapshot = { holders: [], waiters: [], edges: [] };
  const nothing = (q) => (q ? h("p", { class: "empty" }, "No lock matches.") : empty({
    says: "A lock keeps its keys for its owner until it is released, or not renewed in time. Nothing is held.", curl: ["/v1/locks", { keys: ["invoice-7"], owner: "worker-1", ttl: "30s" }],
  }));
  const draw = () => {
    const q = filter.value.trim();
    const fits = (owner, keys) => q === "" || owner.includes(q) || keys.some((k) => k.includes(q));
    const held = snapshot.holders.filter((x) => fits(x.owner, Object.keys(x.tokens)));
    const waits = snapshot.waiters.filter((x) => fits(x.owner, x.keys));
    const most = 200;
    refill(holders, held.length === 0 ? nothing(q) : table([
      { name: "Owner", lead: true, cell: (x) => x.owner },
      { name: "Keys and tokens", cell: (x) => h("div", { class: "lines" }, Object.entries(x.tokens).map(([key, token]) => h("span", {}, h("code", {}, key), " ", h("span", { class: "soft nowrap" }, `token ${count(token)}`)))) },
      { name: "Held for", num: true, cell: (x) => age(x.granted_at) },
      { name: "Ends in", num: true, cell: (x) => left(x.expires_at) },
      { name: "Actions", act: true, cell: (x) => action("Release", { title: "Release the lock", verb: `Release the lock of ${x.owner}`, keep: "Keep the lock", danger: true, method: "DELETE", path: `/v1/locks/${x.id}`, audit: { object: x.id }, explain: `${x.owner} loses ${Object.keys(x.tokens).join(", ")} at once, and the next in line gets it. What ${x.owner} still writes is refused wherever the token is checked, and only there.`, done: look }) },
    ], held.slice(0, most), { caption: "Holders" }), held.length > most && h("p", { class: "soft small" }, `The first ${most} of ${count(held.length)}: narrow the list.`));
    refill(waiters, waits.length === 0 ? h("p", { class: "empty" }, "Nobody waits.") : table([
      { name: "Owner", lead: true, cell: (x) => x.owner },
      { name: "Waits for", cell: (x) => h("div", { class: "lines" }, x.keys.map((k) => h("code", {}, k))) },
      { name: "Since", cell: (x) => when(x.since) },
      { name: "For", num: true, cell: (x) => age(x.since) },
    ], waits.slice(0, most), { caption: "Waiters" }));
    graph.draw(snapshot);
  };
  const database = h("div");
  const drawDatabase = (waits) => refill(database, waits.length === 0 ? h("p", { class: "empty" }, "No session of the database waits for another.") : table([
    { name: "Session", lead: true, cell: (x) => `${x.pid} ${x.application}` },
    { name: "Waits for", cell: (x) => [x.mode, " on ", x.relation || x.kind] },
    { name: "For", num: true, cell: (x) => age(x.since) },
    { name: "Statement", cell: (x) => h("code", {}, x.statement) },
    { name: "In the way", cell: (x) => h("div", { class: "lines" }, x.blockers.map((b) => h("span", {}, `${b.pid || "prepared"} ${b.application} (${b.state})`, b.transaction_since && [" for ", age(b.transaction_since)]))) },
  ], waits, { caption: "Sessions of the database that wait" }));
  const drawDeadlocks = (all) => refill(deadlocks, all.length === 0 ? h("p", { class: "empty" }, "None.") : table([
    { name: "When", cell: (d) => when(d.at) },
    { name: "Refused", lead: true, cell: (d) => d.cycle[0] },
    { name: "Cycle", cell: (d) => h("div", { class: "lines" }, d.cycle.map((o, i) => h("span", {}, `${o} waited for `, h("code", {}, d.keys[i]), ` of ${d.cycle[(i + 1) % d.cycle.length]}`))) },
  ], all, { caption: "Recent deadlocks" }));
  const look = async () => {
    drawDatabase((await get("/v1/admin/database-waits", ctx.signal)).waits);
    snapshot = await get("/v1/locks", ctx.signal);
    drawDeadlocks((await get("/v1/admin/deadlocks", ctx.signal)).deadlocks);
    draw();
  };
  filter.addEventListener("input", () => {
    ctx.place({ q: filter.value.trim() }, { step: false });
    draw();
  });
  fill(ctx.root, head("Locks"),
    h("form", { class: "filters", role: "search", onsubmit: (e) => e.preventDefault() }, h("label", {}, "Owner or key contains", filter)),
    card("Who holds what", holders),
    card("Who waits for whom", graph.element),
    card("Waiting, in order of asking", waiters),
    h("section", { class: "card" }, h("h2", {}, "Recent deadlocks"), deadlocks, h("p", { class: "small soft" }, "Broken by the server that answers this page, the newest 50 since its process began. Each server remembers its own.")),
    card("Waits within the database", database),
    hour(ctx, ["locks", "waiting"]));
  await look();
  every(ctx, 2000, look, { later: true });
}
