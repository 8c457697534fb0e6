package main

import (
	"math/rand/v2"
	"net/http/httptest"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fairlead-dev/fairlead/translog/audit/audittest"
)

// publicLog is the log of a script.
type publicLog struct{ log *audittest.Log }

// serveLog is the command log N [AT OLD NEW]: it serves a log with the first N leaves of a history that is always the same, one text of
// leaf AT replaced, and sets LOG_URL, LOG_KEY, and WITNESS, the key of a witness that has signed it. Each further one changes what is
// served, under the same keys.
func serveLog(ts *testscript.TestScript, _ bool, args []string) {
	served, ok := ts.Value("log").(*publicLog)
	if !ok || len(args) != 1 && len(args) != 4 {
		ts.Fatalf("usage: log N [AT OLD NEW]")
	}
	if served.log == nil {
		served.log = audittest.NewLog("fairlead.test/log")
		server := httptest.NewServer(served.log)
		ts.Defer(server.Close)
		ts.Setenv("LOG_URL", server.URL)
		ts.Setenv("LOG_KEY", served.log.Key())
		ts.Setenv("WITNESS", served.log.NewWitness("witness.test"))
	}
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	p := &audittest.Player{Rand: rand.New(rand.NewPCG(7, 7))}
	leaves := p.Everything()
	if len(args) == 4 {
		at, err := strconv.Atoi(args[1])
		ts.Check(err)
		if !strings.Contains(leaves[at].Data, args[2]) {
			ts.Fatalf("leaf %d is %s: %s", at, leaves[at].Type, leaves[at].Data)
		}
		leaves[at].Data = strings.Replace(leaves[at].Data, args[2], args[3], 1)
	}
	served.log.Cheat(func(entries [][]byte) [][]byte { return nil })
	served.log.Append(leaves[:n]...)
	served.log.Publish()
}
