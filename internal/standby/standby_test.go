package standby

import (
	"errors"
	"testing"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Position{"0/0": 0, "16/B374D848": 0x16_B374D848, "ffffffff/FFFFFFFF": 1<<64 - 1, "0/00000001": 1} {
		if got, err := Parse(text); err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "/", "1", "1/", "/1", "1/2/3", "g/0", "0/-1", "+1/0", " 1/0", "123456789/0", "0/1FFFFFFFF"} {
		if got, err := Parse(text); !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

// TestAllowed: a standby may answer a request's reads until it could not answer one.
func TestAllowed(t *testing.T) {
	t.Parallel()
	if _, _, ok := Allowed(t.Context()); ok {
		t.Error("a standby may answer what nobody has allowed it")
	}
	ctx, used := Allow(t.Context(), 7)
	for i, byStandby := range []bool{true, true, false} {
		after, answered, ok := Allowed(ctx)
		if after != 7 || !ok || used() != (i > 0) {
			t.Fatalf("read %d: after %v, allowed: %v, used: %v", i, after, ok, used())
		}
		answered(byStandby)
	}
	if _, _, ok := Allowed(ctx); ok || !used() {
		t.Errorf("after the primary was asked, a standby may answer: %v, has answered: %v", ok, used())
	}
}

func FuzzParse(f *testing.F) {
	f.Add("16/B374D848")
	f.Add("0/0")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Parse(text)
		if err != nil {
			return
		}
		if again, err := Parse(p.String()); err != nil || again != p {
			t.Errorf("%q: %v, then %v, %v", text, p, again, err)
		}
	})
}
