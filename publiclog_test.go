package fairlead

import (
	"context"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/logkeeper"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// signs runs a server until its log has a checkpoint, and returns the key.
func signs(t *testing.T, o Options) string {
	t.Helper()
	s, err := Open(t.Context(), o)
	testwait.Must(t, err)
	var p logkeeper.Published
	testwait.Eventually(t, testwait.Patience, "a checkpoint", func() bool {
		p, err = postgres.NewLogReader(s.db).Published(t.Context())
		testwait.Must(t, err)
		return p.Checkpoint != "" || p.Refused != ""
	})
	testwait.Must(t, s.Close(context.WithoutCancel(t.Context())))
	if p.Refused != "" {
		t.Fatalf("nothing is signed: %s", p.Refused)
	}
	return p.Verifier
}

// TestLogKeys: all servers of a log have one key, each log has its own, also in one data directory, and a server that can't keep it signs
// nevertheless.
func TestLogKeys(t *testing.T) {
	one, other := pgtest.Server(t).URL(), pgtest.Server(t).URL()
	data := t.TempDir()
	o := Options{DatabaseURL: one, Data: data, AdminKey: strings.Repeat("k", 32), SecretsKey: strings.Repeat("ab", 32)}
	first := signs(t, o)
	o.Data = t.TempDir()
	if second := signs(t, o); second != first {
		t.Errorf("two servers of a log have the keys %s and %s", first, second)
	}
	if runtime.GOOS == "linux" { // Nobody can make a directory there.
		o.Data = "/proc/fairlead-data"
		if third := signs(t, o); third != first {
			t.Errorf("a server that keeps nothing has the key %s, not %s", third, first)
		}
	}
	o.DatabaseURL, o.Data = other, data
	next := signs(t, o)
	if next == first {
		t.Error("two logs have one key")
	}
	if again := signs(t, o); again != next {
		t.Errorf("the second log's key is %s, and then %s", next, again)
	}
	kept, err := filepath.Glob(LogKeyFile(data) + ".until-*")
	testwait.Must(t, err)
	if len(kept) != 1 {
		t.Errorf("the first log's key is kept as %q", kept)
	}
}
