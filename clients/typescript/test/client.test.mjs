import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";

import { Fairlead, FairleadProblem, UnansweredError } from "../dist/index.js";
import { breakOff, json, lose, problem, serve } from "./server.mjs";

const deposit = { body: { account: "ann", amount: 5 } };
const movement = { id: "m1", account: "ann", amount: 5, currency: "EUR", available: 5 };

/**
 * What a call throws.
 * @param {Promise<unknown>} call
 * @returns {Promise<any>}
 */
async function thrown(call) {
  return call.then(
    () => assert.fail("it succeeded"),
    (error) => error,
  );
}

test("a call has one key over all attempts, and two calls have two", async (t) => {
  const server = await serve(t, lose, breakOff, problem(503, "unavailable", { retryable: true }), json(201, movement, { "Idempotent-Replayed": "true" }));
  const fairlead = new Fairlead(server.url, { key: "secret" });
  const answer = await fairlead.request("POST", "/v1/deposits", deposit);
  assert.deepEqual(answer.data, movement);
  assert.deepEqual([answer.status, answer.replayed, answer.attempts], [201, true, 4]);
  await fairlead.post("/v1/deposits", deposit);
  const keys = server.requests.map((request) => request.headers["idempotency-key"]);
  assert.match(String(answer.idempotencyKey), /^[0-9a-f]{32}$/);
  assert.deepEqual(keys.slice(0, 4), Array(4).fill(answer.idempotencyKey));
  assert.notEqual(keys[4], keys[3]);
  for (const { method, url, headers, body } of server.requests) {
    assert.deepEqual([method, url.pathname, headers.authorization, headers["content-type"]], ["POST", "/v1/deposits", "Bearer secret", "application/json"]);
    assert.equal(body, '{"account":"ann","amount":5}');
  }
});

test("a caller's own key is sent, also an empty one", async (t) => {
  const server = await serve(t, json(201, movement));
  const fairlead = new Fairlead(`${server.url}/`);
  for (const idempotencyKey of ["invoice-17", ""]) await fairlead.post("/v1/deposits", { ...deposit, idempotencyKey });
  assert.deepEqual(server.requests.map(({ headers }) => headers["idempotency-key"]), ["invoice-17", ""]);
  assert.equal(server.requests[0].headers.authorization, undefined);
});

test("a call's own headers go before the client's", async (t) => {
  const server = await serve(t, json(201, movement, { "Fairlead-After": "1/1" }));
  const fairlead = new Fairlead(server.url, { key: "secret" });
  const headers = { "idempotency-key": "k1", authorization: "Bearer other", traceparent: "00-1", "fairlead-after": "0/1" };
  assert.equal((await fairlead.request("POST", "/v1/deposits", { ...deposit, headers })).idempotencyKey, "k1");
  await fairlead.get("/v1/integrity", { headers });
  for (const { headers: sent } of server.requests) assert.deepEqual({ ...sent, ...headers }, sent);
});

test("a batch has no key of its own, and is repeated", async (t) => {
  const server = await serve(t, lose, json(200, { results: [] }));
  await new Fairlead(server.url).post("/v1/commands", { body: { commands: [] } });
  assert.deepEqual(server.requests.map(({ headers }) => headers["idempotency-key"]), [undefined, undefined]);
});

test("paths are escaped, and ids that would lead elsewhere are refused", async (t) => {
  const server = await serve(t, json(200, {}));
  const fairlead = new Fairlead(server.url);
  await fairlead.get("/v1/accounts/{id}", { path: { id: "a/b?c d" } });
  assert.equal(server.requests[0].url.pathname, "/v1/accounts/a%2Fb%3Fc%20d");
  for (const id of ["", ".", ".."]) {
    assert.ok((await thrown(fairlead.get("/v1/accounts/{id}", { path: { id } }))) instanceof TypeError);
  }
  assert.equal(server.requests.length, 1);
});

test("a problem is typed, and has all members", async (t) => {
  const cycle = ["ann", "bob"];
  const server = await serve(t, problem(409, "deadlock", { retryable: true, cycle }));
  const error = await thrown(new Fairlead(server.url).post("/v1/locks", { body: { keys: ["k"], owner: "ann", ttl: "1s" }, idempotencyKey: "k1" }));
  assert.ok(error instanceof FairleadProblem && error instanceof Error);
  assert.deepEqual(
    [error.status, error.code, error.retryable, error.outcome, error.retryAfterMs, error.requestId, error.idempotencyKey, error.attempts, error.message],
    [409, "deadlock", true, "not_applied", 0, "r1", "k1", 1, "it is deadlock (deadlock)"],
  );
  assert.deepEqual(error.fields["cycle"], cycle);
  assert.equal(server.requests.length, 1, "the request for a lock says itself how long to wait");
});

test("what is not retryable is sent once", async (t) => {
  const server = await serve(t, problem(402, "insufficient_funds", { transfer: "t1" }));
  const error = await thrown(new Fairlead(server.url).post("/v1/withdrawals", deposit));
  assert.deepEqual([error.code, error.fields.transfer, server.requests.length], ["insufficient_funds", "t1", 1]);
});

test("Retry-After is waited for, and one beyond the limit ends the call at once", async (t) => {
  const busy = (/** @type {string} */ after) => problem(429, "rate_limited", { retryable: true, outcome: "unknown" }, { "Retry-After": after });
  const server = await serve(t, busy("1"), busy("Thu, 01 Jan 1970 00:00:00 GMT"), json(201, movement), busy("3600"));
  const fairlead = new Fairlead(server.url);
  const began = performance.now();
  const { attempts } = await fairlead.request("POST", "/v1/deposits", deposit);
  assert.ok(performance.now() - began >= 1000);
  assert.equal(attempts, 3);
  const error = await thrown(fairlead.post("/v1/deposits", deposit));
  assert.deepEqual([error.code, error.attempts, error.retryAfterMs, error.outcome], ["rate_limited", 1, 3_600_000, "unknown"]);
  assert.equal(server.requests.length, 4);
});

test("attempts and time are bounded", async (t) => {
  const server = await serve(t, lose);
  let error = await thrown(new Fairlead(server.url, { attempts: 3 }).post("/v1/deposits", deposit));
  assert.ok(error instanceof UnansweredError);
  assert.deepEqual([error.attempts, error.outcome, error.idempotencyKey], [3, "unknown", server.requests[0].headers["idempotency-key"]]);
  assert.match(error.message, /^no answer after 3 attempts with Idempotency-Key [0-9a-f]{32}: /);
  error = await thrown(new Fairlead(server.url, { retryMs: 1 }).post("/v1/deposits", deposit));
  assert.equal(error.attempts, 1);
});

test("an attempt that gets no answer in time is repeated", async (t) => {
  const server = await serve(t, () => {}, json(201, movement));
  const { attempts } = await new Fairlead(server.url, { timeoutMs: 100, attempts: Infinity, retryMs: Infinity }).request("POST", "/v1/deposits", deposit);
  assert.ok(attempts >= 2);
});

test("an aborted command says that it may have been done, and under which key; an aborted read says that it was aborted", async (t) => {
  const reason = new Error("enough");
  /** @type {AbortController} */
  let controller;
  const server = await serve(t, () => controller.abort(reason));
  const fairlead = new Fairlead(server.url);
  controller = new AbortController();
  let error = await thrown(fairlead.post("/v1/deposits", { ...deposit, signal: controller.signal }));
  assert.ok(error instanceof UnansweredError);
  assert.deepEqual([error.cause, error.attempts, error.idempotencyKey], [reason, 1, server.requests[0].headers["idempotency-key"]]);

  error = await thrown(fairlead.post("/v1/deposits", { ...deposit, signal: controller.signal }));
  assert.equal(error, reason, "it was not sent");
  assert.equal(server.requests.length, 1);

  controller = new AbortController();
  assert.equal(await thrown(fairlead.get("/v1/integrity", { signal: controller.signal })), reason);
});

test("an abort ends a pause", async (t) => {
  const controller = new AbortController();
  const server = await serve(t, (request, answer) => {
    problem(503, "unavailable", { retryable: true }, { "Retry-After": "20" })(request, answer);
    setImmediate(() => controller.abort());
  });
  const fairlead = new Fairlead(server.url, { retryMs: 60_000 });
  const began = performance.now();
  const error = await thrown(fairlead.post("/v1/deposits", { ...deposit, signal: controller.signal }));
  // The abort may come while the answer is read.
  assert.ok(error instanceof FairleadProblem || error instanceof UnansweredError);
  assert.ok(performance.now() - began < 19_000);
});

test("once an outcome is unknown, only a stored answer settles it", async (t) => {
  const turnedAway = problem(503, "unavailable", { retryable: true });
  const noRoute = problem(404, "not_found");
  const refused = problem(402, "insufficient_funds", { transfer: "t1" });
  const done = json(201, movement);
  const server = await serve(t, lose, turnedAway, noRoute, refused, turnedAway, noRoute, lose, done, turnedAway);
  const fairlead = new Fairlead(server.url, { attempts: 1 });
  const outcomes = [];
  for (let i = 0; i < 9; i++) {
    const call = fairlead.post("/v1/withdrawals", { ...deposit, idempotencyKey: "k" });
    outcomes.push(await call.then(() => "done", (error) => error.outcome));
  }
  assert.deepEqual(outcomes, ["unknown", "unknown", "unknown", "not_applied", "not_applied", "not_applied", "unknown", "done", "not_applied"]);
});

test("what is no answer of a Fairlead server settles nothing", async (t) => {
  const page = (/** @type {unknown} */ _, /** @type {import("node:http").ServerResponse} */ answer) => {
    answer.writeHead(200, { "Content-Type": "text/html" }).end("{}");
  };
  const moved = json(302, {}, { Location: "/elsewhere" });
  const gateway = json(502, "no");
  const server = await serve(t, page, moved, gateway);
  const fairlead = new Fairlead(server.url, { attempts: 1 });
  let error = await thrown(fairlead.post("/v1/deposits", deposit));
  assert.ok(error instanceof UnansweredError);
  error = await thrown(fairlead.post("/v1/deposits", deposit));
  assert.deepEqual([error.status, error.code, error.retryable, error.outcome], [302, "", false, "unknown"]);
  error = await thrown(fairlead.post("/v1/deposits", deposit));
  assert.deepEqual([error.status, error.code, error.retryable, error.outcome, error.fields], [502, "", true, "unknown", {}]);
  assert.equal(server.requests.length, 3);
});

test("a credential is asked for at every attempt, and nothing is sent without it", async (t) => {
  const server = await serve(t, lose, json(201, movement));
  let asked = 0;
  await new Fairlead(server.url, { key: async () => `token-${++asked}` }).post("/v1/deposits", deposit);
  assert.deepEqual(server.requests.map(({ headers }) => headers.authorization), ["Bearer token-1", "Bearer token-2"]);
  const down = new Error("the identity provider is away");
  const error = await thrown(new Fairlead(server.url, { key: () => Promise.reject(down) }).post("/v1/deposits", deposit));
  assert.equal(error, down);
  assert.equal(server.requests.length, 2);
});

test("a read names the latest place in the log that was told", async (t) => {
  const at = (/** @type {string} */ place) => json(200, {}, { "Fairlead-After": place });
  const server = await serve(t, at("1/A0"), at("0/FF"), at("nonsense"), at("1/FFFFFFFF"), at("2/0"), json(200, {}));
  const fairlead = new Fairlead(server.url);
  for (let i = 0; i < 7; i++) await fairlead.get("/v1/integrity");
  await fairlead.post("/v1/deposits", deposit);
  assert.deepEqual(server.requests.map(({ headers }) => headers["fairlead-after"]), [undefined, "1/A0", "1/A0", "1/A0", "1/FFFFFFFF", "2/0", "2/0", undefined]);
});

test("a list is read page after page, each until it comes", async (t) => {
  const pages = [
    { items: [{ id: "a" }, { id: "b" }], next: "c2" },
    { items: [], next: "c3" },
    { items: [{ id: "c" }], next: null },
  ];
  const server = await serve(t, json(200, pages[0]), lose, json(200, pages[1]), json(200, pages[2]));
  const ids = [];
  for await (const campaign of new Fairlead(server.url).list("/v1/campaigns")) ids.push(campaign.id);
  assert.deepEqual(ids, ["a", "b", "c"]);
  assert.deepEqual(server.requests.map(({ url }) => url.search), ["?limit=200", "?limit=200&after=c2", "?limit=200&after=c2", "?limit=200&after=c3"]);
});

test("a list is read no further than it is needed, and ends with the first problem", async (t) => {
  const server = await serve(t, json(200, { items: [1, 2], next: "c2" }), json(200, { items: [1], next: "c2" }), problem(404, "not_found"));
  const fairlead = new Fairlead(server.url);
  const query = { limit: 2, status: "stuck" };
  for await (const _ of fairlead.list("/v1/admin/transfers", { query })) break;
  assert.deepEqual(server.requests.map(({ url }) => url.search), ["?limit=2&status=stuck"]);
  let count = 0;
  const error = await thrown(
    (async () => {
      for await (const _ of fairlead.list("/v1/campaigns")) count++;
    })(),
  );
  assert.deepEqual([count, error.code], [1, "not_found"]);
});

test("integers beyond 2^53 arrive and leave as they are", async (t) => {
  const server = await serve(t, (_, answer) => {
    answer.writeHead(201, { "Content-Type": "application/json" }).end('{"results":[9007199254740993,-9223372036854775808,3],"ratio":0.12345678901234567}');
  });
  const fairlead = new Fairlead(server.url);
  const drawn = await fairlead.post("/v1/multidraws", { body: { lock_key: "k", count: 3, range: { min: -(2n ** 63n), max: 2n ** 63n - 1n } } });
  assert.deepEqual(drawn.results, [9007199254740993n, -(2n ** 63n), 3]);
  assert.equal(server.requests[0].body, '{"lock_key":"k","count":3,"range":{"min":-9223372036854775808,"max":9223372036854775807}}');
  for (const amount of [NaN, Infinity, 2 ** 53]) {
    assert.ok((await thrown(fairlead.post("/v1/deposits", { body: { account: "ann", amount } }))) instanceof TypeError);
  }
  assert.equal(server.requests.length, 1);
});

test("a server that is not there is no answer", async (t) => {
  const server = await serve(t, lose);
  const { createServer } = await import("node:net");
  const closed = createServer().listen(0, "127.0.0.1");
  await once(closed, "listening");
  const { port } = /** @type {import("node:net").AddressInfo} */ (closed.address());
  closed.close();
  await once(closed, "close");
  const error = await thrown(new Fairlead(`http://127.0.0.1:${port}`, { attempts: 2 }).get("/readyz"));
  assert.ok(error instanceof UnansweredError);
  assert.deepEqual([error.attempts, error.idempotencyKey], [2, undefined]);
  assert.equal(server.requests.length, 0);
  assert.throws(() => new Fairlead("ftp://127.0.0.1"), TypeError);
  assert.throws(() => new Fairlead("127.0.0.1"), TypeError);
});
