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
