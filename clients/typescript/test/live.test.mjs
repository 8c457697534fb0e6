import assert from "node:assert/strict";
import { test } from "node:test";

import { Fairlead, FairleadProblem, UnansweredError } from "../dist/index.js";
import { json, lose, problem, serve } from "./server.mjs";

const topic = "auction:1";

/**
 * An event as the server writes it.
 * @param {number} seq
 */
const event = (seq) => `id: ${seq}\nevent: bid.placed\ndata: ${JSON.stringify({ topic, seq, type: "bid.placed", at: "2026-11-24T05:41:53.189446Z", data: { amount: seq } })}\n\n`;
const countdown = `event: countdown\ndata: ${JSON.stringify({ topic, type: "countdown", at: "2026-11-24T05:41:53.189446Z", data: { remaining_ms: 5 } })}\n\n`;

/**
 * Streams pieces, then ends the connection in good order, breaks it, or leaves it open.
 * @param {string[]} pieces
 * @param {"end" | "break" | "open"} [then]
 */
function stream(pieces, then = "break") {
  return (/** @type {unknown} */ _, /** @type {import("node:http").ServerResponse} */ answer) => {
    answer.writeHead(200, { "Content-Type": "text/event-stream" });
    const write = () => {
      const piece = pieces.shift();
      if (piece !== undefined) answer.write(piece, () => setImmediate(write));
      else if (then === "end") answer.end();
      else if (then === "break") answer.destroy();
    };
    write();
  };
}

/**
 * The numbers of the first events, 0 for those that have none.
 * @param {AsyncIterable<import("../dist/index.js").FairleadEvent>} events
 * @param {number} count
 */
async function take(events, count) {
  const seqs = [];
  for await (const { seq } of events) {
    seqs.push(seq ?? 0);
    if (seqs.length === count) break;
  }
  return seqs;
}

const since = (/** @type {{requests: {url: URL}[]}} */ server) => server.requests.map(({ url }) => url.searchParams.get("since"));

test("a topic goes on behind its last event, whatever breaks", async (t) => {
  const server = await serve(
    t,
    stream([": subscribed 9\n\n", event(3), event(4).slice(0, 40)]), // broken within an event
    lose,
    problem(503, "overloaded", { retryable: true }),
    json(502, "no"),
    stream([": subscribed 9\n\n", event(3), event(4), event(4), event(5)], "end"), // with what was there already
    stream([event(7)], "open"), // with a gap
    stream([event(6), 'event: dropped\ndata: {"op":"dropped","last_seq":6}\n\n', event(7)], "open"),
    stream([...event(7)], "open"), // byte by byte
  );
  assert.deepEqual(await take(new Fairlead(server.url, { key: "secret" }).events(topic, { since: 2 }), 5), [3, 4, 5, 6, 7]);
  assert.deepEqual(since(server), ["2", "3", "3", "3", "3", "5", "5", "6"]);
  const { url, headers } = server.requests[0];
  assert.deepEqual([url.pathname, url.searchParams.get("topic"), headers.authorization], ["/v1/events", topic, "Bearer secret"]);
});

test("a stream that starts now resumes where it started", async (t) => {
  const server = await serve(t, stream([": subscribed 41\n\n", countdown]), stream([": subscribed 43\n\n", event(42), event(43)], "open"));
  /** @type {number[]} */
  const opened = [];
  assert.deepEqual(await take(new Fairlead(server.url).events(topic, { onOpen: (after) => opened.push(after) }), 3), [0, 42, 43]);
  assert.deepEqual(since(server), [null, "41"]);
  assert.deepEqual(opened, [41, 41]);
});

test("lines may end as they like, and data may have several", async (t) => {
  const message = JSON.stringify({ topic, seq: 1, type: "x", at: "", data: "é" }, null, 1).split("\n");
  const ends = ["\r\n", "\r", "\n"];
  const text = `:\r\n${message.map((line, i) => `data:${line}${ends[i % 3]}`).join("")}unknown\r\n\r\n:\n`;
  const bytes = [...Buffer.from(text)];
  const server = await serve(t, (_, answer) => {
    answer.writeHead(200, { "Content-Type": "text/event-stream" });
    const write = () => {
      const byte = bytes.shift();
      if (byte !== undefined) answer.write(Uint8Array.of(byte), () => setImmediate(write));
    };
    write();
  });
  for await (const event of new Fairlead(server.url).events(topic, { since: 0 })) {
    assert.deepEqual(event, { topic, seq: 1, type: "x", at: "", data: "é" });
    break;
  }
});

test("a refusal that is final ends the loop", async (t) => {
  const server = await serve(t, stream([event(1)]), problem(410, "events_expired"));
  /** @type {(number | undefined)[]} */
  const seqs = [];
  await assert.rejects(
    async () => {
      for await (const { seq } of new Fairlead(server.url).events(topic, { since: 0 })) seqs.push(seq);
    },
    (error) => error instanceof FairleadProblem && error.status === 410 && error.code === "events_expired",
  );
  assert.deepEqual(seqs, [1]);
  assert.equal(server.requests.length, 2);
});

test("reconnecting ends after its time", async (t) => {
  const server = await serve(t, lose);
  const events = new Fairlead(server.url).events(topic, { reconnectMs: 100 });
  await assert.rejects(events.next(), (error) => error instanceof UnansweredError && error.attempts === server.requests.length);
});

test("an abort ends the loop with its reason, and a break closes the connection", async (t) => {
  /** @type {Promise<void>[]} */
  const closed = [];
  const server = await serve(t, (request, answer) => {
    closed.push(new Promise((resolve) => answer.on("close", resolve)));
    stream([": subscribed 0\n\n", event(1)], "open")(request, answer);
  });
  const fairlead = new Fairlead(server.url);
  const reason = new Error("enough");
  const controller = new AbortController();
  const events = fairlead.events(topic, { signal: controller.signal });
  assert.equal((await events.next()).value?.seq, 1);
  const next = events.next();
  controller.abort(reason);
  await assert.rejects(next, reason);
  await assert.rejects(fairlead.events(topic, { signal: controller.signal }).next(), reason);
  assert.deepEqual(await take(fairlead.events(topic), 1), [1]);
  assert.equal(closed.length, 2);
  await Promise.all(closed);
});
