//go:build unix

package sim_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/archive"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/internal/postgres/partitions"
	"github.com/fairlead-dev/fairlead/internal/postgres/partitions/partitionstest"
	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/tally"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// longAgo makes a database with the history of two months that are over.
func longAgo(ctx context.Context, url string) error {
	if _, err := postgres.Migrate(ctx, url); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	now := time.Now()
	err = partitionstest.Begin(ctx, conn, time.Date(now.Year(), now.Month()-3, 15, 0, 0, 0, 0, time.UTC), now)
	for months := time.Month(3); months >= 2 && err == nil; months-- {
		month := time.Date(now.Year(), now.Month()-months, 1, 0, 0, 0, 0, time.UTC)
		if _, err = conn.Exec(ctx, partitionstest.Month(month.Year(), month.Month(), 1, 1000)); err == nil {
			err = errors.Join(partitionstest.Holds(ctx, conn, month), partitionstest.Sales(ctx, conn, month, 0))
		}
	}
	return errors.Join(err, conn.Close(ctx))
}

// archiveVerb runs fairlead archive. It may be told to kill itself at a crash point.
func archiveVerb(t *testing.T, database, directory, at string) (r archive.Result, said string, err error) {
	t.Helper()
	cmd := exec.CommandContext(testwait.Context(t, patience), binary(t), "archive", "--json", "--before", "0s", "--purchases", "--rest", "0", "--to", directory, "--database-url", database)
	cmd.Env = append(os.Environ(), "FAIRLEAD_CRASH_AT="+at)
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	if err = cmd.Run(); err == nil {
		err = json.Unmarshal(out.Bytes(), &r)
	}
	return r, out.String() + log.String(), err
}

// TestArchivesAreMadeThroughEveryCrash kills fairlead archive at each named place, under load, and then lets it come to its end. The books are valid
// after each death. In the end, everything that was archived is brought back from the files, and the auditor finds nothing missing and nothing double.
func TestArchivesAreMadeThroughEveryCrash(t *testing.T) {
	beside(t)
	pgtest.Needs(t, pgkit.Partitions)
	_, seed := testwait.Rand(t)
	for range testwait.Count(1, 50) {
		database := pgtest.NewDatabase(t, longAgo)
		server := newServer(t, database, "--close-books-every", "1s")
		asks, history := newClient(t, server)
		history.Scope.Prefix = "archive-"
		l := startLoad(t, asks, sim.WorkloadOptions{
			Seed: seed, Prefix: "archive", Accounts: 6, Workers: 3, Mix: sim.Mix{Transfers: 20, Legs: 5, Holds: 15, Deposits: 5, Withdrawals: 5},
		})
		directory := t.TempDir()
		dies := func(at string) {
			t.Helper()
			_, said, err := archiveVerb(t, database, directory, at)
			exit, ok := errors.AsType[*exec.ExitError](err)
			if !ok {
				t.Fatalf("fairlead archive is not dead at %s: %v\n%s", at, err, said)
			}
			if status, ok := exit.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
				t.Fatalf("fairlead archive at %s: %v\n%s", at, err, said)
			}
			testwait.Recorder(t).Fault(tally.Crash(at), time.Now())
			if in := integrityOf(t, asks); !in.Valid {
				t.Fatalf("after the death at %s: %+v", at, in)
			}
		}
		lives := func() {
			t.Helper()
			if _, said, err := archiveVerb(t, database, directory, ""); err != nil {
				t.Fatalf("fairlead archive: %v\n%s", err, said)
			}
		}
		for _, at := range []string{"archive.sealed", "archive.copied", "archive.carried", "archive.detached", "archive.copied", "archive.detached"} {
			dies(at)
		}
		lives()
		monthLater(t, database)
		dies("holds.turned")
		dies("holds.moved")
		lives()
		if in := integrityOf(t, asks); !in.Valid {
			t.Fatalf("after all: %+v", in)
		}
		l.finish(t)
		cmd := exec.CommandContext(testwait.Context(t, patience), binary(t), "integrity", "--archives", directory, "--database-url", database)
		if text, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(text, []byte(" archives, 4072 entries, 2036 transfers, 696 closed holds, 14 purchases in 4 campaigns\n")) {
			t.Fatalf("fairlead integrity --archives: %v\n%s", err, text)
		}
		bringBack(t, database, directory)
		closeBooks(t, database, asks, history, 1)
	}
}

// monthLater has the next turn of the table of holds be due.
func monthLater(t *testing.T, database string) {
	t.Helper()
	conn := pgtest.Connect(t, database)
	testwait.Eventually(t, patience, "the server has settled its turn", func() bool {
		tag, err := conn.Exec(t.Context(), `UPDATE hold_turns SET settled_at = settled_at - interval '40 days' WHERE number = 3 AND settled_at IS NOT NULL`)
		testwait.Must(t, err)
		return tag.RowsAffected() == 1
	})
}

// bringBack puts what is in the files back into the tables, and forgets the archives.
func bringBack(t *testing.T, database, directory string) {
	t.Helper()
	conn := pgtest.Connect(t, database)
	exec := func(sql string) { t.Helper(); testwait.Must(t, testwait.Err(conn.Exec(t.Context(), sql))) }
	manifests, err := filepath.Glob(filepath.Join(directory, "*", "manifest.json"))
	testwait.Must(t, err)
	exec(`DELETE FROM archive_sums; DELETE FROM archives`)
	for _, path := range manifests {
		text, err := os.ReadFile(path)
		testwait.Must(t, err)
		var m archive.Manifest
		testwait.Must(t, json.Unmarshal(text, &m))
		exec(fmt.Sprintf(`DROP TABLE transfers_kept_%d`, m.Archive))
		for _, f := range m.Files {
			if f.Table != partitions.ClosedHolds {
				exec(fmt.Sprintf(`ALTER TABLE %s_rest DROP CONSTRAINT IF EXISTS begins`, f.Table))
			}
			zip, err := unzipped(filepath.Join(filepath.Dir(path), f.Name))
			testwait.Must(t, err)
			tag, err := conn.PgConn().CopyFrom(t.Context(), zip, fmt.Sprintf(`COPY %s FROM STDIN (FORMAT csv, HEADER)`, f.Table)) // The rest takes it.
			testwait.Must(t, err)
			if tag.RowsAffected() != f.Rows {
				t.Errorf("%s: %v, and had %d rows", path, tag, f.Rows)
			}
		}
	}
}

func unzipped(path string) (io.Reader, error) {
	file, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return gzip.NewReader(bytes.NewReader(file))
}
