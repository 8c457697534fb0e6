import { FairleadProblem, UnansweredError } from "./errors.js";
import { decode } from "./json.js";
import { pauseMs, sleep } from "./wait.js";

export interface EventOptions {
  /** Yield the events above this number first: 0 for all. Absent: only what happens from now on. */
  since?: number | undefined;
  /** Ends the stream; the loop over it then throws the signal's reason. To leave without an error, break out of the loop. */
  signal?: AbortSignal | undefined;
  /**
   * How long to try to reconnect, in milliseconds: 300,000. Then the loop throws what went wrong last. A refusal that isn't retryable ends
   * it at once, such as 410 `events_expired`, or `unknown_seq` after the server lost history: forget what you have, and read the topic anew.
   */
  reconnectMs?: number | undefined;
  /**
   * Called whenever the stream is open, with the number behind which it goes on. Messages without a number (countdowns, and all of
   * `account:ID`) may have been missed before: read what they tell of now.
   */
  onOpen?: ((after: number) => void) | undefined;
}

/** One event. Its data is in docs/design/auction.md and at /docs of the server. */
export interface FairleadEvent {
  topic: string;
  /** Counts the topic's events from 1, without a gap; absent for messages that are in no log, such as countdowns. */
  seq?: number;
  type: string;
  /** RFC 3339, UTC, microseconds. */
  at: string;
  data: unknown;
}

/** The server writes something every 15 s. A connection that is silent for three times as long is dead. */
const silenceMs = 45_000;
/** More than any event has. */
const maxLineLength = 16 * 1024 * 1024;

type Open = (since: number | undefined, signal: AbortSignal) => Promise<Response>;

/** Yields a topic's events over as many connections as it takes. */
export async function* follow(open: Open, topic: string, options: EventOptions): AsyncGenerator<FairleadEvent, void, undefined> {
  const { signal, onOpen, reconnectMs = 300_000 } = options;
  let last = options.since;
  let lostAt: number | undefined;
  for (let failures = 0; ; ) {
    signal?.throwIfAborted();
    const connection = new AbortController();
    const stop = () => connection.abort(signal?.reason);
    signal?.addEventListener("abort", stop);
    let failure: unknown = new Error("the stream ended");
    let retryAfterMs = 0;
    try {
      for await (const message of messages(open, last, connection)) {
        if (message.subscribed !== undefined) {
          // Without a number to start from, the stream starts behind the last event of that moment.
          last ??= message.subscribed;
          lostAt = undefined;
          const after = last;
          if (onOpen) queueMicrotask(() => onOpen(after)); // What it throws is no failure of the connection.
          continue;
        }
        failures = 0; // A stream that opens and at once ends again is no success.
        if (message.type === "dropped") break; // This client was too slow.
        if (message.data === undefined) continue;
        const event = decode(message.data) as FairleadEvent;
        if (event.seq !== undefined) {
          if (event.seq <= (last ?? 0)) continue;
          if (event.seq !== (last ?? 0) + 1) throw new Error(`${topic}: event ${event.seq} came after event ${last}`);
          last = event.seq;
        }
        yield event;
      }
    } catch (error) {
      signal?.throwIfAborted();
      failure = error;
      if (error instanceof FairleadProblem) {
        if (!error.retryable) throw error;
        retryAfterMs = error.retryAfterMs;
      }
    } finally {
      signal?.removeEventListener("abort", stop);
      connection.abort();
    }
    lostAt ??= performance.now();
    const pause = retryAfterMs + pauseMs(++failures);
    if (performance.now() - lostAt + pause > reconnectMs) {
      throw failure instanceof FairleadProblem ? failure : new UnansweredError({ idempotencyKey: undefined, attempts: failures }, failure);
    }
    await sleep(pause, signal);
  }
}

/** One message of a stream, or one of its comments, which has no data. */
interface Message {
  subscribed?: number;
  type?: string;
  data?: string;
}

/** Reads one connection as server-sent events (WHATWG HTML, section 9.2) to its end. A message that it breaks off is not given. */
async function* messages(open: Open, since: number | undefined, connection: AbortController): AsyncGenerator<Message, void, undefined> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const heard = () => {
    clearTimeout(timer);
    timer = setTimeout(() => connection.abort(new DOMException(`nothing came for ${silenceMs} ms`, "TimeoutError")), silenceMs);
  };
  try {
    heard();
    const response = await open(since, connection.signal);
    let message: Message = {};
    for await (const line of lines(response, heard)) {
      if (line === "") {
        if (message.data !== undefined) yield message;
        message = {};
        continue;
      }
      const colon = line.indexOf(":");
      const [field, value] = colon < 0 ? [line, ""] : [line.slice(0, colon), line.slice(colon + 1).replace(/^ /, "")];
      if (field === "event") message.type = value;
      if (field === "data") message.data = message.data === undefined ? value : `${message.data}\n${value}`;
      if (field === "") {
        const subscribed = /^subscribed (\d+)$/.exec(value)?.[1];
        yield subscribed === undefined ? {} : { subscribed: Number(subscribed) };
      }
    }
  } finally {
    clearTimeout(timer);
  }
}

/** Splits a body into lines. The end of a line may be CR, LF or both. */
async function* lines(response: Response, heard: () => void): AsyncGenerator<string, void, undefined> {
  const reader = response.body!.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    heard();
    rest += decoder.decode(value, { stream: true });
    // A CR at the end may be the first half of a line's end.
    const complete = rest.split(/\r\n|\n|\r(?!$)/);
    rest = complete.pop()!;
    if (rest.length > maxLineLength) throw new Error("a line of the stream is too long");
    yield* complete;
  }
}
