// Two-phase commit between two ledgers, when the coordinator's log is restored or copied.
//
// The home ledger has the log of one saga, and its first branch. The other ledger has the second branch. The log may be copied at any
// moment. The copy may replace the original (a recovery to an earlier point), or run beside it (a clone). Home 0 is the original, home
// 1 the copy. Runs and resolvers may stall before every step and go on at any time later, so nothing here depends on leases or clocks.
// What is specified is package saga with saga/pgsaga; docs/design/saga.md describes it.
//
// A branch is named after the term in which it was prepared. Its mark commits with it. The copy counts terms on its own, so its branches
// may have the names of the original's.
//
// What must hold:
//   T1  One decision: no branch is committed while its sibling was rolled back, in each home that the other ledger has not disowned.
//   A2  Money: a saga that is said to be completed moved it in both ledgers, one that is said to have failed moved it in neither.
//
// MISTAKE COMMIT_FIRST breaks T1: branches are committed before the decision is in the log
// MISTAKE OLD_LOG_TRUSTED breaks T1: a log that was restored rolls back what it knows no decision of, and asks no siblings
// MISTAKE FENCE_OFF breaks A2: branches are ended without a look at the fence
// MISTAKE FENCE_UNLOCKED breaks A2: the fence is read, and the branch is ended a moment later
// MISTAKE COPY_OWNS breaks A2: a token that the log never had does not disown it
// MISTAKE OLD_TERM_WRITES breaks A2: a run writes the log although a newer term has begun
// MISTAKE EARLIER_TERMS_ONLY breaks A2: a run heeds marks of earlier terms alone; those of a lost history may have its own term
// MISTAKE LIFE_UNCHECKED breaks T1: a run of the original decides in the restored log, at the same address
// MISTAKE ABSENT_IS_COMMITTED breaks A2: to commit a branch that is not there succeeds without its mark

#include "common.h"

#define TERMS 2     // grants of the saga's lease in each home
#define CLAIMS 3    // of them in all
#define TOKENS 3    // tokens that are left at the other ledger
#define RUNS 2      // that may be under way at once, stalled ones included
#ifndef RESTARTS
#define RESTARTS 0
#endif
#define ADOPTIONS 1

mtype = { T1, A2 };

#define PENDING 0
#define COMPLETED 1
#define FAILED 2

typedef Home {
	bit up;
	byte term;      // of the saga's lease
	byte decided;   // the term that was decided to commit; 0: none
	byte status;
	bit parked;     // the run of the newest term has given up
	byte life;      // the log's incarnation
	byte known;     // the tokens that the log has left at the other ledger: a set
	byte prepared;  // the terms of the branches that are prepared here: a set
	byte committed; // the term of the branch that is committed here; 0: none
	byte holder;    // the incarnation that may end branches here
	byte older      // the branches that were prepared before it: a set
};
Home home[2];
Home backup; // the up of the backup says that it is there
bit copied;

#define OTHER 2 // as a place
#define NOBODY 3
byte oPrepared, oCommitted, oHolder, oOlder, oToken; // the other ledger
byte oFor = NOBODY; // for which home its branch was committed: only to check T1
bit otherFirst;     // the order in which branches are prepared and committed

byte tokens, lives, claims, restarts, adoptions;

typedef Run {
	byte at; // its next step; 0: there is no run
	bit log; // its home
	bit decidedIn; // the home whose log has the decision: only to check T1
	byte term, life;
	byte what; // the term of the branches that it ends
	bit fenced; // another run of its term has written: its version is over
	bit back;  // it rolls them back
	bit seen   // it has looked at the fence
};
Run runs[RUNS];

// A resolver deals with one branch at a time.
typedef Resolver {
	byte at;
	bit log;   // its home
	bit other; // it is at the other ledger
	byte term, life;
	bit commit, seen
};
Resolver resolver;

byte i, place; // scratch
bit ok;

#ifdef COPY_OWNS
#define disowned(h) false
#else
#define disowned(h) (!in(home[h].known, oToken))
#endif
// stands says that a log has proven to both ledgers that it may end branches.
#define stands(h) (!disowned(h) && oHolder == home[h].life && home[h].holder == home[h].life)

// writes is the guard of each write of a run to the log, which is in the run's term and version. The version of a term changes with
// the decision alone.
#ifdef OLD_TERM_WRITES
#define writes(r) (home[runs[r].log].up && home[runs[r].log].status == PENDING)
#else
#define writes(r) (home[runs[r].log].up && !runs[r].fenced && home[runs[r].log].status == PENDING && home[runs[r].log].term == runs[r].term && \
	home[runs[r].log].decided == (runs[r].at == FINISH -> runs[r].what : 0))
#endif

// lives is the guard of decisions and ends: they are written under the life of the log alone under which the run has begun.
#ifdef LIFE_UNCHECKED
#define lives(r) true
#else
#define lives(r) (home[runs[r].log].life == runs[r].life)
#endif

#ifdef FENCE_OFF
#define holds(l) true
#else
#define holds(l) ((place == OTHER -> oHolder : home[place].holder) == (l))
#endif
#define preparedAt(n) in((place == OTHER -> oPrepared : home[place].prepared), n)
#define committedAt (place == OTHER -> oCommitted : home[place].committed)
#define reachable (place == OTHER || home[place].up)

// end ends the branch of a term at a place. ok says whether that is a success.
inline endBranch(n, yes, whose) {
	if
	:: preparedAt(n) ->
		if
		:: place == OTHER -> drop(oPrepared, n)
		:: else -> drop(home[place].prepared, n)
		fi;
		if
		:: (yes) && place == OTHER -> oCommitted = n; oFor = whose
		:: (yes) && place != OTHER -> home[place].committed = n
		:: else
		fi;
		ok = 1;
		printf("  %d: the branch of term %d ends, committed %d\n", place, n, yes)
	:: else ->
#ifdef ABSENT_IS_COMMITTED
		ok = 1
#else
		ok = (!(yes) || committedAt == n)
#endif
	fi
}

inline stop(r) {
	runs[r].at = 0; runs[r].log = 0; runs[r].decidedIn = 0; runs[r].term = 0; runs[r].life = 0; runs[r].what = 0; runs[r].fenced = 0; runs[r].back = 0; runs[r].seen = 0
}
inline park(r) {
	if
	:: home[runs[r].log].up && home[runs[r].log].term == runs[r].term && !runs[r].fenced ->
		home[runs[r].log].parked = 1;
		if // A run of a lost history may have the same term.
		:: runs[1 - r].at != 0 && runs[1 - r].log == runs[r].log && runs[1 - r].term == runs[r].term -> runs[1 - r].fenced = 1
		:: else
		fi
	:: else
	fi;
	stop(r)
}

// The steps of a run.
#define STAND 1
#define MARKS_1 2
#define MARKS_2 3
#define OLDER_1 4
#define OLDER_2 5
#define PREPARE_1 6
#define PREPARE_2 7
#define DECIDE 8
#define END_1 9
#define END_2 10
#define FINISH 11

#define isSecond(r) (runs[r].at == MARKS_2 || runs[r].at == OLDER_2 || runs[r].at == PREPARE_2 || runs[r].at == END_2)

#ifdef EARLIER_TERMS_ONLY
#define heeds(r) (committedAt != 0 && committedAt < runs[r].term)
#else
#define heeds(r) (committedAt != 0)
#endif

inline rollBack(r) { runs[r].what = runs[r].term; runs[r].back = 1; runs[r].at = END_1 }

inline step(r) {
	printf("run %d of home %d, term %d, life %d: step %d\n", r, runs[r].log, runs[r].term, runs[r].life, runs[r].at);
	place = (isSecond(r) != otherFirst -> OTHER : runs[r].log);
	if
	:: runs[r].at == STAND ->
		if
		:: home[runs[r].log].up && stands(runs[r].log) && home[runs[r].log].life == runs[r].life ->
			if
			:: home[runs[r].log].decided != 0 -> runs[r].decidedIn = runs[r].log; runs[r].what = home[runs[r].log].decided; runs[r].at = END_1
			:: home[runs[r].log].decided == 0 && runs[r].term == 1 -> runs[r].at = PREPARE_1
			:: else -> runs[r].at = MARKS_1
			fi
		:: else -> stop(r)
		fi
	:: (runs[r].at == MARKS_1 || runs[r].at == MARKS_2) && reachable -> // What an earlier term has decided, the log may have lost.
		if
		:: heeds(r) && writes(r) -> runs[r].decidedIn = runs[r].log; runs[r].what = committedAt; home[runs[r].log].decided = committedAt; runs[r].at = END_1
		:: heeds(r) && !writes(r) -> stop(r)
		:: else -> runs[r].at++
		fi
	:: (runs[r].at == OLDER_1 || runs[r].at == OLDER_2) && reachable -> // What earlier terms have prepared is in the way.
		for (i : 1 .. TERMS) {
			if
			:: i < runs[r].term && preparedAt(i) && holds(runs[r].life) -> endBranch(i, 0, NOBODY)
			:: else
			fi
		}
		runs[r].at++
	:: runs[r].at == PREPARE_1 && writes(r) && lives(r) -> // The deadline has passed, or an operator has cancelled it.
		printf("  it is said to have failed\n");
		home[runs[r].log].status = FAILED; stop(r)
	:: (runs[r].at == PREPARE_1 || runs[r].at == PREPARE_2) && reachable -> // A mark that is there, prepared or committed, is in the way.
		if
		:: (place == OTHER -> oPrepared : home[place].prepared) == 0 && committedAt == 0 ->
			if
			:: place == OTHER -> add(oPrepared, runs[r].term)
			:: else -> add(home[place].prepared, runs[r].term)
			fi;
			runs[r].at++
		:: else -> rollBack(r)
		fi
	:: runs[r].at == PREPARE_2 -> rollBack(r) // For another reason.
	:: runs[r].at == DECIDE ->
#ifdef COMMIT_FIRST
		runs[r].what = runs[r].term; runs[r].at = END_1
#else
		if
		:: writes(r) && lives(r) -> runs[r].decidedIn = runs[r].log; home[runs[r].log].decided = runs[r].term; runs[r].what = runs[r].term; runs[r].at = END_1
		:: else -> stop(r)
		fi
#endif
#ifdef FENCE_UNLOCKED
	:: (runs[r].at == END_1 || runs[r].at == END_2) && reachable && !runs[r].seen ->
		if
		:: holds(runs[r].life) -> runs[r].seen = 1
		:: else -> stop(r)
		fi
	:: (runs[r].at == END_1 || runs[r].at == END_2) && reachable && runs[r].seen ->
		runs[r].seen = 0;
		if
		:: false
#else
	:: (runs[r].at == END_1 || runs[r].at == END_2) && reachable ->
		if
		:: !holds(runs[r].life) -> stop(r)
#endif
		:: else ->
			endBranch(runs[r].what, !runs[r].back, runs[r].decidedIn);
			if
			:: ok -> runs[r].at++
			:: else -> park(r)
			fi
		fi
	:: runs[r].at == FINISH ->
		if
		:: runs[r].back -> park(r)
		:: !runs[r].back && writes(r) && lives(r) -> home[runs[r].log].status = COMPLETED; home[runs[r].log].decided = runs[r].what; stop(r)
		:: else -> stop(r)
		fi
	:: else
	fi
}

inline forget() {
	resolver.at = 0; resolver.log = 0; resolver.other = 0; resolver.term = 0; resolver.life = 0; resolver.commit = 0; resolver.seen = 0
}

// A resolver proves its log to the ledger and sees a branch there.
inline look(h) {
	if
	:: home[h].holder == home[h].life -> place = h // What it remembers of the other ledger's fence may be old.
	:: !disowned(h) && oHolder == home[h].life -> place = OTHER
	:: else -> place = NOBODY
	fi;
	if
	:: place != NOBODY && preparedAt(1) -> i = 1
	:: place != NOBODY && preparedAt(2) -> i = 2
	:: else -> i = 0
	fi;
	if
	:: i != 0 -> resolver.at = 1; resolver.log = h; resolver.other = (place == OTHER); resolver.term = i; resolver.life = home[h].life;
		printf("resolver of home %d sees the branch of term %d at %d\n", h, i, place)
	:: else
	fi
}

// Then it reads the log, and asks the siblings where the log may have lost something. Then it ends the branch.
inline resolve() {
	place = (resolver.other -> OTHER : resolver.log);
	if
	:: resolver.at == 1 && home[resolver.log].up ->
		if
		:: home[resolver.log].decided == resolver.term -> resolver.commit = 1; resolver.at = 2
		:: home[resolver.log].decided == 0 && home[resolver.log].status == PENDING && home[resolver.log].term == resolver.term && !home[resolver.log].parked -> forget()
		:: else ->
			if
#ifndef OLD_LOG_TRUSTED
			:: in((resolver.other -> oOlder : home[resolver.log].older), resolver.term) ->
				if
				:: stands(resolver.log) ->
					resolver.commit = (home[resolver.log].committed == resolver.term || oCommitted == resolver.term); resolver.at = 2
				:: else -> forget()
				fi
#endif
			:: else -> resolver.at = 2 // It was prepared in this incarnation: the log knows.
			fi
		fi
#ifdef FENCE_UNLOCKED
	:: resolver.at == 2 && reachable && !resolver.seen ->
		if
		:: holds(resolver.life) -> resolver.seen = 1
		:: else -> forget()
		fi
	:: resolver.at == 2 && reachable && resolver.seen ->
#else
	:: resolver.at == 2 && reachable && !holds(resolver.life) -> forget()
	:: resolver.at == 2 && reachable && holds(resolver.life) ->
#endif
		printf("resolver of home %d:\n", resolver.log);
		endBranch(resolver.term, resolver.commit, resolver.log); forget()
	:: else
	fi
}

inline begin(h) { lives++; home[h].life = lives }

inline copy(from, to) {
	to.up = 1; to.term = from.term; to.decided = from.decided; to.status = from.status; to.parked = from.parked; to.life = from.life; to.known = from.known;
	to.prepared = from.prepared; to.committed = from.committed; to.holder = from.holder; to.older = from.older
}

inline clear(it) {
	it.up = 0; it.term = 0; it.decided = 0; it.status = 0; it.parked = 0; it.life = 0; it.known = 0; it.prepared = 0; it.committed = 0; it.holder = 0;
	it.older = 0
}

// What the log does at the other ledger's fence: it leaves a token there, which it has stored before.
inline leaveToken(h) {
	tokens++;
	add(home[h].known, tokens);
	oToken = tokens;
	if
	:: oHolder != home[h].life -> oHolder = home[h].life; oOlder = oPrepared
	:: else
	fi;
	printf("home %d leaves token %d in life %d\n", h, tokens, home[h].life)
}

inline check() {
	for (i : 0 .. 1) {
		if
		:: home[i].up && !disowned(i) ->
			guarantee(T1, home[i].committed == 0 || oCommitted == home[i].committed || in(oPrepared, home[i].committed));
			guarantee(T1, oFor != i || home[i].committed == oCommitted || in(home[i].prepared, oCommitted));
			guarantee(A2, home[i].status != FAILED || oCommitted == 0)
		:: else
		fi;
		// A branch that the log has decided to commit is as good as committed: nobody may roll it back.
		guarantee(A2, home[i].status != COMPLETED || home[i].committed != 0 || in(home[i].prepared, home[i].decided));
		guarantee(A2, home[i].status != COMPLETED || !home[i].up || disowned(i) || oCommitted != 0 || in(oPrepared, home[i].decided));
		guarantee(A2, home[i].status != FAILED || home[i].committed == 0)
	}
	i = 0; place = 0; ok = 0
}

#define claim(r, where) \
	:: atomic { runs[r].at == 0 && (r == 0 || runs[0].at != 0) && home[where].up && home[where].status == PENDING && home[where].term < TERMS && claims < CLAIMS -> \
		claims++; home[where].term++; home[where].parked = 0; \
		runs[r].at = STAND; runs[r].log = where; runs[r].term = home[where].term; runs[r].life = home[where].life }

active proctype world() {
	atomic {
		if
		:: otherFirst = 0
		:: otherFirst = 1
		fi;
		home[0].up = 1; home[0].term = 0; begin(0); home[0].holder = 1; leaveToken(0)
	}
	do
	claim(0, 0)
	claim(0, 1)
	claim(1, 0)
	claim(1, 1)
	:: atomic { runs[0].at != 0 -> step(0); check() }
	:: atomic { runs[1].at != 0 -> step(1); check() }
	:: atomic { runs[0].at != 0 -> stop(0) } // Its process dies.
	:: atomic { runs[1].at != 0 -> stop(1) }
	:: atomic { resolver.at == 0 && home[0].up -> look(0); i = 0; place = 0 }
	:: atomic { resolver.at == 0 && home[1].up -> look(1); i = 0; place = 0 }
	:: atomic { resolver.at != 0 -> resolve(); check() }
	:: atomic { resolver.at != 0 -> forget() }
	// Fences follow the log's life.
	:: atomic { home[0].up && !disowned(0) && tokens < TOKENS && (copied || oHolder != home[0].life) -> leaveToken(0); check() }
	:: atomic { home[1].up && !disowned(1) && tokens < TOKENS -> leaveToken(1); check() }
	:: atomic { home[0].up && home[0].holder != home[0].life -> home[0].holder = home[0].life; home[0].older = home[0].prepared }
	:: atomic { home[1].up && home[1].holder != home[1].life -> home[1].holder = home[1].life; home[1].older = home[1].prepared }
	:: atomic { home[0].up && restarts < RESTARTS -> restarts++; begin(0); printf("home 0 is started anew\n") }
	:: atomic { !copied && home[0].up && home[0].term > 0 -> copied = 1; copy(home[0], backup); printf("a copy is made\n") }
	:: atomic { backup.up && !home[1].up && home[0].up -> // a clone beside the original
		copy(backup, home[1]); clear(backup); begin(1); printf("the copy starts beside the original\n"); check() }
	:: atomic { backup.up && !home[1].up && home[0].up -> // a recovery to that point, at the original's address
		copy(backup, home[1]); clear(backup); clear(home[0]); begin(1); printf("the copy replaces the original\n");
		for (i : 0 .. RUNS - 1) {
			if
			:: runs[i].at != 0 -> runs[i].log = 1
			:: else
			fi
		} // The servers run on.
		check() }
	:: atomic { home[1].up && disowned(1) && adoptions < ADOPTIONS -> // An operator says so.
		adoptions++; add(home[1].known, oToken); begin(1); printf("the copy is adopted\n"); check() }
	od
}
