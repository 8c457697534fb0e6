// An operation of several steps: the money that it moves, how far each step is, and what can be done when it does not get on.
import { h, fill } from "../dom.js";
import { age, left } from "../ages.js";
import { get } from "../api.js";
import { action, card, copy, facts, head, table, watch } from "../ui.js";
import { badge, count, money, short, when } from "../format.js";
import { readable } from "../errors.js";
import { end, local } from "../ledgers.js";
import { trail } from "./trail.js";

const none = () => h("span", { class: "soft" }, "–");
const tone = { done: "good", refused: "bad", compensated: "warn" };

// reports are the results of retries that were asked for here, by saga.
const reports = new Map();

export default async function saga(ctx) {
  const base = `/v1/sagas/${ctx.params.id}`;
  const s = await get(base, ctx.signal);
  const m = s.transfer;
  const title = m ? `${money(m.amount, m.currency)} from ${m.from.account} to ${m.to.account}` : s.name;
  ctx.title(title);
  const what = m ? `the transfer of ${money(m.amount, m.currency)}` : s.name;
  const audit = { object: s.id };
  const actions = [];
  if (s.status === "pending") {
    actions.push(action("Retry", { title: `Retry ${s.name}`, verb: `Retry ${what} now`, keep: "Leave it to its pause", explain: "It is tried now, without waiting for its pause to end. Steps that are done stay done. This page tells the result.", path: `${base}/retry`, audit, said: "The retry is asked for.", done: () => report(ctx, base, s) }));
    // What is decided to commit is only carried out.
    if (!s.in_doubt) actions.push(action("Compensate", { title: `Compensate ${s.name}`, verb: `Compensate ${what}`, keep: "Let it go on", explain: plan(s), danger: true, path: `${base}/compensate`, audit, done: ctx.reload }));
  }
  const said = reports.get(s.id);
  fill(ctx.root, head(title, { crumb: ["Sagas", "/console/sagas"], badges: [badge(s.status), s.stuck && badge("stuck", "bad"), s.in_doubt && badge("in doubt", "warn"), s.cancelled && badge("given up", "warn")].filter(Boolean), actions }),
    said && h("p", { class: `note ${said.tone}`, role: "status" }, said.text),
    trouble(s),
    h("div", { class: "cols" },
      m && card("Transfer", facts([
        ["Amount", money(m.amount, m.currency)], ["From", end(m.from)], ["To", end(m.to)], ["Kind", s.name],
      ])),
      card("Facts", facts([
        ["Protocol", s.protocol === "twophase" ? "two-phase commit" : "steps and compensations"], ["Reason", s.reason && readable(s.reason)], ["Failed attempts", s.attempts], ["Term", s.term],
        ["Tried next", s.next_at && when(s.next_at)], ["Given up", s.deadline_at && when(s.deadline_at)], ["Begun", when(s.created_at)], ["Ended", s.ended_at && when(s.ended_at)], ["Id", copy(s.id)],
      ]))),
    card("Steps", table([
      { name: "Step", lead: true, cell: (x) => x.name },
      { name: "Where", cell: (x) => h("div", {}, ends(m, x).map(end)) },
      { name: "Status", cell: (x) => badge(x.status, tone[x.status]) },
      { name: "Attempts", num: true, cell: (x) => x.attempts || "–" },
      { name: "Made", cell: (x) => made(m, x, x.result) },
      { name: "Undone by", cell: (x) => made(m, x, x.undone) },
      { name: "Error", cell: (x) => (x.error || x.reason ? readable(x.error || x.reason) : none()) },
    ], s.steps, { caption: "Steps" })),
    trail(ctx, s.id));
  watch(ctx, base, s);
}

// ends are the accounts that a step is about.
const ends = (m, x) => (!m ? [] : x.name === "debit" ? [m.from] : x.name === "credit" ? [m.to] : [m.from, m.to]);

// made is what a step has made: a transfer of its ledger.
function made(m, x, id) {
  if (!id) return none();
  return ends(m, x)[0]?.ledger === local ? h("a", { href: `/console/transfers/${id}` }, short(id)) : h("code", { class: "break" }, id);
}

// trouble says why it does not get on, and when it is tried again.
function trouble(s) {
  if (s.status !== "pending") return s.last_error && s.last_error !== s.reason && h("div", { class: "note bad" }, readable(s.last_error));
  if (s.attempts === 0) return null;
  return h("div", { class: `note ${s.stuck ? "bad" : "warn"} stack-small` },
    h("p", {}, h("strong", {}, s.stuck ? "Stuck. " : ""), `It has failed ${count(s.attempts)} time${s.attempts === 1 ? "" : "s"} in a row. `,
      s.next_at && Date.parse(s.next_at) > Date.now() ? ["It is tried again in ", left(s.next_at), "."] : "It is being tried."),
    s.last_error && readable(s.last_error));
}

// plan says what giving a saga up will do, step by step.
function plan(s) {
  const m = s.transfer;
  const sum = m ? money(m.amount, m.currency) : "what it made";
  const where = (x) => ends(m, x).map((e) => `${e.account} in ${e.ledger === local ? "this ledger" : e.ledger}`).join(" and ");
  const lines = s.protocol === "twophase"
    ? ["Nothing is committed. What is prepared is rolled back in every ledger, and no money moves."]
    : [
      ...s.steps.filter((x) => x.status === "pending").map((x) => `${x.name}${m ? ` at ${where(x)}` : ""} is cancelled${x.attempts || s.attempts ? ", or undone should an attempt have done it" : ""}.`),
      ...s.steps.filter((x) => x.status === "done").reverse().map((x) => (x.name === "debit" && m ? `${sum} return to ${where(x)}: the debit is undone.` : `${x.name}${m ? ` at ${where(x)}` : ""} is undone.`)),
    ];
  return h("span", { class: "lines" }, lines.map((l, i) => h("span", {}, `${i + 1}. ${l[0].toUpperCase()}${l.slice(1)}`)), h("span", {}, "This can’t be undone."));
}

// report waits for the next attempt after a retry, and has the page say what came of it.
async function report(ctx, base, before) {
  const say = (tone, ...text) => {
    reports.set(before.id, { tone, text });
    if (location.pathname.endsWith(before.id)) ctx.reload();
  };
  say("", "Retrying…");
  for (let i = 0; i < 60; i++) {
    await new Promise((r) => setTimeout(r, 500));
    const s = await get(base).catch(() => null);
    if (s && s.status !== "pending") return say(s.status === "completed" ? "good" : "warn", `Retried: it is ${s.status}.`);
    if (s && s.term > before.term && s.next_at) return say("bad", "Retried ", age(new Date().toISOString()), " ago: it failed again.");
  }
  say("warn", "The retry has not ended within 30 s. It goes on, and this page follows it.");
}
