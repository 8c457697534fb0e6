package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestSagas runs the verbs against answers as the server gives them.
func TestSagas(t *testing.T) {
	const (
		id    = "01a1febd-09a1-7a65-a429-428f6d839bd8"
		stuck = `{"id":"` + id + `","name":"cross-transfer","protocol":"saga","status":"pending","reason":"balance_overflow","stuck":true,"attempts":12,` +
			`"last_error":"it was away","steps":[{"name":"debit","status":"done","reason":"","result":"x","undone":""},{"name":"credit","status":"refused","reason":"balance_overflow"}],"term":3}`
	)
	var asked []string
	house := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.String())
		answer := stuck
		switch r.URL.Path {
		case "/v1/in-doubt":
			answer = `{"items":[{"ledger":"eu","gid":"fairlead:x:` + id + `:1:0","saga":"` + id + `","term":1,"age_ms":1500,"verdict":"commit"},` +
				`{"ledger":"eu","gid":"fairlead:x:` + id + `:2:0","saga":"` + id + `","term":2,"age_ms":9000,"verdict":"in_doubt","reason":"too_young"}],"unreachable":["us"]}`
		case "/v1/in-doubt/adopt":
			answer = `{"coordinator":"fairlead:x","ledgers":["eu","us"]}`
		case "/v1/sagas":
			answer = `{"items":[` + stuck + `],"next":"abc"}`
		}
		testwait.Check(t, testwait.Err(io.WriteString(w, answer)))
	}))
	defer house.Close()
	t.Setenv(keyVariable, "a key")
	for _, c := range []struct {
		args []string
		want []string // in what is printed
		path string
	}{
		{[]string{"list", "--stuck", "--status", "pending"}, []string{id, "stuck", "12 times", "it was away", "There are more."}, "GET /v1/sagas?limit=50&status=pending&stuck=true"},
		{[]string{"show", id}, []string{"debit", "refused balance_overflow"}, "GET /v1/sagas/" + id},
		{[]string{"retry", id}, []string{id}, "POST /v1/sagas/" + id + "/retry"},
		{[]string{"compensate", id, "--json"}, []string{`"term": 3`}, "POST /v1/sagas/" + id + "/compensate"},
		{[]string{"in-doubt"}, []string{"eu  commit", "1.5s", "us could not be asked", "in_doubt", "9s", "too_young"}, "GET /v1/in-doubt"},
		{[]string{"adopt"}, []string{"fairlead:x: adopted in eu, us"}, "POST /v1/in-doubt/adopt"},
		{[]string{"adopt", "--json"}, []string{`"ledgers"`}, "POST /v1/in-doubt/adopt"},
		{[]string{"in-doubt", "--json"}, []string{`"unreachable"`}, "GET /v1/in-doubt"},
	} {
		out, err := execute(t, append([]string{"sagas", "--url", house.URL}, c.args...)...)
		if err != nil || asked[len(asked)-1] != c.path {
			t.Errorf("%v: asked %v, %v", c.args, asked, err)
		}
		for _, want := range c.want {
			if !strings.Contains(out, want) {
				t.Errorf("%v: no %q in %s", c.args, want, out)
			}
		}
	}
}

// TestLedgers reads the flag.
func TestLedgers(t *testing.T) {
	t.Parallel()
	for text, ok := range map[string]bool{
		"eu=postgres://h/d": true, "eu=postgres://h/d us=https://:k@host": true, "": true, "eu": false, "eu=": false, "eu=a eu=b": false,
	} {
		if _, err := parseLedgers([]string{text}); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}
