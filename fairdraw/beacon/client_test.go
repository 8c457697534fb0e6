package beacon_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/fairdraw/beacon"
	"github.com/fairlead-dev/fairlead/fairdraw/beacon/beacontest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is for answers that come, if the machine lets them.
const patience = testwait.Patience

func newClient(t *testing.T, relays ...string) *beacon.Client {
	t.Helper()
	return newClientWithin(t, patience, relays...)
}

// newClientWithin gives each of the servers so long.
func newClientWithin(t *testing.T, timeout time.Duration, relays ...string) *beacon.Client {
	t.Helper()
	c, err := beacon.NewClient(beacon.ClientOptions{Relays: relays, Timeout: timeout})
	testwait.Must(t, err)
	t.Cleanup(c.Close)
	return c
}

// due is a round that the server has published.
func due(s *beacontest.Server) uint64 { return s.Chain().FirstFrom(time.Now()) - 10 }

func TestClientSpeaksBothVersions(t *testing.T) {
	t.Parallel()
	s := beacontest.New(t)
	c := newClient(t, s.URL()+"/")
	for _, version := range []int{0, 1, 2} {
		s.SpeakOnly(version)
		n := due(s)
		r, err := c.Round(t.Context(), s.Chain(), n)
		if err != nil || r.Number != n || string(r.Signature) != string(s.Sign(n).Signature) || r.Previous != nil {
			t.Errorf("version %d: %+v, %v", version, r, err)
		}
	}
}

// TestClientBelievesNobody has the relay answer wrongly in each way.
func TestClientBelievesNobody(t *testing.T) {
	t.Parallel()
	for fault, want := range map[beacontest.Fault]struct {
		err  error
		name string
	}{
		beacontest.Absent:         {beacon.ErrNotPublished, "not_published"},
		beacontest.Unserved:       {beacon.ErrUnknownChain, "unknown_chain"},
		beacontest.Failing:        {beacon.ErrRefused, "refused"},
		beacontest.Stalling:       {beacon.ErrTimeout, "timeout"},
		beacontest.Garbage:        {beacon.ErrMalformed, "malformed"},
		beacontest.Huge:           {beacon.ErrTooLarge, "too_large"},
		beacontest.WrongSignature: {beacon.ErrBadSignature, "bad_signature"},
		beacontest.OlderRound:     {beacon.ErrWrongRound, "wrong_round"},
		beacontest.OtherKey:       {beacon.ErrBadSignature, "bad_signature"},
		beacontest.Redirecting:    {beacon.ErrRefused, "refused"},
	} {
		t.Run(want.name, func(t *testing.T) {
			t.Parallel()
			bad, good := beacontest.NewChain(t, "one key", 1_700_000_000, 1), beacontest.NewChain(t, "one key", 1_700_000_000, 1)
			bad.Set(fault)
			timeout := patience
			if fault == beacontest.Stalling {
				timeout = 2 * time.Second // Long enough for the other one to answer.
			}
			_, err := newClientWithin(t, timeout, bad.URL()).Round(t.Context(), bad.Chain(), due(bad))
			var relay *beacon.RelayError
			if !errors.Is(err, want.err) || beacon.Failure(err) != want.name || !errors.As(err, &relay) || relay.Relay != bad.URL() {
				t.Errorf("%v, called %q", err, beacon.Failure(err))
			}
			// The next relay makes up for it, and is the first to be asked from then on.
			c := newClientWithin(t, timeout, bad.URL(), good.URL())
			n := due(good)
			if r, err := c.Round(t.Context(), good.Chain(), n); err != nil || r.Number != n {
				t.Fatal(err)
			}
			before := bad.Requests()
			testwait.Check(t, testwait.Err(c.Round(t.Context(), good.Chain(), n+1)))
			if bad.Requests() != before {
				t.Error("the relay that failed was asked first again")
			}
		})
	}
}

func TestRoundsThatAreNotDueAreNotThere(t *testing.T) {
	t.Parallel()
	s := beacontest.New(t)
	c := newClient(t, s.URL())
	n := s.Chain().FirstFrom(time.Now().Add(time.Hour))
	if _, err := c.Round(t.Context(), s.Chain(), n); beacon.Failure(err) != "not_published" {
		t.Error(err)
	}
	s.SetAhead(2 * time.Hour)
	if r, err := c.Round(t.Context(), s.Chain(), n); err != nil || r.Number != n {
		t.Error(err)
	}
}

func TestUnreachableAndGivenUp(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(http.NotFoundHandler())
	url := gone.URL
	gone.Close()
	c := newClient(t, url)
	if _, err := c.Round(t.Context(), beacon.Quicknet(), 1); beacon.Failure(err) != "unreachable" {
		t.Error(err)
	}
	s := beacontest.New(t)
	s.Set(beacontest.Stalling)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := newClient(t, s.URL()).Round(ctx, s.Chain(), 1); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	unknown := s.Chain()
	unknown.Scheme = "bls-bn254-unchained-on-g1"
	if _, err := c.Round(t.Context(), unknown, 1); beacon.Failure(err) != "unknown_scheme" {
		t.Error(err)
	}
}

// TestRecordedRoundsOverHTTP serves drand's own answers, with the fields that we do not need.
func TestRecordedRoundsOverHTTP(t *testing.T) {
	t.Parallel()
	const quicknet42 = `{"round":42,"randomness":"00","signature":"95a9f9f5b231b7714de1553105d8ffdf3dcda24cfdb1e689319bccf79a9c8ce430a91b811fbfaf763900bc998b5d686a"}`
	def := published(t)["default"][0]
	relay := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := ""
		switch r.URL.Path {
		case "/52db9ba70e0cc0f6eaf7803dd07447a1f5477735fd3f661792ba94600c84e971/public/42":
			body = quicknet42
		case "/8990e7a9aaed2ffed73dbd7092123d6f289930540d7651336225dc172e51b2ce/public/72785":
			body = `{"round":72785,"signature":"` + def.Signature + `","previous_signature":"` + def.Previous + `"}`
		default:
			http.NotFound(w, r)
		}
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(relay.Close)
	c := newClient(t, relay.URL)
	for _, want := range []struct {
		chain  fairdraw.Chain
		number uint64
	}{{beacon.Quicknet(), 42}, {beacon.Default(), 72785}} {
		if r, err := c.Round(t.Context(), want.chain, want.number); err != nil || r.Number != want.number {
			t.Errorf("%s: %v", want.chain.BeaconID, err)
		}
	}
}

func TestNewClientRefuses(t *testing.T) {
	t.Parallel()
	for _, relays := range [][]string{
		nil, {""}, {"api.drand.sh"}, {"ftp://a"}, {"https://"}, {"https://a?b=c"}, {"https://a#b"}, make([]string, 17),
	} {
		if _, err := beacon.NewClient(beacon.ClientOptions{Relays: relays}); err == nil {
			t.Errorf("%q: taken", relays)
		}
	}
	if beacon.Failure(nil) != "" || beacon.Failure(errors.New("x")) != "other" {
		t.Error("names of no failure, and of one that nobody knows")
	}
	for _, relay := range beacon.PublicRelays() {
		if !strings.HasPrefix(relay, "https://") {
			t.Error(relay)
		}
	}
}
