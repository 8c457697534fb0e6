package main

import (
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
)

// TestPoolers: a server refuses a pooler that it can't work with, and the doctor says so with the same words.
func TestPoolers(t *testing.T) {
	t.Parallel()
	url := pgtest.Server(t).URL()
	for mode, want := range map[string]string{
		"pool_mode = transaction": "pool_mode = transaction, behind which",
		"pool_mode = statement":   "pool_mode = statement, behind which",
		"pool_mode = session\ndefault_pool_size = 9\nquery_wait_timeout = 5": "gave only 9 of the 36 connections",
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			through := pgtest.PgBouncer(t, url, mode).Through(t, url)
			_, err := execute(t, "serve", "--listen", "127.0.0.1:0", "--data", t.TempDir(), "--database-url", through)
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "36 connections") {
				t.Fatalf("serve: %v", err)
			}
			said, verdict := execute(t, "doctor", "--database-url", through)
			if verdict == nil || !strings.Contains(said, "WRONG: pooler: "+refusal(err)) || !strings.Contains(said, "NOT HEALTHY") {
				t.Errorf("doctor: %v\n%s", verdict, said)
			}
		})
	}
	t.Run("pool_mode = session", func(t *testing.T) {
		t.Parallel()
		through := pgtest.PgBouncer(t, url, "pool_mode = session", "default_pool_size = 40").Through(t, url)
		if out, err := execute(t, "migrate", "up", "--database-url", through); err != nil {
			t.Fatalf("migrate: %v\n%s", err, out)
		}
		said, err := execute(t, "doctor", "--database-url", through)
		if err != nil || !strings.Contains(said, "warning: pooler: there is a connection pooler with pool_mode = session") {
			t.Errorf("doctor: %v\n%s", err, said)
		}
	})
}

// refusal is an error's text without where it occurred.
func refusal(err error) string {
	_, text, _ := strings.Cut(err.Error(), "postgres: connect: ")
	return strings.SplitN(text, ": FATAL", 2)[0]
}
