package fairdraw

import (
	"bytes"
	"encoding/json"
	"errors"
	"iter"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// row gives n positions of one layer.
func row(n int) []Position {
	out := make([]Position, n)
	for i := range out {
		out[i] = Position{ID: "p-" + string(rune('a'+i%26)), Layer: 1, Number: i + 1, Account: "acct"}
	}
	return out
}

func treeOf(t *testing.T, positions []Position) *Tree {
	t.Helper()
	b, err := NewTreeBuilder("c-1")
	testwait.Must(t, err)
	for _, p := range positions {
		testwait.Must(t, b.Add(p))
	}
	tree, err := b.Tree()
	testwait.Must(t, err)
	return tree
}

// TestTree proves every position of lists around the sizes at which the tree changes its shape.
func TestTree(t *testing.T) {
	sizes := []int{1, 2, 3, 63, 64, 65, 127, 128, 129, 191, 192, 193, 255, 256, 257, 4095, 4096, 4097, 4160, 4161}
	for _, n := range sizes {
		positions := row(n)
		root, tree := rootOf("c-1", positions), treeOf(t, positions)
		if tree.Root() != root || tree.Size() != n {
			t.Fatalf("%d positions: root %x of %d, want %x", n, tree.Root(), tree.Size(), root)
		}
		for i := range positions {
			from, to := tree.Tile(i)
			ip, err := tree.Include(i, positions[from:to])
			if err != nil {
				t.Fatalf("%d of %d: %v", i, n, err)
			}
			if ip.Position != positions[i] {
				t.Fatalf("%d of %d: the proof of %v", i, n, ip.Position)
			}
			if err := ip.Verify(root); err != nil {
				t.Fatalf("%d of %d: %v", i, n, err)
			}
		}
	}
}

func TestTreeRefusals(t *testing.T) {
	positions := row(70)
	tree := treeOf(t, positions)
	other := row(70)
	other[3].Account = "another"
	for name, include := range map[string]func() (*InclusionProof, error){
		"an index before the list":  func() (*InclusionProof, error) { return tree.Include(-1, positions[:64]) },
		"an index after the list":   func() (*InclusionProof, error) { return tree.Include(70, positions[64:]) },
		"another tile":              func() (*InclusionProof, error) { return tree.Include(65, positions[:6]) },
		"too few positions":         func() (*InclusionProof, error) { return tree.Include(0, positions[:63]) },
		"a position of another":     func() (*InclusionProof, error) { return tree.Include(0, other[:64]) },
		"a position that was moved": func() (*InclusionProof, error) { return Include("c-1", append(row(2), row(1)...), 0) },
	} {
		var bad *InputError
		if ip, err := include(); !errors.As(err, &bad) {
			t.Errorf("%s: %v, %v", name, ip, err)
		}
	}
	b, err := NewTreeBuilder("c-1")
	testwait.Must(t, err)
	if _, err := b.Tree(); err == nil {
		t.Error("a tree of nothing")
	}
	for _, p := range []Position{{}, {ID: "p", Layer: 1, Number: 0, Account: "a"}, {ID: "p", Layer: 1, Number: 1, Account: "\n"}} {
		if err := b.Add(p); err == nil {
			t.Errorf("%v was added", p)
		}
	}
	if _, err := NewTreeBuilder(""); err == nil {
		t.Error("a campaign without a name")
	}
}

func sequence(positions []Position) iter.Seq2[Position, error] {
	return func(yield func(Position, error) bool) {
		for _, p := range positions {
			if !yield(p, nil) {
				return
			}
		}
	}
}

// TestWriteJSON compares what is written piece by piece with what is written at once.
func TestWriteJSON(t *testing.T) {
	p, want := mustProof(t, testInput())
	positions := p.Positions
	p.Positions = nil
	var got bytes.Buffer
	testwait.Must(t, p.WriteJSON(&got, sequence(positions)))
	if !bytes.Equal(got.Bytes(), want) {
		t.Fatalf("written:\n%s\nmarshalled:\n%s", got.Bytes(), want)
	}
	// Text that is spelled in another way is the same text.
	in := testInput()
	in.Prizes[0].Name, in.Positions[0].Account = `<b>"&'`+"\u2028", `a<b>&"\`
	p, _ = mustProof(t, in)
	got.Reset()
	testwait.Must(t, p.WriteJSON(&got, sequence(p.Positions)))
	read, err := ParseProof(got.Bytes())
	testwait.Must(t, err)
	testwait.Must(t, read.Verify())
	wantDoc, _ := json.Marshal(p)
	gotDoc, _ := json.Marshal(read)
	if !bytes.Equal(gotDoc, wantDoc) {
		t.Fatalf("read back:\n%s\nwant:\n%s", gotDoc, wantDoc)
	}
	got.Reset()
	empty := Proof{}
	testwait.Must(t, empty.WriteJSON(&got, sequence(nil)))
	if want, _ := json.Marshal(&empty); !bytes.Equal(got.Bytes(), want) {
		t.Fatalf("written:\n%s\nmarshalled:\n%s", got.Bytes(), want)
	}
}

// TestWriteJSONFails checks that the errors of positions and writer are returned.
func TestWriteJSONFails(t *testing.T) {
	p, _ := mustProof(t, testInput())
	boom := errors.New("boom")
	err := p.WriteJSON(&bytes.Buffer{}, func(yield func(Position, error) bool) { yield(Position{}, boom) })
	if !errors.Is(err, boom) {
		t.Errorf("positions that fail: %v", err)
	}
	if err := p.WriteJSON(failingWriter{boom}, sequence(row(10_000))); !errors.Is(err, boom) {
		t.Errorf("a writer that fails: %v", err)
	}
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }
