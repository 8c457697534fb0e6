package idempotency

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestParseKey(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("k", MaxKeyLength)
	for header, want := range map[string]string{
		"abc": "abc", `"abc"`: "abc", " abc\t": "abc", ` "abc" `: "abc", "!": "!", "~": "~", "a,b;c=d": "a,b;c=d",
		`a"b`: `a"b`, `a\b`: `a\b`, `"a\"b"`: `a"b`, `"a\\b"`: `a\b`, `"\""`: `"`, `\"`: `\"`,
		long: long, `"` + long + `"`: long,
		// Escapes are not counted.
		`"` + strings.Repeat(`\"`, MaxKeyLength) + `"`: strings.Repeat(`"`, MaxKeyLength),
	} {
		if got, err := ParseKey(header); err != nil || got != want {
			t.Errorf("ParseKey(%q) = %q, %v; want %q", header, got, err, want)
		}
	}
	for _, header := range []string{
		"", " ", "\t", `"`, `""`, `" "`, `"abc`, `"a"b"`, `"abc"x`, `"abc";p`, `"a\b"`, `"abc\"`, `"\`, "a b", `"a b"`, "a\tb", "a\x00b",
		"a\x7f", "é", "\xff", "\u00a0abc", long + "k", `"` + long + `k"`,
	} {
		if got, err := ParseKey(header); !errors.Is(err, ErrMalformedKey) || got != "" {
			t.Errorf("ParseKey(%q) = %q, %v; want ErrMalformedKey", header, got, err)
		}
	}
}

func TestNewIDTellsScopesApart(t *testing.T) {
	t.Parallel()
	scopes := [][4]string{
		{"p", "POST", "/a", "k"},
		{"q", "POST", "/a", "k"},
		{"p", "PUT", "/a", "k"},
		{"p", "POST", "/b", "k"},
		{"p", "POST", "/a", "l"},
		// The same letters, cut elsewhere.
		{"pP", "OST", "/a", "k"},
		{"p", "POST/", "a", "k"},
		{"p", "POST", "/ak", ""},
		{"", "pPOST", "/a", "k"},
		{"p", "POST", "/", "ak"},
		{"\x00\x00\x00\x01p", "POST", "/a", "k"},
	}
	seen := map[ID][4]string{}
	for _, s := range scopes {
		id := NewID(s[0], s[1], s[2], s[3])
		if other, ok := seen[id]; ok {
			t.Errorf("%q and %q have one id", s, other)
		}
		seen[id] = s
		if id != NewID(s[0], s[1], s[2], s[3]) {
			t.Errorf("%q has two ids", s)
		}
	}
	if NewFingerprint([]byte(`{"a":1}`)) == NewFingerprint([]byte(`{"a":2}`)) {
		t.Error("two requests have one fingerprint")
	}
}

func FuzzIdempotencyKey(f *testing.F) {
	for _, seed := range []string{"", "abc", `"abc"`, `"a\"b"`, `"a\\"`, `"\`, "a b", "é", " x ", `"`, `""`, strings.Repeat("k", 256)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		key, err := ParseKey(header)
		if err != nil {
			if !errors.Is(err, ErrMalformedKey) || key != "" {
				t.Fatalf("ParseKey(%q) = %q, %v", header, key, err)
			}
			return
		}
		if len(key) == 0 || len(key) > MaxKeyLength || !utf8.ValidString(key) {
			t.Fatalf("ParseKey(%q) = %q", header, key)
		}
		for _, c := range key {
			if c < 0x21 || c > 0x7e {
				t.Fatalf("ParseKey(%q) lets %q through", header, c)
			}
		}
		// The quoted spelling of what was read is the same key, and so is the bare one where it can be told from it.
		quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
		if again, err := ParseKey(quoted); err != nil || again != key {
			t.Fatalf("ParseKey(%q) = %q, quoted %q = %q, %v", header, key, quoted, again, err)
		}
		if !strings.HasPrefix(key, `"`) {
			if again, err := ParseKey(key); err != nil || again != key {
				t.Fatalf("ParseKey(%q) = %q, bare = %q, %v", header, key, again, err)
			}
		}
	})
}

func TestBatchPanicsOnASecondDecision(t *testing.T) {
	t.Parallel()
	r := Request{ID: NewID("p", "POST", "/a", "k")}
	stored := NewBatch(nil)
	stored.Store(r, 200, nil)
	for name, b := range map[string]*Batch{"loaded": NewBatch([]Record{{Request: r}}), "stored": stored} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: a second decision was taken under one key", name)
				}
			}()
			b.Store(r, 200, nil)
		}()
	}
}
