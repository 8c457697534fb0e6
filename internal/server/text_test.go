package server

import (
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// notUTF8 are pieces of a URL that no text has once they are decoded.
var notUTF8 = []string{"%ff", "%00", "a%00b", "%ed%a0%80", "%c0%af", "%f4%90%80%80"}

// realPaths uses every route, and returns for each pattern that was read with success a path that it matched.
func (e *env) realPaths() map[string]string {
	e.t.Helper()
	paths, c := map[string]string{}, e.contract()
	e.observe = func(method, path string, r *reply) {
		if method != http.MethodGet || r.status != http.StatusOK {
			return
		}
		if pattern, _ := c.operation(method, path); pattern != "" {
			paths[pattern], _, _ = strings.Cut(path, "?")
		}
	}
	e.useEverything()
	e.observe = nil
	return paths
}

// TestTextThatIsNone puts what is no UTF-8, and NUL, into every parameter of every route.
func TestTextThatIsNone(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	sent := 0
	for _, rt := range e.server.routes() {
		parameters := pathParameter.FindAllString(rt.path, -1)
		plain := pathParameter.ReplaceAllLiteralString(rt.path, newUUID())
		targets := []string{plain + "?x=%zz"}
		for _, bad := range notUTF8 {
			for i := range parameters {
				path := rt.path
				for j, p := range parameters {
					value := newUUID()
					if i == j {
						value = bad
					}
					path = strings.Replace(path, p, value, 1)
				}
				targets = append(targets, path)
			}
			targets = append(targets, plain+"?"+bad+"=1", plain+"?x="+bad)
			for _, q := range rt.doc.query {
				targets = append(targets, plain+"?"+q.name+"="+bad)
			}
		}
		for _, target := range targets {
			e.raw(rt.method, target, "Idempotency-Key: "+newUUID(), "Content-Length: 0").problem(http.StatusBadRequest, "bad_request")
			sent++
		}
	}
	for _, bad := range notUTF8 {
		for _, path := range []string{"/v1/nothing/" + bad, "/nothing/" + bad, "/nothing?x=" + bad} {
			e.raw(http.MethodGet, path).problem(http.StatusBadRequest, "bad_request")
		}
		// Nobody learns anything without a credential.
		e.by("").raw(http.MethodGet, "/v1/accounts/"+bad).problem(http.StatusUnauthorized, "unauthorized")
	}
	t.Logf("%d requests", sent)
}

// forgedCursors are cursors of a list that it never gave. Their check is no secret, so anybody can make them.
func forgedCursors(path string) []string {
	var all []string
	for _, n := range []int64{1, 1 << 16, math.MaxInt32, math.MaxInt32 + 1, 1 << 53, math.MaxInt64 - 1, math.MaxInt64} {
		all = append(all, cursor(path, n))
	}
	for _, s := range []string{"\xff", "a\x00b", "\x00", "z", "~", "{}", newUUID(), strings.ToUpper(newUUID()), "{" + newUUID() + "}", strings.Repeat("a", 20_000)} {
		all = append(all, textCursor(path, s))
	}
	return all
}

// TestForgedCursors gives every list cursors that it never gave.
func TestForgedCursors(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	lists := 0
	for _, path := range e.realPaths() {
		if e.get(path+"?after=").status != http.StatusBadRequest {
			continue // It takes no cursor.
		}
		lists++
		for _, after := range forgedCursors(path) {
			if r := e.get(path + "?after=" + url.QueryEscape(after)); r.status != http.StatusOK && r.status != http.StatusBadRequest {
				t.Errorf("%s?after=%s: %d %s", path, clip(after), r.status, r.body)
			}
		}
	}
	const known = 20
	if lists < known {
		t.Errorf("only %d lists were looked at", lists)
	}
	// A place that no row can have is none of an earlier answer.
	for _, path := range []string{"/v1/admin/audit", "/v1/admin/transfers", "/v1/admin/accounts/alice/holds"} {
		e.get(path+"?after="+textCursor(path, "z")).problem(http.StatusBadRequest, "bad_request")
	}
}

// FuzzParameters puts any text into any parameter of any route that reads: the answer is never a failure of the server's,
// and never anything but a 400 where the text is none.
func FuzzParameters(f *testing.F) {
	e := newEnv(f)
	paths := e.realPaths()
	patterns := slices.Sorted(maps.Keys(paths))
	for i := range patterns {
		f.Add(uint(i), "after", "\xff")
		f.Add(uint(i), "status", "a\x00b")
		f.Add(uint(i), "prefix", "'; --")
	}
	f.Fuzz(func(t *testing.T, which uint, name, value string) {
		pattern := patterns[which%uint(len(patterns))]
		path := paths[pattern]
		good := utf8.ValidString(name+value) && !strings.Contains(name+value, "\x00")
		targets := []string{
			path + "?" + url.QueryEscape(name) + "=" + url.QueryEscape(value),
			path + "?after=" + url.QueryEscape(textCursor(path, value)), // What is wrong with its place is hidden from the first look.
		}
		if strings.Contains(pattern, "{") {
			around := pathParameter.FindStringIndex(pattern)
			targets = append(targets, pathParameter.ReplaceAllLiteralString(pattern[:around[0]]+url.PathEscape(name+value)+pattern[around[1]:], newUUID()))
		}
		for i, target := range targets {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://test"+target, http.NoBody)
			if err != nil {
				continue // No client can send it.
			}
			r.Header.Set("Authorization", "Bearer "+e.admin)
			w := httptest.NewRecorder()
			e.server.Handler().ServeHTTP(w, r)
			if w.Code >= http.StatusInternalServerError {
				t.Errorf("%q: %d %s", target, w.Code, w.Body)
			}
			if !good && i != 1 && w.Code != http.StatusBadRequest && w.Code != http.StatusNotFound {
				t.Errorf("%q: %d %s", target, w.Code, w.Body)
			}
		}
	})
}
