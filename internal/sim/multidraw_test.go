//go:build unix

package sim_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/multidraw"
)

// interruptLimit is how soon an operation is interrupted whose server died.
const interruptLimit = 10 * time.Second

// drawn is what these tests read of an operation.
type drawn struct {
	ID         string           `json:"id"`
	Status     multidraw.Status `json:"status"`
	Total      int64            `json:"total_count"`
	Completed  int64            `json:"completed_count"`
	Commitment string           `json:"seed_commitment"`
	Seed       *string          `json:"seed"`
	Range      multidraw.Range  `json:"range"`
}

// sendOnce sends one command under a fresh key.
func sendOnce(t *testing.T, client *sim.Client, path, body string) sim.Answer {
	t.Helper()
	return decided(testwait.Context(t, patience), client, &sim.Op{Method: http.MethodPost, Path: path, Key: fmt.Sprintf("k-%d", time.Now().UnixNano()), Body: []byte(body)})
}

func readDrawn(t *testing.T, client *sim.Client, id string) (o drawn) {
	t.Helper()
	testwait.Must(t, client.GetJSON(testwait.Context(t, patience), "/v1/multidraws/"+id, &o))
	return o
}

// awaitEnd polls until an operation no longer runs.
func awaitEnd(t *testing.T, client *sim.Client, id string) (o drawn) {
	t.Helper()
	testwait.Eventually(t, patience, "the end of multi-draw "+id, func() bool {
		o = readDrawn(t, client, id)
		return o.Status != multidraw.StatusRunning
	})
	return o
}

// TestMultidrawSurvivesKills kills the server that draws, at its crash points and at random checkpoints, and resumes the
// operation each time: in the end it has the draws of an unbroken run with its seed.
func TestMultidrawSurvivesKills(t *testing.T) {
	beside(t)
	rng, _ := testwait.Rand(t)
	database := newDatabase(t)
	server := newServer(t, database)
	other := newServer(t, database) // Sees what becomes of the first one's operations.
	client, _ := newClient(t, server)
	watcher, _ := newClient(t, other)
	const total, checkpoints = 200_000, 200
	crash := func(i int) string {
		point := []string{"multidraw.before_checkpoint", "multidraw.after_checkpoint"}[i%2]
		return fmt.Sprintf("%s:%d", point, 1+rng.IntN(checkpoints/testwait.Count(8, 60)))
	}
	at := crash(0)
	willDie(t, server, at)
	answer := sendOnce(t, client, "/v1/multidraws", fmt.Sprintf(`{"lock_key":"kills","count":%d,"range":{"min":-1000000,"max":1000000},"async":true}`, total))
	var o drawn
	if err := answer.JSON(&o); err != nil || answer.Status != http.StatusAccepted {
		// It may die before it has answered; then the operation is found by its lock key.
		var found string
		if err := pgtest.Connect(t, database).QueryRow(t.Context(), `SELECT id::text FROM multidraws`).Scan(&found); err != nil {
			t.Fatal(answer, err)
		}
		o.ID = found
	}
	kills := testwait.Count(3, 50)
	var slowest time.Duration
	for i := 1; ; i++ {
		dies(t, server, at)
		died := time.Now()
		lost := awaitEnd(t, watcher, o.ID)
		slowest = max(slowest, time.Since(died))
		if lost.Status != multidraw.StatusInterrupted || lost.Seed != nil || lost.Completed == total {
			t.Fatalf("kill %d: %+v", i, lost)
		}
		if held := sendOnce(t, watcher, "/v1/multidraws", `{"lock_key":"kills","count":1,"range":{"min":1,"max":2}}`); held.Code() != "lock_held" {
			t.Fatalf("the lock key of an interrupted operation: %v", held)
		}
		if i == kills {
			break
		}
		at = crash(i)
		willDie(t, server, at)
		// The answer may be lost with the server, whose death settles what it was.
		_ = sendOnce(t, client, "/v1/multidraws/"+o.ID+"/resume", "{}")
	}
	if slowest > interruptLimit && testwait.Torture() { // What else takes time on a busy machine is no fault of it: that is measured by itself.
		t.Errorf("interrupted after %v", slowest)
	}
	auditNow(t, database)
	start(t, server)
	if a := sendOnce(t, client, "/v1/multidraws/"+o.ID+"/resume", ""); a.Status != http.StatusOK {
		t.Fatal(a)
	}
	done := awaitEnd(t, client, o.ID)
	if done.Status != multidraw.StatusCompleted || done.Completed != total || done.Seed == nil {
		t.Fatalf("%+v", done)
	}
	checkAllDrawn(t, client, done)
	auditNow(t, database)
	t.Logf("%d kills; interrupted after %v at most", kills, slowest)
}

// checkAllDrawn compares every draw with those of an unbroken run, and lets the binary verify the proof.
func checkAllDrawn(t *testing.T, client *sim.Client, o drawn) {
	t.Helper()
	seed, err := fairdraw.ParseSeed(*o.Seed)
	testwait.Must(t, err)
	d, err := multidraw.New(seed, o.ID, multidraw.Spec{Range: &o.Range})
	testwait.Must(t, err)
	var got []int64
	path := "/v1/multidraws/" + o.ID
	for next := path + "/results?limit=10000"; next != ""; {
		var page struct {
			Items []int64 `json:"items"`
			Next  *string `json:"next"`
		}
		testwait.Must(t, client.GetJSON(testwait.Context(t, patience), next, &page))
		got, next = append(got, page.Items...), ""
		if page.Next != nil {
			next = path + "/results?limit=10000&after=" + *page.Next
		}
	}
	if !slices.Equal(got, d.Ints(0, int(o.Total))) {
		t.Errorf("the %d draws are not those of an unbroken run", len(got))
	}
	proof := proofOf(t, client, path)
	altered := bytes.Replace(proof, []byte(`"max":1000000`), []byte(`"max":1000001`), 1)
	for _, document := range [][]byte{proof, altered} {
		if out, err := verifier(t, document, "--commitment", o.Commitment); (err == nil) != bytes.Equal(document, proof) {
			t.Errorf("verify: %v\n%s", err, out)
		}
	}
}

// TestMultidrawStopsWithItsServer ends a server cleanly while it draws: the operation is interrupted at once, and not after
// the lease.
func TestMultidrawStopsWithItsServer(t *testing.T) {
	beside(t)
	database := newDatabase(t)
	server, other := newServer(t, database), newServer(t, database)
	client, _ := newClient(t, server)
	watcher, _ := newClient(t, other)
	answer := sendOnce(t, client, "/v1/multidraws", `{"lock_key":"stop","count":20000000,"range":{"min":0,"max":255},"async":true}`)
	var o drawn
	if err := answer.JSON(&o); err != nil || answer.Status != http.StatusAccepted {
		t.Fatal(answer)
	}
	if code, err := server.Terminate(testwait.Context(t, patience)); err != nil || code != 0 {
		t.Fatalf("code %d, %v", code, err)
	}
	var now drawn
	if a := answerTo(t, watcher, "/v1/multidraws/"+o.ID); a.JSON(&now) != nil || now.Status != multidraw.StatusInterrupted {
		t.Errorf("%v", a)
	}
	back := sendOnce(t, watcher, "/v1/multidraws/"+o.ID+"/rollback", "")
	if err := json.Unmarshal(back.Body, &now); err != nil || now.Status != multidraw.StatusRolledBack {
		t.Errorf("%v", back)
	}
	if a := sendOnce(t, watcher, "/v1/multidraws", `{"lock_key":"stop","count":1,"range":{"min":1,"max":2}}`); a.Status != http.StatusCreated {
		t.Errorf("the lock key after a roll-back: %v", a)
	}
	start(t, server)
	auditNow(t, database)
}
