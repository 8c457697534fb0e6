// Speculative transactions whose COMMIT gets no answer.
//
// Two servers decide withdrawals from one account in their caches and send each transaction before those ahead of it have ended. Guards
// in the statements compare version and balance with the cached ones, and the unique index of keys refuses a key that has a record. A
// transaction that fails, or whose end is unknown, is decided again under the row's lock, after a look for the key's record. A
// connection may be cut at any moment; what was sent on it is executed sooner or later, or not at all. Clients repeat a command whose
// outcome they don't know, on any server. The database may fail over once to an older state, while servers keep their caches.
// What is specified is internal/postgres/speculation and internal/command; ADR 0001 and 0010 describe it. A batch is one command here.
//
// What must hold:
//   A1  What was acknowledged is there (until a failover loses it).
//   A2  The balance is what was there at first without what was withdrawn.
//   I1  A key has at most one effect.
//   I2  All answers to a key are equal.
//   I3  What was said not to be applied, or was refused, has no effect, and gets none later.
//
// MISTAKE VERSION_ALONE breaks A2: the guard compares the version and not the balance
// MISTAKE GUARD_OFF breaks A2: the guard compares nothing
// MISTAKE KEYS_UNCHECKED breaks I1: a record that is there does not refuse a transaction
// MISTAKE KEY_NOT_READ breaks I1: the run under the lock does not look for the key's record
// MISTAKE ROW_NOT_LOCKED breaks A2: the second run reads without the lock, and so does not wait for the lost one
// MISTAKE EARLY_ANSWER breaks A1: the answer is given when the statements are done, before COMMIT is
// MISTAKE LOST_IS_DONE breaks A1: a COMMIT without an answer counts as done
// MISTAKE LOST_IS_UNDONE breaks I3: a COMMIT without an answer counts as undone
// MISTAKE BLOCKED_IS_UNDONE breaks I3: a lost transaction may have the row that a command gives up to wait for
// MISTAKE RECORD_NOT_SOUGHT breaks I3: a repeat gives up to wait for the row, and does not ask whether a transaction that has not ended, as the
//   lost one of the first request, is recording its key
// HARMLESS CACHE_KEPT: the cache is kept after a failure, since nothing believes it

#include "common.h"

#ifndef COMMANDS
#define COMMANDS 2
#endif
#define SENDS 2 // of one command
#define SLOTS 3 // transactions under way
#define BALANCE 2

mtype = { A1, A2, I1, I2, I3 };

#define NOBODY 7
#define amount(c) (c == 1 -> 2 : 1)

// The database.
byte version, balance = BALANCE, locked = NOBODY;
byte record[COMMANDS], effects[COMMANDS]; // a record is one of the answers
byte oldVersion, oldBalance, oldRecords, oldEffects; // the state that a standby has; sets of commands
bit copied, failedOver;

// The servers' caches.
bit known[2];
byte cachedVersion[2], cachedBalance[2];

// Answers.
#define NONE 0
#define DONE 1
#define REFUSED 2
#define NOT_APPLIED 3
#define UNKNOWN 4

// A command, as its client and its server see it.
#define IDLE 0
#define QUEUED 1
#define SENT 2
#define UNDER_LOCK 3 // it waits for the row, or is executed under its lock
typedef Command {
	byte at, sends;
	bit server;
	byte last, first;   // the last answer, and the first that was a decision
	byte slot;          // its transaction
	bit unsure          // a transaction of this request was lost
};
Command cmd[COMMANDS];

// A transaction.
#define FREE 0
#define UNDER_WAY 1
#define EXECUTED 2
#define COMMITTED 3
#define ABORTED 4
typedef Transaction {
	byte at, c;
	bit server, speculative, lost;
	byte after; // the one that it was sent behind
	byte version, balance, left;
	byte result
};
Transaction tx[SLOTS];

byte i, slot, behind; // scratch

inline free(t) {
	for (i : 0 .. SLOTS - 1) {
		if
		:: tx[i].after == t -> tx[i].after = NOBODY
		:: else
		fi
	}
	tx[t].at = FREE; tx[t].c = 0; tx[t].server = 0; tx[t].speculative = 0; tx[t].lost = 0; tx[t].after = NOBODY; tx[t].version = 0; tx[t].balance = 0;
	tx[t].left = 0; tx[t].result = 0
}

inline pick() {
	if
	:: tx[0].at == FREE -> slot = 0
	:: else ->
		if
		:: tx[1].at == FREE -> slot = 1
		:: else ->
			if
			:: tx[2].at == FREE -> slot = 2
			:: else -> slot = NOBODY
			fi
		fi
	fi
}

// decide decides a command on a state, and fills its transaction.
inline decide(x, v, b) {
	tx[slot].c = x; tx[slot].server = cmd[x].server; tx[slot].version = v; tx[slot].balance = b;
	if
	:: b >= amount(x) -> tx[slot].result = DONE; tx[slot].left = b - amount(x)
	:: else -> tx[slot].result = REFUSED; tx[slot].left = b
	fi;
	cmd[x].slot = slot
}

inline answer(x, a) {
	printf("command %d is answered %d\n", x, a);
	cmd[x].at = IDLE; cmd[x].slot = NOBODY; cmd[x].unsure = 0; cmd[x].last = a;
	if
	:: a != UNKNOWN ->
		if
		:: a != NOT_APPLIED ->
			if
			:: !failedOver -> guarantee(I2, cmd[x].first == NONE || cmd[x].first == a)
			:: else
			fi;
			cmd[x].first = a
		:: else
		fi
	:: else
	fi
}

inline forget(whose) {
#ifdef CACHE_KEPT
	skip
#else
	known[whose] = 0; cachedVersion[whose] = 0; cachedBalance[whose] = 0
#endif
}

inline again(x) { cmd[x].at = UNDER_LOCK; cmd[x].slot = NOBODY }

// lose cuts a transaction's connection.
inline lose(t) {
	tx[t].lost = 1;
	forget(tx[t].server);
	cmd[tx[t].c].unsure = 1;
#ifdef LOST_IS_DONE
	answer(tx[t].c, tx[t].result)
#else
#ifdef LOST_IS_UNDONE
	answer(tx[t].c, NOT_APPLIED)
#else
	again(tx[t].c)
#endif
#endif
}

inline send(x, who) {
	printf("command %d is sent to server %d\n", x, who);
	cmd[x].at = QUEUED; cmd[x].sends++; cmd[x].server = who
}

inline speculate(x) {
	pick();
	if
	:: slot != NOBODY && known[cmd[x].server] ->
		behind = NOBODY;
		for (i : 0 .. SLOTS - 1) { // The last one on this connection: there are at most two.
			if
			:: i != slot && tx[i].at != FREE && tx[i].speculative && !tx[i].lost && tx[i].server == cmd[x].server -> behind = i
			:: else
			fi
		}
		if
		:: behind == NOBODY || tx[behind].after == NOBODY ->
			decide(x, cachedVersion[cmd[x].server], cachedBalance[cmd[x].server]);
			tx[slot].at = UNDER_WAY; tx[slot].speculative = 1; tx[slot].after = behind;
			cmd[x].at = SENT;
			if
			:: tx[slot].result == DONE -> cachedVersion[cmd[x].server]++; cachedBalance[cmd[x].server] = tx[slot].left
			:: else
			fi;
			printf("command %d is decided on the cache: %d\n", x, tx[slot].result)
		:: else
		fi
	:: else
	fi
}

// underLock locks the row, looks for the record, and decides.
inline underLock(x) {
	pick();
#ifdef ROW_NOT_LOCKED
	if
	:: slot != NOBODY && cmd[x].slot == NOBODY ->
#else
	if
	:: slot != NOBODY && cmd[x].slot == NOBODY && locked == NOBODY ->
#endif
		if
#ifndef KEY_NOT_READ
		:: record[x] != NONE -> answer(x, record[x])
#endif
		:: else ->
			forget(cmd[x].server);
			decide(x, version, balance);
			tx[slot].at = EXECUTED;
			if
			:: locked == NOBODY -> locked = slot
			:: else
			fi;
			printf("command %d is decided under the lock: %d\n", x, tx[slot].result)
		fi
	:: else
	fi
}

// execute executes the statements of a speculative transaction, with their guards.
inline execute(t) {
	if
#ifndef KEYS_UNCHECKED
	:: record[tx[t].c] != NONE -> tx[t].at = ABORTED
#endif
#ifndef GUARD_OFF
	:: tx[t].version != version -> tx[t].at = ABORTED
#ifndef VERSION_ALONE
	:: tx[t].balance != balance -> tx[t].at = ABORTED
#endif
#endif
	:: else -> tx[t].at = EXECUTED; locked = t
	fi;
	printf("the statements of command %d: %d\n", tx[t].c, tx[t].at)
}

inline commit(t) {
	tx[t].at = COMMITTED; record[tx[t].c] = tx[t].result;
	if
	:: tx[t].result == DONE -> effects[tx[t].c]++; balance = tx[t].left; version++
	:: else
	fi;
	if
	:: locked == t -> locked = NOBODY
	:: else
	fi;
	printf("command %d is committed\n", tx[t].c);
	if
	:: tx[t].lost -> free(t)
	:: else
	fi
}

inline abort(t) {
	tx[t].at = ABORTED;
	if
	:: locked == t -> locked = NOBODY
	:: else
	fi;
	if
	:: tx[t].lost -> free(t)
	:: else
	fi
}

// learn is how a server learns the end of a transaction.
inline learn(t) {
	if
	:: tx[t].at == COMMITTED ->
		if
		:: !tx[t].speculative && tx[t].result == DONE && (!known[tx[t].server] || cachedVersion[tx[t].server] <= version) -> // It keeps what it has committed.
			known[tx[t].server] = 1; cachedVersion[tx[t].server] = tx[t].version + 1; cachedBalance[tx[t].server] = tx[t].left
		:: else
		fi;
		answer(tx[t].c, tx[t].result)
	:: else -> forget(tx[t].server); again(tx[t].c)
	fi;
	free(t)
}

inline failOver() {
	for (slot : 0 .. SLOTS - 1) {
		if
		:: tx[slot].at != FREE && !tx[slot].lost -> again(tx[slot].c); cmd[tx[slot].c].unsure = 1
		:: else
		fi;
		free(slot)
	}
	locked = NOBODY; version = oldVersion; balance = oldBalance; failedOver = 1;
	for (i : 0 .. COMMANDS - 1) {
		record[i] = (in(oldRecords, i) -> (in(oldEffects, i) -> DONE : REFUSED) : NONE); effects[i] = in(oldEffects, i)
	}
	printf("the database fails over to version %d\n", version)
}

inline check() {
	slot = 0;
	for (i : 0 .. COMMANDS - 1) {
		slot = slot + effects[i] * amount(i);
		guarantee(I1, effects[i] <= 1);
		if
		:: !failedOver ->
			guarantee(A1, cmd[i].first != DONE || effects[i] == 1);
			guarantee(I3, cmd[i].first != REFUSED && (cmd[i].at != IDLE || cmd[i].last != NOT_APPLIED) || effects[i] == 0)
		:: else
		fi
	}
	guarantee(A2, balance + slot == BALANCE);
	i = 0; slot = 0; behind = 0
}

#define client(x) \
	:: atomic { cmd[x].at == IDLE && cmd[x].sends < SENDS && cmd[x].last != NOT_APPLIED -> send(x, 0); check() } \
	:: atomic { cmd[x].at == IDLE && cmd[x].sends < SENDS && cmd[x].last != NOT_APPLIED -> send(x, 1); check() } \
	:: atomic { cmd[x].at == QUEUED -> speculate(x); check() } \
	:: atomic { cmd[x].at == QUEUED -> again(x); check() } \
	:: atomic { cmd[x].at == UNDER_LOCK && cmd[x].slot == NOBODY -> underLock(x); check() } \
	:: atomic { cmd[x].at == UNDER_LOCK && cmd[x].slot == NOBODY -> answer(x, UNKNOWN); check() } /* The database is away. */ \
	:: atomic { cmd[x].at == UNDER_LOCK && cmd[x].slot == NOBODY && locked != NOBODY && record[x] == NONE -> giveUp(x); check() }

#define recordedBy(t, x) (tx[t].at == EXECUTED && tx[t].c == x)

inline giveUp(x) {
	if
#ifndef RECORD_NOT_SOUGHT
	:: recordedBy(0, x) || recordedBy(1, x) || recordedBy(2, x) -> answer(x, UNKNOWN)
#endif
#ifndef BLOCKED_IS_UNDONE
	:: cmd[x].unsure -> answer(x, UNKNOWN)
#endif
	:: else -> answer(x, NOT_APPLIED)
	fi
}

#ifdef EARLY_ANSWER
#define answerable(t) (tx[t].at == EXECUTED || tx[t].at == COMMITTED || tx[t].at == ABORTED)
#else
#define answerable(t) (tx[t].at == COMMITTED || tx[t].at == ABORTED)
#endif

#define transaction(t) \
	:: atomic { tx[t].at == UNDER_WAY && tx[t].after == NOBODY && locked == NOBODY -> execute(t); \
		if \
		:: tx[t].at == ABORTED && tx[t].lost -> free(t) \
		:: else \
		fi; check() } \
	:: atomic { tx[t].at == UNDER_WAY && tx[t].after == NOBODY && tx[t].lost -> free(t); check() } /* It never arrived. */ \
	:: atomic { tx[t].at == EXECUTED -> commit(t); check() } \
	:: atomic { tx[t].at == EXECUTED -> abort(t); check() } \
	:: atomic { tx[t].at != FREE && !tx[t].lost && answerable(t) && tx[t].after == NOBODY -> early(t); check() } \
	:: atomic { tx[t].at != FREE && !tx[t].lost && tx[t].after == NOBODY -> cut(t); check() }

inline early(t) {
#ifdef EARLY_ANSWER
	if
	:: tx[t].at == EXECUTED -> answer(tx[t].c, tx[t].result); tx[t].lost = 1
	:: else -> learn(t)
	fi
#else
	learn(t)
#endif
}

// cut loses a transaction, and what was sent behind it.
inline cut(t) {
	for (slot : 0 .. SLOTS - 1) {
		if
		:: slot != t && tx[slot].at != FREE && tx[slot].after == t && !tx[slot].lost -> lose(slot)
		:: else
		fi
	}
	lose(t);
	if
	:: tx[t].at == COMMITTED || tx[t].at == ABORTED -> free(t)
	:: else
	fi
}

active proctype world() {
	atomic {
		for (i : 0 .. SLOTS - 1) { tx[i].after = NOBODY }
		for (i : 0 .. COMMANDS - 1) { cmd[i].slot = NOBODY }
		i = 0
	}
	do
	client(0)
	client(1)
#if COMMANDS > 2
	client(2)
#endif
	transaction(0)
	transaction(1)
	transaction(2)
	:: atomic { !known[0] -> known[0] = 1; cachedVersion[0] = version; cachedBalance[0] = balance }
	:: atomic { !known[1] -> known[1] = 1; cachedVersion[1] = version; cachedBalance[1] = balance }
	:: atomic { !copied && !failedOver -> copied = 1; oldVersion = version; oldBalance = balance;
		for (i : 0 .. COMMANDS - 1) {
			if
			:: record[i] != NONE -> add(oldRecords, i)
			:: else
			fi;
			if
			:: effects[i] != 0 -> add(oldEffects, i)
			:: else
			fi
		}
		i = 0 }
	:: atomic { copied && !failedOver -> failOver(); oldVersion = 0; oldBalance = 0; oldRecords = 0; oldEffects = 0; check() }
	od
}
