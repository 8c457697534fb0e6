//go:build unix

package sim_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/tally"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/internal/torture"
)

// TestTorture has two servers meet the faults that fairlead torture can cause: some of them, or all in a long run.
func TestTorture(t *testing.T) {
	rng, seed := testwait.Rand(t)
	var rows []torture.Row
	for _, r := range torture.Rows() {
		// To be killed, a server needs somebody who starts it again.
		if r.Cannot == "" && r.Name != tally.ServerKilled {
			rows = append(rows, r)
		}
	}
	first := newServer(t, "")
	second := newServer(t, databaseOf(t, first))
	pid := filepath.Join(t.TempDir(), "pid")
	testwait.Must(t, os.WriteFile(pid, []byte(second.PID()+"\n"), 0o600))
	picked := map[string]bool{}
	for _, i := range rng.Perm(len(rows))[:testwait.Count(2, len(rows))] {
		picked[rows[i].Name] = true
	}
	for i, row := range rows {
		t.Run(row.Name, func(t *testing.T) {
			if !picked[row.Name] {
				t.Skip("a short run takes two of them")
			}
			// A slow machine needs longer until a fault has happened.
			for lasts := time.Duration(testwait.Count(2, 120)) * time.Second; ; lasts *= 2 {
				r, err := torture.Run(testwait.Context(t, 10*patience), torture.Options{
					URLs: []string{first.URL(), second.URL()}, Key: sim.AdminKey, DatabaseURL: databaseOf(t, first), Processes: []string{pid},
					Row: row.Name, For: lasts, Seed: seed + uint64(i),
				})
				testwait.Must(t, err)
				testwait.Recorder(t).Include(r.Count)
				t.Logf("%+v", r)
				happened := r.Tries > 0 && r.Acknowledged > 0
				if !r.Sound() || !happened && lasts > patience {
					t.Fatalf("%d tries, %d acknowledged:\n%s", r.Tries, r.Acknowledged, strings.Join(r.Wrong, "\n"))
				}
				if happened {
					return
				}
			}
		})
	}
}
