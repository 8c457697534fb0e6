package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/fairdraw/beacon"
	"github.com/fairlead-dev/fairlead/fairdraw/beacon/beacontest"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// soon bounds every wait for a round; rounds are a second apart, and attempts not much more.
const soon = testwait.Patience

// beaconOptions has a process ask the given relays, in turn, and wait for the answer of each.
func beaconOptions(t *testing.T, of *beacontest.Server, relays ...string) lottery.Options {
	t.Helper()
	return impatientOptions(t, patience, of, relays...)
}

// impatientOptions are those of a process that gives a relay up after a while.
func impatientOptions(t *testing.T, timeout time.Duration, of *beacontest.Server, relays ...string) lottery.Options {
	t.Helper()
	if len(relays) == 0 {
		relays = []string{of.URL()}
	}
	client, err := beacon.NewClient(beacon.ClientOptions{Relays: relays, Timeout: timeout})
	testwait.Must(t, err)
	t.Cleanup(client.Close)
	return lottery.Options{Beacon: &lottery.BeaconOptions{Chain: of.Chain(), Source: client}}
}

// sellOut makes a campaign in beacon mode, and sells all of it.
func (v venue) sellOut(t *testing.T) uuid.UUID {
	t.Helper()
	const base = 2
	a, err := v.Create(t.Context(), own[lottery.Op](lottery.Create{
		Name: "spring", BaseLength: new(base), Price: new(int64(10)), Currency: "EUR", Beneficiary: "house", DrawMode: lottery.DrawBeacon,
		Prizes: []lottery.Prize{{Name: "grand", Quantity: 1}, {Name: "last row", Layer: base, Quantity: 1}},
	}))
	if err = errors.Join(err, a.Err); err != nil {
		t.Fatal(err)
	}
	id := result[*lottery.Campaign](t, a.Result).ID
	v.must(t, id, lottery.Publish{})
	for range 3 {
		v.must(t, id, lottery.Buy{Account: "ann"})
	}
	return id
}

// campaign reads a campaign as another process would.
func (v venue) campaign(t *testing.T, id uuid.UUID) *lottery.Campaign {
	t.Helper()
	c, err := v.Campaign(t.Context(), id)
	testwait.Must(t, err)
	return c
}

// sweepUntil sweeps rounds as a server does until done says so.
func (v venue) sweepUntil(t *testing.T, what string, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		if _, err := v.SweepRounds(ctx); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("no %s within %v", what, soon)
		}
	}
}

func (v venue) sweepUntilDrawn(t *testing.T, id uuid.UUID) {
	t.Helper()
	v.sweepUntil(t, "draw", func() bool { return v.campaign(t, id).Status == lottery.StatusCompleted })
}

// checkProof makes the proof of a campaign that a round has decided, and verifies it as a stranger would.
func checkProof(t *testing.T, v venue, id uuid.UUID, sealed *lottery.Seal) {
	t.Helper()
	c := v.campaign(t, id)
	owners, err := v.Owners(t.Context(), id, 0, c.TotalPositions)
	testwait.Must(t, err)
	draw, seed, err := v.Result(t.Context(), id)
	testwait.Must(t, err)
	if draw.Round == nil || draw.Round.Number != sealed.Round || draw.Root != sealed.Root || *c.Beacon.Seal != *sealed {
		t.Errorf("drawn from %+v, sealed %+v then and %+v now", draw, sealed, c.Beacon.Seal)
	}
	in := lottery.NewDrawInput(c, seed, owners)
	document, err := json.Marshal(fairdraw.NewBeaconProof(in, &fairdraw.Result{Root: draw.Root, Winners: draw.Winners}, c.Beacon.Chain, *draw.Round))
	testwait.Must(t, err)
	proof, err := fairdraw.ParseProof(document)
	testwait.Must(t, err)
	testwait.Check(t, proof.VerifyBeacon(beacon.Trust(c.Beacon.Chain.Hash())))
	if err := proof.VerifyBeacon(beacon.Trust()); !errors.Is(err, beacon.ErrUntrusted) {
		t.Errorf("a chain of the test's own: %v", err)
	}
	if n := ask[int](t, v.db, `SELECT count(*) FROM draws WHERE campaign = $1`, id); n != 1 {
		t.Errorf("%d draws", n)
	}
	if n := ask[int](t, v.db, `SELECT count(*) FROM campaign_beacons WHERE campaign = $1 AND next_attempt_at IS NULL`, id); n != 1 {
		t.Error("the round is still waited for")
	}
}

func TestADrawFollowsItsRound(t *testing.T) {
	t.Parallel()
	random := beacontest.New(t)
	v, url := newVenue(t, beaconOptions(t, random))
	id := v.sellOut(t)
	c := v.campaign(t, id)
	seal := c.Beacon.Seal
	if c.Status != lottery.StatusDrawing || seal == nil || seal.DueAt.Sub(seal.SealedAt) < time.Second || c.Beacon.Chain != random.Chain() {
		t.Fatalf("%s, beacon %+v", c.Status, c.Beacon)
	}
	if _, _, err := v.Result(t.Context(), id); !errors.Is(err, lottery.ErrNotDrawn) {
		t.Errorf("the seed before the draw: %v", err)
	}
	v.sweepUntilDrawn(t, id)
	checkProof(t, v, id, seal)
	if a := ask[int64](t, v.db, `SELECT available FROM accounts WHERE id = 'house'`); a != 30 {
		t.Errorf("house has %d", a)
	}
	if w, err := v.Watch(t.Context(), time.Hour); err != nil || w.Waiting != 0 || w.Overdue != 0 {
		t.Errorf("%+v, %v", w, err)
	}
	// Whoever asks from now on gets the same draw, also where nobody has a beacon.
	bare := enter(t, url, lottery.Options{})
	if d := result[*lottery.Draw](t, bare.must(t, id, lottery.AskDraw{})); d.Round == nil || d.Round.Number != seal.Round {
		t.Errorf("%+v", d)
	}
}

// TestABeaconThatFailsDelaysAndSaysSo has the relay do each wrong thing until it is noted, and then behave.
func TestABeaconThatFailsDelaysAndSaysSo(t *testing.T) {
	t.Parallel()
	for fault, name := range map[beacontest.Fault]string{
		beacontest.Absent: "not_published", beacontest.Unserved: "unknown_chain", beacontest.Failing: "refused", beacontest.Stalling: "timeout",
		beacontest.Garbage: "malformed", beacontest.Huge: "too_large", beacontest.WrongSignature: "bad_signature",
		beacontest.OlderRound: "wrong_round", beacontest.OtherKey: "bad_signature",
	} {
		t.Run(fmt.Sprintf("%s %d", name, fault), func(t *testing.T) {
			t.Parallel()
			random := beacontest.New(t)
			random.Set(fault)
			o := beaconOptions(t, random)
			if fault == beacontest.Stalling {
				o = impatientOptions(t, 300*time.Millisecond, random)
			}
			v, _ := newVenue(t, o)
			id := v.sellOut(t)
			seal := v.campaign(t, id).Beacon.Seal
			v.sweepUntil(t, "failure", func() bool { return v.campaign(t, id).Beacon.Failure == name })
			c := v.campaign(t, id)
			if c.Status != lottery.StatusDrawing || c.Beacon.Attempts < 1 || !c.Beacon.Due || *c.Beacon.Seal != *seal {
				t.Errorf("%s, beacon %+v", c.Status, c.Beacon)
			}
			if w, err := v.Watch(t.Context(), time.Hour); err != nil || w.Waiting != 1 || w.Overdue <= 0 {
				t.Errorf("%+v, %v", w, err)
			}
			a, err := v.Execute(t.Context(), id, own[lottery.Op](lottery.AskDraw{}))
			var pending *lottery.BeaconPendingError
			if err != nil || !errors.As(a.Err, &pending) || pending.Round != seal.Round || !pending.Due || pending.Failure != name {
				t.Errorf("%v, %v", a.Err, err)
			}
			// The backoff has been at work: the attempt that failed was made when the round was due or later, and put the next one
			// off by at least this much. The one before the round is due books the first for half a second after that.
			if !ask[bool](t, v.db, `SELECT next_attempt_at >= due_at + interval '800 ms' FROM campaign_beacons WHERE campaign = $1`, id) {
				t.Error("the next attempt is not put off")
			}
			random.Set(beacontest.Healthy)
			// Whoever asks need not wait for the sweeper; but one who is impatient may give up a relay that is slow and not wrong.
			testwait.Eventually(t, patience, "the draw is had for the asking", func() bool {
				a, err = v.Execute(t.Context(), id, own[lottery.Op](lottery.AskDraw{}))
				return err != nil || !errors.As(a.Err, &pending)
			})
			if err = errors.Join(err, a.Err); err != nil {
				t.Fatal(err)
			}
			if d := result[*lottery.Draw](t, a.Result); d.Round.Number != seal.Round {
				t.Errorf("%+v", d)
			}
			checkProof(t, v, id, seal)
		})
	}
}

// TestTwoProcessesRaceToDraw lets many attempts of two processes find the round at once.
func TestTwoProcessesRaceToDraw(t *testing.T) {
	t.Parallel()
	random := beacontest.New(t)
	random.Set(beacontest.Absent)
	one, url := newVenue(t, beaconOptions(t, random))
	two := enter(t, url, beaconOptions(t, random))
	id := one.sellOut(t)
	seal := one.campaign(t, id).Beacon.Seal
	one.sweepUntil(t, "failure", func() bool { return one.campaign(t, id).Beacon.Failure != "" })
	random.Set(beacontest.Healthy)
	var (
		racers sync.WaitGroup
		mu     sync.Mutex
		first  int
	)
	for n := range 16 {
		racers.Go(func() {
			v := []venue{one, two}[n%2]
			if n%4 < 2 {
				testwait.Check(t, untilFree(func() error { return answerErr(v.Execute(t.Context(), id, own[lottery.Op](lottery.AskDraw{}))) }))
				return
			}
			var a command.Answer
			testwait.Check(t, untilFree(func() (err error) { // On a slow machine, the one that draws may take longer than the others wait.
				a, err = v.Execute(t.Context(), id, own[lottery.Op](lottery.FinishDraw{Round: new(random.Sign(seal.Round))}))
				return errors.Join(err, a.Err)
			}))
			if a.Result == true {
				mu.Lock()
				first++
				mu.Unlock()
			}
		})
	}
	racers.Wait()
	if first > 1 {
		t.Errorf("%d processes drew", first)
	}
	checkProof(t, two, id, seal)
}

// TestTheNextProcessGoesOn ends the process at each place of the way: with the seal committed, with the round at hand and
// nothing done with it, and with the draw committed and nobody told.
func TestTheNextProcessGoesOn(t *testing.T) {
	t.Parallel()
	random := beacontest.New(t)
	one, url := newVenue(t, beaconOptions(t, random))
	id := one.sellOut(t)
	seal := one.campaign(t, id).Beacon.Seal
	// The first process claims the attempts, and dies with each of them in its hands.
	testwait.Eventually(t, patience, "a claim when it is due", func() bool {
		waits, err := one.store.ClaimRounds(t.Context(), 10)
		testwait.Must(t, err)
		return len(waits) == 1 && !waits[0].Early && waits[0].Campaign.Beacon.Seal.Round == seal.Round
	})
	two := enter(t, url, beaconOptions(t, random))
	two.sweepUntilDrawn(t, id)
	checkProof(t, two, id, seal)
	three := enter(t, url, beaconOptions(t, random))
	if n, err := three.SweepRounds(t.Context()); n != 0 || err != nil {
		t.Errorf("a third process: %d, %v", n, err)
	}
	checkProof(t, three, id, seal)
}

// TestASecondRelayMakesUp has two relays of the same network, of which the first lies.
func TestASecondRelayMakesUp(t *testing.T) {
	t.Parallel()
	genesis := time.Now().Unix() - 1000
	liar, honest := beacontest.NewChain(t, "network", genesis, 1), beacontest.NewChain(t, "network", genesis, 1)
	liar.Set(beacontest.WrongSignature)
	v, _ := newVenue(t, beaconOptions(t, honest, liar.URL(), honest.URL()))
	id := v.sellOut(t)
	seal := v.campaign(t, id).Beacon.Seal
	v.sweepUntilDrawn(t, id)
	checkProof(t, v, id, seal)
}

// TestARoundThatIsKnownTooEarly has a beacon whose clock is ahead of the database's: to the beacon, the named round is of
// the past. The draw stands, since a second one would be worse, and the campaign says so.
func TestARoundThatIsKnownTooEarly(t *testing.T) {
	t.Parallel()
	random := beacontest.New(t)
	o := beaconOptions(t, random)
	o.Beacon.Lead = time.Hour
	v, _ := newVenue(t, o)
	random.SetAhead(2 * time.Hour)
	id := v.sellOut(t)
	seal := v.campaign(t, id).Beacon.Seal
	v.sweepUntilDrawn(t, id)
	if c := v.campaign(t, id); !c.Beacon.Early {
		t.Errorf("beacon %+v", c.Beacon)
	}
	checkProof(t, v, id, seal)
}

// TestARelayThatWaitsIsNotEarly has a relay keep the request that is made right after the seal until the round is due. The
// answer is to a request that was early, and is not early itself.
func TestARelayThatWaitsIsNotEarly(t *testing.T) {
	t.Parallel()
	random := beacontest.New(t)
	random.Set(beacontest.Holding)
	v, _ := newVenue(t, beaconOptions(t, random))
	id := v.sellOut(t)
	seal := v.campaign(t, id).Beacon.Seal
	v.sweepUntilDrawn(t, id)
	if c := v.campaign(t, id); c.Beacon.Early || c.Beacon.Attempts > 0 {
		t.Errorf("beacon %+v", c.Beacon)
	}
	checkProof(t, v, id, seal)
}

// TestARoundIsNotAskedForBeforeItIsDue has a beacon far behind: the attempts wait for the database's clock.
func TestARoundIsNotAskedForBeforeItIsDue(t *testing.T) {
	t.Parallel()
	random := beacontest.New(t)
	o := beaconOptions(t, random)
	o.Beacon.Lead = time.Hour
	v, _ := newVenue(t, o)
	id := v.sellOut(t)
	for range 5 {
		if n, err := v.SweepRounds(t.Context()); n != 0 || err != nil {
			t.Fatal(n, err)
		}
	}
	c := v.campaign(t, id)
	if c.Beacon.Due || c.Beacon.Early || c.Beacon.Attempts != 0 || c.Beacon.Failure != "" {
		t.Errorf("beacon %+v", c.Beacon)
	}
	asked := random.Requests()
	if asked > 3 { // Once: in both versions, and whether the chain is served.
		t.Errorf("%d requests", asked)
	}
	a, err := v.Execute(t.Context(), id, own[lottery.Op](lottery.AskDraw{}))
	var pending *lottery.BeaconPendingError
	if err != nil || !errors.As(a.Err, &pending) || pending.Due || random.Requests() != asked {
		t.Errorf("%v, %v", a.Err, err)
	}
}

// lies is a source that returns anything.
type lies struct{ round fairdraw.Round }

func (l lies) Round(context.Context, fairdraw.Chain, uint64) (fairdraw.Round, error) {
	return l.round, nil
}

// TestTheServiceVerifiesForItself holds that no source, however written, gets a false round into a draw.
func TestTheServiceVerifiesForItself(t *testing.T) {
	t.Parallel()
	random := beacontest.New(t)
	o := beaconOptions(t, random)
	source := &struct{ lies }{}
	o.Beacon.Source = source
	v, _ := newVenue(t, o)
	id := v.sellOut(t)
	seal := v.campaign(t, id).Beacon.Seal
	source.round = fairdraw.Round{Number: seal.Round, Signature: random.Sign(seal.Round + 1).Signature}
	v.sweepUntil(t, "failure", func() bool { return v.campaign(t, id).Beacon.Failure == "bad_signature" })
	if c := v.campaign(t, id); c.Status != lottery.StatusDrawing || c.Beacon.Early {
		t.Errorf("%s, beacon %+v", c.Status, c.Beacon)
	}
}

// TestTheDatabaseKeepsTheSeal goes around the code.
func TestTheDatabaseKeepsTheSeal(t *testing.T) {
	t.Parallel()
	random := beacontest.New(t)
	o := beaconOptions(t, random)
	o.Beacon.Lead = time.Hour
	v, _ := newVenue(t, o)
	id := v.sellOut(t)
	seal := v.campaign(t, id).Beacon.Seal
	for name, c := range map[string]struct {
		sql  string
		args []any
		code string // empty: no rows
	}{
		"a second seal":              {sealBeacon, []any{id, seal.Root[:], seal.Round + 1, seal.SealedAt, seal.DueAt}, ""},
		"a draw of another round":    {insertBeaconDraw, []any{id, seal.Root[:], `[]`, seal.DueAt, []byte{1}, []byte(nil), seal.Round + 1}, ""},
		"a draw of another root":     {insertBeaconDraw, []any{id, make([]byte, 32), `[]`, seal.DueAt, []byte{1}, []byte(nil), seal.Round}, ""},
		"half a seal":                {`UPDATE campaign_beacons SET round = NULL WHERE campaign = $1`, []any{id}, "23514"},
		"a round of the past":        {`UPDATE campaign_beacons SET due_at = sealed_at WHERE campaign = $1`, []any{id}, "23514"},
		"a round without signature":  {`INSERT INTO draws (campaign, root, winners, completed_at, beacon_round) VALUES ($1, sha256(''), '[]', now(), 1)`, []any{id}, "23514"},
		"a signature without round":  {`INSERT INTO draws (campaign, root, winners, completed_at, beacon) VALUES ($1, sha256(''), '[]', now(), 'x')`, []any{id}, "23514"},
		"waiting for nothing":        {`UPDATE campaign_beacons SET round = NULL, root = NULL, sealed_at = NULL, due_at = NULL WHERE campaign = $1`, []any{id}, "23514"},
		"a second beacon of its own": {insertBeacon, []any{id, `{}`}, "23505"},
	} {
		tag, err := v.db.pool.Exec(t.Context(), c.sql, c.args...)
		pgErr, isPg := errors.AsType[*pgconn.PgError](err)
		switch {
		case c.code == "" && (err != nil || tag.RowsAffected() != 0):
			t.Errorf("%s: %s, %v", name, tag, err)
		case c.code != "" && (!isPg || pgErr.Code != c.code):
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
	}
	if again := v.campaign(t, id).Beacon.Seal; *again != *seal {
		t.Errorf("sealed %+v, now %+v", seal, again)
	}
}
