//go:build unix

package sim_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// fact makes some facts by a server: a campaign on sale.
func fact(t *testing.T, server *sim.Server) {
	t.Helper()
	_, err := sim.Launch(testwait.Context(t, patience), clientOf(t, server), uuid.NewString(), client.CreateCampaignRequest{
		Name: "raffle", Layers: []client.LayerRequest{{Positions: 2}}, Price: 1, Currency: "SIM", Beneficiary: "house",
		Prizes: []client.PrizeRequest{{Name: "grand", Quantity: 1}},
	})
	testwait.Must(t, err)
}

// refuses waits until nothing is signed any more, because of what one of these has seen, and leaves go on all the same. It returns the reason.
func (s *logSite) refuses(t *testing.T, anyOf ...string) (why string) {
	t.Helper()
	testwait.Eventually(t, patience, "a refusal to sign, because of "+strings.Join(anyOf, " or "), func() bool {
		why = s.stateOf(t).Refused
		return slices.ContainsFunc(anyOf, func(who string) bool { return strings.Contains(why, who+" has seen") })
	})
	before := s.stateOf(t)
	fact(t, s.servers[0])
	testwait.Eventually(t, patience, "leaves that nothing is signed over", func() bool { return s.stateOf(t).Size >= before.Size+2 })
	if after := s.stateOf(t); after.Published != before.Published || after.Refused != why {
		t.Errorf("the log was %+v, and is %+v", before, after)
	}
	return why
}

// on starts the site's first server, with its data directory, on another database.
func (s *logSite) on(t *testing.T, database string) *logSite {
	t.Helper()
	server := sim.NewServer(sim.ServerOptions{Binary: binary(t), DataDir: s.servers[0].DataDir(), DatabaseURL: database, Args: s.args})
	t.Cleanup(func() { stopServer(t, server, false) })
	start(t, server)
	return &logSite{database, []*sim.Server{server}, s.args, s.witnesses, s.vkey}
}

func (s *logSite) endWitnesses(t *testing.T) {
	t.Helper()
	for _, w := range s.witnesses {
		testwait.Must(t, w.end(syscall.SIGKILL))
	}
}

func (s *logSite) startWitnesses(t *testing.T) {
	t.Helper()
	for _, w := range s.witnesses {
		testwait.Must(t, w.start(testwait.Context(t, patience), s.vkey))
	}
}

func (s *logSite) kill(t *testing.T) {
	t.Helper()
	testwait.Must(t, s.servers[0].Kill(testwait.Context(t, patience)))
}

// TestAnOlderCopyIsNotSigned restores a copy of the database, after which more was signed. What the server has noted in log.signed is
// enough for it to refuse, and so is what the witnesses have seen: then nothing at all is signed. The database that is not behind goes on.
func TestAnOlderCopyIsNotSigned(t *testing.T) {
	beside(t)
	pg := pgtest.Server(t)
	s := newLogSite(t, pg.URL(), 1, 2, 0)
	testwait.Must(t, sim.OpenAccounts(testwait.Context(t, patience), clientOf(t, s.servers[0]), []string{"house"}, 1))
	fact(t, s.servers[0])
	s.awaitWhole(t)
	copied := pgtest.CopyOf(t, pg)
	before := s.stateOf(t)
	fact(t, s.servers[0])
	s.awaitWhole(t)
	testwait.Eventually(t, patience, "a witness of the newest checkpoint", func() bool {
		_, body := fetch(t.Context(), s.witnesses[0].checkpoint(s.vkey), "")
		h, err := openHead(string(body), s.vkey)
		return err == nil && h.size > before.Size
	})
	s.kill(t)
	signed := filepath.Join(s.servers[0].DataDir(), "log.signed")
	noted, err := os.ReadFile(signed)
	testwait.Must(t, err)

	s.endWitnesses(t)
	old := s.on(t, copied.URL())
	why := old.refuses(t, "this server")
	t.Logf("by log.signed alone: %s", why)
	if now, err := os.ReadFile(signed); err != nil || !bytes.Equal(now, noted) {
		t.Errorf("log.signed is now %s (%v)", now, err)
	}
	old.kill(t)

	testwait.Must(t, os.Remove(signed))
	s.startWitnesses(t)
	old = s.on(t, copied.URL())
	why = old.refuses(t, s.witnesses[0].name(), s.witnesses[1].name())
	t.Logf("by the witnesses alone: %s", why)
	if _, err := os.Stat(signed); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("something was signed: %v", err)
	}
	out, code := doctor(t, "--database-url", copied.URL())
	if code != 1 || !strings.Contains(out, "no checkpoint of the public log is signed") {
		t.Errorf("doctor says, with %d: %s", code, complaints(out))
	}
	old.kill(t)

	// The right database goes on where it was.
	right := s.on(t, pg.URL())
	fact(t, right.servers[0])
	right.awaitWhole(t)
	right.kill(t)

	// With the witnesses away and log.signed lost, nobody can know; the witnesses tell as soon as they are back.
	testwait.Must(t, os.Remove(signed))
	s.endWitnesses(t)
	old = s.on(t, copied.URL())
	testwait.Eventually(t, patience, "a signature", func() bool {
		_, err := os.Stat(signed)
		return err == nil
	})
	s.startWitnesses(t)
	fact(t, old.servers[0])
	t.Logf("once the witnesses are back: %s", old.refuses(t, s.witnesses[0].name(), s.witnesses[1].name()))
}
