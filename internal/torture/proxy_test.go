package torture_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead-dev/fairlead/internal/tally"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/internal/torture"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type address string

func (a address) URL() string { return string(a) }

// behind returns a proxy before a server that counts requests, and a client whose transport keeps no connections.
func behind(t *testing.T) (p *torture.Proxy, served *atomic.Int64, send func(method string) error) {
	t.Helper()
	served = new(atomic.Int64)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served.Add(1)
		_, _ = io.WriteString(w, r.Method+" "+r.URL.Path)
	}))
	t.Cleanup(server.Close)
	p, err := torture.Listen(t.Context(), address(server.URL), 1)
	testwait.Must(t, err)
	t.Cleanup(func() { testwait.Check(t, p.Close()) })
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return p, served, func(method string) error {
		req, err := http.NewRequestWithContext(t.Context(), method, p.URL()+"/x", http.NoBody)
		testwait.Must(t, err)
		answer, err := client.Do(req)
		if err != nil {
			return err
		}
		text, err := io.ReadAll(answer.Body)
		testwait.Check(t, answer.Body.Close())
		if want := method + " /x"; err == nil && string(text) != want {
			t.Errorf("answered %q, want %q", text, want)
		}
		return err
	}
}

func TestProxyLosesAnswersOfWhatWasCarriedOut(t *testing.T) {
	t.Parallel()
	p, served, send := behind(t)
	p.Lose(1)
	testwait.Check(t, send(http.MethodGet)) // No command.
	if err := send(http.MethodPost); err == nil {
		t.Error("the answer was not lost")
	}
	if served.Load() != 2 || p.Lost() != 1 {
		t.Errorf("%d requests were served, %d answers lost", served.Load(), p.Lost())
	}
	testwait.Check(t, send(http.MethodPost))
}

func TestProxyCuts(t *testing.T) {
	t.Parallel()
	p, served, send := behind(t)
	testwait.Check(t, send(http.MethodPost))
	p.Cut(true)
	if err := send(http.MethodPost); err == nil || served.Load() != 1 {
		t.Errorf("%d requests were served, %v", served.Load(), err)
	}
	p.Cut(false)
	testwait.Check(t, send(http.MethodPost))
}

func TestProxySlows(t *testing.T) {
	t.Parallel()
	p, _, send := behind(t)
	p.Slow(200 * time.Millisecond)
	began := time.Now()
	for range 10 {
		testwait.Check(t, send(http.MethodPost))
	}
	if took := time.Since(began); took < 200*time.Millisecond { // By the seed, they are held back for longer than that in all.
		t.Errorf("ten requests took %v", took)
	}
	p.Slow(0)
}

// TestRows: each row of the table either can be caused from outside, or says why not.
func TestRows(t *testing.T) {
	t.Parallel()
	var names []string
	for _, r := range torture.Rows() {
		names = append(names, r.Name)
		if (r.Does == "") == (r.Cannot == "") {
			t.Errorf("%+v", r)
		}
		if found, err := torture.Find(r.Name); (err == nil) != (r.Cannot == "") || err == nil && found.Name != r.Name {
			t.Errorf("%s: found %+v, %v", r.Name, found, err)
		}
	}
	for _, r := range tally.Rows() {
		if !slices.Contains(names, r.Name) {
			t.Errorf("%s is missing", r.Name)
		}
	}
	if _, err := torture.Find("nothing"); err == nil || !strings.Contains(err.Error(), "nothing") {
		t.Errorf("a row that there is not: %v", err)
	}
}
