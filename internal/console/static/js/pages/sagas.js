// Operations of several steps, and what is prepared in some database and not yet decided there.
import { h, fill } from "../dom.js";
import { refill } from "../refill.js";
import { get, query } from "../api.js";
import { card, every, head, list, table } from "../ui.js";
import { readable } from "../errors.js";
import { badge, count, money, span, when } from "../format.js";

export default async function sagas(ctx) {
  const doubts = h("div");
  fill(ctx.root, head("Sagas", { note: "Operations of several steps: each ends with every step done, or with every done step undone." }),
    card(null, list(ctx, {
      caption: "Sagas", none: "No saga matches.",
      path: (f) => `/v1/admin/sagas${query({ ...f, stuck: f.stuck ? "true" : "" })}`,
      filters: [{ name: "status", label: "Status", options: ["pending", "completed", "failed", "compensated"], clears: ["account"] }, { name: "name", label: "Kind", placeholder: "cross-transfer", clears: ["account"] },
        { name: "stuck", label: "Getting on", options: ["stuck"], clears: ["account"] }, { name: "account", label: "Account", placeholder: "alice", clears: ["status", "name", "stuck"] }],
      empty: {
        says: "A saga is an operation of several steps, such as a transfer to an account of another ledger. There is none yet.",
        curl: ["/v1/cross-transfers", { from: { ledger: "local", account: "alice" }, to: { ledger: "local", account: "bob" }, amount: 250, mode: "saga" }],
      },
      select: {
        label: (s) => `${s.name} …${s.id.slice(-6)}`,
        actions: [{ label: "Retry", can: (s) => s.status === "pending", title: (n) => `Retry ${count(n)} saga${n === 1 ? "" : "s"}`, keep: "Leave them to their pauses", explain: "Each is tried now, without waiting for its pause to end. Steps that are done stay done.", path: (s) => `/v1/sagas/${s.id}/retry` }],
      },
      columns: [
        { name: "Saga", lead: true, cell: (s) => h("a", { href: `/console/sagas/${s.id}` }, s.name, " ", h("span", { class: "mono small" }, `…${s.id.slice(-6)}`)) },
        { name: "Status", cell: (s) => h("span", {}, badge(s.status), s.stuck && [" ", badge("stuck", "bad")], s.in_doubt && [" ", badge("in doubt", "warn")]) },
        { name: "Transfer", cell: (s) => (s.transfer ? h("span", {}, h("span", { class: "nowrap" }, money(s.transfer.amount, s.transfer.currency)), h("span", { class: "soft" }, ` ${s.transfer.from.account} → ${s.transfer.to.account}`)) : h("span", { class: "soft" }, "–")) },
        { name: "Protocol", cell: (s) => (s.protocol === "twophase" ? "two-phase" : s.protocol) },
        { name: "Reason", cell: (s) => (s.reason || s.last_error ? readable(s.last_error || s.reason) : h("span", { class: "soft" }, "–")) },
        { name: "Begun", cell: (s) => when(s.created_at) },
      ],
    }).element),
    card("In doubt", doubts));
  await every(ctx, 5000, async () => {
    const d = await get("/v1/in-doubt", ctx.signal);
    refill(doubts,
      d.unreachable.length > 0 && h("p", { class: "note bad" }, `Can’t be asked: ${d.unreachable.join(", ")}.`),
      d.items.length === 0 ? h("p", { class: "empty" }, "Nothing is prepared and undecided.") : table([
        { name: "Ledger", lead: true, cell: (x) => x.ledger },
        { name: "Saga", cell: (x) => h("a", { href: `/console/sagas/${x.saga}` }, `…${x.saga.slice(-12)}`) },
        { name: "For", num: true, cell: (x) => span(x.age_ms / 1000) },
        { name: "Then", cell: (x) => h("span", {}, badge(x.verdict, { running: "live", commit: "good", rollback: "warn", in_doubt: "bad" }[x.verdict]), x.reason && ` ${x.reason}`) },
        { name: "Name", cell: (x) => h("code", {}, x.gid) },
      ], d.items, { caption: "In doubt" }),
      h("p", { class: "small soft" }, "Each is resolved by itself, by the decision in the log: committed where there is one, rolled back where there is none. What the log does not know stays in doubt at first."));
  }, { shows: doubts }).first;
}
