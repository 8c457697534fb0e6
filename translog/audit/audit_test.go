package audit_test

import (
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/translog/audit"
	"github.com/fairlead-dev/fairlead/translog/audit/audittest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const origin = "fairlead.test/log"

// player makes histories that are the same each time for a seed.
func player(tb testing.TB) *audittest.Player {
	tb.Helper()
	rng, _ := testwait.Rand(tb)
	return &audittest.Player{Rand: rng}
}

// fixed makes the same histories each time.
func fixed() *audittest.Player { return &audittest.Player{Rand: rand.New(rand.NewPCG(7, 7))} }

// serve serves a log until the test ends, and returns its address.
func serve(tb testing.TB, l *audittest.Log) string {
	tb.Helper()
	server := httptest.NewServer(l)
	tb.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL
}

// published is a log of these leaves.
func published(leaves ...audittest.Leaf) *audittest.Log {
	l := audittest.NewLog(origin)
	l.Append(leaves...)
	l.Publish()
	return l
}

// auditor is one of the log; the options may have more.
func auditor(tb testing.TB, l *audittest.Log, o audit.Options) *audit.Auditor {
	tb.Helper()
	if o.URL == "" {
		o.URL = serve(tb, l)
	}
	o.Key = l.Key()
	a, err := audit.New(o)
	testwait.Must(tb, err)
	tb.Cleanup(a.Close)
	return a
}

// judged is what one run finds.
func judged(tb testing.TB, l *audittest.Log, o audit.Options) *audit.Report {
	tb.Helper()
	r, err := auditor(tb, l, o).Run(tb.Context())
	testwait.Must(tb, err)
	return r
}

func TestValidLog(t *testing.T) {
	t.Parallel()
	l := published(player(t).Everything()...)
	state := filepath.Join(t.TempDir(), "state")
	r := judged(t, l, audit.Options{State: state})
	if r.Finding != nil || !r.Consistent {
		t.Fatal(r.Finding)
	}
	if c := r.Counts; c.Leaves != r.Size || c.Campaigns != 9 || c.Draws != 7 || c.Winners == 0 || c.Auctions != 6 || c.Settled != 5 || c.Bids == 0 ||
		c.Rounds == 0 || c.Sold == 0 || c.Multidraws != 5 || c.Redrawn != 7345 || c.Closings != 10 || c.Unfinished != 0 {
		t.Errorf("%+v", c)
	}
	if r.SeenBefore != nil || r.Origin != origin || r.Checkpoint != string(l.Checkpoint()) {
		t.Errorf("%+v", r)
	}
	kept, err := os.ReadFile(state)
	testwait.Must(t, err)
	if string(kept) != r.Checkpoint {
		t.Errorf("the state file has %s", kept)
	}
	r = judged(t, l, audit.Options{State: state, URL: serve(t, l) + "/log/"})
	if !r.Consistent || r.SeenBefore == nil || *r.SeenBefore != r.Size {
		t.Errorf("%+v", r)
	}
}
