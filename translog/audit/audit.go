package audit

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// Defaults of [Auditor.Watch].
const (
	// DefaultInterval is how long it waits between two looks.
	DefaultInterval = 5 * time.Second
	// DefaultPatience is for how long it only warns about what may pass: an old checkpoint, which a cache or a server that is a little
	// behind may have, and a checkpoint that too few witnesses have signed.
	DefaultPatience = 5 * time.Minute
)

// Options say which log is to be judged, and by what.
type Options struct {
	// URL is the server's address, or that of its log, which ends in /log.
	URL string
	// Key is the log's verifier key, name+hash+key, as its operator has published it.
	Key string
	// Witnesses are the verifier keys of witnesses whose cosignatures are looked for, and Quorum is how many of them must be there.
	Witnesses []string
	Quorum    int
	// Chains are hashes of beacons' chains that are trusted beside drand's public ones, in lower-case hexadecimal.
	Chains []string
	// State is the file that keeps the checkpoint of the last good run; empty: none.
	State string
	// Timeout is how long the server may take for one answer; 0: [DefaultTimeout].
	Timeout time.Duration
	// Interval and Patience are those of Watch; 0: [DefaultInterval] and [DefaultPatience].
	Interval, Patience time.Duration
	// Progress is told after each batch how many of the tree's leaves are judged; nil: nobody is.
	Progress func(judged, size int64)
}

// Report is what an audit came to.
type Report struct {
	// Consistent says that the log has only grown and that every leaf follows. Else there is a Finding.
	Consistent bool   `json:"consistent"`
	Origin     string `json:"origin"`
	Size       int64  `json:"size"` // of the tree: its leaves
	Root       string `json:"root"` // base64, as in checkpoints
	// SeenBefore is the size of the tree that this one was compared with; nil where there was none.
	SeenBefore *int64        `json:"seen_before"`
	Witnesses  []Cosignature `json:"witnesses"`
	Counts     Counts        `json:"counts"`
	Finding    *Finding      `json:"finding,omitempty"`
	// Checkpoint is the signed note, and Earlier the one that it contradicts, where the finding is about that. They are the evidence.
	Checkpoint string `json:"checkpoint"`
	Earlier    string `json:"earlier_checkpoint,omitempty"`
}

// Auditor judges one log. It is not safe for concurrent use.
type Auditor struct {
	options   Options
	key       note.Verifier
	witnesses []*witness
	tiles     *fetcher
	judge     *judge
	seen      *head    // the newest checkpoint that the log was found to have grown to
	finding   *Finding // about a leaf: behind it, nothing can be judged
}

// New returns an error where the options can't be used, or the state file is not one of this log.
func New(o Options) (*Auditor, error) {
	a := &Auditor{options: o, judge: newJudge(o.Chains)}
	a.options.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	a.options.Interval = cmp.Or(o.Interval, DefaultInterval)
	a.options.Patience = cmp.Or(o.Patience, DefaultPatience)
	if a.options.Timeout < 0 || a.options.Interval < 0 || a.options.Patience < 0 {
		return nil, errors.New("timeout, interval and patience can't be negative")
	}
	var err error
	if a.key, err = note.NewVerifier(o.Key); err != nil {
		return nil, fmt.Errorf("%q is not a log's key, which is name+hash+key: %w", o.Key, err)
	}
	for i, vkey := range o.Witnesses {
		w, err := newWitness(vkey)
		if err != nil {
			return nil, err
		}
		for _, other := range a.witnesses[:i] {
			if other.key.Equal(w.key) {
				return nil, fmt.Errorf("the witness %s is named twice", w.name)
			}
		}
		a.witnesses = append(a.witnesses, w)
	}
	if o.Quorum < 0 || o.Quorum > len(o.Witnesses) {
		return nil, fmt.Errorf("a quorum of %d can't be reached by %d witnesses", o.Quorum, len(o.Witnesses))
	}
	for _, hash := range o.Chains {
		if b, err := hex.DecodeString(hash); err != nil || len(b) != 32 || hex.EncodeToString(b) != hash {
			return nil, fmt.Errorf("%q is not the hash of a chain: 64 hexadecimal digits in lower case", hash)
		}
	}
	if a.tiles, err = newFetcher(o.URL, a.options.Timeout); err != nil {
		return nil, err
	}
	a.seen, err = readState(o.State, a.key)
	return a, err
}

// Close ends idle connections.
func (a *Auditor) Close() { a.tiles.close() }

// Run judges the log up to its newest checkpoint: all leaves, or those behind the last good run of the same Auditor. What does not
// follow is in the report, and in that of every further run. The error is for what can't be read: a [*ReadError], [ErrNotTheLog], or that of the context or the state
// file.
func (a *Auditor) Run(ctx context.Context) (*Report, error) {
	return a.look(ctx, true)
}

// newest reads the newest checkpoint.
func (a *Auditor) newest(ctx context.Context) (*head, error) {
	text, err := a.tiles.ReadEndpoint(ctx, "checkpoint")
	if err != nil {
		return nil, err
	}
	return openHead(text, a.key)
}

func (a *Auditor) report(h *head) *Report {
	r := &Report{
		Origin: a.key.Name(), Size: h.N, Root: h.Hash.String(), Witnesses: h.cosignatures(a.witnesses), Checkpoint: string(h.note),
	}
	if a.seen != nil {
		r.SeenBefore = &a.seen.N
	}
	return r
}

func (r *Report) found(f *Finding) *Report {
	r.Finding, r.Consistent = f, false
	return r
}

// quorum is a finding where too few witnesses have signed.
func (a *Auditor) quorum(r *Report) *Finding {
	n := 0
	for _, c := range r.Witnesses {
		if c.At != nil {
			n++
		}
	}
	if n >= a.options.Quorum {
		return nil
	}
	f := checkpointFinding("cosignatures of the checkpoint", fmt.Sprint(n), fmt.Sprintf("at least %d", a.options.Quorum))
	f.passing = true
	return f
}

// step compares a checkpoint with the one seen before, judges its new leaves, and keeps it.
func (a *Auditor) step(ctx context.Context, h *head, r *Report) error {
	f, err := a.grown(ctx, h)
	if err != nil {
		return err
	}
	if f != nil {
		if a.seen != nil {
			r.Earlier = string(a.seen.note)
		}
		r.found(f)
		return nil
	}
	a.seen = h
	if a.finding == nil {
		if a.finding, err = a.leaves(ctx, h.Tree); err != nil {
			return err
		}
	}
	r.Counts = a.judge.tally()
	if a.finding != nil {
		r.found(a.finding)
		return nil //nolint:nilerr // It is in the report.
	}
	r.Consistent = true
	if a.options.State != "" {
		return writeState(a.options.State, h)
	}
	return nil
}

// grown reports whether the tree is the one seen before, with more leaves or none behind it.
func (a *Auditor) grown(ctx context.Context, h *head) (*Finding, error) {
	if none, err := tlog.TreeHash(0, nil); err != nil || h.N == 0 && h.Hash != none {
		return checkpointFinding("root of the empty tree", h.Hash.String(), none.String()), err
	}
	old := a.seen
	switch {
	case old == nil || old.N == 0:
		return nil, nil //nolint:nilnil // No finding is no error.
	case h.N < old.N:
		f := checkpointFinding("size of the tree", fmt.Sprint(h.N), fmt.Sprintf("at least %d, as it was before", old.N))
		f.passing = true
		return f, nil
	}
	root := h.Hash
	if h.N > old.N {
		var err error
		root, err = tlog.TreeHash(old.N, torchwood.TileHashReaderWithContext(ctx, h.Tree, a.tiles))
		if unread(ctx, err) {
			return nil, err
		}
		if err != nil {
			return checkpointFinding("tiles of hashes", err.Error(), "tiles of the tree that the log has signed"), nil
		}
	}
	if root != old.Hash {
		return checkpointFinding(fmt.Sprintf("root of the first %d leaves", old.N), root.String(), old.Hash.String()+", as it was before: the log has signed two histories"), nil
	}
	return nil, nil //nolint:nilnil // No finding is no error.
}

// leaves judges all leaves of the tree that were not judged before.
func (a *Auditor) leaves(ctx context.Context, tree tlog.Tree) (*Finding, error) {
	ctx, stop := context.WithCancel(ctx)
	batches := make(chan batch)
	r := &reader{tiles: a.tiles, tree: tree}
	go r.from(ctx, a.judge.index, batches)
	defer func() {
		stop()
		for range batches { // Until the reader is gone, which uses the tiles.
		}
	}()
	for b := range batches {
		for i := range b.entries {
			if f := a.judge.next(&b.entries[i].leaf, b.entries[i].problem); f != nil {
				return f, nil
			}
			if ctx.Err() != nil { // A leaf may take a second: a multi-draw does.
				return nil, ctx.Err()
			}
		}
		if b.err != nil || b.finding != nil {
			return b.finding, b.err
		}
		if a.options.Progress != nil {
			a.options.Progress(a.judge.index, tree.N)
		}
	}
	return nil, ctx.Err()
}

// Watch judges the log, and goes on as it grows, until the context ends or something does not follow. It tells each about the first
// run and each growth, and warn about what can't be read, whereupon it looks again: servers may be away. Only a first answer that is
// not this log's ends it with an error, and a state file that can't be written. When the context ends, the last report is returned.
func (a *Auditor) Watch(ctx context.Context, each func(*Report), warn func(error)) (*Report, error) {
	var last *Report
	var doubtful time.Time // since when there is a finding that may pass
	for {
		r, err := a.look(ctx, last == nil)
		if ctx.Err() != nil {
			return last, nil //nolint:nilerr // The caller has ended it.
		}
		switch {
		case err != nil:
			if !unread(ctx, err) && (last == nil || !errors.Is(err, ErrNotTheLog)) {
				return last, err
			}
			warn(err)
		case r == nil: // Nothing new.
			doubtful = time.Time{}
		case r.Finding == nil:
			doubtful, last = time.Time{}, r
			each(r)
		default:
			if doubtful.IsZero() {
				doubtful = time.Now()
			}
			if !r.Finding.passing || time.Since(doubtful) >= a.options.Patience {
				return r, nil
			}
			warn(r.Finding)
		}
		select {
		case <-ctx.Done():
			return last, nil
		case <-time.After(a.options.Interval):
		}
	}
}

// look is one round of Watch. It returns nothing where nothing is new, but the first time.
func (a *Auditor) look(ctx context.Context, begins bool) (*Report, error) {
	h, err := a.newest(ctx)
	if err != nil {
		return nil, err
	}
	if !begins && h.Tree == a.seen.Tree && a.judge.index == h.N {
		return nil, nil //nolint:nilnil // Nothing is new.
	}
	r := a.report(h)
	if f := a.quorum(r); f != nil {
		return r.found(f), nil
	}
	return r, a.step(ctx, h, r)
}
