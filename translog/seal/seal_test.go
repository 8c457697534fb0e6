package seal_test

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/fairdraw/beacon"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/translog"
	"github.com/fairlead-dev/fairlead/translog/seal"
)

// vector is the proof that the verifiers in all languages read. TestVector makes it; FAIRLEAD_WRITE_VECTORS writes it.
const vector = "testdata/sealed.json"

// quicknet is drand's chain, of which round 42 was due at 15:11:30.
func quicknet() (fairdraw.Chain, fairdraw.Round) {
	signature, err := hex.DecodeString("95a9f9f5b231b7714de1553105d8ffdf3dcda24cfdb1e689319bccf79a9c8ce430a91b811fbfaf763900bc998b5d686a")
	if err != nil {
		panic(err)
	}
	return fairdraw.Chain{
		Scheme:        "bls-unchained-g1-rfc9380",
		PublicKey:     "83cf0f2896adee7eb8b5f01fcad3912212c437e0073e911fb90022d3e760183c8c4b450b6a0a6c3ac6a5776a2d1064510d1fec758c921cc22b0e17e63aaf4bcb5ed66304de9cf809bd274ca73bab4af5a6e9c76a4bc09e76eae8991ef5ece45a",
		PeriodSeconds: 3, GenesisTime: 1692803367, GenesisSeed: "f477d5c89f21a17c863a7f937c6a6d15859414d2be09cd448d4279af331c5d3e", BeaconID: "quicknet",
	}, fairdraw.Round{Number: 42, Signature: signature}
}

// due is when it was.
var due = time.Date(2023, 8, 23, 15, 11, 30, 0, time.UTC)

func positions() []fairdraw.Position {
	return []fairdraw.Position{{ID: "a", Layer: 1, Number: 1, Account: "ann"}, {ID: "b", Layer: 1, Number: 2, Account: "ben"}}
}

// leaf is the seal's in the log.
func leaf(tb testing.TB, at time.Time) []byte {
	tb.Helper()
	root, err := fairdraw.Root("c", positions())
	testwait.Must(tb, err)
	l := translog.Leaf{
		Type: "campaign.sealed", Topic: "campaign:c", Seq: 2, At: at,
		Data: fmt.Appendf(nil, `{"positions":2,"root":"%x","round":42,"due_at":"2023-08-23T15:11:30.000000Z"}`, root),
	}
	entries, _, err := l.Entries(nil, nil)
	testwait.Must(tb, err)
	return entries[0]
}

// place puts an entry into a log of so many, whose others say nothing.
func place(tb testing.TB, k *translog.Key, entry []byte, index, size int64) *fairdraw.Seal {
	tb.Helper()
	var stored []tlog.Hash
	read := tlog.HashReaderFunc(func(indexes []int64) (out []tlog.Hash, err error) {
		for _, i := range indexes {
			out = append(out, stored[i])
		}
		return out, nil
	})
	for i := range size {
		data := fmt.Appendf(nil, "entry %d", i)
		if i == index {
			data = entry
		}
		hashes, err := tlog.StoredHashes(i, data, read)
		testwait.Must(tb, err)
		stored = append(stored, hashes...)
	}
	root, err := tlog.TreeHash(size, read)
	testwait.Must(tb, err)
	proof, err := tlog.ProveRecord(size, index, read)
	testwait.Must(tb, err)
	checkpoint, err := k.Sign(tlog.Tree{N: size, Hash: root})
	testwait.Must(tb, err)
	s := &fairdraw.Seal{Leaf: base64.StdEncoding.EncodeToString(entry), Index: index, Checkpoint: checkpoint}
	for _, h := range proof {
		s.Inclusion = append(s.Inclusion, hex.EncodeToString(h[:]))
	}
	return s
}

func logKey(tb testing.TB, origin string) *translog.Key {
	tb.Helper()
	seed := sha256.Sum256([]byte("key of " + origin))
	k, err := translog.NewKey(origin, ed25519.NewKeyFromSeed(seed[:]))
	testwait.Must(tb, err)
	return k
}

// cosign adds a witness's signature of a time, and returns the witness's key. It is made by nothing but the standard library.
func cosign(s *fairdraw.Seal, name string, at time.Time) (vkey string) {
	seed := sha256.Sum256([]byte("key of " + name))
	key := ed25519.NewKeyFromSeed(seed[:])
	public := append([]byte{4}, key[32:]...)
	sum := sha256.Sum256(slices.Concat([]byte(name), []byte{'\n'}, public))
	text, _, _ := strings.Cut(s.Checkpoint, "\n\n")
	message := fmt.Sprintf("cosignature/v1\ntime %d\n%s\n", at.Unix(), text)
	blob := slices.Concat(sum[:4], binary.BigEndian.AppendUint64(nil, uint64(at.Unix())), ed25519.Sign(key, []byte(message)))
	s.Checkpoint += fmt.Sprintf("— %s %s\n", name, base64.StdEncoding.EncodeToString(blob))
	return fmt.Sprintf("%s+%x+%s", name, sum[:4], base64.StdEncoding.EncodeToString(public))
}

// proofOf is a draw that the round decided, with the seal.
func proofOf(tb testing.TB, s *fairdraw.Seal) *fairdraw.Proof {
	tb.Helper()
	chain, round := quicknet()
	in := fairdraw.Input{Campaign: "c", Seed: fairdraw.Seed{1}, Beacon: round.Signature, Positions: positions(), Prizes: []fairdraw.Prize{{Name: "p", Quantity: 1}}}
	res, err := fairdraw.Draw(in)
	testwait.Must(tb, err)
	p := fairdraw.NewSealedProof(in, res, chain, round, *s)
	testwait.Must(tb, p.VerifyBeacon(beacon.Trust()))
	return p
}

// scene is the vector's: two witnesses in time, and one too late.
func scene(tb testing.TB) (p *fairdraw.Proof, keys seal.Keys) {
	tb.Helper()
	k := logKey(tb, "log.example.com/shop")
	s := place(tb, k, leaf(tb, due.Add(-3500*time.Millisecond)), 5, 7)
	keys = seal.Keys{Log: k.Verifier(), Quorum: 2, Witnesses: []string{
		cosign(s, "late.example/w0", due), cosign(s, "witness.example/w1", due.Add(-time.Second)), cosign(s, "witness.example/w2", due.Add(-2*time.Second)),
	}}
	return proofOf(tb, s), keys
}

func TestVector(t *testing.T) {
	t.Parallel()
	p, keys := scene(t)
	made, err := json.MarshalIndent(map[string]any{"log_key": keys.Log, "witnesses": keys.Witnesses, "proof": p}, "", " ")
	testwait.Must(t, err)
	made = append(made, '\n')
	if os.Getenv("FAIRLEAD_WRITE_VECTORS") != "" {
		testwait.Must(t, os.WriteFile(vector, made, 0o600))
	}
	kept, err := os.ReadFile(vector)
	testwait.Must(t, err)
	if string(kept) != string(made) {
		t.Errorf("%s is not what is made now", vector)
	}
}

func TestASealThatWitnessesHaveSeen(t *testing.T) {
	t.Parallel()
	p, keys := scene(t)
	got, err := seal.Verify(p, keys)
	testwait.Must(t, err)
	if got.Origin != "log.example.com/shop" || got.Index != 5 || got.Size != 7 || !got.Signed || got.Signatures != 4 || len(got.By) != 2 || got.Before() != time.Second ||
		got.By[0].Name != "witness.example/w2" || !got.DueAt.Equal(due) || !got.SealedAt.Equal(due.Add(-3500*time.Millisecond)) {
		t.Errorf("%+v", got)
	}
	// Without keys, what needs none is verified.
	got, err = seal.Verify(p, seal.Keys{})
	if err != nil || got.Signed || len(got.By) != 0 || got.Signatures != 4 || got.Before() != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	got, err = seal.Verify(p, seal.Keys{Log: keys.Log})
	if err != nil || !got.Signed || len(got.By) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	// One witness alone, whose time it then is.
	if got, err = seal.Verify(p, seal.Keys{Log: keys.Log, Witnesses: keys.Witnesses[2:], Quorum: 1}); err != nil || got.Before() != 2*time.Second {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestASealThatDoesNotFollow(t *testing.T) {
	t.Parallel()
	k := logKey(t, "log.example.com/shop")
	whole, keys := scene(t)
	is := func(want error, what string, change func(p *fairdraw.Proof, keys *seal.Keys)) {
		t.Helper()
		p, sealed, asked := *whole, *whole.Seal, keys
		sealed.Inclusion = slices.Clone(sealed.Inclusion)
		p.Seal = &sealed
		change(&p, &asked)
		if _, err := seal.Verify(&p, asked); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	is(seal.ErrMissing, "no seal", func(p *fairdraw.Proof, _ *seal.Keys) { p.Seal = nil })
	is(seal.ErrUnseen, "three asked for, and two in time", func(_ *fairdraw.Proof, keys *seal.Keys) { keys.Quorum = 3 })
	is(translog.ErrUnsigned, "another log's key", func(_ *fairdraw.Proof, keys *seal.Keys) { keys.Log = logKey(t, "other").Verifier() })
	is(translog.ErrBadKey, "witnesses of no log", func(_ *fairdraw.Proof, keys *seal.Keys) { keys.Log = "" })
	is(seal.ErrWrong, "another campaign", func(p *fairdraw.Proof, _ *seal.Keys) { p.Campaign = "d" })
	is(seal.ErrWrong, "another root", func(p *fairdraw.Proof, _ *seal.Keys) { p.Root = strings.Repeat("00", 32) })
	is(seal.ErrWrong, "another round", func(p *fairdraw.Proof, _ *seal.Keys) {
		source := *p.Source
		source.Round++
		p.Source = &source
	})
	is(seal.ErrWrong, "a round at the end of time", func(p *fairdraw.Proof, _ *seal.Keys) {
		source := *p.Source
		source.Round = fairdraw.MaxBeaconRound
		p.Source = &source
	})
	is(seal.ErrWrong, "fewer positions", func(p *fairdraw.Proof, _ *seal.Keys) { p.Positions = p.Positions[:1] })
	is(seal.ErrWrong, "another entry", func(p *fairdraw.Proof, _ *seal.Keys) { p.Seal.Index = 4 })
	is(seal.ErrWrong, "an entry behind the end", func(p *fairdraw.Proof, _ *seal.Keys) { p.Seal.Index = 7 })
	is(seal.ErrWrong, "a negative entry", func(p *fairdraw.Proof, _ *seal.Keys) { p.Seal.Index = -1 })
	is(seal.ErrWrong, "a path cut short", func(p *fairdraw.Proof, _ *seal.Keys) { p.Seal.Inclusion = p.Seal.Inclusion[1:] })
	is(seal.ErrWrong, "another hash", func(p *fairdraw.Proof, _ *seal.Keys) { p.Seal.Inclusion[0] = strings.Repeat("00", 32) })
	is(seal.ErrWrong, "no hash", func(p *fairdraw.Proof, _ *seal.Keys) { p.Seal.Inclusion[0] = "zz" })
	is(seal.ErrWrong, "no base64", func(p *fairdraw.Proof, _ *seal.Keys) { p.Seal.Leaf = "?" })
	is(seal.ErrWrong, "a leaf with more", func(p *fairdraw.Proof, _ *seal.Keys) {
		p.Seal.Leaf = base64.StdEncoding.EncodeToString([]byte(`{"type":"campaign.sealed"}`))
	})
	is(seal.ErrWrong, "a leaf sealed too late", func(p *fairdraw.Proof, _ *seal.Keys) {
		p.Seal = place(t, k, leaf(t, due.Add(-3*time.Second+time.Microsecond)), 0, 1)
	})
	for from, to := range map[string]string{"\n7\n": "\n07\n", "\n\n": "\nmore\n\n", "log.example.com": "log\x00", "=\n\n": "\n\n", "— late": "- late"} {
		is(seal.ErrWrong, fmt.Sprintf("a checkpoint with %q", to), func(p *fairdraw.Proof, _ *seal.Keys) {
			p.Seal.Checkpoint = strings.Replace(p.Seal.Checkpoint, from, to, 1)
		})
	}
	is(seal.ErrWrong, "no signature", func(p *fairdraw.Proof, _ *seal.Keys) {
		p.Seal.Checkpoint, _, _ = strings.Cut(p.Seal.Checkpoint, "—")
	})
	// What was signed is the whole text: another log's name, with the same tree.
	is(translog.ErrBadSignature, "a witness that signed something else", func(p *fairdraw.Proof, keys *seal.Keys) {
		p.Seal = place(t, k, leaf(t, due.Add(-4*time.Second)), 0, 1)
		other := place(t, k, leaf(t, due.Add(-5*time.Second)), 0, 1)
		keys.Witnesses, keys.Quorum = []string{cosign(other, "w", due.Add(-3*time.Second))}, 1
		_, line, _ := strings.Cut(other.Checkpoint, "— w ")
		p.Seal.Checkpoint += "— w " + line
	})
	// In a log of one leaf the path is empty.
	p := proofOf(t, place(t, k, leaf(t, due.Add(-3*time.Second)), 0, 1))
	if got, err := seal.Verify(p, seal.Keys{Log: k.Verifier()}); err != nil || got.Size != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	again, err := json.Marshal(p)
	testwait.Must(t, err)
	read, err := fairdraw.ParseProof(again)
	testwait.Must(t, err)
	if read.Seal.Leaf != p.Seal.Leaf || len(read.Seal.Inclusion) != 0 {
		t.Errorf("%+v", read.Seal)
	}
}
