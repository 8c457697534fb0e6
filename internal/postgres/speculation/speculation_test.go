package speculation

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"pgregory.net/rapid"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

// TestParams compares the encoding with the driver's own.
func TestParams(t *testing.T) {
	t.Parallel()
	types := pgtype.NewMap()
	now := time.Date(2026, 2, 3, 4, 5, 6, 7000, time.UTC)
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(0, 5).Draw(rt, "n")
		texts, raws, ids := make([]string, n), make([][]byte, n), make([][16]byte, n)
		big, small, times := make([]int64, n), make([]int16, n), make([]time.Time, n)
		ints, flags := make([]int, n), make([]bool, n)
		for i := range n {
			texts[i], raws[i] = rapid.String().Draw(rt, "text"), rapid.SliceOf(rapid.Byte()).Draw(rt, "raw")
			copy(ids[i][:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(rt, "id"))
			big[i], small[i] = rapid.Int64().Draw(rt, "big"), rapid.Int16().Draw(rt, "small")
			times[i] = now.Add(time.Duration(rapid.Int64Range(math.MinInt32, math.MaxInt32).Draw(rt, "at")) * time.Second)
			ints[i], flags[i] = int(rapid.Int32().Draw(rt, "int")), rapid.Bool().Draw(rt, "flag")
		}
		args := []struct {
			oid uint32
			arg any
		}{
			{pgtype.TextArrayOID, texts},
			{pgtype.ByteaArrayOID, raws},
			{pgtype.UUIDArrayOID, ids},
			{pgtype.Int8ArrayOID, big},
			{pgtype.Int2ArrayOID, small},
			{pgtype.TimestamptzArrayOID, times},
			{pgtype.Int8OID, n},
			{pgtype.BoolArrayOID, flags},
			{pgtype.Int4ArrayOID, ints},
		}
		var p Params
		for range 2 { // The memory is used again.
			p.Reset()
			for _, a := range args {
				if err := p.Append(a.arg); err != nil {
					rt.Fatal(err)
				}
			}
			got := slices.Concat(p.Next(3), p.Next(len(args)-3))
			for i, a := range args {
				want, err := types.Encode(a.oid, pgtype.BinaryFormatCode, a.arg, nil)
				if err != nil || !bytes.Equal(got[i], want) {
					rt.Errorf("%T: %x, want %x (%v)", a.arg, got[i], want, err)
				}
			}
		}
	})
	// Of arrays with NULLs the driver says so, which nobody needs to hear; so it is the decoding that is compared.
	rapid.Check(t, func(rt *rapid.T) {
		there := rapid.SliceOf(rapid.Bool()).Draw(rt, "there")
		ids, times := make([]*[16]byte, len(there)), make([]*time.Time, len(there))
		for i, b := range there {
			if b {
				ids[i], times[i] = (*[16]byte)(new(uuid.New())[:]), new(now.Add(time.Duration(i)*time.Hour))
			}
		}
		var p Params
		if err := errors.Join(p.Append(ids), p.Append(times)); err != nil {
			rt.Fatal(err)
		}
		raw := p.Next(2)
		var gotIDs []*[16]byte
		var gotTimes []*time.Time
		err := errors.Join(types.Scan(pgtype.UUIDArrayOID, pgtype.BinaryFormatCode, raw[0], &gotIDs),
			types.Scan(pgtype.TimestamptzArrayOID, pgtype.BinaryFormatCode, raw[1], &gotTimes))
		if err != nil || len(gotIDs) != len(ids) || len(gotTimes) != len(times) {
			rt.Fatalf("%v, %v: %v", gotIDs, gotTimes, err)
		}
		for i := range there {
			if there[i] && (*gotIDs[i] != *ids[i] || !gotTimes[i].Equal(*times[i])) || !there[i] && (gotIDs[i] != nil || gotTimes[i] != nil) {
				rt.Errorf("%d: %v, %v", i, gotIDs[i], gotTimes[i])
			}
		}
	})
	if err := new(Params).Append(struct{}{}); err == nil {
		t.Error("a type that it doesn't know is encoded")
	}
}

// TestParamsOfSeveral: what several transactions have is encoded as if one had it.
func TestParamsOfSeveral(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		texts := rapid.SliceOfN(rapid.SliceOf(rapid.String()), 1, 5).Draw(rt, "texts")
		some := rapid.SliceOfN(rapid.SliceOf(rapid.Ptr(rapid.Int64(), true)), 1, 5).Draw(rt, "some")
		counts := rapid.SliceOfN(rapid.IntRange(0, 1<<40), 1, 5).Draw(rt, "counts")
		sum := 0
		for _, n := range counts {
			sum += n
		}
		var got, want Params
		if err := errors.Join(
			got.Append(anys(texts)...), got.Append(anys(some)...), got.Append(anys(counts)...),
			want.Append(slices.Concat(texts...)), want.Append(slices.Concat(some...)), want.Append(sum),
		); err != nil {
			rt.Fatal(err)
		}
		if a, b := got.Next(3), want.Next(3); !slices.EqualFunc(a, b, bytes.Equal) {
			rt.Errorf("%x, want %x", a, b)
		}
	})
}

func anys[T any](values []T) []any {
	all := make([]any, len(values))
	for i := range values {
		all[i] = values[i]
	}
	return all
}

// TestClockIsAnInterval: whatever the database's clock shows when it is asked, it is within what is known of it.
func TestClockIsAnInterval(t *testing.T) {
	t.Parallel()
	var c Clock
	if _, _, ok := c.Now(); ok || !c.Due() {
		t.Error("a clock that nobody asked is known")
	}
	asked := time.Now()
	database := asked.Add(time.Hour)
	c.Learned(database, asked, asked.Add(40*time.Millisecond))
	earliest, latest, ok := c.Now()
	if !ok {
		t.Fatal("an answer is not believed")
	}
	// The database may have read its clock when it was asked, or when it answered.
	if width := latest.Sub(earliest); width < 40*time.Millisecond || width > 50*time.Millisecond {
		t.Errorf("the interval is %v wide after an answer of 40 ms", width)
	}
	if since := time.Since(asked); latest.Before(database.Add(since-10*time.Second)) || earliest.After(database.Add(since)) {
		t.Errorf("the interval from %v to %v is off", earliest, latest)
	}
	// Worse answers add nothing, better ones do.
	c.Learned(database.Add(time.Minute), asked, asked.Add(60*time.Millisecond))
	c.Learned(database.Add(time.Minute), asked.Add(-time.Second), asked)
	if _, again, _ := c.Now(); again.Sub(latest) > 30*time.Second {
		t.Error("a worse answer was taken")
	}
	c.Learned(database.Add(time.Minute), asked, asked.Add(time.Millisecond))
	if least, again, _ := c.Now(); again.Sub(latest) < 30*time.Second || again.Sub(least) > 10*time.Millisecond {
		t.Error("a better answer was not taken")
	}
	// Nothing is believed for long.
	old := time.Now().Add(-clockTrust)
	c = Clock{}
	c.Learned(database, old, old.Add(time.Millisecond))
	if _, _, ok := c.Now(); ok {
		t.Error("an old answer is believed")
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	r := NewKeys()
	key := func() idempotency.ID { return idempotency.NewID(uuid.NewString(), "POST", "/", uuid.NewString()) }
	first := key()
	r.Note([]idempotency.Record{{Request: idempotency.Request{ID: first}}})
	more := make([]idempotency.Record, maxKeys)
	for i := range more {
		more[i].ID = key()
	}
	r.Note(more)
	if !r.Any([]idempotency.ID{key(), first}) || !r.Any([]idempotency.ID{more[len(more)-1].ID}) || r.Any([]idempotency.ID{key()}) {
		t.Error("it does not remember what it is to")
	}
	r.Note(more)
	r.Note(more[:1])
	if r.Any([]idempotency.ID{first}) || !r.Any([]idempotency.ID{more[1].ID}) {
		t.Error("it remembers for ever, or not long enough")
	}
}

// TestMemory walks through what may become of what is remembered.
func TestMemory(t *testing.T) {
	t.Parallel()
	m := NewMemory[*Known](MaxStanding)
	id := uuid.New()
	t0, tx, refused := m.Enter(id), &Sent{}, &pgconn.PgError{Code: pgkit.DivisionByZero}
	state := func() *Known { return &Known{State: auction.NewState(&auction.Auction{}, nil)} }
	put := func(k *Known) { m.Lock(t.Context(), t0, 0); m.Unlock(t0, k) }
	look := func() *Known { k := m.Lock(t.Context(), t0, 0); m.Unlock(t0, k); return k }
	k := state()
	put(k)
	if got, err := m.Take(t0, false); got != k || err != nil {
		t.Fatal("what was put is not there")
	}
	if again, err := m.Take(t0, false); again != nil || Reason(err) != absent {
		t.Fatal("it can be had twice")
	}
	m.Sent(t0, k, tx)
	if got := look(); got != k || got.Settled {
		t.Error("what rests on a transaction under way counts as settled")
	}
	m.Ended(t0, k, tx, nil)
	if got := look(); got != k || !got.Settled {
		t.Error("what rests on committed transactions does not count as settled")
	}
	if got, err := m.Take(t0, false); got != k || err != nil {
		t.Fatal("it is gone")
	}
	m.PutBack(t0, k)
	if got := look(); got != k || !got.Settled {
		t.Error("what was given back unused is gone, or does not count as settled")
	}

	// One that fails while the next is made from it poisons that.
	for range 2 {
		if got, err := m.Take(t0, false); got != k || err != nil {
			t.Fatal("it is gone")
		}
		if t0.underWay == 1 {
			m.Sent(t0, k, tx)
		}
	}
	m.Ended(t0, k, tx, refused)
	m.Sent(t0, k, tx)
	if look() != nil {
		t.Error("what rests on a failure is still there")
	}
	m.Ended(t0, k, tx, refused)
	if t0.backoff != BackoffTransactions {
		t.Errorf("backs off for %d", t0.backoff)
	}
	fail := func() {
		k := state()
		put(k)
		if got, err := m.Take(t0, false); got != k || err != nil {
			t.Fatal(err)
		}
		m.Sent(t0, k, tx)
		m.Ended(t0, k, tx, refused)
	}
	// Failures without rest make it back off longer, up to a bound; a while without brings that back.
	for _, want := range []int{2 * BackoffTransactions, 4 * BackoffTransactions, maxBackoff, maxBackoff} {
		for want == maxBackoff && t0.length < maxBackoff/2 {
			t0.length *= 2
		}
		t0.backoff = 0
		fail()
		if t0.backoff != want {
			t.Errorf("backs off for %d, want %d", t0.backoff, want)
		}
	}
	t0.backoff, t0.streak = 0, BackoffTransactions
	fail()
	if t0.backoff != BackoffTransactions {
		t.Errorf("backs off for %d after a while without surprises", t0.backoff)
	}

	// Entries that nobody has are given up beyond the bound, and no others.
	small := func(n int) {
		for range n {
			other := uuid.New()
			o := m.Enter(other)
			m.Lock(t.Context(), o, 0)
			m.Unlock(o, state())
			m.Leave(other, o)
		}
	}
	small(MaxStanding / emptyWeight)
	if n := len(m.entries); n < MaxStanding/emptyWeight-1 || m.weight > MaxStanding || m.entries[id] != t0 {
		t.Errorf("%d entries of weight %d", n, m.weight)
	}
	var bids []auction.Bid
	for i := range MaxStanding / 4 {
		bids = append(bids, auction.Bid{Account: strconv.Itoa(i), Amount: int64(i + 1), Seq: int64(i + 1)})
	}
	large := uuid.New()
	l := m.Enter(large)
	m.Lock(t.Context(), l, 0)
	m.Unlock(l, &Known{State: auction.NewState(&auction.Auction{}, bids)})
	small(1)
	if n := len(m.entries); n > MaxStanding/emptyWeight*3/4+1 || m.weight > MaxStanding || m.entries[id] != t0 || m.entries[large] != l {
		t.Errorf("%d entries of weight %d beside a large one", n, m.weight)
	}
	m.Leave(large, l)
	m.Leave(id, t0)
}

// TestMemoryGoesBack: what was changed in vain is taken back in the opposite order, once nothing that rests on it is under way, where
// PostgreSQL is known to have undone it and no run with locks has got it meanwhile.
func TestMemoryGoesBack(t *testing.T) {
	t.Parallel()
	refused := &pgconn.PgError{Code: pgkit.DivisionByZero}
	for name, c := range map[string]struct {
		ends   [3]error
		locked bool // a run with locks takes it while it is under way
		want   []int
		gone   bool
	}{
		"all committed":        {},
		"the last failed":      {ends: [3]error{nil, nil, refused}, want: []int{2}},
		"all but one failed":   {ends: [3]error{nil, refused, refused}, want: []int{2, 1}},
		"all failed":           {ends: [3]error{refused, refused, refused}, want: []int{2, 1, 0}},
		"one is unknown":       {ends: [3]error{nil, ErrLinkLost, refused}, gone: true},
		"it is taken by locks": {ends: [3]error{nil, refused, refused}, locked: true, gone: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := NewMemory[*Known](MaxStanding)
			e := m.Enter(uuid.New())
			k := &Known{State: auction.NewState(&auction.Auction{}, nil)}
			m.Lock(t.Context(), e, 0)
			m.Unlock(e, k)
			var undone []int
			var sent []*Sent
			for i := range 3 {
				if got, err := m.Take(e, false); got != k || err != nil {
					t.Fatal(err)
				}
				sent = append(sent, &Sent{Undo: func() { undone = append(undone, i) }})
				m.Sent(e, k, sent[i])
			}
			if c.locked {
				if got := m.Lock(t.Context(), e, 0); got != k || got.Settled {
					t.Fatalf("the run with locks has %+v", got)
				}
				m.Unlock(e, nil)
			}
			for _, i := range []int{1, 0, 2} { // Their callers hear of it in any order.
				m.Ended(e, k, sent[i], c.ends[i])
			}
			got := m.Lock(t.Context(), e, 0)
			if !slices.Equal(undone, c.want) || (got == nil) != c.gone || got != nil && !got.Settled {
				t.Errorf("taken back: %v, want %v; then there is %+v", undone, c.want, got)
			}
		})
	}
}

// TestLook: what is remembered is looked at where nobody works on it, and where nothing is remembered, nothing need be read.
func TestLook(t *testing.T) {
	t.Parallel()
	m, no := NewMemory[*Known](MaxStanding), errors.New("no")
	e := m.Enter(uuid.New())
	look := func(want error) error {
		return m.Look(e, func(*Known) error { return want })
	}
	if err := look(nil); Reason(err) != absent {
		t.Errorf("nothing is remembered: %v", err)
	}
	k := &Known{State: auction.NewState(&auction.Auction{}, nil)}
	m.Lock(t.Context(), e, 0)
	if err := look(no); err != nil {
		t.Errorf("a run with locks may bring something: %v", err)
	}
	m.Unlock(e, k)
	if err := look(no); !errors.Is(err, no) || look(nil) != nil {
		t.Errorf("what is there is not looked at: %v", err)
	}
	if got, err := m.Take(e, false); got != k || err != nil {
		t.Fatal(err)
	}
	if err := look(no); err != nil {
		t.Errorf("the transaction that is being made will bring it: %v", err)
	}
	m.PutBack(e, k)
}

// TestLockedRunsWaitForTheOneBeingMade: a run that locks the auction waits for a transaction that is being made, not only for those
// that were sent, and nothing is handed out meanwhile: it would overtake that, whose guards would then refuse.
func TestLockedRunsWaitForTheOneBeingMade(t *testing.T) {
	t.Parallel()
	m := NewMemory[*Known](MaxStanding)
	e := m.Enter(uuid.New())
	k, tx := &Known{State: auction.NewState(&auction.Auction{}, nil)}, &Sent{}
	m.Lock(t.Context(), e, 0)
	m.Unlock(e, k)
	if got, err := m.Take(e, false); got != k || err != nil {
		t.Fatal(err)
	}
	locked := make(chan *Known)
	go func() { locked <- m.Lock(t.Context(), e, time.Hour) }()
	for waits := false; !waits; { // It is known to wait.
		m.mu.Lock()
		waits = e.settled != nil
		m.mu.Unlock()
	}
	m.Sent(e, k, tx)
	if _, err := m.Take(e, false); Reason(err) != absent {
		t.Errorf("handed out to a transaction that would be overtaken: %v", err)
	}
	m.Ended(e, k, tx, nil)
	if got := <-locked; got != k || !got.Settled {
		t.Errorf("the run with locks has %+v", got)
	}
	m.Unlock(e, k)
}

// TestForgottenAccountsAreNotReadTooEarly: a run with locks that is about to begin makes an account forgotten while a transaction
// is under way that changes it. Nothing may then rest on what the database has at that time.
func TestForgottenAccountsAreNotReadTooEarly(t *testing.T) {
	t.Parallel()
	ann := ledger.Account{ID: "ann", Version: 5}
	changed := func() *ledger.Book {
		b := ledger.NewBook(time.Now(), uuid.New)
		b.LoadAccount(ledger.Account{ID: "ann", Version: 6})
		return b
	}
	ids, p := []string{"ann"}, &Pipeline{}
	enter := func(c *Accounts) {
		if !c.enter(t.Context(), p, ids) {
			t.Fatal("it waits for nothing")
		}
	}
	t.Run("one under way", func(t *testing.T) {
		t.Parallel()
		c := NewAccounts(0)
		enter(c) // The first knows the account and changes it.
		c.keep(ids, changed())
		enter(c)
		c.Lock(ids)
		if _, ok := c.unknown(ids, false); ok {
			t.Error("it would be read although it is being changed")
		}
		c.leave(ids, true)
		if unknown, ok := c.unknown(ids, false); !ok || len(unknown) != 1 {
			t.Error("it can't be read although nothing is under way")
		}
	})
	t.Run("one sent meanwhile", func(t *testing.T) {
		t.Parallel()
		c := NewAccounts(0)
		enter(c)
		read, ok := c.unknown(ids, false)
		if !ok {
			t.Fatal("it can't be read although nothing is under way")
		}
		read["ann"] = reading{&ann, read["ann"].turns}
		if _, _, ok := c.loadAll(ids, read, ledger.NewBook(time.Now(), uuid.New)); !ok {
			t.Error("what was read can't be used")
		}
		enter(c) // Another one reads the same, is sent and ends.
		c.keep(ids, changed())
		c.Lock(ids)
		c.leave(ids, true)
		if _, _, ok := c.loadAll(ids, read, ledger.NewBook(time.Now(), uuid.New)); ok {
			t.Error("it would rest on what was there before another one was sent")
		}
	})
}

// TestAsManyAccountsAsGiven remembers so many accounts and no more. One that a transaction works on is not forgotten for another.
func TestAsManyAccountsAsGiven(t *testing.T) {
	t.Parallel()
	const most = 10
	c, p := NewAccounts(most), &Pipeline{}
	b := ledger.NewBook(time.Now(), uuid.New)
	b.LoadAccount(ledger.Account{ID: "ann", Version: 6})
	if !c.enter(t.Context(), p, []string{"ann"}) {
		t.Fatal("it waits for nothing")
	}
	c.keep([]string{"ann"}, b)
	for i := range 10 * most {
		id := []string{fmt.Sprintf("account-%d", i)}
		if !c.enter(t.Context(), p, id) {
			t.Fatal("it waits for nothing")
		}
		c.leave(id, false)
		if n := len(c.accounts); n > most || i >= most && n < most {
			t.Fatalf("%d accounts are remembered behind %d", n, i+1)
		}
	}
	if unknown, ok := c.unknown([]string{"ann"}, false); !ok || len(unknown) > 0 {
		t.Error("the account that is worked on is forgotten")
	}
	c.leave([]string{"ann"}, true)
	if n, forgotten := c.Remembered(); n != most || forgotten != 9*most+1 {
		t.Errorf("%d accounts are remembered, %d were forgotten", n, forgotten)
	}
}
