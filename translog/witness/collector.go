package witness

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/fairlead-dev/fairlead/translog"
)

const (
	// DefaultTimeout is how long one witness may take.
	DefaultTimeout = 2 * time.Second
	// MaxWitnesses bounds the witnesses that a [Collector] asks: a note with more signatures can't be read everywhere.
	MaxWitnesses = 15
	// maxTries bounds the requests to one witness. One learns the size, one is right, and others are needed where another server of
	// the log asks, too.
	maxTries = 4
)

// ErrHashes is wrapped where the hashes that were given are not those of the checkpoint's tree.
var ErrHashes = errors.New("the hashes are not those of the checkpoint's tree")

// An AheadError says that a witness has cosigned a larger tree than the one that it was asked about. Either a larger checkpoint was
// published since, perhaps by another server, or the log has lost a part of its history, as after a restore. In the latter case the log
// must not go on under its key: what it adds would be a second history.
type AheadError struct {
	Witness string // verifier key
	Size    int64  // of the witness's latest cosigned tree, as it claims
	Ours    int64  // of the tree that it was asked about
	// Latest is the witness's latest checkpoint, with the log's own signature, which proves it; nil where the witness doesn't serve it.
	Latest *translog.Checkpoint
}

func (e *AheadError) Error() string {
	return fmt.Sprintf("the witness %s has cosigned %d leaves of the log, and the checkpoint has %d", nameOf(e.Witness), e.Size, e.Ours)
}

// A ForkError says that a witness has cosigned a tree that the checkpoint's tree does not extend: the log has two histories.
type ForkError struct {
	Witness string // verifier key
	Size    int64  // of the witness's latest cosigned tree, as it claims; not larger than the checkpoint's
	// Latest is the witness's latest checkpoint, with the log's own signature. Together with the checkpoint it proves that the log's
	// key has signed two histories. It is nil where the witness doesn't serve it: then it is the witness's word.
	Latest *translog.Checkpoint
}

func (e *ForkError) Error() string {
	return fmt.Sprintf("the witness %s has cosigned another history of the log, of %d leaves", nameOf(e.Witness), e.Size)
}

// CollectorOptions configure a collector.
type CollectorOptions struct {
	// Log is the verifier key of the log.
	Log string
	// Witnesses are asked, at most [MaxWitnesses].
	Witnesses []Remote
	// Timeout is how long each may take; 0 means [DefaultTimeout].
	Timeout time.Duration
	// HTTP sends the requests; nil means a client of the collector's own.
	HTTP *http.Client
}

// A Collector asks witnesses to cosign one log's checkpoints. It remembers the size that each has cosigned last; a new one learns it by
// asking. It is safe for concurrent use.
type Collector struct {
	o      CollectorOptions
	client *Client
	keys   []string

	mu    sync.Mutex
	sizes map[string]int64 // by verifier key
}

// NewCollector returns an error where a key or a URL can't be used, or where a witness is given twice.
func NewCollector(o CollectorOptions) (*Collector, error) {
	if _, err := translog.LogKeyName(o.Log); err != nil {
		return nil, err
	}
	if len(o.Witnesses) > MaxWitnesses {
		return nil, fmt.Errorf("%d witnesses, more than %d", len(o.Witnesses), MaxWitnesses)
	}
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	c := &Collector{o: o, client: NewClient(o.HTTP), sizes: map[string]int64{}}
	for _, w := range o.Witnesses {
		if err := w.check(); err != nil {
			return nil, err
		}
		if slices.Contains(c.keys, w.Key) {
			return nil, fmt.Errorf("the witness %s is given twice", w.Name())
		}
		c.keys = append(c.keys, w.Key)
	}
	return c, nil
}

// Close gives idle connections back. The collector can be used afterwards.
func (c *Collector) Close() { c.client.Close() }

// An Answer is what came of asking one witness.
type Answer struct {
	Witness     Remote
	Cosignature *translog.Cosignature // nil where there is an error
	// Err is one of [Client.Add], an [*AheadError], a [*ForkError], or wraps [ErrHashes].
	Err error
}

// Ask asks all witnesses that have not yet cosigned a checkpoint, side by side, and returns it with the cosignatures that came in time,
// beside each witness's answer, in the order of the options. It makes proofs of consistency from the hashes of the checkpoint's tree,
// which it reads by one goroutine at a time. It returns once each witness has answered or its time is over, and no read is under way, so
// hashes should end with ctx.
//
// The error is that of a checkpoint that [translog.Open] refuses.
func (c *Collector) Ask(ctx context.Context, checkpoint string, hashes tlog.HashReader) (cosigned string, answers []Answer, err error) {
	head, err := translog.Open(checkpoint, c.o.Log, c.keys...)
	if err != nil {
		return "", nil, err
	}
	p := &prover{head: head, hashes: hashes, proofs: map[int64]tlog.TreeProof{}}
	answers = make([]Answer, len(c.o.Witnesses))
	var asking sync.WaitGroup
	for i, w := range c.o.Witnesses {
		answers[i].Witness = w
		if at := slices.IndexFunc(head.Cosignatures, func(s translog.Cosignature) bool { return s.Key == w.Key }); at >= 0 {
			answers[i].Cosignature = &head.Cosignatures[at]
			continue
		}
		asking.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
			defer cancel()
			answers[i].Cosignature, answers[i].Err = c.ask(ctx, w, p)
		})
	}
	asking.Wait()
	var lines []string
	for _, a := range answers {
		if a.Cosignature != nil {
			lines = append(lines, a.Cosignature.Line)
		}
	}
	cosigned, err = translog.AddCosignatures(checkpoint, c.keys, lines...)
	return cosigned, answers, err
}

// Latest asks all witnesses, side by side, for the checkpoint that each has cosigned last, and returns them by the witnesses' verifier
// keys. Those that show none within the timeout are left out. The log's signature proves what it has said.
func (c *Collector) Latest(ctx context.Context) map[string]*translog.Checkpoint {
	found := make([]*translog.Checkpoint, len(c.o.Witnesses))
	var asking sync.WaitGroup
	for i, w := range c.o.Witnesses {
		asking.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
			defer cancel()
			if latest, err := c.client.Latest(ctx, w, c.o.Log); err == nil {
				found[i] = latest
			}
		})
	}
	asking.Wait()
	latest := map[string]*translog.Checkpoint{}
	for i, w := range c.o.Witnesses {
		if found[i] != nil {
			latest[w.Key] = found[i]
		}
	}
	return latest
}

// Sizes returns how large the tree was that each witness has cosigned last, by its verifier key, as far as this collector knows.
func (c *Collector) Sizes() map[string]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.sizes)
}

func (c *Collector) remember(w Remote, size int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sizes[w.Key] = size
}

// ask asks one witness, again where it tells another size than the one that was remembered.
func (c *Collector) ask(ctx context.Context, w Remote, p *prover) (*translog.Cosignature, error) {
	old := min(c.Sizes()[w.Key], p.head.Tree.N)
	var err error
	for range maxTries {
		var proof tlog.TreeProof
		if proof, err = p.prove(old); err != nil {
			return nil, err
		}
		var s translog.Cosignature
		if s, err = c.client.Add(ctx, w, old, proof, p.head.Note); err == nil {
			c.remember(w, p.head.Tree.N)
			return &s, nil
		}
		refused, isRefused := errors.AsType[*StatusError](err)
		conflict, isConflict := errors.AsType[*ConflictError](err)
		switch {
		case isRefused && refused.Status == http.StatusUnprocessableEntity && old > 0:
			return nil, c.forked(ctx, w, old, p, err)
		case !isConflict:
			return nil, err
		}
		c.remember(w, conflict.Size)
		if conflict.Size > p.head.Tree.N {
			return nil, c.ahead(ctx, w, conflict.Size, p)
		}
		if conflict.Size == old {
			return nil, fmt.Errorf("%w: it refuses the size %d, and says that it is right", ErrBadAnswer, old)
		}
		old = conflict.Size
	}
	return nil, err
}

// ahead is the error of a larger cosigned tree, with its proof where the witness has it.
func (c *Collector) ahead(ctx context.Context, w Remote, size int64, p *prover) error {
	e := &AheadError{Witness: w.Key, Size: size, Ours: p.head.Tree.N}
	if latest, err := c.client.Latest(ctx, w, c.o.Log); err == nil && latest.Tree.N > p.head.Tree.N {
		e.Latest = latest
	}
	return e
}

// forked is the error of a witness that has refused a proof which is right. It says so in vain where the tree that it shows is ours.
func (c *Collector) forked(ctx context.Context, w Remote, size int64, p *prover, refusal error) error {
	e := &ForkError{Witness: w.Key, Size: size}
	latest, err := c.client.Latest(ctx, w, c.o.Log)
	if err != nil || latest.Tree.N > p.head.Tree.N {
		return e
	}
	root, err := p.root(latest.Tree.N)
	if err != nil {
		return err
	}
	if root == latest.Tree.Hash {
		return fmt.Errorf("%w: it shows a tree of ours, yet %w", ErrBadAnswer, refusal)
	}
	e.Latest = latest
	return e
}

// prover makes proofs that a checkpoint's tree extends smaller ones.
type prover struct {
	head   *translog.Checkpoint
	hashes tlog.HashReader

	mu     sync.Mutex
	proofs map[int64]tlog.TreeProof
}

// prove returns the proof for an old size, which it has verified, so that no witness is blamed for hashes that are wrong.
func (p *prover) prove(old int64) (tlog.TreeProof, error) {
	if old == 0 || old == p.head.Tree.N {
		return nil, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if proof, ok := p.proofs[old]; ok {
		return proof, nil
	}
	proof, err := tlog.ProveTree(p.head.Tree.N, old, p.hashes)
	if err != nil {
		return nil, fmt.Errorf("prove that %d leaves extend %d: %w", p.head.Tree.N, old, err)
	}
	root, err := tlog.TreeHash(old, p.hashes)
	if err != nil {
		return nil, fmt.Errorf("prove that %d leaves extend %d: %w", p.head.Tree.N, old, err)
	}
	if err := tlog.CheckTree(proof, p.head.Tree.N, p.head.Tree.Hash, old, root); err != nil {
		return nil, fmt.Errorf("%w: %d leaves do not extend %d: %w", ErrHashes, p.head.Tree.N, old, err)
	}
	p.proofs[old] = proof
	return proof, nil
}

// root returns the root of the first n leaves.
func (p *prover) root(n int64) (tlog.Hash, error) {
	if n == p.head.Tree.N {
		return p.head.Tree.Hash, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return tlog.TreeHash(n, p.hashes)
}

func nameOf(vkey string) string {
	name, _, _ := strings.Cut(vkey, "+")
	return name
}
