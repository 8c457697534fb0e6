import assert from "node:assert/strict";
import { test } from "node:test";

import { Doubts } from "../dist/doubts.js";

/**
 * What becomes of one attempt. `effect` says whether the server carries the command out: at once, or when the client has its last
 * answer, unless a refusal is stored by then. `answer` is what the client gets, undefined for none. A server that reads the key first gives
 * what is stored under it.
 * @typedef {{name: string, effect?: "now" | "late", reads?: true, answer?: {status: number, retryable: boolean, outcome: "not_applied" | "unknown"}}} Attempt
 */

/** @type {Attempt[]} */
const attempts = [
  { name: "never arrives" },
  { name: "answer lost", effect: "now" },
  { name: "on its way", effect: "late" },
  { name: "outcome unknown", effect: "late", answer: { status: 503, retryable: true, outcome: "unknown" } },
  { name: "rate limit", answer: { status: 429, retryable: true, outcome: "unknown" } },
  { name: "given up", reads: true, answer: { status: 503, retryable: true, outcome: "not_applied" } },
  { name: "lock held", reads: true, answer: { status: 409, retryable: true, outcome: "not_applied" } },
  { name: "no such route", answer: { status: 404, retryable: false, outcome: "not_applied" } },
  { name: "refused", reads: true, answer: { status: 422, retryable: false, outcome: "not_applied" } },
];

test("no order of up to five attempts makes the client say what is not so", () => {
  for (let length = 1; length <= 5; length++) {
    for (let n = 0; n < attempts.length ** length; n++) {
      check(Array.from({ length }, (_, i) => attempts[Math.floor(n / attempts.length ** i) % attempts.length]));
    }
  }
});

/** @param {Attempt[]} plan */
function check(plan) {
  const doubts = new Doubts();
  let [applied, stored, late] = [false, false, false];
  let said = "";
  for (const { effect, reads, answer } of plan) {
    if (reads && applied) return; // The call succeeds, and is not made again.
    if (reads && stored) {
      said = doubts.refused("c", { status: 422, retryable: false, outcome: "not_applied" });
    } else if (answer) {
      said = doubts.refused("c", answer);
      stored ||= answer.status === 422;
    } else {
      doubts.unanswered("c");
      said = "unknown";
    }
    applied ||= effect === "now" && !stored;
    late ||= effect === "late";
  }
  applied ||= late && !stored;
  const names = () => plan.map(({ name }) => name).join(", ");
  assert.ok(said === "unknown" || !applied, `it was applied, the client denies it: ${names()}`);
  const certain = plan.every(({ answer }) => answer?.outcome === "not_applied") || (stored && plan.at(-1)?.reads);
  assert.ok(said === "not_applied" || !certain, `it is certain, the client does not know it: ${names()}`);
}

test("a refusal that is stored settles it, one that is not does not", () => {
  const busy = /** @type {const} */ ({ status: 503, retryable: true, outcome: "not_applied" });
  for (const status of [400, 401, 402, 403, 404, 409, 422, 429, 500, 503]) {
    for (const retryable of [false, true]) {
      const doubts = new Doubts();
      doubts.unanswered("c");
      const settles = !retryable && [402, 409, 422].includes(status);
      assert.equal(doubts.refused("c", { status, retryable, outcome: "not_applied" }), settles ? "not_applied" : "unknown");
      assert.equal(doubts.refused("c", busy), settles ? "not_applied" : "unknown");
      assert.equal(doubts.refused("c", { status, retryable, outcome: "applied" }), "applied");
    }
  }
});

test("what is remembered is bounded, and the oldest is forgotten first", () => {
  const doubts = new Doubts();
  const busy = /** @type {const} */ ({ status: 503, retryable: true, outcome: "not_applied" });
  for (let i = 0; i <= 10_000; i++) doubts.unanswered(String(i));
  assert.equal(doubts.refused("0", busy), "not_applied");
  assert.equal(doubts.refused("1", busy), "unknown");
  doubts.settled("1");
  assert.equal(doubts.refused("1", busy), "not_applied");
});
