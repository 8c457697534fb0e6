export { Fairlead, type Answer, type CallOptions, type FairleadOptions } from "./client.js";
export type { Outcome } from "./doubts.js";
export { FairleadError, FairleadProblem, UnansweredError } from "./errors.js";
export type { EventOptions, FairleadEvent } from "./live.js";
export type * from "./types.gen.js";
