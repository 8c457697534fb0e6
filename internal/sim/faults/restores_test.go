//go:build unix

package faults_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fairlead-dev/fairlead/internal/localpg"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/sim/wire"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// restoresPage has the operator's steps, which these tests take.
const restoresPage = "../../../docs/operations/restores.md"

// witness is what the world outside of a database has seen of it.
type witness struct {
	auction string
	tokens  map[string]int64
	seq     int64 // of the auction's last event
	amount  int64 // of the last bid
}

// newWitness begins what goes on before and after a backup is made.
func newWitness(t *testing.T, s *server) *witness {
	t.Helper()
	s.accounts(t, "seller", "ann")
	w := &witness{tokens: map[string]int64{}}
	var auction thing
	s.posts(t, "/v1/auctions", `{"title":"old","currency":"SIM","seller":"seller","rounds":[{"winners":1,"duration":"1h"}],"cooldown":"0s","unique_amounts":false}`, &auction)
	w.auction = auction.ID
	s.posts(t, "/v1/auctions/"+w.auction+"/start", ``, nil)
	w.acts(t, s, "kept")
	return w
}

// acts takes locks, bids, and fails the test when it sees a token for the second time.
func (w *witness) acts(t *testing.T, s *server, keys ...string) {
	t.Helper()
	for _, key := range keys {
		for range 3 {
			token, id := w.grant(t, s, key)
			if token <= w.tokens[key] {
				t.Errorf("%s has token %d, and %d was given before", key, token, w.tokens[key])
			}
			w.tokens[key] = token
			s.does(t, http.MethodDelete, "/v1/locks/"+id, "", nil)
		}
	}
	for range 3 {
		w.amount++
		var bid struct{ Seq int64 }
		s.posts(t, "/v1/auctions/"+w.auction+"/bids", fmt.Sprintf(`{"account":"ann","amount":%d}`, w.amount), &bid)
		w.seq = bid.Seq
	}
}

func (w *witness) grant(t *testing.T, s *server, key string) (token int64, id string) {
	t.Helper()
	var lock struct {
		ID     string
		Tokens map[string]int64
	}
	s.posts(t, "/v1/locks", fmt.Sprintf(`{"keys":[%q],"owner":"o","ttl":"10s"}`, key), &lock)
	return lock.Tokens[key], lock.ID
}

// resumes asks for the events after the last one seen.
func (w *witness) resumes(t *testing.T, s *server) (status int, code string) {
	t.Helper()
	ctx, cancel := context.WithCancel(testwait.Context(t, patience))
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s/v1/events?topic=auction:%s&since=%d", s.URL(), w.auction, w.seq), nil)
	testwait.Must(t, err)
	request.Header.Set("Authorization", "Bearer "+sim.AdminKey)
	response, err := calls.Do(request)
	testwait.Must(t, err)
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode == http.StatusOK {
		return http.StatusOK, ""
	}
	var problem struct{ Code string }
	testwait.Must(t, json.NewDecoder(response.Body).Decode(&problem))
	return response.StatusCode, problem.Code
}

// refuses fails the test unless the server says that the witness comes from another history.
func (w *witness) refuses(t *testing.T, s *server) {
	t.Helper()
	if status, code := w.resumes(t, s); status != http.StatusGone || code != "unknown_seq" {
		t.Errorf("a subscriber that comes from the lost history is told %d %s", status, code)
	}
}

// TestRestoreOfADump takes the steps of the page for a dump.
func TestRestoreOfADump(t *testing.T) {
	torture(t)
	old := pgtest.Server(t)
	server := newServer(t, old.URL())
	w := newWitness(t, server)
	o := operator{server.URL(), old.URL()}
	page := sectionIn(t, restoresPage, "Dump and restore")
	u, err := url.Parse(old.URL())
	testwait.Must(t, err)
	u.Path = "/restored"
	names := []string{"fairlead.dump", filepath.Join(t.TempDir(), "fairlead.dump"), `"$RESTORED_URL"`, "'" + u.String() + "'"}
	o.runs(t, page, "pg_dump", names...)
	w.acts(t, server, "kept", "new")
	if status, _ := w.resumes(t, server); status != http.StatusOK {
		t.Errorf("before the restore, a subscriber is told %d", status)
	}
	server.kill(t)
	for _, command := range []string{"createdb", "pg_restore", "fairlead migrate up", "fairlead integrity", "fairlead doctor --accept-history", "fairlead keys list"} {
		o.runs(t, page, command, names...)
	}
	next := newServer(t, u.String())
	w.refuses(t, next)
	w.amount = queried[int64](t, u.String(), `SELECT max(amount) FROM auction_bids`)
	w.acts(t, next, "kept", "new")
	o.runs(t, page, "fairlead doctor --database-url", names...)
}

// TestRestoreToAnEarlierPoint recovers a database to an earlier point, while a server and a subscriber go on.
func TestRestoreToAnEarlierPoint(t *testing.T) {
	torture(t)
	old, archive := archiving(t)
	proxy, through := wire.Through(t, old.URL(), wire.Options{})
	server := newServer(t, through)
	w := newWitness(t, server)
	r := newRemembered(t, server)
	page := sectionIn(t, restoresPage, "Point-in-time recovery")
	base := filepath.Join(t.TempDir(), "base")
	(operator{server.URL(), old.URL()}).runs(t, page, "pg_basebackup", "--pgdata=base", "--pgdata="+base)
	w.acts(t, server, "kept")
	amount := w.amount
	execute(t, old.URL(), `SELECT pg_create_restore_point('noon')`)
	leaves := queried[int64](t, old.URL(), `SELECT size FROM log_state`)
	w.acts(t, server, "kept", "new")
	r.acts(t, server)
	testwait.Eventually(t, patience, "a checkpoint over what will be lost", func() bool {
		return queried[int64](t, old.URL(), `SELECT published FROM log_state`) > leaves
	})
	restored := recovers(t, old, archive, base, page)
	at := operator{server.URL(), restored.URL()}
	testwait.Eventually(t, patience, "the end of the recovery", func() bool {
		return strings.TrimSpace(at.runs(t, page, "psql")) == "f"
	})
	to, err := pgx.ParseConfig(restored.URL())
	testwait.Must(t, err)
	proxy.Lead(pgconn.NetworkAddress(to.Host, to.Port))
	testwait.Eventually(t, patience, "the server notices", func() bool { return strings.Contains(server.Log(), "history lost") })
	w.refuses(t, server)
	if said, err := at.tries(t, page.command(t, "fairlead doctor --database-url")); err == nil || !strings.Contains(said, "WRONG: history:") {
		t.Errorf("doctor is content: %v", err)
	}
	at.runs(t, page, "fairlead integrity")
	at.runs(t, page, "fairlead doctor --accept-history")
	w.amount = amount
	w.acts(t, server, "kept", "new")
	r.acts(t, server)
	at.runs(t, page, "fairlead integrity")

	page = sectionIn(t, restoresPage, "The public log")
	testwait.Eventually(t, patience, "the server refuses to sign the log", func() bool {
		said, err := at.tries(t, page.command(t, "fairlead doctor"))
		return err != nil && strings.Contains(said, "WRONG: log: no checkpoint of the public log is signed: this server has seen ")
	})
	server.kill(t)
	at.runs(t, page, "fairlead log renew", "fairlead-data", server.DataDir())
	server.start(t)
	at.runs(t, page, "fairlead doctor")
}

// remembered is what a server has in its caches: the balance of an account, the free positions of a campaign, and a key.
type remembered struct{ campaign, key string }

func newRemembered(t *testing.T, s *server) *remembered {
	t.Helper()
	s.accounts(t, "cara", "house")
	r := &remembered{key: uuid.NewString()}
	var campaign thing
	s.posts(t, "/v1/campaigns", `{"name":"n","base_length":2,"price":10,"currency":"SIM","beneficiary":"house","prizes":[{"name":"a","quantity":1}]}`, &campaign)
	r.campaign = campaign.ID
	s.posts(t, "/v1/campaigns/"+r.campaign+"/publish", ``, nil)
	s.posts(t, "/v1/campaigns/"+r.campaign+"/purchases", `{"account":"cara"}`, nil)
	return r
}

// acts changes all of it, and fails the test unless the server begins with what was there before: after a restore it does all of it
// once more.
func (r *remembered) acts(t *testing.T, s *server) {
	t.Helper()
	balance := func(want int) {
		t.Helper()
		var account struct{ Available int }
		if s.does(t, http.MethodGet, "/v1/accounts/cara", "", &account); account.Available != want {
			t.Errorf("cara has %d, want %d", account.Available, want)
		}
	}
	balance(999_990)
	status, answer := s.triesUnder(testwait.Context(t, patience), r.key, http.MethodPost, "/v1/deposits", `{"account":"cara","amount":500}`)
	if status != http.StatusCreated {
		t.Errorf("a deposit: %d %s", status, answer)
	}
	balance(1_000_490)
	for range 2 {
		s.posts(t, "/v1/campaigns/"+r.campaign+"/purchases", `{"account":"cara"}`, nil)
	}
	balance(1_000_470)
	var campaign struct{ Status string }
	if s.does(t, http.MethodGet, "/v1/campaigns/"+r.campaign, "", &campaign); campaign.Status != "completed" {
		t.Errorf("the campaign is %s", campaign.Status)
	}
}

// recovers starts a PostgreSQL on a base backup and the archive, up to the restore point noon.
func recovers(t *testing.T, old *localpg.Instance, archive, base string, page section) *localpg.Instance {
	t.Helper()
	segment := queried[string](t, old.URL(), `SELECT pg_walfile_name(pg_switch_wal())`)
	testwait.Eventually(t, patience, "the log is in the archive", func() bool {
		_, err := os.Stat(filepath.Join(archive, segment))
		return err == nil
	})
	settings := strings.NewReplacer("/archive/", archive+"/", "recovery_target_time = '2027-01-31 12:00:00+00'", "recovery_target_name = 'noon'").
		Replace(page.settings(t))
	return pgtest.ServerOn(t, func(dir string) error {
		to := filepath.Join(dir, "postgres")
		if err := os.CopyFS(to, os.DirFS(base)); err != nil {
			return err
		}
		if err := os.Chmod(to, 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, "recovery.signal"), nil, 0o600); err != nil {
			return err
		}
		// Who starts it takes its first answer for the end of the recovery.
		return os.WriteFile(filepath.Join(to, "postgresql.auto.conf"), []byte(settings+"hot_standby = off\n"), 0o600)
	})
}

// settings are the lines of the section's block of settings.
func (s section) settings(t *testing.T) string {
	t.Helper()
	_, block, _ := strings.Cut(s.text, "```ini\n")
	block, _, found := strings.Cut(block, "```")
	if !found {
		t.Fatalf("section %s has no settings", s.title)
	}
	return block
}

// archiving is a PostgreSQL that archives its log.
func archiving(t *testing.T) (pg *localpg.Instance, archive string) {
	t.Helper()
	pg = pgtest.Server(t)
	archive, err := os.MkdirTemp("", "archive") //nolint:usetesting // PostgreSQL's user has to pass.
	testwait.Must(t, err)
	t.Cleanup(func() { testwait.Check(t, os.RemoveAll(archive)) })
	testwait.Must(t, os.Chmod(archive, 0o777))
	execute(t, pg.URL(), `ALTER SYSTEM SET archive_mode = on`, `ALTER SYSTEM SET archive_command = 'cp %p `+archive+`/%f.part && mv `+archive+`/%f.part `+archive+`/%f'`)
	hba, err := os.OpenFile(queried[string](t, pg.URL(), `SELECT current_setting('hba_file')`), os.O_APPEND|os.O_WRONLY, 0)
	testwait.Must(t, err)
	_, err = hba.WriteString("local replication all trust\n")
	testwait.Must(t, err)
	testwait.Must(t, hba.Close())
	before := pg.Restarts()
	testwait.Must(t, syscall.Kill(pg.PID(), syscall.SIGINT))
	testwait.Eventually(t, patience, "PostgreSQL is restarted", func() bool {
		conn, err := pgx.Connect(t.Context(), pg.URL())
		if err != nil {
			return false
		}
		return pg.Restarts() > before && conn.Close(t.Context()) == nil
	})
	return pg, archive
}

// TestCloneBesideTheOriginal starts a server on a physical copy while the original goes on.
func TestCloneBesideTheOriginal(t *testing.T) {
	torture(t)
	old := pgtest.Server(t)
	server := newServer(t, old.URL())
	w := newWitness(t, server)
	_, logKey := server.tries(t.Context(), http.MethodGet, "/log/key", "")
	var target thing
	server.posts(t, "/v1/targets", `{"name":"hook","kind":"webhook","url":"https://example.com/hook"}`, &target)
	clone := pgtest.CopyOf(t, old)
	twin := *w
	twin.tokens = map[string]int64{"kept": w.tokens["kept"]}
	w.acts(t, server, "kept", "new")

	page := sectionIn(t, restoresPage, "A clone beside the original")
	o := operator{server.URL(), clone.URL()}
	at := []string{`"$CLONE_URL"`, "'" + clone.URL() + "'"}
	o.runs(t, page, `psql "$CLONE_URL" -c "UPDATE targets SET paused_at = now()`, at...)
	other := preparedServer(t, clone.URL())
	for _, command := range []string{"mkdir", "fairlead log renew"} {
		o.runs(t, page, command, append(at, "clone-data", other.DataDir())...)
	}
	other.start(t)
	o.runs(t, page, "fairlead doctor", at...)
	if _, key := other.tries(t.Context(), http.MethodGet, "/log/key", ""); len(key) == 0 || bytes.Equal(key, logKey) {
		t.Errorf("the clone's log has the key %q, the original's %q", key, logKey)
	}
	var paused struct {
		PausedReason string `json:"paused_reason"`
	}
	other.does(t, http.MethodGet, "/v1/targets/"+target.ID, "", &paused)
	if paused.PausedReason != "request" {
		t.Errorf("the clone would send: %+v", paused)
	}
	twin.acts(t, other, "kept", "new")
	if w.tokens["new"] != twin.tokens["new"] || w.tokens["kept"] != twin.tokens["kept"] {
		t.Errorf("tokens of the original %v and of the clone %v: the page says that they are the same", w.tokens, twin.tokens)
	}

	// It takes the original's place.
	server.kill(t)
	w.acts(t, other, "nobody's")
	recovery := sectionIn(t, restoresPage, "Point-in-time recovery")
	o.runs(t, recovery, "fairlead integrity")
	o.runs(t, recovery, "fairlead doctor --accept-history")
	w.acts(t, other, "kept", "new")
	o.runs(t, page, `psql "$CLONE_URL" -c "UPDATE targets SET paused_at = NULL`, at...)
}
