// Runs ../../scenario/scenario.json with this client, as ../../scenario/README.md says.
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

import { Fairlead, FairleadProblem, UnansweredError } from "../dist/index.js";
import { verifyInclusion, verifyProof } from "../dist/fairdraw/index.js";

/** @type {any} */
const env = process.env;
const script = JSON.parse(readFileSync(env.SCENARIO_FILE, "utf8"));
const { paths } = JSON.parse(readFileSync(new URL("../../../docs/openapi.json", import.meta.url), "utf8"));

/** The methods and paths of all operations. @type {Map<string, [string, string]>} */
const operations = new Map(
  Object.entries(paths).flatMap(([path, item]) => Object.entries(item).map(([method, { operationId }]) => [operationId, [method.toUpperCase(), path]])),
);

/** @type {Map<string, any>} */
const variables = new Map([["run", randomBytes(8).toString("hex")]]);

/** The members that each kind of step may have, and what it may expect. @type {Record<string, [string, string]>} */
const known = {
  call: ["client operation path body key repeat save save_key", "status body replayed attempts took_at_least_ms problem unanswered"],
  pages: ["client operation path", "problem count unique ascending body"],
  live: ["client topic since on_event", "problem count first_seq types"],
  fault: ["fault", ""],
  cut: ["", ""],
  requests: ["method path", "count keys after"],
  prove: ["client campaign commitment root position", "valid winners"],
  verify: ["folder", "count valid"],
};

/**
 * @param {any} object
 * @param {string} names
 */
function only(object, names) {
  const all = names.split(" ");
  for (const name of Object.keys(object)) assert.ok(all.includes(name), `the runner does not know the member ${name}`);
}

/** Puts the variables into a value, but not into steps within it, whose variables may be set only then. @returns {any} */
function fill(/** @type {any} */ value) {
  if (typeof value === "string") {
    const whole = /^\$\{(\w+)\}$/.exec(value);
    return whole ? variable(whole[1]) : value.replace(/\$\{(\w+)\}/g, (_, name) => variable(name));
  }
  if (Array.isArray(value)) return value.map(fill);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, name === "on_event" ? member : fill(member)]));
}

function variable(/** @type {string} */ name) {
  assert.ok(variables.has(name), `there is no variable ${name}`);
  return variables.get(name);
}

/** @returns {any} the value at a place of a document */
function at(/** @type {any} */ document, /** @type {string} */ place) {
  return place.split(".").reduce((value, name) => {
    assert.ok(value !== null && typeof value === "object" && Object.hasOwn(value, name), `there is no ${place} in ${JSON.stringify(document)}`);
    return value[name];
  }, document);
}

/** Compares a value with what is expected of it; undefined expects nothing. */
function expect(/** @type {string} */ what, /** @type {any} */ wanted, /** @type {any} */ found) {
  if (wanted === undefined) return;
  if (typeof wanted === "object" && wanted !== null && Object.keys(wanted).join() === "at_least") {
    assert.ok(found >= wanted.at_least, `${what} is ${found}, want at least ${wanted.at_least}`);
  } else {
    assert.deepEqual(found, wanted, `${what} is ${JSON.stringify(found)}, want ${JSON.stringify(wanted)}`);
  }
}

function expectPlaces(/** @type {any} */ wanted, /** @type {any} */ document) {
  for (const [place, value] of Object.entries(wanted ?? {})) expect(place, value, at(document, place));
}

function expectProblem(/** @type {any} */ wanted, /** @type {any} */ error) {
  if (!(error instanceof FairleadProblem)) throw error ?? new Error("want a problem");
  const { status, code, retryable, outcome, retryAfterMs, idempotencyKey: key } = error;
  const found = { status, code, retryable, outcome, retry_after: retryAfterMs / 1000, key };
  only(wanted, Object.keys(found).join(" "));
  for (const [name, value] of Object.entries(wanted)) expect(name, value, /** @type {any} */ (found)[name]);
}

/** What a call throws, undefined where it succeeds. @returns {Promise<any>} */
async function thrown(/** @type {() => Promise<unknown>} */ call) {
  try {
    await call();
    return undefined;
  } catch (error) {
    return error;
  }
}

/** Asks the proxy's controls. @returns {Promise<any>} */
async function control(/** @type {string} */ path, /** @type {unknown} */ body) {
  const response = await fetch(env.SCENARIO_CONTROL + path, { method: "POST", body: body === undefined ? null : JSON.stringify(body) });
  assert.ok(response.ok, `the proxy answered ${response.status} to ${path}`);
  return response.status === 204 ? undefined : response.json();
}

/** @type {Map<string, any>} */
const clients = new Map();
for (const [name, spec] of Object.entries(script.clients)) {
  only(spec, "attempts key");
  clients.set(name, new Fairlead(env.FAIRLEAD_URL, { key: spec.key ?? env.FAIRLEAD_KEY, attempts: spec.attempts }));
}

/** @returns {any} the client that a step names, without its types: the script is data */
function clientOf(/** @type {any} */ step) {
  const name = step.client ?? "default";
  assert.ok(clients.has(name), `there is no client ${name}`);
  return clients.get(name);
}

function operationOf(/** @type {any} */ step) {
  const operation = operations.get(step.operation);
  assert.ok(operation, `there is no operation ${step.operation}`);
  return operation;
}

/** @type {Record<string, (step: any) => Promise<void>>} */
const kinds = {
  async call(step) {
    const [method, path] = operationOf(step);
    const wanted = step.expect ?? {};
    for (let i = 0; i < (step.repeat ?? 1); i++) {
      /** @type {any} */
      let answer;
      const began = performance.now();
      const error = await thrown(async () => {
        answer = await clientOf(step).request(method, path, { path: step.path, body: step.body, idempotencyKey: step.key });
      });
      const took = performance.now() - began;
      if (wanted.unanswered) {
        if (!(error instanceof UnansweredError)) throw error ?? new Error("want no answer");
        expect("attempts", wanted.attempts, error.attempts);
      } else if (wanted.problem) {
        expectProblem(wanted.problem, error);
      } else {
        if (error) throw error;
        for (const name of ["status", "replayed", "attempts"]) expect(name, wanted[name], answer[name]);
        expectPlaces(wanted.body, answer.data);
      }
      assert.ok(took >= (wanted.took_at_least_ms ?? 0), `it took ${took} ms`);
      for (const [name, place] of Object.entries(step.save ?? {})) variables.set(name, at(error ? error.fields : answer.data, place));
      if (step.save_key) variables.set(step.save_key, (error ?? answer).idempotencyKey);
    }
  },

  async pages(step) {
    const [, path] = operationOf(step);
    /** @type {any[]} */
    const items = [];
    const error = await thrown(async () => {
      for await (const item of clientOf(step).list(path, { path: step.path })) items.push(item);
    });
    const { problem, count, unique, ascending, body } = step.expect;
    if (problem) return expectProblem(problem, error);
    if (error) throw error;
    expect("count", count, items.length);
    if (unique) expect(unique, items.length, new Set(items.map((item) => at(item, unique))).size);
    if (ascending) items.forEach((item, i) => i > 0 && assert.ok(at(item, ascending) > at(items[i - 1], ascending), `${ascending} of item ${i}`));
    expectPlaces(body, items);
  },

  async live(step) {
    const { count, first_seq, types: wanted, problem } = step.expect;
    /** @type {Record<string, number>} */
    const types = {};
    let n = 0;
    const error = await thrown(async () => {
      for await (const { seq, type } of clientOf(step).events(step.topic, { since: step.since })) {
        if (seq === undefined) continue;
        n++;
        expect("seq", step.since + n, seq);
        if (n === 1) expect("first_seq", first_seq, seq);
        types[type] = (types[type] ?? 0) + 1;
        for (const within of step.on_event?.[n] ?? []) await run(within);
        if (n === count) break;
      }
    });
    if (problem) return expectProblem(problem, error);
    if (error) throw error;
    expect("types", wanted, types);
  },

  async fault(step) {
    await control("/faults", step.fault);
  },

  async cut() {
    await control("/cut", undefined);
  },

  async requests(step) {
    const { requests } = await control("/requests", undefined);
    const those = requests.filter((/** @type {any} */ r) => r.method === step.method && r.path === step.path);
    expect("count", step.expect.count, those.length);
    expect("keys", step.expect.keys, new Set(those.map((/** @type {any} */ r) => r.key)).size);
    expect("after", step.expect.after, those.at(-1)?.after);
  },

  async prove(step) {
    const { campaign: id, position, commitment = null, root } = step;
    const path = position ? "/v1/campaigns/{id}/proof/positions/{position}" : "/v1/campaigns/{id}/proof";
    const { body, data } = await clientOf(step).request("GET", path, { path: { id, position } });
    const error = await thrown(async () => (position ? verifyInclusion(body, { root }) : verifyProof(body, { commitment, root })));
    expect("valid", step.expect.valid, error === undefined);
    expect("winners", step.expect.winners, data.winners?.length);
  },

  async verify(step) {
    const folder = join(env.SCENARIO_PROOFS, step.folder);
    const files = readdirSync(folder);
    let valid = 0;
    for (const file of files) {
      const document = readFileSync(join(folder, file));
      const error = await thrown(async () => {
        if (file.startsWith("draw-")) verifyProof(document, { commitment: null });
        else verifyInclusion(document, { root: JSON.parse(String(document)).root });
      });
      if (error === undefined) valid++;
    }
    expect("count", step.expect.count, files.length);
    expect("valid", step.expect.valid, valid);
  },
};

/** @param {any} template */
async function run(template) {
  const step = fill(template);
  assert.ok(Object.hasOwn(kinds, step.do), `the runner does not know how to ${step.do}`);
  const [members, expectations] = known[step.do];
  only(step, `do name expect ${members}`);
  only(step.expect ?? {}, expectations);
  await kinds[step.do](step);
}

assert.equal(script.version, 1);
only(script, "version clients steps");
for (const [i, step] of script.steps.entries()) {
  try {
    await run(step);
  } catch (error) {
    console.error(`scenario: step ${i + 1} (${step.name}):`, error);
    process.exit(1);
  }
}
console.log(`scenario: ${script.steps.length} steps passed`);
