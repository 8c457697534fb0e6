package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/bench/load"
)

// The race of the requirement: 500 buyers for the 210 positions of a triangle of 20.
const (
	raceBuyers     = 500
	racePositions  = 210
	raceBaseLength = 20
	racePrice      = 100
	raceWinners    = 6
)

// fillConnections fill the accounts; openingBalance is far more than a run can move out of an account.
const (
	fillConnections = 64
	openingBalance  = 100_000_000
	currency        = "POINTS"
	beneficiary     = "organizer"
)

// side is one server under measurement.
type side struct {
	name    string
	key     string
	addr    string
	logFile string
	store   int // The process whose tree is the database under the server: PostgreSQL or Redis.
	// databaseURL is empty for a side that isn't on PostgreSQL.
	databaseURL string

	beside []string // addresses of other servers on the same database, which closed loops use in turn with this one

	h       *house
	cmd     *exec.Cmd
	stopped bool
	exited  chan error
	keys    int
	bidding *bidding
}

func accountID(i int) string { return fmt.Sprintf("acc-%05d", i) }

// awaitReady polls until the server has said where it listens and answers /readyz.
func (s *side) awaitReady(ctx context.Context, addrFile string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		if text, err := os.ReadFile(addrFile); err == nil && len(text) > 0 { //nolint:gosec // Our own file.
			s.addr = string(bytes.TrimSpace(text))
			if err := s.call(ctx, http.MethodGet, "/readyz", nil, http.StatusOK, nil); err == nil {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s isn't ready after %s; its log is %s", s.name, startTimeout, s.logFile)
		case err := <-s.exited:
			s.exited <- err
			return fmt.Errorf("%s ended at its start (%w); its log is %s", s.name, err, s.logFile)
		case <-tick.C:
		}
	}
}

// stop ends the server; stopping it again does nothing.
func (s *side) stop() error {
	if s.stopped {
		return nil
	}
	s.stopped = true
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", s.name, err)
	}
	select {
	case err := <-s.exited:
		if err != nil {
			return fmt.Errorf("%s ended badly: %w; its log was %s", s.name, err, s.logFile)
		}
		return nil
	case <-time.After(stopTimeout):
		_ = s.cmd.Process.Kill()
		return fmt.Errorf("%s did not stop within %s and was killed", s.name, stopTimeout)
	}
}

// call makes a request outside of the measured part and decodes the answer into out, when that is not nil.
func (s *side) call(ctx context.Context, method, path string, in any, status int, out any) error {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://"+s.addr+path, body) //nolint:gosec // Our own server.
	if err != nil {
		return err
	}
	s.keys++
	r.Header.Set("Authorization", "Bearer "+s.key)
	if method != http.MethodGet {
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", "setup-"+strconv.Itoa(s.keys))
	}
	answer, err := http.DefaultClient.Do(r) //nolint:gosec // Our own server.
	if err != nil {
		return err
	}
	defer answer.Body.Close() //nolint:errcheck // It was read to its end.
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode != status {
		return fmt.Errorf("%s: %s %s: %s: %s", s.name, method, path, answer.Status, text)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(text, out)
}

// fill makes the accounts from first on and gives each its balance, over HTTP like everything else.
func (s *side) fill(ctx context.Context, first, accounts, balance int) error {
	if err := s.call(ctx, http.MethodPost, "/v1/accounts",
		map[string]any{"id": beneficiary, "currency": currency}, http.StatusCreated, nil); err != nil {
		return err
	}
	account := func(i int) string { return fmt.Sprintf(`{"id":%q,"currency":%q}`, accountID(first+i), currency) }
	deposit := func(i int) string { return fmt.Sprintf(`{"account":%q,"amount":%d}`, accountID(first+i), balance) }
	if err := s.postAll("/v1/accounts", accounts, account); err != nil {
		return err
	}
	return s.postAll("/v1/deposits", accounts, deposit)
}

// postAll posts body(0) … body(n-1), all of one length, and wants 201 for each.
func (s *side) postAll(path string, n int, body func(int) string) error {
	engine, err := load.Dial(fillConnections, s.addr)
	if err != nil {
		return err
	}
	defer engine.Close()
	template := load.NewTemplate(path, s.key, body(0))
	at := template.BodyOffset(body(0))
	i := 0
	next := func() []byte {
		if i == n {
			return nil
		}
		request := template.Next()
		copy(request[at:], body(i))
		i++
		return request
	}
	_, err = engine.Closed(load.Phases{Measure: time.Hour}, next, wantCreated)
	return err
}

func wantCreated(status int, body []byte) error {
	if status != http.StatusCreated {
		return fmt.Errorf("answer %d: %s", status, body)
	}
	return nil
}

// analyze brings PostgreSQL's statistics of a side's tables up to date, as they would be in a database that has been in
// use for a while. Statements that were planned for empty tables are planned anew after it.
func (s *side) analyze(ctx context.Context) error {
	if s.databaseURL == "" {
		return nil
	}
	conn, err := pgx.Connect(ctx, s.databaseURL)
	if err != nil {
		return fmt.Errorf("%s: connect to its database: %w", s.name, err)
	}
	_, err = conn.Exec(ctx, "VACUUM (ANALYZE)")
	return errors.Join(err, conn.Close(ctx))
}

// requireIntegrity has the server recompute its books.
func (s *side) requireIntegrity(ctx context.Context) error {
	var report struct {
		Valid bool `json:"valid"`
	}
	if err := s.call(ctx, http.MethodGet, "/v1/integrity", nil, http.StatusOK, &report); err != nil {
		return err
	}
	if !report.Valid {
		return fmt.Errorf("%s: the books don't balance", s.name)
	}
	return nil
}
