package fairdraw

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// vectorFile is testdata/vectors.json, which testdata/vectors.py computes without any of this package's code.
type vectorFile struct {
	About       string
	Commitments []struct{ Seed, Commitment string }
	Streams     []struct {
		Key, Index string
		Integers   []string
	}
	Below []struct {
		Key, Index, N, Next string
		Values              []string
	}
	Between []struct {
		Key, Index, Low, High string
		Values                []string
	}
	Samples []struct {
		Key, Index string
		N, K       int
		Chosen     []int
	}
	Weights []struct {
		Key, Index string
		Weights    []string
		Picks      []int
	}
	Operations []struct {
		Seed, Operation, Key, Index string
		Integers                    []string
	}
	Roots []struct {
		Campaign    string
		Positions   []Position
		LeafMessage string `json:"leaf_message"`
		Leaf        string
		Tree        string
		Root        string
	}
	Draws []struct {
		PrizeDigest string `json:"prize_digest"`
		Proof       json.RawMessage
	}
	Inclusions []json.RawMessage
}

func readVectors(t *testing.T) *vectorFile {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "vectors.json"))
	testwait.Must(t, err)
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	v := new(vectorFile)
	testwait.Must(t, dec.Decode(v))
	return v
}

func mustUint(t *testing.T, text string) uint64 {
	t.Helper()
	v, err := strconv.ParseUint(text, 10, 64)
	testwait.Must(t, err)
	return v
}

func mustInt(t *testing.T, text string) int64 {
	t.Helper()
	v, err := strconv.ParseInt(text, 10, 64)
	testwait.Must(t, err)
	return v
}

func TestVectorsStream(t *testing.T) {
	v := readVectors(t)
	for _, c := range v.Commitments {
		seed, err := ParseSeed(c.Seed)
		if err != nil || seed.Commitment() != c.Commitment || seed.Hex() != c.Seed {
			t.Errorf("commitment of %s: %s, %v; want %s", c.Seed, seed.Commitment(), err, c.Commitment)
		}
	}
	for _, c := range v.Streams {
		s := NewStream(mustBytes32(t, c.Key), mustUint(t, c.Index))
		for i, want := range c.Integers {
			if got := s.Uint64(); got != mustUint(t, want) {
				t.Errorf("stream %s: integer %d is %d, want %s", c.Index, i, got, want)
			}
		}
	}
	for _, c := range v.Below {
		s := NewStream(mustBytes32(t, c.Key), mustUint(t, c.Index))
		for i, want := range c.Values {
			if got := s.Uint64n(mustUint(t, c.N)); got != mustUint(t, want) {
				t.Errorf("below %s: value %d is %d, want %s", c.N, i, got, want)
			}
		}
		if got := s.Uint64(); got != mustUint(t, c.Next) {
			t.Errorf("below %s: then %d, want %s", c.N, got, c.Next)
		}
	}
	for _, c := range v.Between {
		s := NewStream(mustBytes32(t, c.Key), mustUint(t, c.Index))
		for i, want := range c.Values {
			if got, err := s.Between(mustInt(t, c.Low), mustInt(t, c.High)); err != nil || got != mustInt(t, want) {
				t.Errorf("between %s and %s: value %d is %d, %v; want %s", c.Low, c.High, i, got, err, want)
			}
		}
	}
}

func TestVectorsSelection(t *testing.T) {
	v := readVectors(t)
	for _, c := range v.Samples {
		got, err := Sample(NewStream(mustBytes32(t, c.Key), mustUint(t, c.Index)), c.N, c.K)
		if err != nil || !reflect.DeepEqual(got, c.Chosen) {
			t.Errorf("sample %d of %d: %v, %v; want %v", c.K, c.N, got, err, c.Chosen)
		}
	}
	for _, c := range v.Weights {
		weights := make([]uint64, len(c.Weights))
		for i, w := range c.Weights {
			weights[i] = mustUint(t, w)
		}
		w, err := NewWeights(weights)
		testwait.Must(t, err)
		s := NewStream(mustBytes32(t, c.Key), mustUint(t, c.Index))
		for i, want := range c.Picks {
			if got := w.Pick(s); got != want {
				t.Errorf("weights %v: pick %d is %d, want %d", c.Weights, i, got, want)
			}
		}
	}
	for _, c := range v.Operations {
		seed, err := ParseSeed(c.Seed)
		testwait.Must(t, err)
		op, err := NewOperation(seed, c.Operation)
		if err != nil || op.key != mustBytes32(t, c.Key) {
			t.Errorf("operation %s: key %x, %v; want %s", c.Operation, op.key, err, c.Key)
		}
		at := op.At(mustUint(t, c.Index))
		for i, want := range c.Integers {
			if got := at.Uint64(); got != mustUint(t, want) {
				t.Errorf("operation %s at %s: integer %d is %d, want %s", c.Operation, c.Index, i, got, want)
			}
		}
	}
}

func TestVectorsTree(t *testing.T) {
	v := readVectors(t)
	for _, c := range v.Roots {
		message := appendLeaf(nil, &c.Positions[len(c.Positions)-1])
		if got := hex.EncodeToString(message); got != c.LeafMessage {
			t.Errorf("leaf message %d: %s, want %s", len(c.Positions), got, c.LeafMessage)
		}
		if leaf := sha256.Sum256(message); hex.EncodeToString(leaf[:]) != c.Leaf {
			t.Errorf("leaf %d: %x, want %s", len(c.Positions), leaf, c.Leaf)
		}
		if got := sealTree(c.Campaign, len(c.Positions), mustBytes32(t, c.Tree)); hex.EncodeToString(got[:]) != c.Root {
			t.Errorf("sealed tree of %d: %x, want %s", len(c.Positions), got, c.Root)
		}
		if got, err := Root(c.Campaign, c.Positions); err != nil || hex.EncodeToString(got[:]) != c.Root {
			t.Errorf("root of %d: %x, %v; want %s", len(c.Positions), got, err, c.Root)
		}
	}
	for _, doc := range v.Inclusions {
		want, err := ParseInclusionProof(doc)
		testwait.Must(t, err)
		if err := want.Verify(mustBytes32(t, want.Root)); err != nil {
			t.Errorf("inclusion of %d in %d: %v", want.Index, want.Size, err)
		}
		got, err := Include(want.Campaign, vectorPositions(v, want.Size), want.Index)
		testwait.Must(t, err)
		if gotDoc, wantDoc := compact(t, got), compact(t, doc); !bytes.Equal(gotDoc, wantDoc) {
			t.Errorf("inclusion of %d in %d:\n got %s\nwant %s", want.Index, want.Size, gotDoc, wantDoc)
		}
	}
}

// vectorPositions gives the list of positions that the vectors were made on.
func vectorPositions(v *vectorFile, size int) []Position { return v.Roots[size-1].Positions }

// compact writes JSON without regard to white space and escapes.
func compact(t *testing.T, v any) []byte {
	t.Helper()
	raw, err := json.Marshal(v)
	testwait.Must(t, err)
	var tree any
	testwait.Must(t, json.Unmarshal(raw, &tree))
	if raw, err = json.Marshal(tree); err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestVectorsDraw(t *testing.T) {
	for i, c := range readVectors(t).Draws {
		want, err := ParseProof(c.Proof)
		if err != nil {
			t.Fatalf("draw %d: %v", i, err)
		}
		if err := want.Verify(); err != nil {
			t.Errorf("draw %d: %v", i, err)
		}
		if got := prizeDigest(want.Prizes); hex.EncodeToString(got[:]) != c.PrizeDigest {
			t.Errorf("draw %d: prize digest %x, want %s", i, got, c.PrizeDigest)
		}
		in, err := want.input()
		testwait.Must(t, err)
		res, err := Draw(*in)
		if err != nil {
			t.Fatalf("draw %d: %v", i, err)
		}
		got := NewProof(*in, res)
		if gotDoc, wantDoc := compact(t, got), compact(t, c.Proof); !bytes.Equal(gotDoc, wantDoc) {
			t.Errorf("draw %d:\n got %s\nwant %s", i, gotDoc, wantDoc)
		}
	}
}

// TestDesignPageVectors holds the page that strangers implement from to the vectors: every hash on it is one of theirs.
func TestDesignPageVectors(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "docs", "design", "fairdraw.md"))
	testwait.Must(t, err)
	vectors, err := os.ReadFile(filepath.Join("testdata", "vectors.json"))
	testwait.Must(t, err)
	rounds, err := os.ReadFile(filepath.Join("beacon", "testdata", "rounds.json"))
	testwait.Must(t, err)
	vectors = append(vectors, rounds...)
	page = regexp.MustCompile(`(?m)^(quicknet|default) +[0-9a-f]{64}$`).ReplaceAll(page, nil) // Package beacon knows the chains.
	values := regexp.MustCompile(`\b([0-9a-f]{56,}|[0-9]{16,20})\b`).FindAll(page, -1)
	if len(values) < 30 {
		t.Errorf("only %d values on the page", len(values))
	}
	for _, value := range values {
		if !bytes.Contains(vectors, append(append([]byte{'"'}, value...), '"')) {
			t.Errorf("%s is on the page and not among the vectors", value)
		}
	}
}

// TestSecondVerifier gives proofs that this package made to the Python implementation, and altered ones too.
func TestSecondVerifier(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed; the stored vectors were still checked")
	}
	script := filepath.Join("testdata", "vectors.py")
	run := func(verb string, doc []byte) ([]byte, error) {
		file := filepath.Join(t.TempDir(), "proof.json")
		testwait.Must(t, os.WriteFile(file, doc, 0o600))
		return exec.CommandContext(t.Context(), python, script, verb, file).CombinedOutput()
	}
	if out, err := exec.CommandContext(t.Context(), python, script, "--check").CombinedOutput(); err != nil {
		t.Errorf("vectors.json is not what vectors.py computes: %v %s", err, out)
	}
	in := testInput()
	in.Positions = triangle(20)
	in.Campaign = "<campaign> & \u2028 \U0001f388"
	_, doc := mustProof(t, in)
	if out, err := run("--verify", doc); err != nil {
		t.Errorf("a true proof: %v %s", err, out)
	}
	altered := bytes.Replace(doc, []byte(`"number":7`), []byte(`"number":8`), 1)
	if out, err := run("--verify", altered); err == nil {
		t.Errorf("an altered proof: %s", out)
	}
	ip, err := Include(in.Campaign, in.Positions, 209)
	testwait.Must(t, err)
	if out, err := run("--verify-inclusion", compact(t, ip)); err != nil {
		t.Errorf("a true inclusion proof: %v %s", err, out)
	}
}
