package main

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// TestTurns runs each side in each shape, small. A turn fails by itself where an item is left over, or done twice.
func TestTurns(t *testing.T) {
	t.Parallel()
	for _, side := range []string{sideFairlead, sideRiver} {
		for _, shape := range []string{shapeWork, shapeSchedule} {
			t.Run(side+" "+shape, func(t *testing.T) {
				t.Parallel()
				var out bytes.Buffer
				args := []string{
					"--side=" + side, "--shape=" + shape, "--database-url=" + pgtest.NewDatabase(t, nil), "--items=300", "--workers=100", "--callers=4",
					"--pool=4", "--warmup=10ms", "--measure=200ms",
				}
				if err := run(t.Context(), args, strings.NewReader("go\n"), &out); err != nil {
					t.Fatal(err)
				}
				ready, rest, _ := strings.Cut(out.String(), "\n")
				var r Report
				if err := json.Unmarshal([]byte(rest), &r); err != nil || ready != "ready" || r.Done < 1 || r.Seconds <= 0 || shape == shapeWork && r.Done != 300 {
					t.Errorf("%s, %v", out.String(), err)
				}
			})
		}
	}
	if err := run(t.Context(), []string{"--side=other", "--shape=work"}, strings.NewReader(""), &bytes.Buffer{}); err == nil {
		t.Error("an unknown side was taken")
	}
}
