package server

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/fairlead-dev/fairlead/multidraw"
)

func TestMultidrawSmall(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	r := e.post("/v1/multidraws", `{"lock_key":"daily","count":1000,"range":{"min":-5,"max":5}}`).want(http.StatusCreated)
	var v multidrawView
	must(t, json.Unmarshal(r.body, &v))
	if v.Status != "completed" || v.LockKey != "daily" || v.TotalCount != 1000 || v.CompletedCount != 1000 || len(v.Results) != 1000 ||
		v.Seed == nil || len(v.SeedCommitment) != 64 || v.CompletedAt == nil || v.PrizeResults != nil || *v.Range != (rangeView{-5, 5}) {
		t.Errorf("%s", r.body)
	}
	for _, n := range v.Results {
		if n < -5 || n > 5 {
			t.Errorf("drew %d", n)
		}
	}
	path := "/v1/multidraws/" + v.ID.String()
	if again := e.get(path).want(http.StatusOK); string(again.body) != string(r.body) {
		t.Errorf("read as\n%s, made as\n%s", again.body, r.body)
	}
	proof, err := multidraw.ParseProof(e.get(path + "/proof").want(http.StatusOK).body)
	must(t, err)
	must(t, proof.Verify(t.Context()))
	must(t, proof.VerifyCommitment(v.SeedCommitment))
	e.post(path+"/resume", "").problem(http.StatusConflict, "bad_transition")
	if back := e.post(path+"/rollback", "").want(http.StatusOK); back.str("status") != "rolled_back" {
		t.Errorf("%s", back.body)
	}
	e.post(path+"/rollback", "{}").problem(http.StatusConflict, "bad_transition")
	if n := len(e.items(path + "/results?limit=1000")); n != 1000 {
		t.Errorf("%d draws are left after the roll-back", n)
	}
	if e.count(`audit_log WHERE action LIKE 'multidraw.%'`) != 2 {
		t.Error("the audit log has not one creation and one roll-back")
	}
}

// TestMultidrawStates looks at what the metrics and the log say of states that are saved, loaded and rolled back: the one chunk of a small
// operation, those of a larger one, and a chunk that is refused because another process has taken the operation over.
func TestMultidrawStates(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	ids := []string{
		e.post("/v1/multidraws", `{"lock_key":"small","count":1000,"range":{"min":1,"max":6}}`).want(http.StatusCreated).str("id"),
		e.post("/v1/multidraws", `{"lock_key":"large","count":12000,"range":{"min":1,"max":6}}`).want(http.StatusCreated).str("id"),
	}
	const saves = 1 + 12
	eventually(t, patience, "all saves are reported", func() bool {
		return e.metric(`fairlead_checkpoint_operations_total{operation="save",result="ok"}`) == saves
	})
	for name, want := range map[string]float64{
		`operations_total{operation="save",result="failed"}`: 0, `operations_total{operation="load",result="ok"}`: 0, `duration_seconds_count{operation="save"}`: saves, `state_bytes_count{operation="save"}`: saves,
		`state_bytes_sum{operation="save"}`: 13000,
	} {
		if got := e.metric("fairlead_checkpoint_" + name); got != want {
			t.Errorf("fairlead_checkpoint_%s is %v, want %v", name, got, want)
		}
	}
	for i, lockKey := range []string{"small", "large"} {
		line := `level=DEBUG msg="checkpoint: operation" operation=save key=lottery:state:` + lockKey + ":" + ids[i] + ` bytes=1000 took=`
		if n, want := strings.Count(e.logs.String(), line), []int{1, 12}[i]; n != want {
			t.Errorf("%d times %q, want %d", n, line, want)
		}
	}

	cut := e.interruptedMultidraw()
	// The run that was fenced has told so when it ends. What was started and not cut is completed, and has told nothing else.
	key := "key=lottery:state:cut:" + cut
	eventually(t, patience, "the refused save is reported", func() bool {
		return e.metric(`fairlead_checkpoint_operations_total{operation="save",result="failed"}`) == 1
	})
	e.post("/v1/multidraws/"+cut+"/resume", "").want(http.StatusOK)
	e.post("/v1/multidraws/"+ids[0]+"/rollback", "").want(http.StatusOK)
	e.post("/v1/multidraws/"+ids[0]+"/rollback", "").problem(http.StatusConflict, "bad_transition") // Nothing to be reported.
	e.get("/v1/multidraws/" + ids[1] + "/results?limit=10").want(http.StatusOK)
	e.get("/v1/multidraws/" + newUUID()).want(http.StatusNotFound)
	for pattern, want := range map[string]int{
		`level=ERROR msg="checkpoint: operation failed" operation=save ` + key + ` bytes=\d+ took=\S+ severity=\w+ error=".*belongs to another run.*"`: 1,
		`level=ERROR msg="checkpoint`: 1,
		`level=DEBUG msg="checkpoint: operation" operation=load ` + key + ` bytes=\d+ took=\S+`:                                 1,
		`level=DEBUG msg="checkpoint: operation" operation=rollback key=lottery:state:small:` + ids[0] + ` bytes=1000 took=\S+`: 1,
		`level=DEBUG msg="checkpoint: operation" operation=load key=lottery:state:large:` + ids[1] + ` bytes=\d+ took=\S+`:      2, // the operation and its draws
	} {
		if n := len(regexp.MustCompile(pattern).FindAllString(e.logs.String(), -1)); n != want {
			t.Errorf("%d times %s, want %d", n, pattern, want)
		}
	}
	if n := e.metric(`fairlead_checkpoint_operations_total{operation="rollback",result="ok"}`); n != 1 {
		t.Errorf("%v rollbacks", n)
	}
}

// items reads one page.
func (e *env) items(path string) []any {
	e.t.Helper()
	items, ok := e.get(path).want(http.StatusOK).decoded["items"].([]any)
	if !ok {
		e.t.Fatalf("%s has no items", path)
	}
	return items
}

// useMultidraws uses every route of multi-draws.
func (e *env) useMultidraws() {
	e.t.Helper()
	whole := e.post("/v1/multidraws", `{"lock_key":"whole","count":3,"prizes":[{"id":"a","name":"A","weight":1,"value":2}]}`).want(http.StatusCreated).str("id")
	for _, path := range []string{"/v1/multidraws", "/v1/multidraws?limit=1", "/v1/multidraws/" + whole, "/v1/multidraws/" + whole + "/results", "/v1/multidraws/" + whole + "?prize_results=objects", "/v1/multidraws/" + whole + "/results?prize_results=objects", "/v1/multidraws/" + whole + "/proof", "/v1/multidraws/" + whole + "/log"} {
		e.get(path).want(http.StatusOK)
	}
	e.post("/v1/multidraws/"+whole+"/rollback", "").want(http.StatusOK)
	e.post("/v1/multidraws/"+whole+"/resume", "").problem(http.StatusConflict, "bad_transition")
	cut := e.interruptedMultidraw()
	e.post("/v1/multidraws/"+cut+"/resume", "").want(http.StatusOK)
	e.get("/v1/multidraws/" + cut).want(http.StatusOK)
}

// interruptedMultidraw leaves one as a server leaves it that stops before the last checkpoint. Those that end before they can be
// interrupted don't count.
func (e *env) interruptedMultidraw() (cut string) {
	e.t.Helper()
	conn := e.connect()
	defer func() { _ = conn.Close(context.Background()) }()
	for interrupted := int64(0); interrupted == 0; {
		cut = e.post("/v1/multidraws", `{"lock_key":"cut","count":1000000,"range":{"min":1,"max":6},"async":true}`).want(http.StatusAccepted).str("id")
		tag, err := conn.Exec(e.t.Context(), `UPDATE multidraws SET status = 'interrupted', term = term + 1 WHERE id = $1 AND status = 'running'`, cut)
		must(e.t, err)
		interrupted = tag.RowsAffected()
	}
	return cut
}

func TestMultidrawPrizesAndPages(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	const prizes = `"prizes":[{"id":"gold","name":"Gold","weight":1,"value":100},{"id":"none","name":"Nothing","weight":9007199254740993}]`
	key := newUUID()
	body := `{"lock_key":"k","count":25000,` + prizes + `}`
	r := e.keyed(key, "/v1/multidraws", body).want(http.StatusCreated)
	if r.decoded["prize_results"] != nil || r.str("status") != "completed" || !strings.Contains(string(r.body), `"weight":9007199254740993`) {
		t.Errorf("%s", r.body)
	}
	again := e.keyed(key, "/v1/multidraws", `{ "count":25000, "async":null, "lock_key":"k",`+prizes+`}`).want(http.StatusCreated)
	if string(again.body) != string(r.body) || again.header.Get("Idempotent-Replayed") != "true" || r.header.Get("Idempotent-Replayed") != "" {
		t.Errorf("%s", again.body)
	}
	e.keyed(key, "/v1/multidraws", strings.Replace(body, "25000", "25001", 1)).problem(http.StatusUnprocessableEntity, "idempotency_key_reused")
	path := "/v1/multidraws/" + r.str("id") + "/results"
	if n := len(e.items(path)); n != 50 {
		t.Errorf("%d draws on a page by default", n)
	}
	seen, pages := 0, 0
	for next := path + "?limit=10000"; next != ""; pages++ {
		page := e.get(next).want(http.StatusOK)
		var l list[string]
		must(t, json.Unmarshal(page.body, &l))
		for _, id := range l.Items {
			if id != "gold" && id != "none" {
				t.Fatalf("drew %q", id)
			}
		}
		seen += len(l.Items)
		next = ""
		if l.Next != nil {
			next = path + "?limit=10000&after=" + *l.Next
		}
	}
	if seen != 25_000 || pages != 3 {
		t.Errorf("%d draws on %d pages", seen, pages)
	}
	// The same draws as objects, in the list and in the operation.
	first, objects := e.items(path+"?limit=3"), e.get(path+"?limit=3&prize_results=objects").want(http.StatusOK)
	few := e.post("/v1/multidraws", `{"lock_key":"few","count":3,`+prizes+`}`).want(http.StatusCreated)
	fewer := e.get("/v1/multidraws/" + few.str("id") + "?prize_results=objects").want(http.StatusOK)
	if string(e.get("/v1/multidraws/"+few.str("id")+"?prize_results=ids").body) != string(few.body) {
		t.Error("ids are not what is shown without a word")
	}
	for i := range 3 {
		if got := objects.at(fmt.Sprintf("items.%d.id", i)); got != first[i] {
			t.Errorf("draw %d is %v, and as an object %v", i, first[i], got)
		}
		name := fmt.Sprintf("prize_results.%d", i)
		fewer.exactly(fewer.at(name), "id", "name", "weight", "value")
		if fewer.str(name+".id") != few.str(name) || fewer.str(name+".name") != map[string]string{"gold": "Gold", "none": "Nothing"}[few.str(name)] {
			t.Errorf("%s shown as %s", few.body, fewer.body)
		}
	}
	for _, bad := range []string{"?prize_results=x", "?prize_results=ids&prize_results=ids", "?limit=0", "?limit=10001", "?limit=x", "?after=1", "?after=", "?limit=1&limit=1"} {
		e.get(path+bad).problem(http.StatusBadRequest, "bad_request")
	}
	if l := e.items("/v1/multidraws?limit=1"); len(l) != 1 {
		t.Errorf("%v", l)
	}
}

func TestMultidrawAsync(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	r := e.post("/v1/multidraws", `{"lock_key":"k","count":300000,"range":{"min":0,"max":9},"async":true}`).want(http.StatusAccepted)
	path := "/v1/multidraws/" + r.str("id")
	if r.str("status") != "running" || r.decoded["seed"] != nil {
		t.Errorf("%s", r.body)
	}
	held := e.post("/v1/multidraws", `{"lock_key":"k","count":1,"range":{"min":0,"max":9}}`)
	if held.status != http.StatusCreated { // Unless it was faster.
		held.problem(http.StatusConflict, "lock_held")
		if held.decoded["retryable"] != true || !strings.Contains(held.str("detail"), r.str("id")) {
			t.Errorf("%s", held.body)
		}
		if e.count(`idempotency_keys WHERE status = 409`) != 0 {
			t.Error("lock_held is stored")
		}
	}
	eventually(t, patience, "all is drawn", func() bool {
		now := e.get(path).want(http.StatusOK)
		done, err := strconv.Atoi(fmt.Sprint(now.decoded["completed_count"]))
		must(t, err)
		if now.str("status") == "running" {
			if now.decoded["seed"] != nil {
				t.Fatal("the seed is shown while it runs")
			}
			if r := e.get(path + "/proof"); r.status != http.StatusOK || e.get(path).str("status") != "completed" {
				r.problem(http.StatusNotFound, "not_drawn") // Unless it has ended in between.
			}
		}
		// What is done can be read, from its first to its last draw.
		if items := e.items(path + "/results?limit=10000"); len(items) < min(done, 10_000) {
			t.Fatalf("%d draws of %d", len(items), done)
		}
		return now.str("status") == "completed"
	})
	proof, err := multidraw.ParseProof(e.get(path + "/proof").want(http.StatusOK).body)
	must(t, err)
	must(t, proof.Verify(t.Context()))
}

func TestMultidrawBounds(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	r := e.post("/v1/multidraws", fmt.Sprintf(`{"lock_key":"k","count":500,"range":{"min":%d,"max":%d}}`, math.MinInt64, math.MaxInt64)).want(http.StatusCreated)
	var v multidrawView
	must(t, json.Unmarshal(r.body, &v))
	large := 0
	for _, n := range v.Results {
		if n > 1<<62 || n < -1<<62 {
			large++
		}
	}
	if large < 150 || large > 350 {
		t.Errorf("%d of 500 draws of all int64 are in its outer half", large)
	}
	e.post("/v1/multidraws", fmt.Sprintf(`{"lock_key":"k","count":3,"range":{"min":%d,"max":%d}}`, math.MaxInt64, math.MaxInt64)).want(http.StatusCreated)
	before := e.snapshot()
	prize := func(id, weight string) string { return `{"id":"` + id + `","name":"n","weight":` + weight + `}` }
	for _, body := range []string{
		`{}`, `{"lock_key":"k","count":5}`, `{"lock_key":"k","count":5,"range":{"min":1,"max":2},"prizes":[` + prize("a", "1") + `]}`,
		`{"count":5,"range":{"min":1,"max":2}}`, `{"lock_key":"","count":5,"range":{"min":1,"max":2}}`, `{"lock_key":"a\nb","count":5,"range":{"min":1,"max":2}}`,
		`{"lock_key":"` + strings.Repeat("k", 201) + `","count":5,"range":{"min":1,"max":2}}`,
		`{"lock_key":"k","count":0,"range":{"min":1,"max":2}}`, `{"lock_key":"k","count":-1,"range":{"min":1,"max":2}}`, `{"lock_key":"k","count":20000001,"range":{"min":1,"max":2}}`,
		`{"lock_key":"k","count":1.5,"range":{"min":1,"max":2}}`, `{"lock_key":"k","count":"5","range":{"min":1,"max":2}}`, `{"lock_key":"k","range":{"min":1,"max":2}}`,
		`{"lock_key":"k","count":5,"range":{"min":2,"max":1}}`, `{"lock_key":"k","count":5,"range":{"min":1}}`, `{"lock_key":"k","count":5,"range":{"max":1}}`, `{"lock_key":"k","count":5,"range":{}}`,
		`{"lock_key":"k","count":5,"range":{"min":null,"max":2}}`, `{"lock_key":"k","count":5,"range":{"min":1,"max":9223372036854775808}}`, `{"lock_key":"k","count":5,"range":{"min":0.5,"max":2}}`,
		`{"lock_key":"k","count":5,"range":[1,2]}`, `{"lock_key":"k","count":5,"prizes":[]}`, `{"lock_key":"k","count":5,"prizes":{}}`,
		`{"lock_key":"k","count":5,"prizes":[` + prize("a", "-1") + `]}`, `{"lock_key":"k","count":5,"prizes":[` + prize("a", "0") + `]}`, `{"lock_key":"k","count":5,"prizes":[` + prize("a", "0.5") + `]}`,
		`{"lock_key":"k","count":5,"prizes":[` + prize("a", "null") + `]}`, `{"lock_key":"k","count":5,"prizes":[` + prize("", "1") + `]}`, `{"lock_key":"k","count":5,"prizes":[` + prize("a b", "1") + `]}`,
		`{"lock_key":"k","count":5,"prizes":[` + prize("a", "1") + `,` + prize("a", "1") + `]}`, `{"lock_key":"k","count":5,"prizes":[{"id":"a","weight":1}]}`,
		`{"lock_key":"k","count":5,"prizes":[` + prize("a", "9223372036854775807") + `,` + prize("b", "1") + `]}`, `{"lock_key":"k","count":5,"prizes":[` + prize("a", "9223372036854775808") + `]}`,
		`{"lock_key":"k","count":5,"prizes":[` + prize("a", "9223372036854775807") + `,` + prize("b", "9223372036854775807") + `,` + prize("c", "4") + `]}`,
		`{"lock_key":"k","count":5,"range":{"min":1,"max":2},"async":"yes"}`, `{"lock_key":"k","count":5,"range":{"min":1,"max":2},"seed":"x"}`,
	} {
		r := e.post("/v1/multidraws", body).problem(http.StatusBadRequest, "bad_request")
		if len(r.str("detail")) < 10 {
			t.Errorf("%s: %s", body, r.body)
		}
	}
	for _, target := range []string{"GET ", "GET /results", "GET /proof", "POST /resume", "POST /rollback"} {
		method, rest, _ := strings.Cut(target, " ")
		for _, id := range []string{newUUID(), "x", strings.ToUpper(v.ID.String())} {
			e.send(send{method: method, path: "/v1/multidraws/" + id + rest, key: newUUID()}).problem(http.StatusNotFound, "not_found")
		}
	}
	user := e.by(e.user("alice"))
	user.post("/v1/multidraws", `{"lock_key":"k","count":5,"range":{"min":1,"max":2}}`).problem(http.StatusForbidden, "forbidden")
	user.get("/v1/multidraws/"+v.ID.String()).problem(http.StatusForbidden, "forbidden")
	e.by(e.service).get("/v1/multidraws/" + v.ID.String()).want(http.StatusOK)
	e.unchanged(before)
}
