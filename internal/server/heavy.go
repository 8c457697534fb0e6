package server

import (
	chain "container/list"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/internal/groupcommit"
	"github.com/fairlead-dev/fairlead/internal/server/edge"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
)

// Limits of the archive.
const (
	// documentsKept and documentBytes bound the files. That of the proof of the largest campaign has some 150 MB.
	documentsKept = 64
	documentBytes = 512 << 20
	// sendRate is how many bytes a second of documents are sent, to all clients together: half a gigabit, which takes a few
	// per cent of a processor. sendPiece is what is sent at a time, and sendTimeout how long a client may take for it.
	sendRate    = 64 << 20
	sendBurst   = 4 << 20
	sendPiece   = 256 << 10
	sendTimeout = 30 * time.Second
	// treesKept and treeBytes bound the trees that prove inclusion: about a byte a position.
	treesKept    = 256
	treeBytes    = 16 << 20
	rootsKept    = 4096            // roots that are remembered
	buildTimeout = 2 * time.Minute // for the making of a document or tree, its turn included
	// sealedKept bounds the campaigns that are remembered to be sealed, which is for a second: a failover may take a seal back.
	sealedKept = 256
)

// archive keeps the documents and trees of sealed and drawn campaigns, which never change. It is safe for concurrent use.
type archive struct {
	dir       string // for files
	documents *shelf[*answerFile]
	trees     *shelf[*fairdraw.Tree]
	roots     *shelf[[32]byte] // of sealed positions
	builds    *bound
	proofs    *bound        // of single positions, for those with a credential
	public    *bound        // looks at single positions, for anybody
	pace      *rate.Limiter // of what is sent, in bytes
	built     func(document string)

	sealed *shelf[*lottery.Campaign]

	mu       sync.Mutex // held while a build is added, so that none is once close waits for them
	building sync.WaitGroup
	life     context.Context // Builds outlive the requests for them, but not the server.
	end      context.CancelFunc
}

func newArchive(dir string, m *httpMetrics) *archive {
	a := &archive{
		dir: dir, pace: rate.NewLimiter(sendRate, sendBurst),
		builds: newBound("build", buildsAtOnce, buildsQueued, 0, m),
		proofs: newBound("proof", proofsAtOnce, proofsQueued, proofsRest, m), public: newBound("public", proofsAtOnce, proofsQueued, proofsRest, m),
		documents: newShelf(documentsKept, documentBytes, (*answerFile).close), trees: newShelf[*fairdraw.Tree](treesKept, treeBytes, nil),
		roots: newShelf[[32]byte](rootsKept, treeBytes, nil), sealed: newShelf[*lottery.Campaign](sealedKept, 0, nil),
		built: func(document string) { m.documents.WithLabelValues(document).Inc() },
	}
	a.life, a.end = context.WithCancel(context.Background())
	return a
}

// close cancels the builds under way and discards all documents and trees.
func (a *archive) close() {
	a.mu.Lock()
	a.end()
	a.mu.Unlock()
	a.building.Wait()
	a.forget()
}

func (a *archive) forget() {
	a.documents.clear()
	a.trees.clear()
	a.roots.clear()
	a.sealed.clear()
}

// build runs made when it is its turn, whether or not the first caller still waits.
func build[V any](a *archive, kind string, made func(context.Context) (V, error)) (v V, err error) {
	a.mu.Lock()
	if a.life.Err() != nil {
		a.mu.Unlock()
		return v, groupcommit.ErrClosed
	}
	a.building.Add(1)
	a.mu.Unlock()
	defer a.building.Done()
	ctx, cancel := context.WithTimeout(a.life, buildTimeout)
	defer cancel()
	v, err = bounded(ctx, a.builds, made)
	if err == nil {
		a.built(kind)
	}
	return v, err
}

// stateOf names a campaign with the time of its seal or draw. After a failover to a database that lacks the last transactions
// it may be sealed or drawn again, with another result at another time.
func stateOf(c *lottery.Campaign, at time.Time) string {
	return c.ID.String() + " " + strconv.FormatInt(at.UnixMicro(), 10)
}

// documentOf names it with the number of witnesses, too: what they have signed before the round may be known after the draw.
func documentOf(c *lottery.Campaign) string {
	seen := 0
	if c.Beacon != nil {
		seen = c.Beacon.Seen
	}
	return stateOf(c, *c.CompletedAt) + " " + strconv.Itoa(seen)
}

// serveDocument answers with the document of that kind of a drawn campaign.
func (s *Server) serveDocument(kind string, write func(context.Context, *lottery.Campaign, io.Writer) error) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		c, err := s.campaignOf(r)
		if err != nil {
			return err
		}
		if c.Status != lottery.StatusCompleted || c.CompletedAt == nil {
			return lottery.ErrNotDrawn
		}
		d, done, err := s.archive.documents.get(r.Context(), kind+" "+documentOf(c), func() (*answerFile, int64, error) { //nolint:contextcheck // It is built for others, too.
			d, err := build(s.archive, kind, func(ctx context.Context) (*answerFile, error) {
				return newAnswerFile(s.archive.dir, func(w io.Writer) error { return write(ctx, c, w) })
			})
			if err != nil {
				return nil, 0, err
			}
			return d, d.size, nil
		})
		if err != nil {
			return err
		}
		defer done()
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.FormatInt(d.size, 10))
		w.WriteHeader(http.StatusOK)
		if r.Method != http.MethodHead {
			_ = s.archive.send(r.Context(), w, d) // An error means that the client went away.
		}
		return nil
	}
}

// send writes a document piece by piece, at a pace that all documents of several pieces share. A client has sendTimeout for
// each piece, and not for the whole, which it may not be to blame for.
func (a *archive) send(ctx context.Context, w http.ResponseWriter, d *answerFile) error {
	control, body := http.NewResponseController(w), io.NewSectionReader(d.file, 0, d.size)
	for left := d.size; left > 0; left -= sendPiece {
		piece := min(left, sendPiece)
		if d.size > sendPiece {
			if err := a.pace.WaitN(ctx, int(piece)); err != nil {
				return err //nolint:wrapcheck // Nobody hears of it.
			}
		}
		// Not every writer has a deadline.
		_ = control.SetWriteDeadline(time.Now().Add(sendTimeout))
		if _, err := io.CopyN(w, body, piece); err != nil {
			return err //nolint:wrapcheck // As above.
		}
	}
	return nil
}

// sealedCampaign reads the campaign of the path. One that is sealed is read once a second, so that those who ask for one inclusion
// proof after another cost the database little. It must not be changed.
func (s *Server) sealedCampaign(r *http.Request) (*lottery.Campaign, error) {
	id, err := pathID("campaign")(r)
	if err != nil {
		return nil, err
	}
	second := strconv.FormatInt(time.Now().Unix(), 10)
	c, err := s.archive.sealed.read(r.Context(), id.String()+" "+second, func(ctx context.Context) (*lottery.Campaign, int64, error) {
		c, err := s.Lottery.Campaign(ctx, id)
		if err != nil {
			return nil, 0, err
		}
		if _, ok := c.Sealed(); !ok {
			return nil, 0, &notSealedError{c}
		}
		return c, 0, nil
	})
	if open, ok := errors.AsType[*notSealedError](err); ok {
		return open.campaign, mayRead(infoOf(r).principal, open.campaign)
	}
	return c, err
}

// notSealedError carries a campaign that is not to be remembered.
type notSealedError struct{ campaign *lottery.Campaign }

func (*notSealedError) Error() string { return lottery.ErrNotDrawn.Error() }

// inclusion proves that a position of a campaign was sealed.
func (s *Server) inclusion(ctx context.Context, c *lottery.Campaign, p lottery.Position) (*fairdraw.InclusionProof, error) {
	// In beacon mode the list is closed before the draw: every entrant can see then that they are in it.
	at, ok := c.Sealed()
	if !ok {
		return nil, lottery.ErrNotDrawn
	}
	tree, done, err := s.archive.trees.get(ctx, stateOf(c, at), func() (*fairdraw.Tree, int64, error) { //nolint:contextcheck // It is built for others, too.
		tree, err := build(s.archive, "tree", func(ctx context.Context) (*fairdraw.Tree, error) { return s.Lottery.SealedTree(ctx, c) })
		return tree, int64(c.TotalPositions), err // About a byte a position.
	})
	if err != nil {
		return nil, err
	}
	defer done()
	return bounded(ctx, s.archive.proofs, func(ctx context.Context) (*fairdraw.InclusionProof, error) { return s.Lottery.Include(ctx, c, tree, p) })
}

// sealedRoot is the root under which the positions of a campaign were sealed.
func (s *Server) sealedRoot(ctx context.Context, c *lottery.Campaign) (root [32]byte, err error) {
	if c.Beacon != nil && c.Beacon.Seal != nil {
		return c.Beacon.Seal.Root, nil
	}
	at, ok := c.Sealed()
	if !ok {
		return root, lottery.ErrNotDrawn
	}
	return s.archive.roots.read(ctx, stateOf(c, at), func(ctx context.Context) (root [32]byte, size int64, err error) {
		draw, _, err := s.Lottery.Result(ctx, c.ID)
		if err == nil {
			root = draw.Root
		}
		return root, int64(len(root)), err
	})
}

// shelf is a cache of values that take long to make and never change. It keeps the most recently used, up to a number and a
// size, and makes each value once for all concurrent callers. It is safe for concurrent use.
type shelf[V any] struct {
	most    int
	size    int64
	discard func(V)

	flights singleflight.Group
	mu      sync.Mutex
	kept    map[string]*chain.Element // values are *shelved[V]
	byUse   *chain.List               // latest first
	filled  int64
}

type shelved[V any] struct {
	key   string
	value V
	size  int64
	users int
	gone  bool // from the shelf; the last user discards it
}

func newShelf[V any](most int, size int64, discard func(V)) *shelf[V] {
	return &shelf[V]{most: most, size: size, discard: discard, kept: map[string]*chain.Element{}, byUse: chain.New()}
}

// get returns what is kept under key, or has it made. It may be used until done is called. A caller that goes away leaves
// the value to the others, so fill must not depend on ctx. All waiting callers get a failure, and it is not kept.
func (s *shelf[V]) get(ctx context.Context, key string, fill func() (V, int64, error)) (value V, done func(), err error) {
	for {
		if value, done, ok := s.take(key); ok {
			return value, done, nil
		}
		made := s.flights.DoChan(key, func() (_ any, err error) {
			defer func() {
				if p := recover(); p != nil {
					err = &groupcommit.PanicError{Value: p, Stack: debug.Stack()}
				}
			}()
			if _, done, ok := s.take(key); ok { // Another flight has ended since the look. A key is kept once: its other value would take it along.
				done()
				return nil, nil
			}
			value, size, err := fill()
			if err == nil {
				s.keep(key, value, size)
			}
			return nil, err
		})
		select {
		case m := <-made:
			if m.Err != nil {
				return value, nil, m.Err
			}
		case <-ctx.Done():
			return value, nil, ctx.Err()
		}
	}
}

// read is get of what a short look into the database gives. It has its time, and goes on when the first caller goes away.
func (s *shelf[V]) read(ctx context.Context, key string, fill func(context.Context) (V, int64, error)) (V, error) {
	v, done, err := s.get(ctx, key, func() (V, int64, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), edge.CommandTimeout)
		defer cancel()
		return fill(ctx)
	})
	if err == nil {
		done()
	}
	return v, err
}

func (s *shelf[V]) take(key string) (value V, done func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.kept[key]
	if !ok {
		return value, nil, false
	}
	s.byUse.MoveToFront(e)
	v := e.Value.(*shelved[V]) //nolint:errcheck,forcetypeassert // The list has nothing else.
	v.users++
	return v.value, sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		v.users--
		s.discardUnused(v)
	}), true
}

func (s *shelf[V]) keep(key string, value V, size int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept[key] = s.byUse.PushFront(&shelved[V]{key: key, value: value, size: size})
	s.filled += size
	// The newest value stays, however large it is: somebody waits for it.
	for s.byUse.Len() > 1 && (s.byUse.Len() > s.most || s.filled > s.size) {
		s.remove(s.byUse.Back())
	}
}

func (s *shelf[V]) remove(e *chain.Element) {
	v := s.byUse.Remove(e).(*shelved[V]) //nolint:errcheck,forcetypeassert // As above.
	delete(s.kept, v.key)
	s.filled -= v.size
	v.gone = true
	s.discardUnused(v)
}

func (s *shelf[V]) discardUnused(v *shelved[V]) {
	if v.gone && v.users == 0 && s.discard != nil {
		s.discard(v.value)
	}
}

// clear empties the shelf.
func (s *shelf[V]) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.byUse.Len() > 0 {
		s.remove(s.byUse.Back())
	}
}

// answerFile is an answer that is kept in a file, where even the largest takes no memory. The file has no name, so that nothing
// of it outlives the process.
type answerFile struct {
	file *os.File
	size int64
	name string // to be removed at the end, on systems that cannot remove what is open
}

// newAnswerFile writes a document to a file in dir, which is empty for the system's directory of temporary files.
func newAnswerFile(dir string, write func(io.Writer) error) (_ *answerFile, err error) {
	f, err := os.CreateTemp(dir, "fairlead-document-*")
	if err != nil {
		return nil, err //nolint:wrapcheck // It names the operation and the file.
	}
	d := &answerFile{file: f}
	defer func() {
		if err != nil {
			d.close()
		}
	}()
	if os.Remove(f.Name()) != nil {
		d.name = f.Name()
	}
	if err := write(f); err != nil {
		return nil, err
	}
	d.size, err = f.Seek(0, io.SeekCurrent)
	return d, err //nolint:wrapcheck // As above.
}

func (d *answerFile) close() {
	err := d.file.Close()
	if d.name != "" {
		err = errors.Join(err, os.Remove(d.name))
	}
	_ = err // Nothing in it is needed again.
}

// Reads that cost more than a page have bounds of their own, by how long they keep a processor and a connection, so that light
// reads find both.
const (
	// buildsAtOnce documents of campaigns are made at a time. The largest takes seconds, for half of which it has a
	// connection.
	buildsAtOnce = 2
	buildsQueued = 16
	// scansAtOnce reads go over many rows, or over few of many, at a time.
	scansAtOnce = 2
	scansQueued = 128
	// proofsAtOnce inclusion proofs are looked up at a time for those with a credential, and as many positions for the public
	// pages, so that neither waits for the other. Each may ask for one after another, so a place is empty for proofsRest times as
	// long as it was taken, up to longestRest: however many ask, they keep a fourth of one processor busy.
	proofsAtOnce = 1
	// tilesAtOnce tiles of the public log are read at a time: each is a row.
	tilesAtOnce  = 4
	tilesQueued  = 256
	proofsQueued = 128
	proofsRest   = 3
	longestRest  = 100 * time.Millisecond
	// checksAtOnce is how many integrity checks run. One goes over the whole ledger.
	checksAtOnce  = 1
	checksQueued  = 4
	boundPatience = 10 * time.Second // how long a request waits for its turn
)

// bound lets so many through at a time, and so many more wait. Others are refused at once. It is safe for concurrent use.
type bound struct {
	name    string
	metrics *httpMetrics
	rest    int           // how many times as long as it was taken a place is empty then
	places  chan struct{} // holds a value for each one that is through
	queue   chan struct{} // holds a value for each one that is through or waits, but not for a place that rests
}

func newBound(name string, atOnce, queued, rest int, m *httpMetrics) *bound {
	return &bound{name: name, metrics: m, rest: rest, places: make(chan struct{}, atOnce), queue: make(chan struct{}, atOnce+queued)}
}

// enter waits for its turn; leave, which may be called again, ends it. It is refused when too many wait, and when it has
// waited for too long.
func (b *bound) enter(ctx context.Context) (leave func(), err error) {
	select {
	case b.queue <- struct{}{}:
	default:
		return nil, b.refuse()
	}
	patience := time.NewTimer(boundPatience)
	defer patience.Stop()
	b.metrics.heavyWaiting.WithLabelValues(b.name).Inc()
	defer b.metrics.heavyWaiting.WithLabelValues(b.name).Dec()
	select {
	case b.places <- struct{}{}:
	case <-patience.C:
		<-b.queue
		return nil, b.refuse()
	case <-ctx.Done():
		<-b.queue
		return nil, ctx.Err()
	}
	b.metrics.heavyRunning.WithLabelValues(b.name).Inc()
	began := time.Now()
	return sync.OnceFunc(func() {
		b.metrics.heavyRunning.WithLabelValues(b.name).Dec()
		<-b.queue
		if b.rest == 0 {
			<-b.places
			return
		}
		time.AfterFunc(min(time.Since(began)*time.Duration(b.rest), longestRest), func() { <-b.places })
	}), nil
}

func (b *bound) refuse() error {
	b.metrics.heavyRefused.WithLabelValues(b.name).Inc()
	return &refusal{Kind: edge.Overloaded, Detail: "too many requests of this kind are under way"}
}

// bounded reads when it is its turn.
func bounded[R any](ctx context.Context, b *bound, read func(context.Context) (R, error)) (result R, err error) {
	leave, err := b.enter(ctx)
	if err != nil {
		return result, err
	}
	defer leave()
	return read(ctx)
}
