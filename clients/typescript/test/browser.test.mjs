import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";

import { json, lose, problem, serve } from "./server.mjs";

const chromium = ["chromium", "chromium-browser", "google-chrome"].find((name) => spawnSync(name, ["--version"]).status === 0);
const skip = chromium || process.env["CI"] === "true" ? false : "chromium is not installed: the client was NOT tested in a browser";

const vectors = JSON.parse(readFileSync(new URL("../../../fairdraw/testdata/vectors.json", import.meta.url), "utf8"));
const { proof } = vectors.draws[0];

/** A page that uses the client, and sends what came of it to /result. It is loaded without TLS, where browsers have no crypto.subtle. */
const page = `<!doctype html><script type="module">
import { Fairlead, FairleadProblem, UnansweredError } from "/dist/index.js";
import { verifyProof } from "/dist/fairdraw/index.js";
const result = { secure: isSecureContext, seqs: [] };
try {
  const fairlead = new Fairlead(location.origin, { key: "secret" });
  const { body } = await fairlead.request("GET", "/v1/campaigns/{id}/proof", { path: { id: "c-1" } });
  result.winners = verifyProof(body, { commitment: "${proof.commitment}" }).winners.length;
  result.movement = await fairlead.post("/v1/deposits", { body: { account: "ann", amount: 5 } });
  const refused = await fairlead.post("/v1/withdrawals", { body: { account: "ann", amount: 6 } }).catch((error) => error);
  result.refused = refused instanceof FairleadProblem && [refused.code, refused.outcome];
  for await (const { seq } of fairlead.events("campaign:c-1", { since: 0 })) {
    result.seqs.push(seq);
    if (seq === 3) break;
  }
  const foreign = new Fairlead("http://127.0.0.1:" + location.port, { key: "secret", attempts: 1 });
  result.foreign = await foreign.post("/v1/deposits", { body: { account: "ann", amount: 5 } }).catch((error) => error instanceof UnansweredError && error.outcome);
} catch (error) {
  result.error = String(error.stack ?? error);
}
await fetch("/result", { method: "POST", body: JSON.stringify(result) });
</script>`;

test("a page verifies a proof, calls its server and follows a topic", { skip, timeout: 300_000 }, async (t) => {
  assert.ok(chromium, "chromium is not installed (scripts/setup.sh test installs it)");
  /** @type {(result: any) => void} */
  let finish = () => {};
  const finished = new Promise((resolve) => (finish = resolve));
  const movement = { id: "m1", account: "ann", amount: 5, currency: "EUR", available: 5 };
  /** @type {string[]} */
  const keys = [];
  const event = (/** @type {number} */ seq) => `id: ${seq}\ndata: ${JSON.stringify({ topic: "campaign:c-1", seq, type: "purchase.made", at: "", data: {} })}\n\n`;
  const server = await serve(t, (request, answer) => {
    const { method, url, headers, body } = request;
    const route = `${method} ${url.pathname}`;
    if (url.pathname.startsWith("/dist/")) {
      answer.writeHead(200, { "Content-Type": "text/javascript" }).end(readFileSync(new URL(`..${url.pathname}`, import.meta.url)));
    } else if (route === "GET /") {
      answer.writeHead(200, { "Content-Type": "text/html" }).end(page);
    } else if (route === "GET /v1/campaigns/c-1/proof") {
      json(200, proof)(request, answer);
    } else if (route === "POST /v1/deposits") {
      keys.push(String(headers["idempotency-key"]));
      (keys.length < 3 ? lose : json(201, movement))(request, answer);
    } else if (route === "POST /v1/withdrawals") {
      problem(402, "insufficient_funds")(request, answer);
    } else if (route === "GET /v1/events") {
      const since = Number(url.searchParams.get("since"));
      answer.writeHead(200, { "Content-Type": "text/event-stream" });
      answer.write(`: subscribed 3\n\n${event(since + 1)}${event(since + 2).slice(0, since === 0 ? 20 : undefined)}`, () => since === 0 && answer.destroy());
    } else if (route === "POST /result") {
      answer.end();
      finish(JSON.parse(body));
    } else {
      problem(404, "not_found")(request, answer);
    }
  });

  const profile = mkdtempSync(join(tmpdir(), "fairlead-chromium-"));
  const browser = spawn(
    chromium,
    ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-component-update", `--user-data-dir=${profile}`, "--remote-debugging-port=0", "--host-resolver-rules=MAP fairlead.test 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", `http://fairlead.test:${new URL(server.url).port}/`],
    { stdio: "ignore" },
  );
  const ended = once(browser, "exit");
  t.after(async () => {
    browser.kill();
    await ended;
    // Its helpers write for some moments after it has ended. rmSync's own retries would not look again at what is in the directory.
    for (let left = 100; ; left--) {
      try {
        return rmSync(profile, { recursive: true, force: true });
      } catch (error) {
        if (left === 0) throw error;
        await pause(50);
      }
    }
  });
  const result = await Promise.race([finished, ended.then(() => assert.fail("chromium ended without a result"))]);
  assert.deepEqual(result, {
    secure: false,
    winners: proof.winners.length,
    movement,
    refused: ["insufficient_funds", "not_applied"],
    seqs: [1, 2, 3],
    foreign: "unknown",
  });
  assert.equal(new Set(keys).size, 1, "the other origin's request was stopped by the browser");
});
