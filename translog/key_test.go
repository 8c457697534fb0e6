package translog_test

import (
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"

	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/translog"
)

func newKey(tb testing.TB, origin string) *translog.Key {
	tb.Helper()
	k, err := translog.GenerateKey(origin)
	testwait.Must(tb, err)
	return k
}

func newCosigner(tb testing.TB, name string) *translog.Cosigner {
	tb.Helper()
	c, err := translog.GenerateCosigner(name)
	testwait.Must(tb, err)
	return c
}

// TestKeyFile keeps both kinds of keys in files and reads them again, as themselves and never as each other.
func TestKeyFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	logFile, witnessFile := filepath.Join(dir, "log.key"), filepath.Join(dir, "witness.key")
	k, c := newKey(t, "log.example.com/shop"), newCosigner(t, "witness.example.com/w1")
	testwait.Must(t, k.WriteFile(logFile))
	testwait.Must(t, c.WriteFile(witnessFile))

	again, err := translog.ReadKey(logFile)
	testwait.Must(t, err)
	if again.Verifier() != k.Verifier() || again.Origin() != "log.example.com/shop" {
		t.Errorf("%s %s", again.Origin(), again.Verifier())
	}
	cosigner, err := translog.ReadCosigner(witnessFile)
	testwait.Must(t, err)
	if cosigner.Verifier() != c.Verifier() || cosigner.Name() != "witness.example.com/w1" {
		t.Errorf("%s %s", cosigner.Name(), cosigner.Verifier())
	}
	if _, err := translog.ReadKey(witnessFile); !errors.Is(err, translog.ErrWrongKind) {
		t.Errorf("a witness's key for a log: %v", err)
	}
	if _, err := translog.ReadCosigner(logFile); !errors.Is(err, translog.ErrWrongKind) {
		t.Errorf("a log's key for a witness: %v", err)
	}
	// The text is that of x/mod's package note.
	text, err := os.ReadFile(logFile)
	testwait.Must(t, err)
	if _, err := note.NewSigner(strings.TrimSpace(string(text))); err != nil {
		t.Errorf("package note refuses %q: %v", text, err)
	}
	if info, err := os.Stat(logFile); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	// A key that is there stays.
	if err := newKey(t, "other").WriteFile(logFile); !errors.Is(err, os.ErrExist) {
		t.Errorf("over a key: %v", err)
	}
	if now, err := os.ReadFile(logFile); err != nil || string(now) != string(text) {
		t.Errorf("the key was replaced: %v", err)
	}
}

func TestExposedKeyIsRefused(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "log.key")
	testwait.Must(t, newKey(t, "log").WriteFile(file))
	for _, mode := range []os.FileMode{0o644, 0o640, 0o620, 0o601} {
		testwait.Must(t, os.Chmod(file, mode))
		if _, err := translog.ReadKey(file); !errors.Is(err, translog.ErrKeyExposed) || !strings.Contains(err.Error(), "chmod 600 "+file) {
			t.Errorf("mode %o: %v", mode, err)
		}
	}
	testwait.Must(t, os.Chmod(file, 0o400))
	if _, err := translog.ReadKey(file); err != nil {
		t.Errorf("mode 400: %v", err)
	}
}

// TestDamagedKeys: no damaged file is a key, and no error shows what may be a secret.
func TestDamagedKeys(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "log.key")
	testwait.Must(t, newKey(t, "log").WriteFile(file))
	raw, err := os.ReadFile(file)
	testwait.Must(t, err)
	whole := strings.TrimSuffix(string(raw), "\n")
	parts := strings.SplitN(whole, "+", 5)
	secret := parts[4]
	for name, text := range map[string]string{
		"empty": "", "cut": whole[:len(whole)-7], "another name": strings.Replace(whole, "+log+", "+lag+", 1), "a verifier key": newKey(t, "log").Verifier(),
		"another hash": "PRIVATE+KEY+log+00000000+" + secret, "two keys": whole + "\n" + whole, "spaces": " " + whole, "no base64": "PRIVATE+KEY+log+" + parts[3] + "+!" + secret,
		"short": "PRIVATE+KEY+log+" + parts[3] + "+" + base64.StdEncoding.EncodeToString([]byte{1, 2, 3}), "long": strings.Repeat("x", 10_000), "bytes": "\x00\xff\n",
	} {
		damaged := filepath.Join(t.TempDir(), "damaged.key")
		testwait.Must(t, os.WriteFile(damaged, []byte(text), 0o600))
		_, err := translog.ReadKey(damaged)
		if !errors.Is(err, translog.ErrBadKey) || !strings.Contains(err.Error(), damaged) || strings.Contains(err.Error(), secret[:20]) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := translog.ReadKey(filepath.Join(t.TempDir(), "absent")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("absent: %v", err)
	}
	for _, name := range []string{"", "two words", "a+b", "a\nb", "a\x01b", "a\u00a0b", "a\xffb", strings.Repeat("n", translog.MaxNameBytes+1)} {
		if _, err := translog.GenerateKey(name); !errors.Is(err, translog.ErrBadKey) {
			t.Errorf("the name %.20q: %v", name, err)
		}
		if _, err := translog.GenerateCosigner(name); !errors.Is(err, translog.ErrBadKey) {
			t.Errorf("the name %.20q: %v", name, err)
		}
	}
}

func TestVerifierKeys(t *testing.T) {
	t.Parallel()
	k, c := newKey(t, "log"), newCosigner(t, "witness")
	if origin, err := translog.LogKeyName(k.Verifier()); err != nil || origin != "log" {
		t.Errorf("%q, %v", origin, err)
	}
	if name, err := translog.WitnessKeyName(c.Verifier()); err != nil || name != "witness" {
		t.Errorf("%q, %v", name, err)
	}
	if _, err := translog.LogKeyName(c.Verifier()); !errors.Is(err, translog.ErrWrongKind) {
		t.Error(err)
	}
	if _, err := translog.WitnessKeyName(k.Verifier()); !errors.Is(err, translog.ErrWrongKind) {
		t.Error(err)
	}
	// The example of the specification of signed notes.
	if name, err := translog.LogKeyName("example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k"); err != nil || name != "example.com/foo" {
		t.Errorf("%q, %v", name, err)
	}
	for _, bad := range []string{
		"", "log", "example.com/foo+530d903b+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k", "example.com/foo+530D903A+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k",
		"example.com/fo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k", k.Verifier() + "\n", " " + k.Verifier(), k.Verifier()[1:],
	} {
		if _, err := translog.LogKeyName(bad); !errors.Is(err, translog.ErrBadKey) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// signText signs any text with the key of a file, as package note does.
func signText(tb testing.TB, file, text string) string {
	tb.Helper()
	raw, err := os.ReadFile(file)
	testwait.Must(tb, err)
	signer, err := note.NewSigner(strings.TrimSpace(string(raw)))
	testwait.Must(tb, err)
	signed, err := note.Sign(&note.Note{Text: text}, signer)
	testwait.Must(tb, err)
	return string(signed)
}
