package speculation

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
	"pgregory.net/rapid"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
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
		ints := make([]int, n)
		for i := range n {
			texts[i], raws[i] = rapid.String().Draw(rt, "text"), rapid.SliceOf(rapid.Byte()).Draw(rt, "raw")
			copy(ids[i][:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(rt, "id"))
			big[i], small[i] = rapid.Int64().Draw(rt, "big"), rapid.Int16().Draw(rt, "small")
			times[i] = now.Add(time.Duration(rapid.Int64Range(math.MinInt32, math.MaxInt32).Draw(rt, "at")) * time.Second)
			ints[i] = int(rapid.Int32().Draw(rt, "int"))
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
			{pgtype.TimestamptzOID, now},
			{pgtype.Int8OID, n},
			{pgtype.Int8OID, int64(n)},
			{pgtype.BoolOID, n%2 == 0},
			{pgtype.UUIDOID, uuid.New()},
			{pgtype.Int4ArrayOID, ints},
		}
		var p Params
		for range 2 { // The memory is used again.
			p.Reset()
			for _, a := range args {
				if err := p.Append(a.oid, a.arg); err != nil {
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
		if err := errors.Join(p.Append(pgtype.UUIDArrayOID, ids), p.Append(pgtype.TimestamptzArrayOID, times)); err != nil {
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
	if err := new(Params).Append(pgtype.TextOID, struct{}{}); err == nil {
		t.Error("a type that it doesn't know is encoded")
	}
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
	if !r.any([]idempotency.ID{key(), first}) || !r.any([]idempotency.ID{more[len(more)-1].ID}) || r.any([]idempotency.ID{key()}) {
		t.Error("it does not remember what it is to")
	}
	r.Note(more)
	r.Note(more[:1])
	if r.any([]idempotency.ID{first}) || !r.any([]idempotency.ID{more[1].ID}) {
		t.Error("it remembers for ever, or not long enough")
	}
}

// TestMemory walks through what may become of what is remembered.
func TestMemory(t *testing.T) {
	t.Parallel()
	m := NewMemory()
	id := uuid.New()
	t0 := m.Enter(id)
	state := func() *Known { return &Known{State: auction.NewState(&auction.Auction{}, nil)} }
	k := state()
	m.Put(t0, k)
	if got, err := m.TakeSpeculative(t0); got != k || err != nil {
		t.Fatal("what was put is not there")
	}
	if m.Take(t0) != nil {
		t.Fatal("it can be had twice")
	}
	m.Sent(t0, k)
	if got := m.Take(t0); got != k || got.Settled {
		t.Error("what rests on a transaction under way counts as settled")
	}
	m.Put(t0, k)
	m.Ended(t0, k, true, false)
	if got := m.Take(t0); got != k || !got.Settled {
		t.Error("what rests on committed transactions does not count as settled")
	}

	// One that fails while the next is made from it poisons that.
	m.Sent(t0, k)
	if got, err := m.TakeSpeculative(t0); got != k || err != nil {
		t.Fatal("it is gone")
	}
	m.Ended(t0, k, false, true)
	m.Sent(t0, k)
	if m.Take(t0) != nil {
		t.Error("what rests on a failure is still there")
	}
	m.Ended(t0, k, false, true)
	if t0.backoff != BackoffTransactions {
		t.Errorf("backs off for %d", t0.backoff)
	}
	// Failures without rest make it back off longer, up to a bound; a while without brings that back.
	for _, want := range []int{2 * BackoffTransactions, 4 * BackoffTransactions, maxBackoff, maxBackoff} {
		for want == maxBackoff && t0.length < maxBackoff/2 {
			t0.length *= 2
		}
		t0.backoff = 0
		k = state()
		m.Sent(t0, k)
		m.Ended(t0, k, false, true)
		if t0.backoff != want {
			t.Errorf("backs off for %d, want %d", t0.backoff, want)
		}
	}
	t0.backoff, t0.streak = 0, BackoffTransactions
	m.Sent(t0, k)
	m.Ended(t0, k, false, true)
	if t0.backoff != BackoffTransactions {
		t.Errorf("backs off for %d after a while without surprises", t0.backoff)
	}

	// Entries that nobody has are given up beyond the bound, and no others.
	for range 2 * maxAuctions {
		other := uuid.New()
		o := m.Enter(other)
		m.Put(o, state())
		m.Leave(other, o)
	}
	if n := len(m.entries); n != maxAuctions || m.entries[id] != t0 {
		t.Errorf("%d entries", n)
	}
	m.Leave(id, t0)
}
