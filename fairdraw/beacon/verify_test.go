package beacon_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/cloudflare/circl/ecc/bls12381"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/fairdraw/beacon"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// recorded is a round as drand published it.
type recorded struct {
	Round      uint64 `json:"round"`
	Signature  string `json:"signature"`
	Previous   string `json:"previous_signature"`
	Randomness string `json:"randomness"`
}

func (r recorded) round(t *testing.T) fairdraw.Round {
	t.Helper()
	out := fairdraw.Round{Number: r.Round}
	var err, err2 error
	out.Signature, err = hex.DecodeString(r.Signature)
	if r.Previous != "" {
		out.Previous, err2 = hex.DecodeString(r.Previous)
	}
	if err = errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	return out
}

// published reads the recorded rounds by the name of their chain.
func published(t *testing.T) map[string][]recorded {
	t.Helper()
	data, err := os.ReadFile("testdata/rounds.json")
	testwait.Must(t, err)
	raw := map[string]json.RawMessage{}
	testwait.Must(t, json.Unmarshal(data, &raw))
	out := map[string][]recorded{}
	for _, name := range []string{"quicknet", "default"} {
		var rounds []recorded
		if err := json.Unmarshal(raw[name], &rounds); err != nil || len(rounds) < 2 {
			t.Fatalf("%s: %d rounds, %v", name, len(rounds), err)
		}
		out[name] = rounds
	}
	return out
}

func TestTheKnownChainsAreThePublishedOnes(t *testing.T) {
	t.Parallel()
	for hash, c := range map[string]fairdraw.Chain{
		"52db9ba70e0cc0f6eaf7803dd07447a1f5477735fd3f661792ba94600c84e971": beacon.Quicknet(),
		"8990e7a9aaed2ffed73dbd7092123d6f289930540d7651336225dc172e51b2ce": beacon.Default(),
	} {
		if err := beacon.Check(c); err != nil || c.Hash() != hash {
			t.Errorf("%s: hash %s, %v", c.BeaconID, c.Hash(), err)
		}
		if known, ok := beacon.Known(hash); !ok || known != c {
			t.Errorf("%s is not known", c.BeaconID)
		}
		if named, ok := beacon.Named(c.BeaconID); !ok || named != c {
			t.Errorf("%s is not found by its name", c.BeaconID)
		}
	}
	if _, ok := beacon.Known("00"); ok {
		t.Error("a chain of no hash")
	}
}

// TestPublishedRoundsVerify is the test against the real networks.
func TestPublishedRoundsVerify(t *testing.T) {
	t.Parallel()
	for name, rounds := range published(t) {
		c, ok := beacon.Named(name)
		if !ok {
			t.Fatal(name)
		}
		for _, rec := range rounds {
			r := rec.round(t)
			if err := beacon.Verify(c, r); err != nil {
				t.Errorf("%s %d: %v", name, r.Number, err)
			}
			// Drand's randomness is the hash, which shows that the record is whole.
			if sum := sha256.Sum256(r.Signature); rec.Randomness != "" && rec.Randomness != hex.EncodeToString(sum[:]) {
				t.Errorf("%s %d: the record's randomness differs", name, r.Number)
			}
			for what, altered := range alterations(r) {
				if err := beacon.Verify(c, altered); !errors.Is(err, beacon.ErrBadSignature) {
					t.Errorf("%s %d with %s: %v", name, r.Number, what, err)
				}
			}
		}
	}
}

// alterations are rounds that look like r and are not.
func alterations(r fairdraw.Round) map[string]fairdraw.Round {
	flip := func(b []byte, at int, mask byte) []byte {
		b = slices.Clone(b)
		b[at] ^= mask
		return b
	}
	out := map[string]fairdraw.Round{
		"the next number":      {Number: r.Number + 1, Signature: r.Signature, Previous: r.Previous},
		"the number before":    {Number: r.Number - 1, Signature: r.Signature, Previous: r.Previous},
		"no number":            {Number: 0, Signature: r.Signature, Previous: r.Previous},
		"a number beyond all":  {Number: 1 << 60, Signature: r.Signature, Previous: r.Previous},
		"no signature":         {Number: r.Number, Previous: r.Previous},
		"half a signature":     {Number: r.Number, Signature: r.Signature[:len(r.Signature)/2], Previous: r.Previous},
		"a longer signature":   {Number: r.Number, Signature: append(slices.Clone(r.Signature), 0), Previous: r.Previous},
		"the other root":       {Number: r.Number, Signature: flip(r.Signature, 0, 0x20), Previous: r.Previous},
		"the flag of infinity": {Number: r.Number, Signature: flip(r.Signature, 0, 0x40), Previous: r.Previous},
		"no compression":       {Number: r.Number, Signature: flip(r.Signature, 0, 0x80), Previous: r.Previous},
		"infinity":             {Number: r.Number, Signature: append([]byte{0xc0}, make([]byte, len(r.Signature)-1)...), Previous: r.Previous},
	}
	for _, at := range []int{1, len(r.Signature) / 2, len(r.Signature) - 1} {
		out[fmt.Sprintf("signature byte %d", at)] = fairdraw.Round{Number: r.Number, Signature: flip(r.Signature, at, 1), Previous: r.Previous}
	}
	if len(r.Previous) > 0 {
		out["another previous signature"] = fairdraw.Round{Number: r.Number, Signature: r.Signature, Previous: flip(r.Previous, 9, 1)}
		out["no previous signature"] = fairdraw.Round{Number: r.Number, Signature: r.Signature}
		out["a short previous signature"] = fairdraw.Round{Number: r.Number, Signature: r.Signature, Previous: r.Previous[1:]}
	} else {
		out["a previous signature"] = fairdraw.Round{Number: r.Number, Signature: r.Signature, Previous: []byte{1}}
	}
	return out
}

// TestOneEncodingOnly holds that the same point in its other encoding is refused: the library would take it, and whoever
// passes the round on could choose between two draws.
func TestOneEncodingOnly(t *testing.T) {
	t.Parallel()
	r := published(t)["quicknet"][0].round(t)
	var point bls12381.G1
	testwait.Must(t, point.SetBytes(r.Signature))
	r.Signature = point.Bytes() // not compressed
	if err := beacon.Verify(beacon.Quicknet(), r); !errors.Is(err, beacon.ErrBadSignature) {
		t.Error(err)
	}
}

func TestChainsThatAreRefused(t *testing.T) {
	t.Parallel()
	r := published(t)["quicknet"][0].round(t)
	q, d := beacon.Quicknet(), beacon.Default()
	for field, change := range map[string]func(c *fairdraw.Chain){
		"public_key":   func(c *fairdraw.Chain) { c.PublicKey = d.PublicKey },
		"genesis_seed": func(c *fairdraw.Chain) { c.GenesisSeed = "zz" },
		"period":       func(c *fairdraw.Chain) { c.PeriodSeconds = 0 },
		"genesis_time": func(c *fairdraw.Chain) { c.GenesisTime = 0 },
		"beacon_id":    func(c *fairdraw.Chain) { c.BeaconID = "" },
		"scheme":       func(c *fairdraw.Chain) { c.Scheme = "" },
	} {
		c := q
		change(&c)
		var bad *fairdraw.InputError
		if err := beacon.Check(c); !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("check of another %s: %v", field, err)
		}
		if err := beacon.Verify(c, r); !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("verify with another %s: %v", field, err)
		}
	}
	other := q
	other.Scheme = "bls-bn254-unchained-on-g1"
	if err := beacon.Check(other); !errors.Is(err, beacon.ErrUnknownScheme) {
		t.Error(err)
	}
	if err := beacon.Verify(other, r); !errors.Is(err, beacon.ErrUnknownScheme) {
		t.Error(err)
	}
	// A point of the curve that is outside the subgroup is no key: small orders would sign anything.
	off := q
	off.PublicKey = "8" + q.PublicKey[1:len(q.PublicKey)-1] + "b"
	if err := beacon.Check(off); err == nil {
		t.Error("a key that is no point of the group")
	}
}

func TestTrust(t *testing.T) {
	t.Parallel()
	r := published(t)["quicknet"][0].round(t)
	q := beacon.Quicknet()
	testwait.Check(t, beacon.Trust()(q, r))
	mine := q
	mine.BeaconID = "mine" // The key is right, but no such chain is known.
	if err := beacon.Trust()(mine, r); !errors.Is(err, beacon.ErrUntrusted) {
		t.Error(err)
	}
	testwait.Check(t, beacon.Trust(mine.Hash())(mine, r))
	r.Number++
	if err := beacon.Trust()(q, r); !errors.Is(err, beacon.ErrBadSignature) {
		t.Error(err)
	}
	other := q
	other.Scheme = "another"
	var diff *fairdraw.Difference
	if err := beacon.Trust()(other, r); !errors.As(err, &diff) || diff.Field != "beacon.scheme" {
		t.Error(err)
	}
}

func TestParseChain(t *testing.T) {
	t.Parallel()
	q := beacon.Quicknet()
	v2, err := json.Marshal(q)
	testwait.Must(t, err)
	v1 := fmt.Sprintf(`{"public_key":%q,"period":3,"genesis_time":1692803367,"hash":%q,"groupHash":%q,"schemeID":%q,"metadata":{"beaconID":"quicknet"}}`,
		q.PublicKey, q.Hash(), q.GenesisSeed, q.Scheme)
	for _, doc := range []string{string(v2), v1} {
		if c, err := beacon.ParseChain([]byte(doc)); err != nil || c != q {
			t.Errorf("%+v, %v", c, err)
		}
	}
	for _, doc := range []string{
		``, `[]`, `{}`, `{"chain_hash":"00",` + string(v2[1:]), `{"hash":"` + beacon.Default().Hash() + `",` + string(v2[1:]),
	} {
		if _, err := beacon.ParseChain([]byte(doc)); err == nil {
			t.Errorf("%s: taken", doc)
		}
	}
}

// TestTimes holds rounds to the times that drand documents, and the rounding to the side that nobody knows yet.
func TestTimes(t *testing.T) {
	t.Parallel()
	q := beacon.Quicknet()
	genesis := time.Unix(1692803367, 0)
	if at := q.TimeOf(1); !at.Equal(genesis) {
		t.Error(at)
	}
	if at := q.TimeOf(27946612); !at.Equal(time.Unix(1692803367+3*27946611, 0)) {
		t.Error(at)
	}
	for ahead, want := range map[time.Duration]uint64{
		-time.Hour: 1, 0: 1, 1: 2, time.Second: 2, 3 * time.Second: 2, 3*time.Second + 1: 3, 6 * time.Second: 3,
	} {
		if n := q.FirstFrom(genesis.Add(ahead)); n != want {
			t.Errorf("first round from genesis + %v: %d, want %d", ahead, n, want)
		}
	}
	now := genesis.Add(100*time.Second + time.Microsecond)
	for lead, least := range map[time.Duration]time.Duration{0: 3 * time.Second, -time.Hour: 3 * time.Second, time.Minute: time.Minute} {
		n := q.NameRound(now, lead)
		if ahead := q.TimeOf(n).Sub(now); ahead < least || ahead > least+q.Period() {
			t.Errorf("lead %v: round %d is %v ahead", lead, n, ahead)
		}
	}
	if at := q.TimeOf(fairdraw.MaxBeaconRound); at.Before(genesis) {
		t.Error(at)
	}
}
