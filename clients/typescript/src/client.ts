import { Doubts } from "./doubts.js";
import { FairleadProblem, readProblem, UnansweredError } from "./errors.js";
import { decode, encode } from "./json.js";
import { type EventOptions, type FairleadEvent, follow } from "./live.js";
import { Position } from "./position.js";
import type { Routes } from "./types.gen.js";
import { longestTimerMs, pauseMs, sleep } from "./wait.js";

export interface FairleadOptions {
  /** An API key or a user's JWT, or a function that returns the one to use now; it is asked before every attempt. */
  key?: string | (() => string | Promise<string>) | undefined;
  /** How often a request is sent at most: 6. With 1, nothing is sent again. */
  attempts?: number | undefined;
  /** How long after its first attempt a call may begin its last one, in milliseconds: 30,000. */
  retryMs?: number | undefined;
  /** How long one attempt may take, in milliseconds: 120,000. So a call ends after `retryMs + timeoutMs` at the latest. */
  timeoutMs?: number | undefined;
  /** Sends requests in place of the global fetch. It must not send a request twice by itself. */
  fetch?: typeof fetch | undefined;
}

export interface CallOptions {
  /**
   * The Idempotency-Key of a call that changes something, 1 to 255 visible ASCII characters, in place of a random one. Choose it yourself,
   * and store it first, where the effect must not be doubled by the program's next start.
   */
  idempotencyKey?: string | undefined;
  /** Ends the call early. */
  signal?: AbortSignal | undefined;
  /** Further headers, such as traceparent, also in place of the client's own. */
  headers?: Record<string, string> | undefined;
}

type Method = keyof Routes;
type Path<M extends Method> = keyof Routes[M] & string;
type Reply<M extends Method, P extends Path<M>> = Routes[M][P] extends { answer: infer A } ? A : never;
type Input<M extends Method, P extends Path<M>> = Omit<Routes[M][P], "answer"> & CallOptions;
/** The options may be left out where none of them is required. */
type Rest<I> = {} extends I ? [options?: I] : [options: I];
/** The routes that answer a page of a list. */
type ListPath = { [P in Path<"GET">]: Reply<"GET", P> extends { items: unknown[]; next: string | null } ? P : never }[Path<"GET">];
type Item<P extends ListPath> = Reply<"GET", P> extends { items: Array<infer T> } ? T : never;

/** What really came, for callers who look closer. */
export interface Answer<T> {
  data: T;
  /** The document as it came, byte for byte: what `verifyProof` takes. */
  body: Uint8Array;
  status: number;
  headers: Headers;
  /** Whether the server repeated the answer to an earlier request with the same key. */
  replayed: boolean;
  /** The key that was sent; undefined for reads. */
  idempotencyKey: string | undefined;
  /** How often the request was sent. */
  attempts: number;
}

interface LooseInput extends CallOptions {
  path?: Record<string, string>;
  query?: Record<string, string | number | boolean | undefined>;
  body?: unknown;
}

interface Request {
  method: string;
  url: string;
  headers: Headers;
  body: string | undefined;
  signal: AbortSignal | undefined;
  /** Whether it may have reached the server. */
  sent: boolean;
}

/** The most items that a page has, but for the results of multi-draws. */
const largestPage = 200;

/** The routes whose commands bring keys of their own. */
const keyless = "/v1/commands";

/**
 * Calls one Fairlead server. Make one and share it: it remembers which commands may have been applied, and what its reads must see.
 *
 * A call that changes something is sent with one Idempotency-Key. While no answer comes, or one that is retryable, the same request is sent
 * again under the same key, after Retry-After and a growing random pause. That is safe: the server carries a key out at most once, and repeats
 * its answer.
 */
export class Fairlead {
  readonly #base: string;
  readonly #key: FairleadOptions["key"];
  readonly #attempts: number;
  readonly #retryMs: number;
  readonly #timeoutMs: number;
  readonly #fetch: typeof fetch;
  readonly #doubts = new Doubts();
  readonly #position = new Position();

  /** @param url where the server is, such as "https://fairlead.example"; in a browser, `location.origin`. */
  constructor(url: string | URL, options: FairleadOptions = {}) {
    const base = new URL(url);
    if (base.protocol !== "http:" && base.protocol !== "https:") throw new TypeError(`${url} is no http or https URL`);
    base.search = base.hash = "";
    this.#base = base.href.replace(/\/+$/, "");
    this.#key = options.key;
    this.#attempts = options.attempts ?? 6;
    this.#retryMs = options.retryMs ?? 30_000;
    this.#timeoutMs = options.timeoutMs ?? 120_000;
    // A page's fetch must not be called as a method of something else.
    this.#fetch = options.fetch ?? ((...args) => fetch(...args));
  }

  /** Reads, such as `get("/v1/accounts/{id}", { path: { id: "ann" } })`. */
  async get<P extends Path<"GET">>(path: P, ...rest: Rest<Input<"GET", P>>): Promise<Reply<"GET", P>> {
    return (await this.request("GET", path, ...rest)).data;
  }

  /** Changes something, such as `post("/v1/transfers", { body: { from: "ann", to: "bob", amount: 500 } })`. */
  async post<P extends Path<"POST">>(path: P, ...rest: Rest<Input<"POST", P>>): Promise<Reply<"POST", P>> {
    return (await this.request("POST", path, ...rest)).data;
  }

  /** Ends something, such as `delete("/v1/locks/{id}", { path: { id: lock.id } })`. */
  async delete<P extends Path<"DELETE">>(path: P, ...rest: Rest<Input<"DELETE", P>>): Promise<Reply<"DELETE", P>> {
    return (await this.request("DELETE", path, ...rest)).data;
  }

  /**
   * Does what get, post and delete do, and tells more about the answer. A call that does not succeed throws a {@link FairleadProblem} or an
   * {@link UnansweredError}. A read that is aborted throws the signal's reason, as fetch does; so does a command that was not sent yet.
   */
  async request<M extends Method, P extends Path<M>>(method: M, path: P, ...[options]: Rest<Input<M, P>>): Promise<Answer<Reply<M, P>>> {
    return (await this.#settle(method, path, (options ?? {}) as LooseInput)) as Answer<Reply<M, P>>;
  }

  /**
   * Yields a list's items, and fetches page after page: `for await (const entry of fairlead.list("/v1/accounts/{id}/entries", { path: { id } }))`.
   * A page has 200 items, or `query.limit`.
   */
  async *list<P extends ListPath>(path: P, ...[options]: Rest<Input<"GET", P>>): AsyncGenerator<Item<P>, void, undefined> {
    const input = (options ?? {}) as LooseInput;
    let after = input.query?.["after"];
    do {
      const page = (await this.#settle("GET", path, { ...input, query: { limit: largestPage, ...input.query, after } })).data as {
        items: Item<P>[];
        next: string | null;
      };
      yield* page.items;
      after = page.next ?? undefined;
    } while (after !== undefined);
  }

  /**
   * Yields a topic's events as they happen: `auction:ID`, `campaign:ID`, `multidraw:ID` or `account:ID`. After a lost connection it goes on
   * behind the last event, so every event with a number comes once and in order. See {@link EventOptions} for where it starts and ends.
   */
  events(topic: string, options: EventOptions = {}): AsyncGenerator<FairleadEvent, void, undefined> {
    return follow((since, signal) => this.#open(topic, since, signal), topic, options);
  }

  async #settle(method: string, path: string, options: LooseInput): Promise<Answer<unknown>> {
    const { signal } = options;
    const request = this.#request(method, path, options);
    const idempotencyKey = request.headers.get("Idempotency-Key") ?? undefined;
    const changes = method !== "GET";
    const command = `${method} ${request.url} ${idempotencyKey ?? randomKey()}`;
    const began = performance.now();
    try {
      for (let attempts = 1; ; attempts++) {
        const call = { idempotencyKey, attempts };
        let failure: FairleadProblem | UnansweredError;
        let pause = pauseMs(attempts);
        try {
          const answer = await this.#attempt(request);
          if (answer.status >= 200 && answer.status < 300) {
            const data = document(method, answer);
            this.#doubts.settled(command);
            return { ...answer, ...call, data, replayed: answer.headers.get("Idempotent-Replayed") === "true" };
          }
          const members = readProblem(answer.status, answer.headers, answer.body);
          if (changes) members.outcome = this.#doubts.refused(command, members);
          failure = new FairleadProblem(members, call);
          if (!failure.retryable || isFinal(path, failure.code)) throw failure;
          // The pause is added so that callers who were refused together do not come back together.
          pause += failure.retryAfterMs;
        } catch (error) {
          if (error instanceof FairleadProblem || !request.sent) throw error;
          if (!changes) signal?.throwIfAborted();
          else this.#doubts.unanswered(command);
          failure = new UnansweredError(call, error);
        }
        if (attempts >= this.#attempts || performance.now() - began + pause > this.#retryMs) throw failure;
        if (!(await sleep(pause, signal))) {
          if (!changes) signal?.throwIfAborted();
          throw failure;
        }
      }
    } finally {
      if (idempotencyKey === undefined) this.#doubts.settled(command); // Nobody can repeat it.
    }
  }

  #request(method: string, path: string, options: LooseInput): Request {
    const url = new URL(this.#base + fill(path, options.path ?? {}));
    for (const [name, value] of Object.entries(options.query ?? {})) {
      if (value !== undefined) url.searchParams.set(name, String(value));
    }
    const headers = new Headers(options.headers);
    headers.set("Accept", "application/json");
    let body: string | undefined;
    if (method !== "GET" && path !== keyless && (options.idempotencyKey !== undefined || !headers.has("Idempotency-Key"))) {
      headers.set("Idempotency-Key", options.idempotencyKey ?? randomKey());
    }
    if (method === "POST" || options.body !== undefined) {
      headers.set("Content-Type", "application/json");
      body = encode(options.body ?? {});
    }
    return { method, url: url.href, headers, body, signal: options.signal, sent: false };
  }

  /** Sends a request once, and reads the answer to its end: a connection that breaks within it counts as no answer. */
  async #attempt(request: Request): Promise<{ status: number; headers: Headers; body: Uint8Array }> {
    const attempt = new AbortController();
    const stop = () => attempt.abort(request.signal?.reason);
    request.signal?.addEventListener("abort", stop);
    if (request.signal?.aborted) stop();
    const late = () => attempt.abort(new DOMException(`no answer within ${this.#timeoutMs} ms`, "TimeoutError"));
    const timer = setTimeout(late, Math.min(this.#timeoutMs, longestTimerMs));
    try {
      const response = await this.#send(request, attempt.signal);
      return { status: response.status, headers: response.headers, body: new Uint8Array(await response.arrayBuffer()) };
    } finally {
      clearTimeout(timer);
      request.signal?.removeEventListener("abort", stop);
    }
  }

  async #send(request: Request, signal: AbortSignal): Promise<Response> {
    const { method, url, headers, body } = request;
    const own = new Headers(headers);
    const add = (name: string, value: string) => own.has(name) || own.set(name, value); // The caller's own go first.
    const credential = typeof this.#key === "function" ? await this.#key() : this.#key;
    if (credential) add("Authorization", `Bearer ${credential}`);
    if (method === "GET" && this.#position.value !== undefined) add("Fairlead-After", this.#position.value);
    signal.throwIfAborted();
    request.sent = true;
    // A redirect would make a GET of a POST, whose answer would then look like success.
    const response = await this.#fetch(url, { method, headers: own, body: body ?? null, signal, redirect: "manual", cache: "no-store" });
    this.#position.note(response.headers.get("Fairlead-After"));
    return response;
  }

  /** Opens the stream of a topic's events, once. */
  async #open(topic: string, since: number | undefined, signal: AbortSignal): Promise<Response> {
    const request = this.#request("GET", "/v1/events", { query: { topic, since } });
    request.headers.set("Accept", "text/event-stream, application/problem+json");
    const response = await this.#send(request, signal);
    if (response.ok && response.body) return response;
    const problem = readProblem(response.status, response.headers, new Uint8Array(await response.arrayBuffer()));
    throw new FairleadProblem(problem, { idempotencyKey: undefined, attempts: 1 });
  }
}

/** Fills a path's gaps with escaped ids. */
function fill(path: string, ids: Record<string, string>): string {
  return path.replace(/\{(\w+)\}/g, (_, name: string) => {
    const id = ids[name];
    // URLs take dots for folders even if they are escaped.
    if (typeof id !== "string" || id === "" || id === "." || id === "..") throw new TypeError(`${path}: ${name} can't be ${JSON.stringify(id)}`);
    return encodeURIComponent(id);
  });
}

/** Decodes the document of a success. What has none was sent by something else than a Fairlead server, and settles nothing. */
function document(method: string, { status, headers, body }: { status: number; headers: Headers; body: Uint8Array }): unknown {
  if (status === 204 && method === "DELETE") return undefined;
  if (!headers.get("Content-Type")?.startsWith("application/json")) throw new Error(`the answer ${status} is no JSON document`);
  return decode(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(body));
}

/** Whether a retryable refusal is for the caller to decide: the request for a lock says itself how long to wait. */
function isFinal(path: string, code: string): boolean {
  return path === "/v1/locks" && (code === "lock_held" || code === "deadlock");
}

/** 128 random bits. crypto.randomUUID would need a secure context. */
function randomKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
