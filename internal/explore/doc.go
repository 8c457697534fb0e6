// Package explore runs servers, clients and a real PostgreSQL under a scheduler that puts their messages in an order which a seed
// decides. The tests here look for an order, or for a fault in it, after which something that was promised does not hold.
//
// # Protocol
//
// Servers and clients run in a bubble of testing/synctest, and so do processes that use the libraries ([World.Process]). A server's
// connections to the database and a client's requests end at a gate. The scheduler waits until everybody in the bubble waits, and then chooses one of what is pending:
//
//   - a unit that a server has written to the database, up to a Sync or a Query: the gate sends it to PostgreSQL and reads the
//     answer, until PostgreSQL is ready or waits for a lock. Then the answer stays out until what is let through later ends the
//     wait;
//   - a request of a client's, and answers that were held back;
//   - the end of a connection, as PostgreSQL sees it;
//   - notifications that a session has heard;
//   - the end of a wait for a lock, once lock_timeout has passed;
//   - time: it passes until the next message, or for as long as the choice says;
//   - the kill of a server or process, which is started anew, and a stop of its messages for some seconds;
//   - a copy of the database, and its failure: it comes back as the copy, on another timeline ([World.Copy], [World.Lose]).
//
// A message may meet a [Mode]: its answer is held or lost, it is lost itself, or it arrives after its connection was cut.
// Histories are those of a real PostgreSQL at once; there is no model of it that could be wrong.
//
// # Time and chance
//
// The bubble has a clock of its own. The database calls functions that show the same clock: see pgtest.Shadow. PostgreSQL's own
// timers are off, and lock_timeout is the gate's. Each step takes a microsecond. crypto/rand is a function of the seed and of how a goroutine has
// come to ask, and all pauses that depend on chance take theirs from there.
//
// # Promises
//
//   - The same seed gives the same history on the same code: the same choices, and the same answers to clients.
//   - Servers take turns at what they share (package turns) in schedules whose seed has the second bit. In the others they meet more often.
//   - Each schedule begins with the same database and with servers that remember the same ([Scenario].Warm). It ends with the checks of
//     package sim (the clients' own books) and of package audit, and with the scenario's.
//   - A failure is reported with its seed and the shortest sequence of choices that was found to fail too; after the last of them
//     everything goes on in order.
//
// What stays the machine's: how goroutines of one process interleave between two messages. They have one processor, so that one goes on after
// the other. docs/adr/0040 and docs/adr/0056 say more.
package explore
