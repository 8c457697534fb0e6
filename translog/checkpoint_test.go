package translog_test

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/translog"
)

// aTree is the head of a tree of n leaves, with a root that depends on the text.
func aTree(n int64, text string) tlog.Tree { return tlog.Tree{N: n, Hash: sha256.Sum256([]byte(text))} }

func sign(tb testing.TB, k *translog.Key, tree tlog.Tree) string {
	tb.Helper()
	checkpoint, err := k.Sign(tree)
	testwait.Must(tb, err)
	return checkpoint
}

func cosign(tb testing.TB, c *translog.Cosigner, checkpoint string) (line string) {
	tb.Helper()
	text, _, _ := strings.Cut(checkpoint, "\n\n")
	line, err := c.Cosign(text + "\n")
	testwait.Must(tb, err)
	return line
}

// cosignAt is a cosignature made by the bytes of the specification, by nothing but the standard library, at any time.
func cosignAt(name string, seed [32]byte, checkpoint string, at uint64) (line, vkey string) {
	key := ed25519.NewKeyFromSeed(seed[:])
	public := append([]byte{4}, key[32:]...)
	sum := sha256.Sum256(slices.Concat([]byte(name), []byte{'\n'}, public))
	text, _, _ := strings.Cut(checkpoint, "\n\n")
	message := fmt.Sprintf("cosignature/v1\ntime %d\n%s\n", at, text)
	blob := slices.Concat(sum[:4], binary.BigEndian.AppendUint64(nil, at), ed25519.Sign(key, []byte(message)))
	return fmt.Sprintf("— %s %s\n", name, base64.StdEncoding.EncodeToString(blob)),
		fmt.Sprintf("%s+%x+%s", name, sum[:4], base64.StdEncoding.EncodeToString(public))
}

func TestSignAndOpen(t *testing.T) {
	t.Parallel()
	k, w1, w2, stranger := newKey(t, "log.example.com"), newCosigner(t, "w1"), newCosigner(t, "w2"), newCosigner(t, "stranger")
	tree := aTree(20852163, "root")
	checkpoint := sign(t, k, tree)
	if want := fmt.Sprintf("log.example.com\n20852163\n%s\n\n— log.example.com ", tree.Hash); !strings.HasPrefix(checkpoint, want) || strings.Count(checkpoint, "\n") != 5 {
		t.Fatalf("%q", checkpoint)
	}
	known := []string{w1.Verifier(), w2.Verifier(), w1.Verifier()}
	c, err := translog.Open(checkpoint, k.Verifier(), known...)
	testwait.Must(t, err)
	if c.Origin != "log.example.com" || c.Tree != tree || c.Note != checkpoint || c.Extension != "" || len(c.Cosignatures) != 0 {
		t.Errorf("%+v", c)
	}
	before := time.Now().Truncate(time.Second)
	signed := checkpoint + cosign(t, stranger, checkpoint) + cosign(t, w1, checkpoint)
	after := time.Now()
	c, err = translog.Open(signed, k.Verifier(), known...)
	testwait.Must(t, err)
	if len(c.Cosignatures) != 1 || c.Cosignatures[0].Name != "w1" || c.Cosignatures[0].Key != w1.Verifier() {
		t.Fatalf("%+v", c.Cosignatures)
	}
	if at := c.Cosignatures[0].At; at.Before(before) || at.After(after) || at.Location() != time.UTC {
		t.Errorf("at %v", at)
	}
	// Package note and torchwood read it, too.
	plain, err := note.NewVerifier(k.Verifier())
	testwait.Must(t, err)
	n, err := note.Open([]byte(signed), note.VerifierList(plain))
	testwait.Must(t, err)
	head, err := torchwood.ParseCheckpoint(n.Text)
	testwait.Must(t, err)
	if head.Tree != tree {
		t.Errorf("%+v", head)
	}
	// The empty tree has one root.
	root, err := tlog.TreeHash(0, nil)
	testwait.Must(t, err)
	sign(t, k, tlog.Tree{Hash: root})
	for _, none := range []tlog.Tree{{}, aTree(0, "x"), aTree(-1, "x"), aTree(translog.MaxTreeSize+1, "x")} {
		if _, err := k.Sign(none); !errors.Is(err, translog.ErrMalformed) {
			t.Errorf("%v: %v", none, err)
		}
	}
}

// TestCosignatureBytes: what a cosigner signs is what the specification says, byte by byte.
func TestCosignatureBytes(t *testing.T) {
	t.Parallel()
	k, w := newKey(t, "log"), newCosigner(t, "w")
	checkpoint := sign(t, k, aTree(9, "x"))
	line := cosign(t, w, checkpoint)
	name, b64, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(line, "— "), "\n"), " ")
	blob, err := base64.StdEncoding.DecodeString(b64)
	testwait.Must(t, err)
	if name != "w" || len(blob) != 4+8+64 {
		t.Fatalf("%q", line)
	}
	_, rest, _ := strings.Cut(w.Verifier(), "+")
	hash, key64, _ := strings.Cut(rest, "+")
	public, err := base64.StdEncoding.DecodeString(key64)
	testwait.Must(t, err)
	text, _, _ := strings.Cut(checkpoint, "\n\n")
	message := fmt.Sprintf("cosignature/v1\ntime %d\n%s\n", binary.BigEndian.Uint64(blob[4:12]), text)
	if public[0] != 4 || fmt.Sprintf("%x", blob[:4]) != hash || !ed25519.Verify(public[1:], []byte(message), blob[12:]) {
		t.Errorf("%q does not verify %q", line, message)
	}
	// And what is made by those bytes is read.
	made, vkey := cosignAt("plain", [32]byte{7}, checkpoint, 1700000000)
	c, err := translog.Open(checkpoint+made, k.Verifier(), vkey)
	testwait.Must(t, err)
	if len(c.Cosignatures) != 1 || !c.Cosignatures[0].At.Equal(time.Unix(1700000000, 0)) {
		t.Errorf("%+v", c.Cosignatures)
	}
	// torchwood's own signer and verifier agree.
	signer, err := torchwood.NewCosignatureSigner("plain", ed25519.NewKeyFromSeed(slices.Concat([]byte{7}, make([]byte, 31))))
	testwait.Must(t, err)
	if signer.Verifier().String() != vkey {
		t.Errorf("torchwood's key is %s, not %s", signer.Verifier(), vkey)
	}
	if n, err := note.Open([]byte(checkpoint+made), note.VerifierList(signer.Verifier())); err != nil || len(n.Sigs) != 1 {
		t.Errorf("%+v, %v", n, err)
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	k, other, w := newKey(t, "log"), newKey(t, "other"), newCosigner(t, "w")
	good := sign(t, k, aTree(5, "x"))
	signed := good + cosign(t, w, good)
	resign := func(text string) string {
		dir := t.TempDir() + "/key"
		testwait.Must(t, k.WriteFile(dir))
		return signText(t, dir, text)
	}
	root := base64.StdEncoding.EncodeToString(make([]byte, 32))
	atZero, vkeyZero := cosignAt("z", [32]byte{1}, good, 0)
	atLast, _ := cosignAt("z", [32]byte{1}, good, math.MaxInt64)
	atMax, _ := cosignAt("z", [32]byte{1}, good, math.MaxUint64)
	for name, it := range map[string]struct {
		text string
		want error
	}{
		"empty":                            {"", translog.ErrMalformed},
		"unsigned":                         {strings.SplitAfter(good, "\n\n")[0], translog.ErrMalformed},
		"another log's":                    {sign(t, other, aTree(5, "x")), translog.ErrUnsigned},
		"another root":                     {strings.Replace(good, aTree(5, "x").Hash.String(), aTree(5, "y").Hash.String(), 1), translog.ErrBadSignature},
		"another size":                     {strings.Replace(good, "\n5\n", "\n6\n", 1), translog.ErrBadSignature},
		"another origin, signed by it":     {resign("other\n5\n" + root + "\n"), translog.ErrOtherLog},
		"a cosignature of another tree":    {good + cosign(t, w, sign(t, k, aTree(5, "y"))), translog.ErrBadSignature},
		"a cosignature without a time":     {good + atZero, translog.ErrBadSignature},
		"a cosignature at the end of time": {good + atLast, translog.ErrBadSignature},
		"a cosignature after it":           {good + atMax, translog.ErrBadSignature},
		"cut":                              {signed[:len(signed)-1], translog.ErrMalformed},
		"no checkpoint":                    {resign("log\nfive\n" + root + "\n"), translog.ErrMalformed},
		"a leading zero":                   {resign("log\n05\n" + root + "\n"), translog.ErrMalformed},
		"a short root":                     {resign("log\n5\nAAAA\n"), translog.ErrMalformed},
		"another root's spelling":          {resign("log\n5\n" + root[:42] + "B=\n"), translog.ErrMalformed},
		"a size beyond all":                {resign("log\n9223372036854775807\n" + root + "\n"), translog.ErrMalformed},
		"no leaves and a root":             {resign("log\n0\n" + root + "\n"), translog.ErrEmptyRoot},
		"control characters":               {strings.Replace(good, "log", "l\rg", 1), translog.ErrMalformed},
		"too long":                         {good + strings.Repeat("— a AAAAAAAA\n", translog.MaxNoteBytes/10), translog.ErrMalformed},
		"too many signatures":              {good + strings.Repeat("— a AAAAAAAA\n", 200), translog.ErrMalformed},
	} {
		if c, err := translog.Open(it.text, k.Verifier(), w.Verifier(), vkeyZero); !errors.Is(err, it.want) || c != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if c, err := translog.Open(resign("log\n5\n"+root+"\nmore\n"), k.Verifier()); err != nil || c.Extension != "more\n" {
		t.Errorf("further lines: %+v, %v", c, err)
	}
	for name, keys := range map[string][]string{"the log's": {"x"}, "a witness's": {k.Verifier(), "x"}} {
		if _, err := translog.Open(good, keys[0], keys[1:]...); !errors.Is(err, translog.ErrBadKey) {
			t.Errorf("%s key: %v", name, err)
		}
	}
	if _, err := translog.Open(good, w.Verifier()); !errors.Is(err, translog.ErrWrongKind) {
		t.Error(err)
	}
}

// TestAddCosignatures: the result does not depend on the order, and nothing is added twice or unverified.
func TestAddCosignatures(t *testing.T) {
	t.Parallel()
	k, stranger := newKey(t, "log"), newCosigner(t, "stranger")
	checkpoint := sign(t, k, aTree(5, "x"))
	a1, vkeyA := cosignAt("a", [32]byte{1}, checkpoint, 1000)
	a2, _ := cosignAt("a", [32]byte{1}, checkpoint, 2000)
	b, vkeyB := cosignAt("b", [32]byte{2}, checkpoint, 1500)
	unknown := cosign(t, stranger, checkpoint)
	keys := []string{vkeyB, vkeyA}
	want := checkpoint + a1 + b
	for _, lines := range [][]string{{a1, b}, {b, a1}, {b + a1}, {a2, b, unknown, a1}, {unknown, a1, a2, b, b}} {
		got, err := translog.AddCosignatures(checkpoint, keys, lines...)
		testwait.Must(t, err)
		if got != want {
			t.Errorf("%q", got)
		}
		for _, more := range []string{"", a2, a1 + b, unknown} {
			if again, err := translog.AddCosignatures(got, keys, more); err != nil || again != want {
				t.Errorf("%q, %v", again, err)
			}
		}
	}
	// Signatures of the note that nobody knows stay, where they are.
	got, err := translog.AddCosignatures(checkpoint+unknown+b, keys, a1)
	testwait.Must(t, err)
	if got != checkpoint+unknown+a1+b {
		t.Errorf("%q", got)
	}
	c, err := translog.Open(got, k.Verifier(), keys...)
	testwait.Must(t, err)
	if len(c.Cosignatures) != 2 || c.Cosignatures[0].Name != "a" || c.Cosignatures[0].At.Unix() != 1000 {
		t.Errorf("%+v", c.Cosignatures)
	}
	otherTree, _ := cosignAt("a", [32]byte{1}, sign(t, k, aTree(6, "x")), 1000)
	noTime, _ := cosignAt("a", [32]byte{1}, checkpoint, 0)
	for name, it := range map[string]struct {
		note, line string
		want       error
	}{
		"of another tree": {checkpoint, otherTree, translog.ErrBadSignature},
		"without a time":  {checkpoint, noTime, translog.ErrBadSignature},
		"garbage":         {checkpoint, "<html>\n", translog.ErrMalformed},
		"no line feed":    {checkpoint, strings.TrimSuffix(a1, "\n"), translog.ErrMalformed},
		"an empty line":   {checkpoint, "\n" + a1, translog.ErrMalformed},
		"no checkpoint":   {"hello\n\n" + a1, a1, translog.ErrMalformed},
		"too much":        {checkpoint, strings.Repeat(unknown, translog.MaxNoteBytes/100), translog.ErrMalformed},
	} {
		if got, err := translog.AddCosignatures(it.note, keys, it.line); !errors.Is(err, it.want) || got != "" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// FuzzOpen: whatever is read as a checkpoint is signed, in canonical form and within the limits, and takes cosignatures.
func FuzzOpen(f *testing.F) {
	k := newKey(f, "log")
	checkpoint := sign(f, k, aTree(5, "x"))
	line, vkey := cosignAt("a", [32]byte{1}, checkpoint, 1000)
	f.Add(checkpoint)
	f.Add(checkpoint + line)
	f.Add(line + checkpoint)
	f.Add("log\n5\n\n" + line)
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		_, _ = translog.AddCosignatures(text, []string{vkey}, line)
		c, err := translog.Open(text, k.Verifier(), vkey)
		if err != nil {
			if !errors.Is(err, translog.ErrMalformed) && !errors.Is(err, translog.ErrUnsigned) && !errors.Is(err, translog.ErrBadSignature) && !errors.Is(err, translog.ErrOtherLog) {
				t.Errorf("an error without a type: %v", err)
			}
			return
		}
		// Nobody has the key: what verifies is what was signed above, perhaps with other signatures.
		body, _, _ := strings.Cut(checkpoint, "\n\n")
		if c.Tree != aTree(5, "x") || c.Note != text || len(text) > translog.MaxNoteBytes || !strings.HasPrefix(text, body) {
			t.Errorf("%+v", c)
		}
		if _, err := translog.AddCosignatures(text, []string{vkey}, line); err != nil && len(text)+len(line) <= translog.MaxNoteBytes && strings.Count(text, "\n—") < 100 {
			t.Error(err)
		}
	})
}
