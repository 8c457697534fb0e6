//go:build unix

package sim_test

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/replay"
	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/wait"
	"github.com/fairlead-dev/fairlead/lock"
	"github.com/fairlead-dev/fairlead/multidraw"
)

// flowPause keeps the books of a flow short.
const flowPause = 100 * time.Millisecond

// errNoNewer is returned by a step that only a server of the newer version can take, while there is none.
var errNoNewer = errors.New("no server runs the newer version")

// flows are a load of locks, multi-draws, publications, transfers between ledgers, and bids, on servers that are replaced meanwhile.
// What the version before lacks is sent to servers of the newer version alone: references and legs.
type flows struct {
	house       *auctionHouse
	ledgers     *twoLedgers
	inbox       *inbox
	newer       *sim.Client
	rollout     *rollout
	locker      *lock.Locker
	stop        chan struct{}
	endTransfer func() // of those between ledgers
	group       sync.WaitGroup

	mu           sync.Mutex
	made         map[string]int // by flow
	wrong        []error
	token        int64 // of the last grant
	draws        []string
	publications []string
}

// startFlows begins all flows but bids. The servers of h coordinate transfers to another ledger.
func startFlows(t *testing.T, r *rollout, h *twoLedgers, seed uint64) *flows {
	t.Helper()
	f := &flows{
		house:   &auctionHouse{database: h.own, servers: h.coordinators, client: h.client, history: h.history, funds: map[string]int64{}},
		ledgers: h, inbox: newInbox(t), rollout: r, stop: make(chan struct{}), made: map[string]int{},
	}
	var targets []sim.Target
	for _, server := range h.coordinators {
		targets = append(targets, onlyNewer{server, r})
	}
	f.newer = sim.NewClient(h.history, sim.AdminKey, targets...)
	t.Cleanup(f.newer.Close)
	locks := h.client.API(client.Retry{Attempts: 1000, Limit: patience}).LockBackend()
	t.Cleanup(locks.Close)
	f.locker = lock.New(locks, lock.LockerOptions{})
	f.inbox.register(t, h.coordinators[0])
	f.open(t, []string{"referrer", "referred"}, 1_000_000)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() {
		cancel()
		f.group.Wait()
	})
	for name, step := range map[string]func(context.Context, string) error{
		"locks": f.lock, "multi-draws": f.draw, "publications": f.publish, "references and legs": f.refer,
	} {
		for w := range 2 {
			f.group.Go(func() { f.repeat(ctx, name, fmt.Sprintf("%.4s-%d", name, w), step) })
		}
	}
	f.endTransfer = h.traffic(t, "upgrade", seed, 3)
	return f
}

// open opens accounts that only these flows use.
func (f *flows) open(t *testing.T, accounts []string, each int64) {
	t.Helper()
	f.house.open(t, accounts, each)
	f.ledgers.total.Add(f.ledgers.total, big.NewInt(each*int64(len(accounts))))
}

// repeat takes steps until the flows end.
func (f *flows) repeat(ctx context.Context, name, key string, step func(context.Context, string) error) {
	for n := 0; sim.GoesOn(ctx, f.stop); n++ {
		err := step(ctx, fmt.Sprintf("%s-%d", key, n))
		f.mu.Lock()
		switch {
		case err == nil:
			f.made[name]++
		case errors.Is(err, errNoNewer):
			err = nil
		case ctx.Err() == nil:
			f.wrong = append(f.wrong, fmt.Errorf("%s: %w", name, err))
		}
		f.mu.Unlock()
		if err != nil {
			return
		}
		wait.For(ctx, flowPause)
	}
}

// finish ends the flows, and checks what has become of each.
func (f *flows) finish(t *testing.T) {
	t.Helper()
	close(f.stop)
	f.endTransfer()
	f.group.Wait()
	complain(t, errors.Join(f.wrong...))
	for _, name := range []string{"locks", "multi-draws", "publications", "references and legs"} {
		if f.made[name] == 0 {
			t.Errorf("no %s were made", name)
		}
	}
	for _, id := range f.draws {
		if o := readDrawn(t, f.house.client, id); o.Status != multidraw.StatusCompleted {
			t.Errorf("multi-draw %s is %s", id, o.Status)
		}
	}
	for _, id := range f.publications {
		p := published(t, f.house.servers[0], id)
		if versions := f.inbox.versions(id); len(versions) == 0 || slices.Max(versions) != p.Version {
			t.Errorf("publication %s came with versions %v, published as %d", id, versions, p.Version)
		}
	}
	repeats := f.inbox.check(t)
	t.Logf("%v; %d deliveries came again", f.made, repeats)
}

// lock takes a lock, whose token must be higher than that of any grant before.
func (f *flows) lock(ctx context.Context, owner string) error {
	held, err := f.locker.Acquire(ctx, []string{"upgraded"}, lock.Options{Owner: owner, Wait: patience})
	if err != nil {
		return err
	}
	token := held.Token("upgraded")
	f.mu.Lock()
	if token <= f.token {
		err = fmt.Errorf("token %d after %d", token, f.token)
	}
	f.token = max(f.token, token)
	f.mu.Unlock()
	return errors.Join(err, held.Release(ctx))
}

func (f *flows) draw(ctx context.Context, key string) error {
	q := client.CreateMultidrawRequest{LockKey: key, Count: 200, Range: &client.RangeRequest{Min: 1, Max: 6}}
	answer, err := f.house.client.Expect(ctx, sim.NewOp("multidraw", "/v1/multidraws", key, q), http.StatusCreated)
	if err != nil {
		return err
	}
	return f.note(answer, &f.draws)
}

func (f *flows) publish(ctx context.Context, key string) error {
	q := client.PublicationRequest{Target: "inbox", Payload: key}
	answer, err := f.house.client.Expect(ctx, sim.NewOp("publication", "/v1/publications", key, q), http.StatusCreated)
	if err != nil {
		return err
	}
	var made publication
	if err := answer.JSON(&made); err != nil {
		return err
	}
	_, err = f.house.client.Expect(ctx, sim.NewOp("publishing", "/v1/publications/"+made.ID+"/publish", key, nil), http.StatusOK)
	if err != nil {
		return err
	}
	return f.note(answer, &f.publications)
}

// note keeps the id in an answer.
func (f *flows) note(answer sim.Answer, ids *[]string) error {
	var made struct{ ID string }
	if err := answer.JSON(&made); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	*ids = append(*ids, made.ID)
	return nil
}

// refer moves money under a reference, asks for it again under another key, and moves it back by legs, if there is a server of the
// newer version. When that goes, the next one settles what is under way.
func (f *flows) refer(ctx context.Context, key string) error {
	if !slices.ContainsFunc(f.house.servers, f.rollout.runsNewer) {
		return errNoNewer
	}
	q := client.TransferRequest{From: "referrer", To: "referred", Amount: 2, Reference: key}
	var ids [2]struct{ ID string }
	for i := range ids {
		answer, err := f.newer.Settle(ctx, sim.NewOp(sim.KindTransfer, "/v1/transfers", fmt.Sprintf("%s-%d", key, i), q))
		if err == nil && answer.Status != http.StatusCreated && answer.Status != http.StatusOK {
			err = fmt.Errorf("reference %s: %v", key, answer)
		}
		if err == nil {
			err = answer.JSON(&ids[i])
		}
		if err != nil {
			return err
		}
	}
	if ids[0] != ids[1] {
		return fmt.Errorf("reference %s moved money as %v", key, ids)
	}
	back := client.LegRequest{From: "referred", To: "referrer", Amount: 1}
	answer, err := f.newer.Settle(ctx, sim.NewLegs(key+"-legs", back, back))
	if err == nil && answer.Status != http.StatusCreated {
		err = fmt.Errorf("legs %s: %v", key, answer)
	}
	return err
}

// bid begins an auction of several rounds and bids on it until the returned function is called, which waits for its end and audits it.
func (f *flows) bid(t *testing.T, name string, seed uint64) (finish func()) {
	t.Helper()
	bidders := names(name+"-bidder", 6)
	f.open(t, append([]string{name + "-gallery"}, bidders...), 1_000_000)
	rules := replay.Rules{
		Seller: name + "-gallery", UniqueAmounts: true, OutbidOptional: true, // The version before does not tell it.
		Window: 150 * time.Millisecond, Extension: 200 * time.Millisecond, MaxExtensions: 3,
	}
	for range 6 {
		rules.Rounds = append(rules.Rounds, replay.RoundRule{Winners: 1, Duration: 6 * time.Second})
	}
	b := f.house.launch(t, name, bidders, rules)
	c := b.crowd(t, seed, 2, 0)
	return func() {
		t.Helper()
		b.await(t, 2*patience, "the end of the auction", isEnd)
		c.finish(t)
		out := b.finish(t, patience)
		if len(out.Bids) == 0 {
			t.Errorf("%s: no bids", name)
		}
		t.Logf("%s: %d bids in %d rounds", name, len(out.Bids), len(out.Rounds))
	}
}
