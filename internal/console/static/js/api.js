// Requests to the server's own API. The session is in a cookie that scripts cannot see.

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
export class Unreachable extends Error {
  constructor() {
    super("The server can't be reached.");
    this.code = "unreachable";
    this.outcome = "unknown";
    this.retryable = true;
  }
}

// epoch counts sign-ins and sign-outs: what was asked in one session says nothing of the next.
let epoch = 0;

async function request(method, path, { body, key, signal } = {}) {
  const asked = epoch;
  const headers = { Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (key) headers["Idempotency-Key"] = key;
  let response;
  try {
    response = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body), signal, credentials: "same-origin", redirect: "error", referrerPolicy: "no-referrer" });
  } catch (e) {
    if (e.name === "AbortError") throw e;
    throw new Unreachable();
  }
  const type = response.headers.get("Content-Type") ?? "";
  if (!response.ok) {
    const document = type.includes("json") ? await response.json().catch(() => ({})) : {};
    if (response.status === 401 && path.startsWith("/v1") && asked === epoch) window.dispatchEvent(new Event("fairlead:signed-out"));
    throw new Problem(response.status, document);
  }
  return { status: response.status, body: type.includes("json") ? await response.json() : null, replayed: response.headers.get("Idempotent-Replayed") === "true" };
}

// get reads a document.
export async function get(path, signal) {
  return (await request("GET", path, { signal })).body;
}

// getBytes reads a document as it is, byte for byte.
export async function getBytes(path, signal) {
  const response = await fetch(path, { signal, credentials: "same-origin", redirect: "error" });
  if (!response.ok) throw new Problem(response.status, await response.json().catch(() => ({})));
  return new Uint8Array(await response.arrayBuffer());
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
  read: () => get("/console/session"),
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
