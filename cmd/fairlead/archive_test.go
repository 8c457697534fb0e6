//go:build unix

package main

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/internal/postgres/partitions/partitionstest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestKilledArchive kills an archive while it writes a file. The doctor tells of it, and the next run removes what was left, and comes to its end. A proof
// that the servers still have is none for the archives, and the error says so.
func TestKilledArchive(t *testing.T) {
	t.Parallel()
	pgtest.Needs(t, pgkit.Partitions)
	url, directory := pgtest.Server(t).URL(), t.TempDir()
	month := time.Date(time.Now().Year()-1, 1, 1, 0, 0, 0, 0, time.UTC)
	testwait.Must(t, testwait.Err(postgres.Migrate(t.Context(), url)))
	conn := pgtest.Connect(t, url)
	testwait.Must(t, partitionstest.Begin(t.Context(), conn, month.AddDate(0, 0, 14), time.Now()))
	testwait.Must(t, testwait.Err(conn.Exec(t.Context(), partitionstest.Month(month.Year(), month.Month(), 1, 10))))
	testwait.Must(t, partitionstest.Sales(t.Context(), conn, month, 0))
	binary, err := exec.LookPath("fairlead") // testscript has put it there: this test's own binary.
	testwait.Must(t, err)
	command := func(args ...string) (cmd *exec.Cmd, out, log *bytes.Buffer) {
		cmd = exec.CommandContext(t.Context(), binary, append(args, "--database-url", url)...)
		out, log = new(bytes.Buffer), new(bytes.Buffer)
		cmd.Stdout, cmd.Stderr = out, log
		return cmd, out, log
	}
	half := func() int {
		t.Helper()
		files, err := filepath.Glob(filepath.Join(directory, "*", "*.tmp"))
		testwait.Must(t, err)
		return len(files)
	}
	finds := func(want string) {
		t.Helper()
		cmd, out, log := command("doctor")
		if err := cmd.Run(); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("no %q in %v\n%s%s", want, err, out, log)
		}
	}

	for _, asJSON := range []bool{false, true} {
		args, printed := []string{"archive", "proof", partitionstest.CampaignOf(month, partitionstest.Drawn).String(), "--archives", directory}, ""
		if asJSON {
			args, printed = append(args, "--json"), `{"error":"campaign `
		}
		cmd, out, log := command(args...)
		if err := cmd.Run(); exitStatus(err) != 2 || !strings.Contains(log.String(), "its purchases are not archived: the servers have its proof") ||
			!strings.HasPrefix(out.String(), printed) || (out.Len() > 0) != asJSON {
			t.Errorf("a proof of what is not archived: %v\n%s%s", err, out, log)
		}
	}

	before := []string{"archive", "--before", month.AddDate(0, 1, 0).Format(time.DateOnly), "--to", directory}
	killed, _, log := command(append(before, "--rest", "1000000")...) // It rests after the first part of the first file.
	testwait.Must(t, killed.Start())
	testwait.Eventually(t, patience, "a file is half written", func() bool { return half() > 0 })
	testwait.Must(t, killed.Process.Kill())
	if err := killed.Wait(); err == nil || half() == 0 {
		t.Fatalf("nothing is half written: %v\n%s", err, log)
	}
	finds("warning: partitions: archive 1 was begun at ")
	finds("run it there again with --to " + directory + ": it goes on where it was")
	cmd, out, log := command(append(before, "--rest", "0")...)
	if err := cmd.Run(); err != nil || half() != 0 {
		t.Errorf("%d files are half written: %v\n%s%s", half(), err, out, log)
	}
	finds("ok: partitions: the history has partitions for what is written now, and no archive is under way")
}
