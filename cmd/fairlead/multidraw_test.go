package main

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/multidraw"
)

func TestMultidrawFlags(t *testing.T) {
	t.Setenv(keyVariable, "key")
	for _, c := range []struct{ args, says string }{
		{"", "--lock-key is needed"},
		{"--lock-key k", "--count is needed"},
		{"--lock-key k --count 5", "either --min and --max"},
		{"--lock-key k --count 5 --min 1", "either --min and --max"},
		{"--lock-key k --count 5 --min 1 --max 2 --prizes x", "either --min and --max"},
		{"--lock-key k --count 5 --prizes /nowhere/at/all", "--prizes: open"},
		{"--lock-key k --count 5 --min 1 --max 2 --data /nowhere/at/all", "no server runs on /nowhere/at/all"},
		{"watch", "multidraw watch needs one argument, the id of an operation, and got 0"},
		{"resume x --url http://127.0.0.1:1", "no server answers at http://127.0.0.1:1"},
		{"watch x --url http://127.0.0.1:1 --results /nowhere/at/all", "--results: open"},
		{"watch x --json --results -", "both write to standard output"},
		{"nonsense", "unknown command"},
	} {
		out, err := execute(t, append([]string{"multidraw"}, strings.Fields(c.args)...)...)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v\n%s", c.args, err, out)
		}
	}
}

// TestMultidrawWatches follows an operation to its end, on a server that shows it at three moments.
func TestMultidrawWatches(t *testing.T) {
	t.Setenv(keyVariable, "key")
	const shown = `{"id":"op","lock_key":"daily","status":%q,"total_count":3,"completed_count":%d,"seed_commitment":"c","seed":null,"range":{"min":1,"max":6}}`
	var looks atomic.Int64
	end := "completed"
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/multidraws", func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil || body["lock_key"] != "daily" || body["async"] != true || body["count"] != 3.0 {
			t.Errorf("asked for %v, %v", body, err)
		}
		w.WriteHeader(http.StatusAccepted)
		_, _ = fmt.Fprintf(w, shown, "running", 0)
	})
	mux.HandleFunc("GET /v1/multidraws/op", func(w http.ResponseWriter, _ *http.Request) {
		switch looks.Add(1) {
		case 1:
			_, _ = fmt.Fprintf(w, shown, "running", 1)
		case 2:
			w.WriteHeader(http.StatusServiceUnavailable) // It is started again.
		default:
			_, _ = fmt.Fprintf(w, shown, end, 3)
		}
	})
	mux.HandleFunc("GET /v1/multidraws/op/results", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("after") == "" {
			_, _ = fmt.Fprintf(w, `{"items":[%d,2],"next":"2.x"}`, math.MaxInt64)
			return
		}
		_, _ = w.Write([]byte(`{"items":[3],"next":null}`))
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	file := filepath.Join(t.TempDir(), "results")
	out, err := execute(t, "multidraw", "--url", server.URL, "--lock-key", "daily", "--count", "3", "--min", "1", "--max", "6", "--results", file)
	if err != nil || !strings.Contains(out, "completed: 3 of 3") || looks.Load() != 3 {
		t.Errorf("%v after %d looks\n%s", err, looks.Load(), out)
	}
	lines, err := os.ReadFile(file)
	if err != nil || string(lines) != "9223372036854775807\n2\n3\n" {
		t.Errorf("%q, %v", lines, err)
	}
	looks.Store(0)
	end = "interrupted"
	out, err = execute(t, "multidraw", "watch", "op", "--url", server.URL, "--json")
	if err == nil || err.Error() != "exit status 1" || !strings.Contains(out, `"status": "interrupted"`) {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestVerifyMultidraw(t *testing.T) {
	seed, id, spec := fairdraw.Seed{1}, uuid.New(), multidraw.Spec{Range: &multidraw.Range{Min: 1, Max: 6}}
	o, draws, err := multidraw.DecideCreate(&multidraw.Create{LockKey: "k", Count: 100, Spec: spec}, id, seed, nil, multidraw.Grant{}, time.Now())
	testwait.Must(t, err)
	multidraw.DecideAtOnce(o, draws, o.StartedAt)
	o.Seed = &seed
	proof, err := multidraw.NewProof(o)
	testwait.Must(t, err)
	write := func(change func(*multidraw.Proof)) string {
		changed := *proof
		changed.Results = append([]int64(nil), proof.Results...)
		change(&changed)
		document, err := json.Marshal(changed)
		testwait.Must(t, err)
		name := filepath.Join(t.TempDir(), "proof.json")
		testwait.Must(t, os.WriteFile(name, document, 0o600))
		return name
	}
	good := write(func(*multidraw.Proof) {})
	if out, err := execute(t, "verify", good, "--commitment", seed.Commitment()); err != nil || !strings.Contains(out, "valid: the draws follow") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := execute(t, "verify", good, "--commitment", strings.Repeat("0", 64)); err == nil || !strings.Contains(out, "NOT VALID: commitment") {
		t.Errorf("%v\n%s", err, out)
	}
	for name, change := range map[string]func(*multidraw.Proof){
		"commitment": func(p *multidraw.Proof) { p.Commitment = strings.Repeat("0", 64) }, "digest": func(p *multidraw.Proof) { p.Digest = strings.Repeat("0", 64) },
		"results[99]": func(p *multidraw.Proof) { p.Results[99]++ }, "the number of results": func(p *multidraw.Proof) { p.Results = p.Results[:99] },
		"the number of prize_results": func(p *multidraw.Proof) { p.PrizeResults = []string{"x"} }, "digest ": func(p *multidraw.Proof) { p.Every = 10 },
		"range": func(p *multidraw.Proof) { p.Range = nil }, "count": func(p *multidraw.Proof) { p.Count = 0 }, "every": func(p *multidraw.Proof) { p.Every = 0 },
		"kind": func(p *multidraw.Proof) { p.Version = 1 },
	} {
		if out, err := execute(t, "verify", write(change)); err == nil || err.Error() != "exit status 1" || !strings.Contains(out, strings.TrimSpace(name)) {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}
