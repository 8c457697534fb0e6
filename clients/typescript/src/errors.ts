import type { Outcome } from "./doubts.js";
import { decode } from "./json.js";
import type { ProblemCode } from "./types.gen.js";

interface Call {
  idempotencyKey: string | undefined;
  attempts: number;
}

/** What a call ends in that did not succeed: a {@link FairleadProblem} or an {@link UnansweredError}. */
export abstract class FairleadError extends Error {
  /**
   * What became of the command. "not_applied": it is certain that nothing was done under this key. "applied": it was done although the
   * call failed. "unknown": it was done once or not at all; call again with `idempotencyKey` to find out. For a read it means nothing.
   */
  abstract readonly outcome: Outcome;
  /** The key that was sent, also where the client chose it; undefined for reads. */
  readonly idempotencyKey: string | undefined;
  /** How often the request was sent. */
  readonly attempts: number;

  constructor(message: string, call: Call, options?: ErrorOptions) {
    super(message, options);
    this.idempotencyKey = call.idempotencyKey;
    this.attempts = call.attempts;
  }
}

/** The server answered that it did not do what was asked: an RFC 9457 problem, or an answer of a proxy before it. */
export class FairleadProblem extends FairleadError {
  override readonly name = "FairleadProblem";
  /** Of HTTP. */
  readonly status: number;
  /** The stable name of what happened; "" where the answer was no problem document. */
  readonly code: ProblemCode | "" | (string & {});
  /** Whether the same request may succeed later. The client has tried already. */
  readonly retryable: boolean;
  readonly outcome: Outcome;
  /** How long the server asked to wait, in milliseconds; 0 where it did not. */
  readonly retryAfterMs: number;
  /** Finds the request in the server's log; "" where it is not known. */
  readonly requestId: string;
  /** All members of the document, such as `detail`, `transfer`, `cycle` and `leg`. */
  readonly fields: Readonly<Record<string, unknown>>;

  constructor(members: ProblemMembers, call: Call) {
    const { status, code, fields } = members;
    super(code === "" ? `the answer was ${status || "a redirect"}, and no problem document` : `${text(fields["detail"])} (${code})`, call);
    this.status = status;
    this.code = code;
    this.retryable = members.retryable;
    this.outcome = members.outcome;
    this.retryAfterMs = members.retryAfterMs;
    this.requestId = text(fields["request_id"]);
    this.fields = fields;
  }
}

/** No answer came: every attempt lost its connection or its time, or the call was aborted. `cause` is what went wrong last. */
export class UnansweredError extends FairleadError {
  override readonly name = "UnansweredError";
  readonly outcome = "unknown";

  constructor(call: Call, cause: unknown) {
    const under = call.idempotencyKey === undefined ? "" : ` with Idempotency-Key ${call.idempotencyKey}`;
    super(`no answer after ${call.attempts} attempts${under}: ${cause instanceof Error ? cause.message : String(cause)}`, call, { cause });
  }
}

/** What an answer of 300 or above says, before it is known what earlier attempts became. */
export interface ProblemMembers {
  status: number;
  code: string;
  retryable: boolean;
  outcome: Outcome;
  retryAfterMs: number;
  fields: Record<string, unknown>;
}

export function readProblem(status: number, headers: Headers, body: Uint8Array): ProblemMembers {
  const fields = object(body);
  const code = text(fields["code"]);
  const retryAfterMs = retryAfter(headers);
  if (code === "") {
    // A proxy that could not reach the server knows nothing of the effect.
    return { status, code, retryable: status === 502 || status === 503 || status === 504, outcome: "unknown", retryAfterMs, fields };
  }
  const said = fields["outcome"];
  const outcome = said === "applied" || said === "not_applied" ? said : "unknown";
  return { status, code, retryable: fields["retryable"] === true, outcome, retryAfterMs, fields };
}

function object(body: Uint8Array): Record<string, unknown> {
  try {
    const value = decode(new TextDecoder().decode(body));
    return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}

function text(value: unknown): string {
  return typeof value === "string" ? value : "";
}

/** Reads Retry-After, seconds or a date, as milliseconds. */
function retryAfter(headers: Headers): number {
  const value = headers.get("Retry-After") ?? "";
  if (/^\d+$/.test(value)) return Number(value) * 1000;
  return Math.max(0, Date.parse(value) - Date.now()) || 0;
}
