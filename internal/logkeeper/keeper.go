package logkeeper

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/mod/sumdb/tlog"
	"golang.org/x/sync/errgroup"

	"github.com/fairlead-dev/fairlead/internal/alias"
	"github.com/fairlead-dev/fairlead/internal/crashpoint"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/wait"
	"github.com/fairlead-dev/fairlead/translog"
)

// Limits and rhythms of the keeper.
const (
	// lookPause is the least time between two looks for new facts, and lookShare how much longer it is than a look took.
	lookPause = 300 * time.Millisecond
	lookShare = 4
	errPause  = time.Second // after a failure
	// batchFacts is how many facts are appended at once, and topicFacts how many of one topic are read at once.
	batchFacts = 8192
	topicFacts = 4096
	// slotTime is how exactly facts of different topics that one look has found are ordered by their times. In a slot, those of a topic stand
	// together, so that they are one run.
	slotTime = 200 * time.Millisecond
	// settleEvery is how often is noted which topics are known.
	settleEvery = time.Minute
	// keptBuffer is the largest piece of memory for leaves that is kept for the next batch, in bytes.
	keptBuffer = 8 << 20
	// yieldEvery is after how many leaves the keeper lets others have its processor: commands must not wait for a batch of thousands.
	yieldEvery = 256
	// maxNames is how many aliases are remembered.
	maxNames = 200_000
	// DefaultCloseEvery is how often the books are closed, where that is no more than a closeShare-th of the time.
	DefaultCloseEvery = time.Minute
	closeShare        = 20
)

// Observer receives what the keeper does, for metrics. Its methods must not block and may be called concurrently.
type Observer interface {
	// Appended reports so many leaves in so many bytes, how late the oldest fact was, and how long it took.
	Appended(leaves, bytes int, late, took time.Duration)
	// Published reports a checkpoint with so many cosignatures.
	Published(size int64, witnesses int, took time.Duration)
	// Closed reports a closing of the books.
	Closed(accounts int64, balanced bool, took time.Duration)
	// Failed reports what could not be done: look, append, publish, close.
	Failed(what string)
}

// Options make a keeper. Store and Publisher are required.
type Options struct {
	Store      Store
	Publisher  *Publisher
	Observer   Observer
	Logger     *slog.Logger
	CloseEvery time.Duration // 0: [DefaultCloseEvery]
}

// Keeper appends facts to the log while it leads. It is safe for concurrent use.
type Keeper struct {
	o     Options
	leads atomic.Bool
}

// New returns a keeper. [Keeper.Lead] makes it work.
func New(o Options) *Keeper {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.CloseEvery = cmp.Or(o.CloseEvery, DefaultCloseEvery)
	if o.Observer == nil {
		o.Observer = nobody{}
	}
	return &Keeper{o: o}
}

// Leads reports whether this process keeps the log.
func (k *Keeper) Leads() bool { return k.leads.Load() }

// Lead keeps the log until ctx ends, as the leader of a term. When it returns, everything that it started has ended. It may be called
// once at a time.
func (k *Keeper) Lead(ctx context.Context, term int64) {
	k.leads.Store(true)
	defer k.leads.Store(false)
	var failures wait.News
	for ctx.Err() == nil {
		began := time.Now()
		err := k.tenure(ctx, term)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, ErrSuperseded):
			k.o.Logger.InfoContext(ctx, "another process keeps the log", "term", term)
			<-ctx.Done()
			return
		case errors.Is(err, errOtherKey):
			return // And resigns; it stands again behind all others.
		case errors.Is(err, ErrMoved):
			k.o.Logger.InfoContext(ctx, "the log has changed: reading it again")
			continue
		}
		k.o.Observer.Failed("append")
		if time.Since(began) > 2*errPause { // It went on for a while.
			failures.Is(nil)
		}
		if failures.Is(err) {
			k.o.Logger.WarnContext(ctx, "the log can't be continued: trying again", "error", err)
		}
		wait.For(ctx, errPause)
	}
}

// tenure is one time of keeping the log, from reading it to the first error that makes that necessary again.
type tenure struct {
	*Keeper

	term    int64
	edge    *translog.Edge
	secret  []byte
	names   map[Topic]map[string]string
	named   int
	settled time.Time
	buffer  []byte // for the leaves of the next batch
	closed  chan handedOver
}

func (k *Keeper) tenure(ctx context.Context, term int64) error {
	state, err := k.o.Store.Begin(ctx, term)
	if err != nil {
		return err
	}
	secret, err := k.o.Store.Secret(ctx)
	if err != nil {
		return err
	}
	t := &tenure{Keeper: k, term: term, edge: state.Edge, secret: secret, names: map[Topic]map[string]string{}, closed: make(chan handedOver)}
	all, ctx := errgroup.WithContext(ctx)
	trees := newNewest(state.Edge.Tree())
	all.Go(func() error { return t.appendAll(ctx, trees) })
	all.Go(func() error { return t.closeBooks(ctx) })
	all.Go(func() error { return k.o.Publisher.run(ctx, term, state, trees) })
	return all.Wait()
}

// newest is a place for the newest tree; who writes never waits for who reads.
type newest struct {
	tree atomic.Pointer[tlog.Tree]
	grew chan struct{}
}

func newNewest(t tlog.Tree) *newest {
	n := &newest{grew: make(chan struct{}, 1)}
	n.tree.Store(&t)
	return n
}

func (n *newest) set(t tlog.Tree) {
	n.tree.Store(&t)
	select {
	case n.grew <- struct{}{}:
	default:
	}
}

// handedOver is a closing that is to be appended.
type handedOver struct {
	closing  *Closing
	appended chan struct{} // closed when it was
}

// appendAll appends what is new, again and again.
func (t *tenure) appendAll(ctx context.Context, trees *newest) error {
	var closing handedOver
	for {
		began := time.Now()
		if err := t.round(ctx, closing.closing, trees); err != nil {
			return err
		}
		if closing.appended != nil {
			close(closing.appended)
		}
		closing = handedOver{}
		timer := time.NewTimer(max(lookPause, min(lookShare*time.Since(began), lookShare*lookPause)))
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case closing = <-t.closed:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// round appends all facts of one look, and a closing.
func (t *tenure) round(ctx context.Context, closing *Closing, trees *newest) error {
	news, err := t.o.Store.Look(ctx)
	if err != nil {
		return err
	}
	for len(news) > 0 {
		n, facts := 0, int64(0)
		for n < len(news) && facts < batchFacts {
			facts += min(news[n].End-news[n].Next, topicFacts)
			n++
		}
		if err := t.appendFacts(ctx, news[:n]); err != nil {
			return err
		}
		trees.set(t.edge.Tree())
		rest := slices.DeleteFunc(news[:n:n], func(n News) bool { return n.Next >= n.End })
		news = append(rest, news[n:]...)
	}
	if closing != nil {
		b := t.begin()
		closing.Index, b.batch.Closing = b.batch.Before.N, closing
		fact := closing.Fact()
		if err := b.add(Topic{Kind: KindBooks}, &fact, nil); err != nil {
			return err
		}
		if err := t.append(ctx, b); err != nil {
			return err
		}
		trees.set(t.edge.Tree())
		t.o.Logger.DebugContext(ctx, "the books are closed", "closing", closing.Seq, "accounts", closing.Accounts)
	}
	if time.Since(t.settled) >= settleEvery {
		t.settled = time.Now()
		return t.o.Store.Settle(ctx)
	}
	return nil
}

// ordered is a fact with its place in the order of commits.
type ordered struct {
	*Fact

	of   int   // the place of its topic among those that are appended
	slot int64 // of time; never before that of the topic's fact before it
}

// appendFacts reads facts of some topics and appends them. It moves the topics' Next; that of a topic that can't be read, or told, is its
// End, so that others don't wait for it: the next look tries it again.
func (t *tenure) appendFacts(ctx context.Context, news []News) error {
	found, err := t.o.Store.Facts(ctx, news, topicFacts)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		t.o.Observer.Failed("look")
		t.o.Logger.ErrorContext(ctx, "facts for the log can't be read", "error", err)
	}
	count := 0
	for _, facts := range found {
		count += len(facts)
	}
	all, oldest := make([]ordered, 0, count), time.Now()
	for i, facts := range found {
		if len(facts) == 0 {
			news[i].Next = news[i].End
		}
		slot := int64(math.MinInt64)
		for j := range facts {
			f := &facts[j]
			if f.Seq != news[i].Next {
				t.o.Observer.Failed("look")
				t.o.Logger.ErrorContext(ctx, "a fact is not its topic's next one", "topic", news[i].String(), "fact", f.Seq, "next", news[i].Next)
				news[i].Next = news[i].End
				break
			}
			if news[i].Next++; f.At.Before(oldest) {
				oldest = f.At
			}
			slot = max(slot, f.At.UnixNano()/int64(slotTime))
			all = append(all, ordered{f, i, slot})
		}
	}
	slices.SortStableFunc(all, func(a, b ordered) int { return cmp.Compare(a.slot, b.slot) })
	b := t.begin()
	var name Names
	failed := make([]bool, len(news))
	for i := range all {
		f := &all[i]
		topic := news[f.of].Topic
		if i == 0 || f.of != all[i-1].of {
			name = t.namesIn(topic)
		}
		yield(i)
		if failed[f.of] {
			continue
		}
		if err := b.add(topic, f.Fact, name); err != nil {
			failed[f.of], news[f.of].Next = true, news[f.of].End
			t.o.Observer.Failed("look")
			t.o.Logger.ErrorContext(ctx, "a fact can't be a leaf: its topic waits, and others go on", "topic", topic.String(), "fact", f.Seq, "error", err)
		}
	}
	if len(b.batch.Entries) == 0 {
		return nil
	}
	began := time.Now()
	if err := t.append(ctx, b); err != nil {
		return err
	}
	bytes := 0
	for _, e := range b.batch.Entries {
		bytes += len(e)
	}
	t.o.Observer.Appended(len(b.batch.Entries), bytes, time.Since(oldest), time.Since(began))
	return nil
}

// namesIn returns what gives an account its alias in a topic.
func (t *tenure) namesIn(topic Topic) Names {
	known := t.names[topic]
	if known == nil {
		known = map[string]string{}
		t.names[topic] = known
		t.named++ // A topic without names takes memory, too.
	}
	var in *alias.Topic
	return func(account string) string {
		name, ok := known[account]
		if !ok {
			if in == nil {
				in = alias.In(topic.String(), t.secret)
			}
			name = in.Of(account).Name
			known[account] = name
			if t.named++; t.named > maxNames {
				t.names, t.named = map[Topic]map[string]string{topic: known}, len(known)+1
			}
		}
		return name
	}
}

// building is a batch that is being made.
type building struct {
	batch Batch
	data  []byte
	// topicName is the name of the topic of the last leaf.
	topic     Topic
	topicName string
}

func (t *tenure) begin() *building {
	return &building{batch: Batch{Before: t.edge.Tree(), Bundled: t.buffer}}
}

// add adds a fact's leaf.
func (b *building) add(topic Topic, f *Fact, name Names) (err error) {
	if b.data, err = f.AppendData(b.data[:0], name); err != nil {
		return err
	}
	if b.topic != topic || b.topicName == "" {
		b.topic, b.topicName = topic, topic.String()
	}
	leaf := translog.Leaf{Type: f.Type, Topic: b.topicName, Seq: f.Seq, At: f.At, Data: b.data}
	index := b.batch.Before.N + int64(len(b.batch.Entries))
	before, from := len(b.batch.Entries), len(b.batch.Bundled)
	b.batch.Entries, b.batch.Bundled, err = leaf.Entries(b.batch.Entries, append(b.batch.Bundled, 0, 0))
	made := b.batch.Entries[before:]
	for i, entry := range made {
		if len(entry) > translog.MaxEntry {
			err = fmt.Errorf("logkeeper: an entry has %d bytes", len(entry))
		}
		if len(made) > 1 { // They stand without their lengths.
			made[i] = bytes.Clone(entry)
		}
	}
	if err != nil {
		b.batch.Entries, b.batch.Bundled = b.batch.Entries[:before], b.batch.Bundled[:from]
		return err
	}
	if len(made) == 1 {
		binary.BigEndian.PutUint16(b.batch.Bundled[from:], uint16(len(made[0]))) //nolint:gosec // As was checked.
	} else {
		b.batch.Bundled = b.batch.Bundled[:from]
		for _, entry := range made {
			b.batch.Bundled = append(binary.BigEndian.AppendUint16(b.batch.Bundled, uint16(len(entry))), entry...) //nolint:gosec // As was checked.
		}
	}
	if !f.Due.IsZero() {
		b.batch.Seals = append(b.batch.Seals, Seal{topic.ID, index, f.Due})
	}
	parts := len(b.batch.Entries) - before
	run := Run{Topic: topic, Seq: f.Seq, Index: index, Count: 1, Parts: parts, Ended: ends(f.Type)}
	if n := len(b.batch.Runs); n > 0 {
		last := &b.batch.Runs[n-1]
		if last.Topic == topic && last.Parts == 1 && parts == 1 && last.Seq+int64(last.Count) == f.Seq && last.Index+int64(last.Count) == index {
			last.Count++
			last.Ended = run.Ended
			return nil
		}
	}
	b.batch.Runs = append(b.batch.Runs, run)
	return nil
}

// ends reports whether a topic has no facts after one of a type.
func ends(kind string) bool {
	switch kind {
	case TypeCampaignDrawn, TypeCampaignCancelled, TypeMultidrawEnded, string(auction.EventAuctionCompleted), string(auction.EventAuctionCancelled):
		return true
	}
	return false
}

// append appends a batch. The edge grows only where it was committed; after any failure the log is read again.
func (t *tenure) append(ctx context.Context, b *building) error {
	hashes := make([]tlog.Hash, len(b.batch.Entries))
	for i, entry := range b.batch.Entries {
		hashes[i] = tlog.RecordHash(entry)
		yield(i)
	}
	grown := t.edge.Clone()
	b.batch.Tiles = grown.Append(hashes)
	b.batch.After = grown.Tree()
	crashpoint.Hit(crashpoint.LogAppend)
	if err := t.o.Store.Append(ctx, t.term, &b.batch); err != nil {
		return err
	}
	crashpoint.Hit(crashpoint.LogAppended)
	t.edge, t.buffer = grown, nil
	if cap(b.batch.Bundled) <= keptBuffer {
		t.buffer = b.batch.Bundled[:0]
	}
	return nil
}

// yield lets others have the processor after each yieldEvery-th leaf.
func yield(leaf int) {
	if leaf%yieldEvery == yieldEvery-1 {
		runtime.Gosched()
	}
}

// closeBooks closes the books from time to time.
func (t *tenure) closeBooks(ctx context.Context) error {
	kept, err := t.o.Store.Kept(ctx)
	if err != nil {
		return err
	}
	pause := time.Duration(0)
	if len(kept) > 0 {
		pause = min(max(t.o.CloseEvery-time.Since(kept[0].At), 0), t.o.CloseEvery)
	}
	names := alias.In(Books, t.secret)
	for wait.For(ctx, pause) {
		began := time.Now()
		closing, err := t.o.Store.CloseBooks(ctx, func(account string) string { return names.Of(account).Name })
		took := time.Since(began)
		if pause = max(t.o.CloseEvery-took, closeShare*took); err != nil {
			if ctx.Err() == nil {
				t.o.Observer.Failed("close")
				t.o.Logger.WarnContext(ctx, "the books can't be closed", "error", err)
			}
			continue
		}
		// The next one is numbered by the last that is there.
		appended := make(chan struct{})
		select {
		case t.closed <- handedOver{closing, appended}:
		case <-ctx.Done():
			return ctx.Err()
		}
		select {
		case <-appended:
		case <-ctx.Done():
			return ctx.Err()
		}
		balanced := !slices.ContainsFunc(closing.Sums, func(s Sum) bool { return !s.Balanced() })
		if !balanced {
			t.o.Logger.ErrorContext(ctx, "the books don't add up", "closing", closing.Seq)
		}
		t.o.Observer.Closed(closing.Accounts, balanced, took)
		if kept, err = t.o.Store.Kept(ctx); err != nil {
			return err
		}
		if drop := thin(kept, closing.At); len(drop) > 0 {
			if err := t.o.Store.Drop(ctx, drop); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// nobody is the observer that does nothing.
type nobody struct{}

func (nobody) Appended(int, int, time.Duration, time.Duration) {}
func (nobody) Published(int64, int, time.Duration)             {}
func (nobody) Closed(int64, bool, time.Duration)               {}
func (nobody) Failed(string)                                   {}
