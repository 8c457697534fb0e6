// Requests to the server's own API. The session is in a cookie that scripts cannot see.
import { answered, patiently, suspect } from "./server.js";

// Problem is an error as RFC 9457 has it.
export class Problem extends Error {
  constructor(status, document) {
    super(document.detail || document.title || `The server answered ${status}.`);
    this.status = status;
    this.code = document.code ?? "";
    this.outcome = document.outcome ?? "unknown";
    this.retryable = document.retryable ?? true;
    this.requestID = document.request_id ?? "";
  }
}

// Unreachable is thrown when there was no answer.
class Unreachable extends Error {
  constructor(message = "The server can't be reached.") {
    super(message);
    this.code = "unreachable";
    this.outcome = "unknown";
    this.retryable = true;
  }
}

// epoch counts sign-ins and sign-outs: what was asked in one session says nothing of the next.
let epoch = 0;

async function request(method, path, { body, key, signal, patience = method === "GET" ? 10_000 : 60_000, bytes = false } = {}) {
  const asked = epoch;
  const headers = { Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (key) headers["Idempotency-Key"] = key;
  const late = AbortSignal.timeout(patience);
  let response;
  let content;
  try {
    response = await patiently(fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body), signal: signal ? AbortSignal.any([signal, late]) : late, credentials: path.startsWith("/p/") ? "omit" : "same-origin", redirect: "error", referrerPolicy: "no-referrer" }));
    const isJSON = (response.headers.get("Content-Type") ?? "").includes("json");
    content = bytes && response.ok ? new Uint8Array(await response.arrayBuffer()) : isJSON ? await response.json() : null;
  } catch (e) {
    if (signal?.aborted) throw e;
    suspect();
    throw new Unreachable(late.aborted ? `The server did not answer within ${patience / 1000} s.` : undefined);
  }
  if (!response.ok) {
    if (response.status === 401 && path.startsWith("/v1") && asked === epoch) window.dispatchEvent(new Event("fairlead:signed-out"));
    if (response.status >= 500) suspect();
    throw new Problem(response.status, content ?? {});
  }
  answered(response, method === "GET" ? signal : undefined);
  return { status: response.status, body: content, replayed: response.headers.get("Idempotent-Replayed") === "true" };
}

// get reads a document.
export async function get(path, signal, patience) {
  return (await request("GET", path, { signal, patience })).body;
}

// getBytes reads a document as it is, byte for byte. It may be large.
export async function getBytes(path, signal) {
  return (await request("GET", path, { signal, patience: 300_000, bytes: true })).body;
}

// act changes something, once per key, however often it is sent.
export async function act(method, path, body, key) {
  return request(method, path, { body: body ?? {}, key });
}

// newKey names a request.
export function newKey() {
  const b = crypto.getRandomValues(new Uint8Array(16));
  return "console-" + Array.from(b, (x) => x.toString(16).padStart(2, "0")).join("");
}

export const session = {
  read: () => get("/console/session", undefined, 5000),
  begin: async (body) => {
    const answer = await request("POST", "/console/session", { body });
    epoch++;
    return answer.body;
  },
  end: () => {
    epoch++;
    return request("DELETE", "/console/session");
  },
};

// query builds a query from members that have a value.
export function query(members) {
  const q = new URLSearchParams();
  for (const [name, value] of Object.entries(members)) if (value) q.set(name, value);
  const s = q.toString();
  return s ? `?${s}` : "";
}
