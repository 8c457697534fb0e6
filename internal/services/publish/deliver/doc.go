// Package deliver sends the events of topics to the targets of subscriptions, in order for each topic.
//
// # Where events come from
//
// Events are read from the log that the live stream is read from ([live.Log]); nothing is copied. A subscription has a place in each
// topic: the number of the last event that was delivered or passed over. A topic that it follows by its kind ("auction:*") and that has no
// place yet begins at its first event.
//
// # One deliverer
//
// All processes stand for election. The one that leads sends everything, to many targets at a time, one event at a time for each topic of
// a subscription. A topic's turn sends some events and ends; then other topics of the target have theirs. What commands commit wakes the
// leader, by the hints that the live stream uses; every ten seconds it looks for what hints have missed.
//
// # An event
//
//	read its place ──► read events ──► send ──► record the new place ──► next event
//	      ▲                             │ fails
//	      └──────── rest ◄──────────────┘
//
// The place moves only where it is still the one that was read, and no later leader has moved it: a process that was stopped and wakes
// up changes nothing. It may still send the event that it was at, which is a repeat.
//
// A failed event is sent again after a pause that grows, up to a minute, or the one that the target asked for; the topic waits. Where a
// target answers that it will never take an event, the topic waits a minute; after [publish.MaxRefusals] such answers in a row the
// subscription is paused. A topic whose next event is not kept any more stops until somebody says from where to go on.
//
// # What is promised
//
//   - Of each topic every event is delivered, unless its type is not asked for, and for the first time in order.
//   - A repeat has the id and the body of the first delivery. The id is made of the subscription, the topic and the number.
//   - A topic that fails delays no other one, and a target that is slow or down delays no other target, unless there are more of them
//     than [DefaultConcurrency] divided by [DefaultPerTarget].
//
// # What is not
//
//   - Exactly-once delivery: a process that dies between the answer and its record leaves an event that is sent again.
//   - Order between topics.
//   - A database that loses committed events in a failover may give their numbers to others, which then have the ids of the lost ones.
package deliver
