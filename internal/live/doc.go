// Package live brings the events of topics to those who watch, in every process, each event once and in order.
//
// A topic ("auction:ID", "campaign:ID") is a sequence of events with the numbers 1, 2, 3, …, which were committed to the
// database with their causes. The [Log] reads them there and is the only truth; everything else here is about being quick.
//
// # How an event travels
//
//	service ── Committed ──► feed: the topic's latest events, encoded once ◄── pages ── Log
//	   │                       │ wakes                                            ▲
//	   └─ hint ─► Wire ─► other processes' feeds                     poll, each second
//	                           ▼
//	             subscriber: a queue of topics to look at ◄── Pull ── the connection's writer
//
// A [Hub] has a feed for each topic that somebody subscribes to, and for a while after. A feed grows by what this process
// has committed when it follows directly on what is known, and else by reading the log: when a hint or the poll tells that
// the topic has grown, or when there was a gap. So it has no gap and no repeat, whatever is lost, repeated or late on the
// way. A hint is a number, never an event; only messages without a number, such as a countdown, travel as they are.
//
// Nothing is ever pushed to a subscriber. Each has a place in every topic, and its connection's one writer pulls from
// there: from the feed's memory, or page by page from the log where its place is older. A subscriber that stalls therefore
// costs its own connection and nobody else's time, and no queue grows for it.
//
// # The states of a subscription
//
//	replaying ── caught up ──► live ── behind by more than the buffer, while writing ──► dropped
//	    ▲                       │
//	    └── a burst, while waiting for news
//
// It starts behind the number that it names, or at the topic's last one, and replays until it has caught up. A live one
// that falls behind by more than the buffer because its connection does not take more is dropped and learns up to where it
// was given events, so that it can come back from there. One that was only met by a burst replays it.
//
// # What is promised
//
//   - A subscription is given every event above its starting point, in order, once, until it ends.
//   - With a working wire an event reaches the subscribers of other processes within milliseconds; without, within the
//     poll's period.
//   - Committed and Broadcast never wait for a subscriber, a database or a network.
//
// # What is not
//
//   - Messages without a number may be lost, on the way and by slow subscribers, and are in no order with the events.
//   - A database that loses committed events in a failover, and gives their numbers to others, is not noticed by
//     subscribers that were given the lost ones.
package live
