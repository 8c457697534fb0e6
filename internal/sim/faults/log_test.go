//go:build unix

package faults_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/fairlead-dev/fairlead"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/translog"
)

// TestLogRefused starts a server whose data directory knows of a larger log than the database has, as after a restore of the database. It
// signs nothing until the log is renewed.
func TestLogRefused(t *testing.T) {
	torture(t)
	database := newDatabase(t)
	server := newServer(t, database, "--leader-ttl", "1s")
	s := newStage(t, database, server)
	server.kill(t)
	key, err := translog.ReadKey(fairlead.LogKeyFile(server.DataDir()))
	testwait.Must(t, err)
	lost, err := key.Sign(tlog.Tree{N: 1 << 20, Hash: tlog.RecordHash([]byte("lost"))})
	testwait.Must(t, err)
	testwait.Must(t, os.WriteFile(fairlead.LogSignedFile(server.DataDir()), []byte(lost), 0o600))
	s.breaks()
	server.start(t)
	s.fires("FairleadLogRefused")
	const reason = "this server has seen 1048576 leaves, which are not all there"
	if said := s.operator.runs(t, sectionOf(t, "FairleadLogRefused"), "fairlead log show"); !strings.Contains(said, "NOT SIGNED any more: "+reason) {
		t.Error("the reason is not shown")
	}
	page := sectionIn(t, restoresPage, "The public log")
	if said, err := s.operator.tries(t, page.command(t, "fairlead doctor")); err == nil || !strings.Contains(said, "WRONG: log: no checkpoint of the public log is signed: "+reason) {
		t.Errorf("doctor is content: %v", err)
	}
	page.says(t, "Stop all servers")
	server.kill(t)
	said := s.operator.runs(t, page, "fairlead log renew", "fairlead-data", server.DataDir())
	renewed, err := translog.ReadKey(fairlead.LogKeyFile(server.DataDir()))
	testwait.Must(t, err)
	if renewed.Verifier() == key.Verifier() || !strings.Contains(said, renewed.Verifier()) || !strings.Contains(said, key.Verifier()) {
		t.Errorf("the key was %s and is %s", key.Verifier(), renewed.Verifier())
	}
	server.start(t)
	testwait.Eventually(t, patience, "a checkpoint of the new key", func() bool {
		_, checkpoint := server.tries(t.Context(), http.MethodGet, "/log/checkpoint", "")
		_, err := translog.Open(string(checkpoint), renewed.Verifier())
		return err == nil
	})
	s.ends("FairleadLogRefused", "fairlead log renew")
	if said, _ := s.operator.tries(t, page.command(t, "fairlead doctor")); strings.Contains(said, "WRONG: log:") {
		t.Error("doctor is not content")
	}
}

// TestBooksUnbalanced changes a balance by hand. The next closing of the books finds it.
func TestBooksUnbalanced(t *testing.T) {
	torture(t)
	database := newDatabase(t)
	server := newServer(t, database, "--close-books-every", "1s")
	server.accounts(t, "ann", "ben")
	server.posts(t, "/v1/holds", `{"account":"ann","amount":300}`, nil)
	s := newStage(t, database, server)
	s.breaks()
	execute(t, database, `UPDATE accounts SET available = available + 7 WHERE id = 'ann'`)
	s.fires("FairleadBooksUnbalanced")
	section := sectionOf(t, "FairleadBooksUnbalanced")
	if said, err := s.operator.tries(t, section.command(t, "fairlead integrity")); err == nil || !strings.Contains(said, "first bad account ann") {
		t.Errorf("integrity does not name the account: %v", err)
	}
	if log := server.Log(); !strings.Contains(log, "the books don't add up") {
		t.Error("the server's log has nothing")
	}
	if said := s.operator.runs(t, section, `psql "$FAIRLEAD_DATABASE_URL" -c "SELECT a.id`); !strings.Contains(said, " ann ") || strings.Contains(said, " ben ") {
		t.Error("the runbook's query does not name the account alone")
	}
	s.operator.runs(t, section, `psql "$FAIRLEAD_DATABASE_URL" -1`, "'ID'", "'ann'")
	s.ends("FairleadBooksUnbalanced", "the balance was made what the entries say")
	s.operator.runs(t, section, "fairlead integrity")
	server.posts(t, "/v1/transfers", `{"from":"ann","to":"ben","amount":5}`, nil)
}

// TestBooksLate has another session keep the row of the last closing locked, so that none comes after it.
func TestBooksLate(t *testing.T) {
	torture(t)
	database := newDatabase(t)
	server := newServer(t, database, "--close-books-every", "1s", "--recount-every", "10s")
	execute(t, database, sim.OldDeposits)
	s := newStage(t, database, server)
	conn := pgtest.Connect(t, database)
	closed := func() (at time.Time, err error) {
		err = conn.QueryRow(t.Context(), `SELECT at FROM ledger_closing WHERE snapshot IS NOT NULL`).Scan(&at)
		return at, err
	}
	testwait.Eventually(t, patience, "a recount, and a closing after it", func() bool { _, err := closed(); return err == nil })
	server.accounts(t, "ann")
	blocks(t, database, `LOCK TABLE ledger_closing IN SHARE MODE`)
	s.breaks()
	server.posts(t, "/v1/deposits", `{"account":"ann","amount":5}`, nil)
	s.fires("FairleadBooksLate")
	section := sectionOf(t, "FairleadBooksLate")
	before, err := closed()
	testwait.Must(t, err)
	if said := s.operator.runs(t, section, `psql "$FAIRLEAD_DATABASE_URL" -c "SELECT 'closing'`); !strings.Contains(said, "recount of the server") {
		t.Error("the runbook's statement does not show the recount")
	}
	section.says(t, "If another session has locked the row of `ledger_closing`, end it")
	unblocks(t, s)
	s.ends("FairleadBooksLate", "pg_terminate_backend of the session")
	if now, err := closed(); err != nil || !now.After(before) {
		t.Errorf("the books are not closed: %s, before %s: %v", now, before, err)
	}
}

// TestLogLate stops the one witness that must have cosigned before a checkpoint is published.
func TestLogLate(t *testing.T) {
	torture(t)
	database := newDatabase(t)
	w, server := witnessed(t, database, "--witness-quorum", "1", "--close-books-every", "1s")
	s := newStage(t, database, server)
	s.breaks()
	w.kill()
	s.fires("FairleadLogLate")
	s.fires("FairleadLogWitnessMissing")
	if log := server.Log(); !strings.Contains(log, "the log's checkpoint is not published") || !strings.Contains(log, "that are required have cosigned it") {
		t.Error("the server's log does not say why")
	}
	sectionOf(t, "FairleadLogLate").says(t, "fewer witnesses than `--witness-quorum` cosign. Bring them back")
	w.start(t)
	s.ends("FairleadLogLate", "the witness was started again")
	s.ends("FairleadLogWitnessMissing", "likewise")
}

// TestLogWitnessMissing stops a witness whose cosignature is not required.
func TestLogWitnessMissing(t *testing.T) {
	torture(t)
	database := newDatabase(t)
	w, server := witnessed(t, database, "--close-books-every", "1s")
	s := newStage(t, database, server)
	s.breaks()
	w.kill()
	s.fires("FairleadLogWitnessMissing")
	section := sectionOf(t, "FairleadLogWitnessMissing")
	if log := server.Log(); !strings.Contains(log, "not all witnesses have cosigned the log's checkpoint") || !strings.Contains(log, w.key.Name()) {
		t.Error("the server's log does not name the witness")
	}
	ask := strings.ReplaceAll(section.command(t, "curl"), "WITNESS_URL", w.url())
	if _, err := s.operator.tries(t, ask); err == nil {
		t.Error("a witness that was killed answers")
	}
	section.says(t, "have its operator start it again, with the same key and state")
	w.start(t)
	s.ends("FairleadLogWitnessMissing", "the witness was started again")
	s.operator.runs(t, section, "curl", "WITNESS_URL", w.url())
}

// cosigner is a process of fairlead witness.
type cosigner struct {
	key     *translog.Cosigner
	dir     string
	log     string // the log's verifier key
	address string
	cmd     *exec.Cmd
}

// witnessed starts a server that asks a witness, and the witness.
func witnessed(t *testing.T, database string, args ...string) (*cosigner, *server) {
	t.Helper()
	key, err := translog.GenerateCosigner("witness.example/w1")
	testwait.Must(t, err)
	w := &cosigner{key: key, dir: t.TempDir(), address: fmt.Sprintf("127.0.0.1:%d", pgtest.Port(t))}
	testwait.Must(t, key.WriteFile(filepath.Join(w.dir, "key")))
	server := newServer(t, database, append(args, "--witness", key.Verifier()+"="+w.url())...)
	log, err := translog.ReadKey(fairlead.LogKeyFile(server.DataDir()))
	testwait.Must(t, err)
	w.log = log.Verifier()
	t.Cleanup(w.kill)
	w.start(t)
	return w, server
}

func (w *cosigner) url() string { return "http://" + w.address }

// start starts it and waits until it can cosign.
func (w *cosigner) start(t *testing.T) {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(w.dir, "output"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	testwait.Must(t, err)
	defer func() { _ = log.Close() }() // The process has its own.
	w.cmd = exec.Command(binary(t), "witness", "--key", filepath.Join(w.dir, "key"), "--state", filepath.Join(w.dir, "state"), "--log", w.log, "--listen", w.address)
	w.cmd.Stdout, w.cmd.Stderr = log, log
	testwait.Must(t, w.cmd.Start())
	testwait.Eventually(t, patience, "the witness", func() bool { return w.healthy(t.Context()) })
}

func (w *cosigner) healthy(ctx context.Context) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url()+"/healthz", nil)
	if err != nil {
		return false
	}
	response, err := calls.Do(request)
	if err != nil {
		return false
	}
	return response.Body.Close() == nil && response.StatusCode == http.StatusOK
}

// kill ends it at once.
func (w *cosigner) kill() {
	if w.cmd != nil {
		_ = w.cmd.Process.Kill()
		_ = w.cmd.Wait()
	}
}
