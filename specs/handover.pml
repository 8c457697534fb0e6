// How a lock on PostgreSQL goes from holder to holder.
//
// Requests of two processes want one key. Statements are executed some time after they were sent, and answered some time later. The
// database's clock alone ends leases; it may step. A holder trusts its lease by its own clock, from before the statement was sent, for the
// TTL less a margin. A release grants the key to the next in line: within the process with the full lease, and durable before the next
// one learns of it; to another process with a short lease, which its waiter takes. The database may crash, which loses what was not
// durable. Processes may die; a holder that was stopped may write long after its lease. What is specified is lock/pglock; ADR 0013 and
// 0021 describe it. One unit of time is a second or so. Cohorts, several keys and deadlocks are left out.
//
// What must hold:
//   L1  No token is given twice, and each is greater than all that were given before.
//   L2  The resource accepts no token after a newer one.
//   L3  While a holder trusts its lease, the key is its own in the tables (unless the clock jumped ahead). Where statements take no time, a
//       living process that waits for the key of a dead one gets it within TTL + 2 of the death, or of a step of the clock.
//
// With TRACE, the search looks whether histories that were recorded (trace.h) are some of this specification, see below.
//
// MISTAKE TOKEN_FROM_CLOCK breaks L1: a token is the database's time
// MISTAKE PASSED_ON_EARLY breaks L3: within a process, the next holder learns of its grant before that is durable
// MISTAKE FENCE_OFF breaks L2: the resource does not compare tokens
// MISTAKE TRUST_FROM_ANSWER breaks L3: a lease is trusted from when its answer came
// MISTAKE RELEASES_ANYBODY breaks L3: a release ends whatever grant there is
// MISTAKE RENEWAL_REVIVES breaks L3: a renewal does not look whose the key is
// MISTAKE AHEAD_LEASE_KEPT breaks L3: a lease that a clock wrote which was ahead lasts until that clock's time

#include "common.h"

#define N 3 // requests; the last one is of the second process
#ifndef END
#define END 3 // of time
#endif
#define PUNCTUAL_END 8 // where statements take no time, which leaves less to be explored
#define TTL 3
#define MARGIN 1
#define HAND_OVER 1
#define NOBODY 3
#define process(r) ((r) == N - 1)

mtype = { L1, L2, L3 };

// The tables: as they are, and as a crash would leave them.
typedef Tables { byte token, holder, expires, lineA, lineB, lineC }; // the line: NOBODY where it ends
Tables now, disk;
byte newest;       // token that the resource has accepted
byte time, offset; // the database's clock is time + offset
bit stepped, crashed, ahead, punctual;
bit dead[2];
byte given, highest; // tokens that holders have: a set, and the greatest
byte waited;         // for how long the key of a dead holder was waited for

// A request.
#define IDLE 0
#define ASKING 1   // the statement is on its way
#define GRANTED 2  // its answer is
#define WAITING 3
#define LOOKING 4  // whether it was granted
#define HELD 5
#define RENEWING 6
#define RENEWED 7
#define OVER 8
typedef Request { byte at, token, trust, start; bit polled };
Request req[N];
byte i;

#define clock (time + offset)
#define alive(r) (!dead[process(r)])
#define trusts(r) ((req[r].at == HELD || req[r].at == RENEWING || req[r].at == RENEWED) && time < req[r].trust)
#define lined(r) (now.lineA == r || now.lineB == r || now.lineC == r)

inline same(to, from) {
	to.token = from.token; to.holder = from.holder; to.expires = from.expires; to.lineA = from.lineA; to.lineB = from.lineB; to.lineC = from.lineC
}
inline sync() { same(disk, now) }

inline leave(r) {
	if
	:: now.lineA == r -> now.lineA = now.lineB; now.lineB = now.lineC; now.lineC = NOBODY
	:: now.lineB == r -> now.lineB = now.lineC; now.lineC = NOBODY
	:: now.lineC == r -> now.lineC = NOBODY
	:: else
	fi
}
inline enqueue(r) {
	if
	:: lined(r) -> skip
	:: !lined(r) && now.lineA == NOBODY -> now.lineA = r
	:: !lined(r) && now.lineA != NOBODY && now.lineB == NOBODY -> now.lineB = r
	:: else -> now.lineC = r
	fi
}

inline grant(r, lease) {
#ifdef TOKEN_FROM_CLOCK
	now.token = clock;
#else
	now.token++;
#endif
	guarantee(L1, now.token > highest);
	now.holder = r; now.expires = clock + lease;
	printf("%d: request %d is granted token %d until %d\n", time, r, now.token, now.expires);
	leave(r)
}

// expire ends a lease that is over. One that is longer than the TTL was written by a clock that was ahead.
inline expire() {
	if
	:: now.holder != NOBODY && now.expires <= clock -> now.holder = NOBODY; now.expires = 0
#ifndef AHEAD_LEASE_KEPT
	:: now.holder != NOBODY && now.expires > clock + TTL -> now.expires = clock + TTL
#endif
	:: else
	fi;
	// Those whose process has died are passed over.
	do
	:: now.lineA != NOBODY && dead[process(now.lineA)] -> leave(now.lineA)
	:: else -> break
	od
}

// settle grants a free key to the next in line, who has yet to take it.
inline settle() {
	expire();
	if
	:: now.holder == NOBODY && now.lineA != NOBODY -> grant(now.lineA, HAND_OVER)
	:: else
	fi
}

inline ask(r) {
	settle();
	if
	:: now.holder == NOBODY -> grant(r, TTL); sync(); req[r].token = now.token; req[r].at = GRANTED
	:: else -> enqueue(r); req[r].at = WAITING; req[r].polled = 1
	fi
}

inline look(r) {
	settle();
	req[r].polled = 1;
	if
	:: now.holder == r -> now.expires = clock + TTL; sync(); req[r].token = now.token; req[r].at = GRANTED
	:: now.holder != r && lined(r) -> req[r].at = WAITING; req[r].start = 0
	:: else -> req[r].at = IDLE; req[r].start = 0 // It was forgotten, and asks again.
	fi
}

inline relyOn(r) {
#ifdef TRUST_FROM_ANSWER
	req[r].trust = time + TTL - MARGIN;
#else
	req[r].trust = req[r].start + TTL - MARGIN;
#endif
	req[r].start = 0
}

inline learn(r) {
	guarantee(L1, !in(given, req[r].token));
	add(given, req[r].token);
	highest = (req[r].token > highest -> req[r].token : highest);
	relyOn(r); req[r].at = HELD; waited = 0;
	printf("%d: request %d has token %d and trusts it until %d\n", time, r, req[r].token, req[r].trust)
}

inline renew(r) {
	if
#ifdef RENEWAL_REVIVES
	:: true -> now.holder = r; now.expires = clock + TTL; sync(); req[r].at = RENEWED
#else
	:: now.holder == r && now.expires > clock -> now.expires = clock + TTL; sync(); req[r].at = RENEWED
	:: else -> req[r].at = OVER
#endif
	fi
}

inline release(r) {
	req[r].at = OVER; req[r].start = 0;
	if
#ifdef RELEASES_ANYBODY
	:: now.holder != NOBODY ->
#else
	:: now.holder == r ->
#endif
		now.holder = NOBODY; now.expires = 0;
		expire();
		if
		:: now.lineA != NOBODY && process(now.lineA) == process(r) && req[now.lineA].at == WAITING ->
			i = now.lineA;
			grant(i, TTL);
			req[i].token = now.token; req[i].start = time; req[i].at = GRANTED;
#ifndef PASSED_ON_EARLY
			sync()
#endif
		:: now.lineA != NOBODY && (process(now.lineA) != process(r) || req[now.lineA].at != WAITING) -> grant(now.lineA, HAND_OVER)
		:: else -> sync()
		fi
	:: else
	fi
}

// write is a guarded write of a holder, or of one that was.
inline write(r) {
	if
#ifdef FENCE_OFF
	:: true ->
#else
	:: req[r].token >= newest ->
#endif
		guarantee(L2, req[r].token >= newest);
		newest = req[r].token
	:: else
	fi
}

inline check() {
	for (i : 0 .. N - 1) {
		guarantee(L3, !alive(i) || !trusts(i) || ahead || now.holder == i && now.expires > clock)
	}
	i = 0
}

#define wrote(r) ((req[r].at == HELD || req[r].at == OVER) && req[r].token != 0)
#define busy(r) (req[r].at == ASKING || req[r].at == GRANTED || req[r].at == LOOKING || req[r].at == RENEWING || req[r].at == RENEWED)
#define ready(r) (!alive(r) || !busy(r) && (req[r].at != WAITING || req[r].polled))
#define wants(r) (alive(r) && (req[r].at == WAITING || req[r].at == ASKING || req[r].at == LOOKING))
#define has(r) (alive(r) && (req[r].at == HELD || req[r].at == RENEWING || req[r].at == RENEWED || req[r].at == GRANTED))

inline tick() {
	time++;
	sync(); // What nobody waited for is durable within three times wal_writer_delay, 0.6 s.
	for (i : 0 .. N - 1) { req[i].polled = 0 }
	if
	:: punctual && (dead[0] || dead[1]) && (wants(0) || wants(1) || wants(2)) && !has(0) && !has(1) && !has(2) -> waited++
	:: else -> waited = 0
	fi;
	guarantee(L3, waited <= TTL + 2)
}

#define request(r) \
	:: atomic { alive(r) && req[r].at == IDLE && sees(BEGINS, r, 0) -> saw(); req[r].at = ASKING; req[r].start = time } \
	:: atomic { req[r].at == ASKING && alive(r) -> ask(r); check() } \
	:: atomic { req[r].at == GRANTED && alive(r) && sees(HAS, r, req[r].token) -> saw(); learn(r); check() } \
	:: atomic { req[r].at == WAITING && alive(r) && mayLook(r) -> req[r].at = LOOKING; req[r].start = time } \
	:: atomic { req[r].at == LOOKING && alive(r) -> look(r); check() } \
	:: atomic { alive(r) && req[r].at == HELD && time < req[r].trust -> req[r].at = RENEWING; req[r].start = time } \
	:: atomic { alive(r) && req[r].at == RENEWING -> renew(r); check() } \
	:: atomic { alive(r) && req[r].at == RENEWED && sees(IS_RENEWED, r, req[r].token) -> saw(); relyOn(r); req[r].at = HELD; check() } \
	:: atomic { alive(r) && req[r].at == HELD && sees(IS_RELEASED, r, req[r].token) -> saw(); release(r); check() } \
	:: atomic { wrote(r) && mayWrite(r) -> saw(); write(r); check() }

// A history is what clients see: a request begins, has a token, has its lease renewed, is released, and its writes are accepted or refused.
// Any other step may come in between. In a run that is recorded nothing fails, and it takes less than a unit of time.
#ifdef TRACE
mtype = { BEGINS, HAS, IS_RENEWED, IS_RELEASED, WRITES, IS_REFUSED };
typedef Event { mtype what; byte who, token }
byte which, pos, length; // one of several histories, and how much of it was seen
#include "trace.h" // LONGEST, seen[LONGEST], and record(), which chooses one
#define sees(event, r, t) (pos < length && seen[pos].what == event && seen[pos].who == r && seen[pos].token == t)
#define saw() pos++
#define mayLook(r) true // as often as it is woken
#define mayWrite(r) (req[r].token >= newest && sees(WRITES, r, req[r].token) || req[r].token < newest && sees(IS_REFUSED, r, req[r].token))
#define mayFail false
#else
#define sees(event, r, t) true
#define saw() skip
#define mayLook(r) (!req[r].polled)
#define mayWrite(r) true
#define mayFail true
#endif

active proctype world() {
	atomic {
		now.holder = NOBODY; now.lineA = NOBODY; now.lineB = NOBODY; now.lineC = NOBODY; offset = 4;
		sync();
#ifdef TRACE
		record()
#else
		if
		:: punctual = 0
		:: punctual = 1
		fi
#endif
	}
	do
	request(0)
	request(1)
	request(2)
	:: atomic { time < (punctual -> PUNCTUAL_END : END) && (!punctual || ready(0) && ready(1) && ready(2)) -> tick(); check() }
	:: atomic { mayFail && !stepped -> stepped = 1; waited = 0; offset = 0 }
	:: atomic { mayFail && !stepped -> stepped = 1; waited = 0; ahead = 1; offset = 6 }
	:: atomic { mayFail && !crashed -> crashed = 1; same(now, disk); printf("%d: the database crashes\n", time); check() }
	:: atomic { mayFail && !dead[0] && !dead[1] -> dead[0] = 1; printf("%d: process 0 dies\n", time) }
	:: atomic { mayFail && !dead[0] && !dead[1] -> dead[1] = 1; printf("%d: process 1 dies\n", time) }
#ifdef TRACE
	:: atomic { pos == length -> pos = length + 1; c_code { printf("accepted: %d\n", now.which); } }
#endif
	od
}
