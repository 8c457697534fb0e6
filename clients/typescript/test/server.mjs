import { once } from "node:events";
import { createServer } from "node:http";

/**
 * @typedef {import("node:http").IncomingMessage} Incoming
 * @typedef {import("node:http").ServerResponse} Outgoing
 * @typedef {{method: string, url: URL, headers: import("node:http").IncomingHttpHeaders, body: string}} Seen
 */

/**
 * Starts a server that answers its first request with the first handler, and so on; the last handler answers all further ones. It ends
 * with the test.
 * @param {import("node:test").TestContext} t
 * @param {...((request: Seen, answer: Outgoing) => void)} handlers
 */
export async function serve(t, ...handlers) {
  /** @type {Seen[]} */
  const requests = [];
  const server = createServer(async (incoming, outgoing) => {
    let body = "";
    for await (const chunk of incoming) body += chunk;
    const request = { method: incoming.method ?? "", url: new URL(incoming.url ?? "", "http://server"), headers: incoming.headers, body };
    requests.push(request);
    handlers[Math.min(requests.length, handlers.length) - 1](request, outgoing);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  const address = /** @type {import("node:net").AddressInfo} */ (server.address());
  return { url: `http://127.0.0.1:${address.port}`, requests };
}

/**
 * Answers with a document.
 * @param {number} status
 * @param {unknown} document
 * @param {Record<string, string>} [headers]
 */
export function json(status, document, headers = {}) {
  return (/** @type {Seen} */ _, /** @type {Outgoing} */ answer) => {
    const type = status < 400 ? "application/json" : "application/problem+json";
    answer.writeHead(status, { "Content-Type": type, ...headers });
    answer.end(JSON.stringify(document));
  };
}

/**
 * Answers with a problem.
 * @param {number} status
 * @param {string} code
 * @param {Record<string, unknown>} [members]
 * @param {Record<string, string>} [headers]
 */
export function problem(status, code, members = {}, headers = {}) {
  const document = { type: `/docs/problems#${code}`, title: code, status, detail: `it is ${code}`, code, retryable: false, outcome: "not_applied", request_id: "r1" };
  return json(status, { ...document, ...members }, headers);
}

/** Takes the request, and breaks the connection in place of an answer. */
export function lose(/** @type {Seen} */ _, /** @type {Outgoing} */ answer) {
  answer.destroy();
}

/** Breaks the connection in the middle of an answer. */
export function breakOff(/** @type {Seen} */ _, /** @type {Outgoing} */ answer) {
  answer.writeHead(201, { "Content-Type": "application/json", "Content-Length": 100 });
  answer.write('{"id":', () => answer.destroy());
}
