// Speculative transactions on two targets that are gathered into one.
//
// A server decides commands in its memory of two targets, and sends transaction behind transaction on one connection. Commands on different
// targets may travel in one transaction, whose guards compare both targets. If it is undone, each member is sent again alone, with what
// was decided at first. What was decided meanwhile rests on members that may yet fail. The connection may be cut at any moment. What
// was sent on it is executed sooner or later, or not at all. Then, and if a member fails alone, the command is decided under the target's
// lock. Another server carries out the same commands under the lock at any time, because clients lose patience, and repeat them there.
// What is specified is internal/postgres/speculation (gathering.go, memory.go); ADR 0054 and 0055 describe it. What a run under the lock
// may meet is in speculation.pml; here it is one step.
//
// What must hold:
//   A1  What was acknowledged is there.
//   A2  The balance of a target is what was there at first without what was withdrawn, and a command is refused only if nothing is left.
//   I1  A key has at most one effect.
//   I2  All answers to a key are equal.
//   I3  What was said not to be applied, or was refused, has no effect, and gets none later.
//   MEMORY  What is remembered rests on nothing but commands that are committed, or may yet be; and a revision names one state.
//
// MISTAKE GUARD_OF_ONE breaks A2: of a gathered transaction's guards, only the last target's counts
// MISTAKE KEYS_UNCHECKED breaks I2: a record that is there does not refuse a transaction
// MISTAKE NEIGHBOUR_IS_DONE breaks A1: where a transaction is undone, only the member that a guard refused is told
// MISTAKE SENT_IS_DONE breaks A1: a member that is sent again is answered at once
// MISTAKE NEIGHBOUR_IS_REFUSED breaks I2: the neighbour of a failed member is answered as if it were refused
// MISTAKE LOST_IS_UNDONE breaks I3: the members of a lost transaction were not applied
// MISTAKE FAILED_IS_REMEMBERED breaks MEMORY: what rests on a member that failed alone stays
// MISTAKE REVISION_OF_COMMAND breaks MEMORY: a revision names the last command, and not how it was carried out
// HARMLESS UNDONE_TOO_EARLY: memory returns to what was committed while something that rests on a failure is under way
// HARMLESS ONE_TARGET: two commands of one target are gathered; the guard of the second one refuses

#include "common.h"

#define COMMANDS 3 // two on target 0, one on target 1
#define SLOTS 3    // transactions under way
#define NOBODY 7
#define target(c) (c == 2)

mtype = { A1, A2, I1, I2, I3, MEMORY };

// The database. A revision names the last command that changed a target, and whether that was decided in memory or under the lock.
#define inMemory(c) ((c) + 1)
#ifdef REVISION_OF_COMMAND
#define underLock(c) inMemory(c)
#else
#define underLock(c) ((c) + 1 + COMMANDS)
#endif
#define commandOf(r) (((r) - 1) % COMMANDS)
byte first[2], balance[2], revision[2];
bit locked[2];
byte record[COMMANDS], effects[COMMANDS]; // a record is one of the answers

// Answers.
#define NONE 0
#define DONE 1
#define REFUSED 2
#define NOT_APPLIED 3
#define UNKNOWN 4

// The server's memory of a target. What is committed of it, as far as is known, is what it returns to after a failure.
typedef Memory {
	bit known;
	byte revision, balance, committed, left;
	bit poisoned, lost
};
Memory memory[2];

// A command, as its client and the server that gathers see it.
#define IDLE 0
#define GATHERED 1
#define SENT 2
#define UNDONE 3 // with others; it is to be sent again
#define UNDER_LOCK 4
typedef Command {
	byte at, last, decided;         // the last answer, and the first that was a decision
	bit sent, repeated;            // to the server that gathers, and to the other one
	bit unsure;                    // a transaction of this request was lost
	bit old;                       // it was decided in a memory that a run under the lock has replaced
	byte after, result, left       // the revision that it rests on, what was decided, and the balance that this leaves
};
Command cmd[COMMANDS];

// A transaction.
#define FREE 0
#define UNDER_WAY 1
#define EXECUTED 2
#define COMMITTED 3
#define ABORTED 4
typedef Transaction {
	byte at, members, done; // sets of commands
	byte behind;            // the one that it was sent behind
	bit lost;
	byte after[COMMANDS], left[COMMANDS]
};
Transaction tx[SLOTS];

byte i, k, slot, tail; // scratch

#define waits(c) (cmd[c].at == GATHERED || cmd[c].at == SENT || cmd[c].at == UNDONE) // for the end of its transaction
#define rests(c, t) (waits(c) && !cmd[c].old && target(c) == t)
#define underWay(t) (rests(0, t) || rests(1, t) || rests(2, t))
#define single(s) ((s) == 1 || (s) == 2 || (s) == 4)

inline answer(x, a) {
	printf("command %d is answered %d\n", x, a);
	cmd[x].at = IDLE; cmd[x].unsure = 0; cmd[x].old = 0; cmd[x].after = 0; cmd[x].result = 0; cmd[x].left = 0; cmd[x].last = a;
	if
	:: a == DONE || a == REFUSED ->
		guarantee(I2, cmd[x].decided == NONE || cmd[x].decided == a);
		cmd[x].decided = a
	:: else
	fi
}

// settle gives memory back what was committed, once nothing is under way that rests on a failure. If an outcome is unknown, nothing is remembered.
inline settle(t) {
	if
#ifdef UNDONE_TOO_EARLY
	:: memory[t].poisoned ->
#else
	:: memory[t].poisoned && !underWay(t) ->
#endif
		memory[t].known = !memory[t].lost; memory[t].poisoned = 0; memory[t].lost = 0;
		memory[t].revision = memory[t].committed; memory[t].balance = memory[t].left
	:: else
	fi
}

// poison drops what rests on a command that has failed.
inline poison(x, unknown) {
	if
	:: !cmd[x].old ->
#ifndef FAILED_IS_REMEMBERED
		memory[target(x)].poisoned = 1; memory[target(x)].known = 0;
#endif
		memory[target(x)].lost = memory[target(x)].lost || unknown
	:: else
	fi
}

inline underTheLock(x) { cmd[x].at = UNDER_LOCK; cmd[x].old = 0; cmd[x].after = 0; cmd[x].result = 0; cmd[x].left = 0 }

inline fail(x) {
	printf("command %d fails\n", x);
	poison(x, 0);
	underTheLock(x);
	settle(target(x))
}

// gather decides a command in memory, and adds it to what is sent next.
inline gather(x) {
	cmd[x].sent = 1; cmd[x].at = GATHERED;
	cmd[x].after = memory[target(x)].revision;
	cmd[x].result = (memory[target(x)].balance > 0 -> DONE : REFUSED);
	if
	:: cmd[x].result == DONE ->
		memory[target(x)].balance--;
		memory[target(x)].revision = inMemory(x)
	:: else
	fi;
	cmd[x].left = memory[target(x)].balance;
	printf("command %d is gathered: %d\n", x, cmd[x].result)
}

#ifdef ONE_TARGET
#define fits(x) true
#else
#define fits(x) !(cmd[0].at == GATHERED && target(0) == target(x)) && !(cmd[1].at == GATHERED && target(1) == target(x)) && !(cmd[2].at == GATHERED && target(2) == target(x))
#endif

inline pick() {
	slot = NOBODY; tail = NOBODY;
	for (i : 0 .. SLOTS - 1) {
		if
		:: tx[i].at == FREE -> slot = i
		:: tx[i].at != FREE && !tx[i].lost && !(tx[0].behind == i || tx[1].behind == i || tx[2].behind == i) -> tail = i
		:: else
		fi
	}
}

inline join(x) {
	add(tx[slot].members, x);
	if
	:: cmd[x].result == DONE -> add(tx[slot].done, x)
	:: else
	fi;
	tx[slot].after[x] = cmd[x].after; tx[slot].left[x] = cmd[x].left;
	cmd[x].at = SENT;
	printf("command %d is sent\n", x)
}

// sendGathered sends what was gathered as one transaction, behind what is under way.
inline sendGathered() {
	pick();
	if
	:: slot != NOBODY ->
		tx[slot].at = UNDER_WAY; tx[slot].behind = tail;
		for (k : 0 .. COMMANDS - 1) {
			if
			:: cmd[k].at == GATHERED -> join(k)
			:: else
			fi
		}
	:: else
	fi
}

inline sendAgain(x) {
	pick();
	if
	:: slot != NOBODY ->
		tx[slot].at = UNDER_WAY; tx[slot].behind = tail;
		join(x);
#ifdef SENT_IS_DONE
		i = cmd[x].result; answer(x, i)
#endif
	:: else
	fi
}

inline free(s) {
	for (i : 0 .. SLOTS - 1) {
		if
		:: tx[i].behind == s -> tx[i].behind = NOBODY
		:: else
		fi
	}
	tx[s].at = FREE; tx[s].members = 0; tx[s].done = 0; tx[s].behind = NOBODY; tx[s].lost = 0;
	for (i : 0 .. COMMANDS - 1) { tx[s].after[i] = 0; tx[s].left[i] = 0 }
}

#ifdef KEYS_UNCHECKED
#define refusedByKey(c) false
#else
#define refusedByKey(c) (record[c] != NONE)
#endif
#define isStale(s, c) (tx[s].after[c] != revision[target(c)])
#ifdef GUARD_OF_ONE
#define guarded(s, c) (in(tx[s].members, c) && (c == 2 || single(tx[s].members)))
#else
#define guarded(s, c) in(tx[s].members, c)
#endif
#define refuses(s, c) (in(tx[s].members, c) && refusedByKey(c) || guarded(s, c) && isStale(s, c))
#define has(s, t) (t == 0 && in(tx[s].members, 0) || t == 0 && in(tx[s].members, 1) || t == 1 && in(tx[s].members, 2))
#define blocked(s) (has(s, 0) && locked[0] || has(s, 1) && locked[1])

// execute executes the statements, with their guards. What one of them refuses is undone for all.
inline execute(s) {
	if
	:: refuses(s, 0) || refuses(s, 1) || refuses(s, 2) -> tx[s].at = ABORTED
	:: else -> tx[s].at = EXECUTED
	fi;
	if
	:: tx[s].at == EXECUTED -> locked[0] = locked[0] || has(s, 0); locked[1] = locked[1] || has(s, 1)
	:: tx[s].at == ABORTED && tx[s].lost -> free(s)
	:: else
	fi
}

inline effect(x, name, rest) {
	effects[x]++; balance[target(x)] = rest; revision[target(x)] = name;
	printf("command %d is committed\n", x)
}

inline ended(s, how) {
	locked[0] = locked[0] && !has(s, 0); locked[1] = locked[1] && !has(s, 1);
	tx[s].at = how;
	if
	:: tx[s].lost -> free(s)
	:: else
	fi
}

inline commit(s) {
	for (k : 0 .. COMMANDS - 1) {
		if
		:: in(tx[s].members, k) ->
			record[k] = (in(tx[s].done, k) -> DONE : REFUSED);
			if
			:: in(tx[s].done, k) -> effect(k, inMemory(k), tx[s].left[k])
			:: else
			fi
		:: else
		fi
	}
	ended(s, COMMITTED)
}

// learn is how the server learns the end of a transaction.
inline learn(s) {
	for (k : 0 .. COMMANDS - 1) {
		if
		:: in(tx[s].members, k) && cmd[k].at == SENT ->
			if
			:: tx[s].at == COMMITTED -> succeed(k)
			:: tx[s].at == ABORTED && single(tx[s].members) -> fail(k)
#ifdef NEIGHBOUR_IS_DONE
			:: tx[s].at == ABORTED && !single(tx[s].members) && !refuses(s, k) -> succeed(k)
			:: tx[s].at == ABORTED && !single(tx[s].members) && refuses(s, k) -> cmd[k].at = UNDONE
#else
#ifdef NEIGHBOUR_IS_REFUSED
			:: tx[s].at == ABORTED && !single(tx[s].members) -> poison(k, 0); answer(k, REFUSED); settle(target(k))
#else
			:: tx[s].at == ABORTED && !single(tx[s].members) -> cmd[k].at = UNDONE
#endif
#endif
			fi
		:: else
		fi
	}
	free(s)
}

inline succeed(x) {
	if
	:: !cmd[x].old && cmd[x].result == DONE -> memory[target(x)].left = cmd[x].left;
		memory[target(x)].committed = inMemory(x)
	:: else
	fi;
	i = cmd[x].result;
	answer(x, i);
	settle(target(x))
}

// cut cuts the connection: nobody knows how what was sent on it ends.
inline cut() {
	for (k : 0 .. COMMANDS - 1) {
		if
		:: cmd[k].at == SENT ->
			poison(k, 1);
#ifdef LOST_IS_UNDONE
			answer(k, NOT_APPLIED)
#else
			underTheLock(k); cmd[k].unsure = 1
#endif
		:: cmd[k].at == GATHERED -> poison(k, 0); underTheLock(k) // It was not sent.
		:: else
		fi
	}
	settle(0); settle(1);
	for (k : 0 .. SLOTS - 1) {
		if
		:: tx[k].at == COMMITTED || tx[k].at == ABORTED -> free(k)
		:: tx[k].at == UNDER_WAY || tx[k].at == EXECUTED -> tx[k].lost = 1
		:: else
		fi
	}
	printf("the connection is cut\n")
}

// decide is a run under the lock.
inline decide(x) {
	if
	:: record[x] == NONE ->
		record[x] = (balance[target(x)] > 0 -> DONE : REFUSED);
		if
		:: record[x] == DONE -> effect(x, underLock(x), balance[target(x)] - 1)
		:: else
		fi
	:: else
	fi
}

// here is one of the server that gathers. It remembers what it has read, and what is under way has been overtaken.
inline here(x) {
	decide(x);
	for (i : 0 .. COMMANDS - 1) {
		if
		:: rests(i, target(x)) -> cmd[i].old = 1
		:: else
		fi
	}
	memory[target(x)].known = 1; memory[target(x)].poisoned = 0; memory[target(x)].lost = 0;
	memory[target(x)].revision = revision[target(x)];
	memory[target(x)].balance = balance[target(x)];
	memory[target(x)].committed = memory[target(x)].revision; memory[target(x)].left = balance[target(x)];
	answer(x, record[x])
}

inline elsewhere(x) {
	cmd[x].repeated = 1;
	printf("command %d is carried out by the other server\n", x);
	decide(x);
	guarantee(I2, cmd[x].decided == NONE || cmd[x].decided == record[x]);
	cmd[x].decided = record[x]
}

#define records(s, x) (tx[s].at == EXECUTED && in(tx[s].members, x))
#define recording(x) (records(0, x) || records(1, x) || records(2, x))

inline check() {
	for (i : 0 .. COMMANDS - 1) {
		guarantee(I1, effects[i] <= 1);
		guarantee(A1, cmd[i].decided != DONE || effects[i] == 1);
		guarantee(A2, record[i] != REFUSED || balance[target(i)] == 0);
		guarantee(I3, cmd[i].decided != REFUSED && (cmd[i].last != NOT_APPLIED || cmd[i].repeated) || effects[i] == 0)
	}
	guarantee(A2, balance[0] + effects[0] + effects[1] == first[0] && balance[1] + effects[2] == first[1]);
	for (i : 0 .. 1) {
		if
		:: memory[i].known ->
			guarantee(MEMORY, memory[i].revision == 0 || effects[commandOf(memory[i].revision)] == 1 || waits(commandOf(memory[i].revision)));
			guarantee(MEMORY, memory[i].revision != revision[i] || memory[i].balance == balance[i])
		:: else
		fi
	}
	i = 0; k = 0; slot = 0; tail = 0
}

#define client(x) \
	:: atomic { !cmd[x].sent && memory[target(x)].known && fits(x) -> gather(x); check() } \
	:: atomic { !cmd[x].sent -> cmd[x].sent = 1; cmd[x].at = UNDER_LOCK; check() } \
	:: atomic { !cmd[x].repeated && cmd[x].last != NOT_APPLIED && !locked[target(x)] -> elsewhere(x); check() } \
	:: atomic { cmd[x].at == UNDONE -> sendAgain(x); check() } \
	:: atomic { cmd[x].at == UNDONE -> fail(x); check() } /* There is no connection. */ \
	:: atomic { cmd[x].at == UNDER_LOCK && !locked[target(x)] -> here(x); check() } \
	:: atomic { cmd[x].at == UNDER_LOCK && locked[target(x)] && record[x] == NONE -> giveUp(x); check() } \
	:: atomic { cmd[x].at == UNDER_LOCK -> answer(x, UNKNOWN); check() } /* The database is away. */

inline giveUp(x) {
	if
	:: cmd[x].unsure || recording(x) -> answer(x, UNKNOWN)
	:: else -> answer(x, NOT_APPLIED)
	fi
}

#define transaction(s) \
	:: atomic { tx[s].at == UNDER_WAY && tx[s].behind == NOBODY && !blocked(s) -> execute(s); check() } \
	:: atomic { tx[s].at == UNDER_WAY && tx[s].behind == NOBODY && tx[s].lost -> free(s); check() } /* It never arrived. */ \
	:: atomic { tx[s].at == EXECUTED -> commit(s); check() } \
	:: atomic { tx[s].at == EXECUTED -> ended(s, ABORTED); check() } \
	:: atomic { !tx[s].lost && (tx[s].at == COMMITTED || tx[s].at == ABORTED) && tx[s].behind == NOBODY -> learn(s); check() }

active proctype world() {
	atomic {
		for (i : 0 .. SLOTS - 1) { tx[i].behind = NOBODY }
		if
		:: first[0] = 1
		:: first[0] = 2
		fi;
		first[1] = 1;
		for (i : 0 .. 1) {
			balance[i] = first[i];
			memory[i].known = 1; memory[i].balance = first[i]; memory[i].left = first[i]
		}
		i = 0
	}
	do
	client(0)
	client(1)
	client(2)
	transaction(0)
	transaction(1)
	transaction(2)
	:: atomic { cmd[0].at == GATHERED || cmd[1].at == GATHERED || cmd[2].at == GATHERED -> sendGathered(); check() }
	:: atomic { cmd[0].at == SENT || cmd[1].at == SENT || cmd[2].at == SENT -> cut(); check() }
	od
}
