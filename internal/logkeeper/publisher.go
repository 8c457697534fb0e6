package logkeeper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/fairlead-dev/fairlead/internal/crashpoint"
	"github.com/fairlead-dev/fairlead/internal/wait"
	"github.com/fairlead-dev/fairlead/translog"
)

// Rhythms of the publisher.
const (
	// publishPause is the least time between two checkpoints, and witnessPause that where witnesses are asked: they take one a second. Each checkpoint
	// is noted in a file, whose flush the database's commits may have to wait for where both are on one disk.
	publishPause = 500 * time.Millisecond
	witnessPause = time.Second
	otherKeyTerm = 10 * time.Second // how long a server with another key keeps the log before it resigns
	againPause   = 5 * time.Second  // before witnesses that are missing, or a failure, are tried again
)

// Signer signs checkpoints.
type Signer interface {
	// Verifier is the verifier key, as signed notes have it.
	Verifier() string
	Sign(tree tlog.Tree) (checkpoint string, err error)
}

// Witnessed is the tree that a witness has cosigned last, as the log's own signature proves.
type Witnessed struct {
	Who  string
	Tree tlog.Tree
}

// Witnesses ask for cosignatures.
type Witnesses interface {
	// Count is how many there are.
	Count() int
	// Latest asks all of them what they have cosigned last. Those that don't show it are left out.
	Latest(ctx context.Context) []Witnessed
	// Cosign asks all of them, and returns the checkpoint with the cosignatures that came in time. The error says which are missing; it is
	// an [AheadError] where a witness proves that the key has signed more than the tree, or another one.
	Cosign(ctx context.Context, checkpoint string, hashes tlog.HashReader) (cosigned string, by []translog.Cosignature, err error)
}

// AheadError says that somebody has seen more of the log than there is: it was restored from a copy.
type AheadError struct {
	Who    string
	Size   int64
	Forked bool // it is not more than there is, and another history
}

func (e *AheadError) Error() string {
	return fmt.Sprintf("%s has seen %d leaves, which are not all there: the log is an older copy, or another history", e.Who, e.Size)
}

// PublisherOptions make a publisher. Store, Key and Guard are required.
type PublisherOptions struct {
	Store     Store
	Tiles     TileSource
	Key       Signer
	Guard     *Guard
	Witnesses Witnesses   // nil: nobody is asked
	Lost      func() bool // whether the database has lost commits, and no operator has accepted it; nil: nobody looks
	Quorum    int         // a checkpoint is published once so many witnesses have cosigned it
	Observer  Observer
	Logger    *slog.Logger
}

// Publisher signs the log's tree, has it witnessed, and publishes it.
type Publisher struct {
	o       PublisherOptions
	refused atomic.Pointer[string]
	missing atomic.Int64
}

// NewPublisher returns a publisher. A [Keeper] makes it work.
func NewPublisher(o PublisherOptions) *Publisher {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Observer == nil {
		o.Observer = nobody{}
	}
	return &Publisher{o: o}
}

// Verifier is the verifier key of the publisher's own key.
func (p *Publisher) Verifier() string { return p.o.Key.Verifier() }

// Refused says why this process signs nothing; empty while it does.
func (p *Publisher) Refused() string {
	if r := p.refused.Load(); r != nil {
		return *r
	}
	return ""
}

// Missing is how many witnesses are asked and have not cosigned the checkpoint that this process signed last.
func (p *Publisher) Missing() int { return int(p.missing.Load()) }

// errOtherKey is why nothing is signed where the log has another key.
var errOtherKey = errors.New("the log is signed with another key than this server's: give all servers the same key, or begin a new one by fairlead log renew")

// run publishes whatever the tree becomes, until ctx ends. What it must not sign it never does: it says why, and waits.
func (p *Publisher) run(ctx context.Context, term int64, state *State, trees *newest) error {
	err := p.mayGoOn(ctx, term, state)
	for published := state.Checkpoint; err == nil; {
		began := time.Now()
		tree := *trees.tree.Load()
		done, all, failure := p.publish(ctx, term, tree, published)
		switch {
		case failure == nil:
			published = done
		case fatal(failure):
			err = failure
			continue
		case ctx.Err() == nil:
			p.o.Observer.Failed("publish")
			p.o.Logger.WarnContext(ctx, "the log's checkpoint is not published: trying again", "size", tree.N, "error", failure)
		}
		pause := publishPause
		if p.o.Witnesses != nil {
			pause = witnessPause
		}
		if !wait.For(ctx, pause-time.Since(began)) {
			return ctx.Err()
		}
		var again <-chan time.Time
		if !all {
			again = time.After(againPause)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-trees.grew:
		case <-again:
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, ErrSuperseded) || !fatal(err) {
		return err
	}
	text := err.Error()
	p.refused.Store(&text)
	p.o.Observer.Failed("publish")
	p.o.Logger.ErrorContext(ctx, "no checkpoint of the log is signed any more", "error", err)
	if err := p.o.Store.Refuse(ctx, term, text); err != nil {
		return err
	}
	if errors.Is(err, errOtherKey) {
		// Leaves go on to be appended meanwhile; then a server that has the key may be elected.
		wait.For(ctx, otherKeyTerm)
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

// fatal reports whether an error forbids to sign anything further.
func fatal(err error) bool {
	_, ahead := errors.AsType[*AheadError](err)
	return ahead || errors.Is(err, errOtherKey) || errors.Is(err, ErrSuperseded) || errors.Is(err, errForked) || errors.Is(err, errUnclear)
}

// errUnclear is returned where it can't be told whether the log is the one that was signed, and trying again would change nothing.
var errUnclear = errors.New("what was signed can't be compared with the log")

// mayGoOn finds out whether the log is the one that was signed before, as far as this server, the database and the witnesses know. Other
// errors than those that are fatal say nothing about that.
func (p *Publisher) mayGoOn(ctx context.Context, term int64, state *State) error {
	if state.Verifier != "" && state.Verifier != p.o.Key.Verifier() {
		return errOtherKey
	}
	tree := state.Edge.Tree()
	signed, err := p.o.Guard.Last(p.o.Key.Verifier())
	if err != nil {
		return fmt.Errorf("%w: %w", errUnclear, err)
	}
	known := []Witnessed{{"this server", signed}}
	if state.Checkpoint != "" {
		published, err := TreeOf(state.Checkpoint, p.o.Key.Verifier())
		if err != nil {
			return fmt.Errorf("%w: the published checkpoint: %w", errUnclear, err)
		}
		known = append(known, Witnessed{"the published checkpoint", published})
	}
	if p.o.Witnesses != nil {
		// Before anything is signed: a second history, once signed, is for all to see. What others have signed before this term began was
		// in the log by then.
		known = append(known, p.o.Witnesses.Latest(ctx)...)
	}
	for _, k := range known {
		if err := p.contains(ctx, tree, k); err != nil {
			return err
		}
	}
	p.refused.Store(nil)
	return p.o.Store.Refuse(ctx, term, "")
}

// errLost is why nothing is signed for now where commits are lost: leaves that others have seen may be among them.
var errLost = errors.New("the database has lost commits, and no operator has accepted it: see fairlead doctor")

// errForked is returned where the log is not what was signed.
var errForked = errors.New("the log is not the one that was signed")

// contains finds out whether a tree is a continuation of one that somebody has seen.
func (p *Publisher) contains(ctx context.Context, tree tlog.Tree, seen Witnessed) error {
	if seen.Tree.N > tree.N {
		return &AheadError{Who: seen.Who, Size: seen.Tree.N}
	}
	if seen.Tree.N == 0 {
		return nil
	}
	root, err := tlog.TreeHash(seen.Tree.N, p.hashes(ctx, tree))
	switch {
	case errors.Is(err, errTiles):
		return err
	case err != nil:
		return fmt.Errorf("%w: %w", errUnclear, err)
	case root != seen.Tree.Hash:
		return fmt.Errorf("%w: %s has seen %d leaves with the root %s, which is %s now", errForked, seen.Who, seen.Tree.N, seen.Tree.Hash, root)
	}
	return nil
}

// hashes reads the hashes of a tree, and checks that they are the tree's.
func (p *Publisher) hashes(ctx context.Context, tree tlog.Tree) tlog.HashReader {
	return Hashes(ctx, tree, p.o.Tiles)
}

// publish signs a tree, has it witnessed and publishes it, unless that was done. It returns the checkpoint that is published now, and
// whether all witnesses have cosigned it.
func (p *Publisher) publish(ctx context.Context, term int64, tree tlog.Tree, published string) (now string, all bool, err error) {
	if published != "" && p.o.Witnesses == nil {
		if last, err := TreeOf(published, p.o.Key.Verifier()); err == nil && last == tree {
			return published, true, nil
		}
	}
	if p.o.Lost != nil && p.o.Lost() {
		return published, false, errLost
	}
	began := time.Now()
	checkpoint, err := p.o.Key.Sign(tree)
	if err != nil {
		return published, false, err
	}
	// Before anybody can have it: after a restore of the database, the file tells what was signed.
	if err := p.o.Guard.Keep(checkpoint); err != nil {
		return published, false, err
	}
	crashpoint.Hit(crashpoint.LogSigned)
	var by []translog.Cosignature
	if all = true; p.o.Witnesses != nil && tree.N > 0 {
		var missing error
		if checkpoint, by, missing = p.o.Witnesses.Cosign(ctx, checkpoint, p.hashes(ctx, tree)); missing != nil {
			if err := p.lost(ctx, term, missing); err != nil {
				return published, false, err
			}
			all = false
			p.o.Logger.WarnContext(ctx, "not all witnesses have cosigned the log's checkpoint", "size", tree.N, "cosigned", len(by), "error", missing)
		}
		p.missing.Store(int64(p.o.Witnesses.Count() - len(by)))
		crashpoint.Hit(crashpoint.LogSeen)
	}
	count := len(by)
	if count > 0 {
		at := make([]time.Time, count)
		for i, c := range by {
			at[i] = c.At
		}
		if err := p.o.Store.Seen(ctx, p.o.Key.Verifier(), checkpoint, tree.N, at); err != nil {
			return published, false, err
		}
	}
	if count < p.o.Quorum && tree.N > 0 {
		return published, false, fmt.Errorf("%d witnesses of the %d that are required have cosigned it", count, p.o.Quorum)
	}
	if err := p.o.Store.Publish(ctx, term, p.o.Key.Verifier(), checkpoint, tree.N); err != nil {
		return published, false, err
	}
	p.o.Observer.Published(tree.N, count, time.Since(began))
	return checkpoint, all, nil
}

// lost finds out whether what a witness has seen is lost. It may have been signed a moment ago by a server that has begun to keep the log.
func (p *Publisher) lost(ctx context.Context, term int64, missing error) error {
	ahead, ok := errors.AsType[*AheadError](missing)
	if !ok {
		return nil
	}
	state, err := p.o.Store.Begin(ctx, term)
	if err != nil {
		return err
	}
	if ahead.Size > state.Edge.Size() || ahead.Forked {
		return missing
	}
	return nil
}

// TreeOf reads a checkpoint that a key has signed.
func TreeOf(checkpoint, verifier string) (tlog.Tree, error) {
	c, err := translog.Open(checkpoint, verifier)
	if err != nil {
		return tlog.Tree{}, err
	}
	return c.Tree, nil
}
