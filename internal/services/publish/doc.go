// Package publish sends publications to their targets: each once, at its time, from any number of processes.
//
// # States
//
//	draft ──schedule──► scheduled ──claim──► publishing ──► published
//	  │  └──publish──►    │  ▲  ▲                │  │
//	  └────cancel──► cancelled  │  └──transient──┘  └─────► failed
//	                            └────────retry──────────────┘
//
// decide.go holds every transition as a pure function. The [Service] runs the transitions that callers ask for, each in one
// transaction with its idempotency key; the [Worker] runs those of the attempts. Only the holder of a claim, by lock id and
// version, can change a claimed publication; every statement of package postgres checks that.
//
// # An attempt
//
// A worker claims what is due by the database's clock. The claim's transaction writes a row for the attempt. The worker sends
// (see [Sender]), within the target's timeout, and records the result under the claim. Heartbeats keep the claim meanwhile, however
// long the attempt takes, and note what it is doing. A result that arrives after the claim went stale changes nothing and
// is noted as refused. A transient failure is attempted again, up to [MaxAttempts] times, after a backoff that doubles or the
// pause that the target asked for. An attempt that finds the target's authorization expired does not count; it pauses the
// target until new credentials are given. A sender of several steps saves its progress under the claim, and the next attempt
// continues from there.
//
// # Automations
//
// An [Automation] is a rule that schedules drafts: at times of the day on weekdays in a time zone, or at an interval. The
// [Worker] of any process fires what is due. Rule and time are the key of a firing, so many processes fire once.
//
// # What it promises
//
//   - A publication becomes published at most once.
//   - Nothing is sent before it is due by the database's clock; a publication cancelled before its claim is never sent.
//   - Each attempt has a greater version than the one before, and all attempts carry the publication's id.
//   - A target that is slow or down delays no other target's publications, unless there are over a hundred of such targets.
//   - Each time of an automation's rule fires at most once and takes at most one draft.
//   - A dead worker's claims are attempted again once they are stale.
//
// # What it does not promise
//
//   - Exactly-once delivery. A worker that dies after it has sent, or is stopped past its claim, leaves a publication that is
//     sent again. A target that remembers ids, or can be asked (see [Finder]), makes it exactly once.
//   - Order between publications.
package publish
