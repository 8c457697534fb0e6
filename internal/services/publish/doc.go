// Package publish brings publications to their targets: each once, at its time, by any number of processes.
//
// # States
//
//	draft ──schedule──► scheduled ──claim──► publishing ──► published
//	  │  └──publish──►    │  ▲  ▲                │  │
//	  └────cancel──► cancelled  │  └──transient──┘  └─────► failed
//	                            └────────retry──────────────┘
//
// decide.go holds every transition as a pure function; the [Service] runs those that callers ask for, each in one transaction
// with its idempotency key, and the [Worker] those of the attempts. A publication that is claimed, by lock id and version,
// can be changed by the holder of that claim alone; the SQL of package postgres says so in every statement.
//
// # An attempt
//
// A worker claims what is due by the database's clock, which writes a row for the attempt in the claim's transaction; it sends
// (see [Sender]), and records the result under the claim. A result that comes after the claim went stale changes nothing and
// is noted as refused. What may work later is attempted again, up to [MaxAttempts] times, after a pause that doubles or that
// the target asked for. An attempt that found the target's authorization expired does not count, and pauses the target until it
// has a new one. A sender of several steps saves what it has done under the claim, and the next attempt goes on from there.
//
// # Automations
//
// An [Automation] is a rule that schedules drafts: at times of the day on weekdays in a time zone, or at an interval. The
// [Automator] of any process fires what is due; a firing is keyed by the rule and its time, so that many processes fire once.
//
// # What it promises
//
//   - A publication becomes published at most once.
//   - Nothing is sent before it is due by the database's clock; what was cancelled before its claim is never sent.
//   - Each attempt has a greater version than the one before it, and all of them bear the publication's id.
//   - A target that is slow, or down, delays nobody else's publications, unless there are hundreds of such targets.
//   - Each time of an automation's rule is fired at most once, and takes at most one draft.
//   - What a worker that died has claimed is attempted again once its claim is stale.
//
// # What it does not promise
//
//   - That a target gets each publication once. A worker that dies after it has sent, or is stopped past its claim, leaves a
//     publication that is sent again. Exactly once is had where the target remembers ids, or can be asked (see [Finder]).
//   - Order between publications.
package publish
