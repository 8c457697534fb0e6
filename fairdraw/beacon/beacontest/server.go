// Package beacontest runs a beacon for tests: a real one, with a BLS key of its own, that signs its rounds as they come due
// and can be set to misbehave.
package beacontest

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cloudflare/circl/sign/bls"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/fairdraw/beacon"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// Fault is a way in which a server answers wrongly.
type Fault int

// The ways to misbehave; Healthy is none.
const (
	Healthy        Fault = iota
	Absent               // 404 for every round
	Unserved             // 404 for everything: the chain is not known
	Failing              // 500
	Stalling             // no answer until the request is given up
	Garbage              // 200 and no JSON
	Huge                 // 200 and a body that does not end soon
	WrongSignature       // the right round with another round's signature
	OlderRound           // a genuine round, but that before
	OtherKey             // the right round, signed with another key
	Redirecting          // 302 to itself
	Holding              // no answer before the round is due, as some relays do; not wrong
)

// Server is a beacon of the unchained scheme. Its methods may be called concurrently.
type Server struct {
	http  *httptest.Server
	key   *bls.PrivateKey[bls.KeyG2SigG1]
	chain fairdraw.Chain

	mu       sync.Mutex
	fault    Fault
	ahead    time.Duration
	only     int // the version of the API that is spoken; 0: both
	requests int
}

// New starts a server whose first round was due long ago and whose rounds are a second apart. It ends with the test.
func New(tb testing.TB) *Server {
	tb.Helper()
	const past = 1_000_000
	return NewChain(tb, tb.Name(), time.Now().Add(-past*time.Second).Unix(), 1)
}

// NewChain starts a server with a key made from secret, and with the given genesis, in Unix seconds, and period.
func NewChain(tb testing.TB, secret string, genesis int64, periodSeconds int) *Server {
	tb.Helper()
	key, err := keyFrom(secret)
	testwait.Must(tb, err)
	s := &Server{key: key}
	public, err := s.key.PublicKey().MarshalBinary()
	testwait.Must(tb, err)
	seed := sha256.Sum256([]byte(secret))
	s.chain = fairdraw.Chain{
		Scheme: beacon.SchemeUnchained, PublicKey: hex.EncodeToString(public), PeriodSeconds: periodSeconds,
		GenesisTime: genesis, GenesisSeed: hex.EncodeToString(seed[:]), BeaconID: "test",
	}
	s.http = httptest.NewServer(s)
	tb.Cleanup(func() {
		s.Set(Healthy)
		s.http.CloseClientConnections()
		s.http.Close()
	})
	return s
}

func keyFrom(secret string) (*bls.PrivateKey[bls.KeyG2SigG1], error) {
	material := sha256.Sum256([]byte(secret))
	return bls.KeyGen[bls.KeyG2SigG1](material[:], nil, nil)
}

// URL is the relay's base URL.
func (s *Server) URL() string { return s.http.URL }

// Chain describes the beacon.
func (s *Server) Chain() fairdraw.Chain { return s.chain }

// Set makes the server answer wrongly from now on.
func (s *Server) Set(f Fault) { s.set(func() { s.fault = f }) }

// SetAhead sets the server's clock that much before ours; negative: behind.
func (s *Server) SetAhead(d time.Duration) { s.set(func() { s.ahead = d }) }

// SpeakOnly makes the server speak one version of the API, 1 or 2; 0: both.
func (s *Server) SpeakOnly(version int) { s.set(func() { s.only = version }) }

func (s *Server) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// Requests is how many requests there were.
func (s *Server) Requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests
}

// Sign gives a genuine round, due or not.
func (s *Server) Sign(round uint64) fairdraw.Round { return sign(s.key, round) }

func sign(key *bls.PrivateKey[bls.KeyG2SigG1], round uint64) fairdraw.Round {
	message := sha256.Sum256(binary.BigEndian.AppendUint64(nil, round))
	return fairdraw.Round{Number: round, Signature: bls.Sign(key, message[:])}
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests++
	fault, now, only := s.fault, time.Now().Add(s.ahead), s.only
	s.mu.Unlock()
	version, number := s.route(r.URL.Path)
	switch {
	case fault == Stalling:
		<-r.Context().Done()
	case fault == Failing:
		http.Error(w, "no", http.StatusInternalServerError)
	case fault == Redirecting:
		w.Header().Set("Location", s.http.URL)
		w.WriteHeader(http.StatusFound)
	case version == info && fault != Unserved:
		_, _ = fmt.Fprint(w, "{}") // The client asks only whether the chain is served.
	case version == info || version == 0 || fault == Unserved || fault == Absent || (only != 0 && only != version):
		http.NotFound(w, r)
	case fault == Garbage:
		_, _ = fmt.Fprint(w, `<html>it works</html>`)
	case fault == Huge:
		for range 1 << 10 {
			if _, err := fmt.Fprint(w, strings.Repeat(" ", 1<<10)); err != nil {
				return // The client has had enough, as it should.
			}
		}
	case fault == Holding && number > 0 && s.chain.TimeOf(number).After(now):
		due := time.NewTimer(s.chain.TimeOf(number).Sub(now))
		defer due.Stop()
		select {
		case <-due.C:
			s.writeRound(w, Healthy, version, number)
		case <-r.Context().Done():
		}
	case number < 1 || s.chain.TimeOf(number).After(now):
		http.Error(w, "too early", http.StatusTooEarly)
	default:
		s.writeRound(w, fault, version, number)
	}
}

// info is what route calls the path of the chain's description.
const info = -1

// route parses a path: of which version of the API it is, 0 for one that is not there, and the round.
func (s *Server) route(path string) (version int, number uint64) {
	hash := s.chain.Hash()
	if path == "/"+hash+"/info" {
		return info, 0
	}
	for v, prefix := range map[int]string{2: "/v2/chains/" + hash + "/rounds/", 1: "/" + hash + "/public/"} {
		if rest, found := strings.CutPrefix(path, prefix); found {
			if n, err := strconv.ParseUint(rest, 10, 64); err == nil && n <= fairdraw.MaxBeaconRound {
				return v, n
			}
		}
	}
	return 0, 0
}

func (s *Server) writeRound(w http.ResponseWriter, fault Fault, version int, number uint64) {
	signed := s.Sign(number)
	switch fault {
	case WrongSignature:
		signed.Signature = s.Sign(number + 1).Signature
	case OlderRound:
		signed = s.Sign(number - 1)
	case Healthy, Absent, Unserved, Failing, Stalling, Garbage, Huge, Redirecting, Holding:
	case OtherKey:
		if key, err := keyFrom("other"); err == nil { // As good as ours, but the key of no chain.
			signed = sign(key, number)
		}
	}
	randomness := sha256.Sum256(signed.Signature)
	if version == 1 {
		_, _ = fmt.Fprintf(w, `{"round":%d,"randomness":"%x","signature":"%x"}`, signed.Number, randomness, signed.Signature)
		return
	}
	_, _ = fmt.Fprintf(w, `{"round":%d,"signature":"%x"}`, signed.Number, signed.Signature)
}
