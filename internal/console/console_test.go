package console

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"strings"
	"testing"
)

// firstLoad is what a browser may have to fetch before a page is shown, in bytes.
const firstLoad = 300_000

// TestAssetsAreSelfContained reads every file as a suspicious person would: nothing from elsewhere, nothing inline, and no way
// from text to markup.
func TestAssetsAreSelfContained(t *testing.T) {
	total := 0
	imports := regexp.MustCompile(`(?m)^(?:import|export) [^;]*? ?from "([^"]+)"`)
	for name, a := range Assets() {
		if a.contentType == "" {
			t.Errorf("%s: no content type", name)
		}
		if total += len(a.packed); a.packed == nil {
			total += len(a.plain)
		}
		text := string(a.plain)
		for _, bad := range []string{"https://", "http://", "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "style=\"", " onclick=\"", "setAttribute(\"style\"", "javascript:"} {
			rest := strings.NewReplacer("http://www.w3.org/2000/svg", "", "https://example.com/", "").Replace(text)
			// Those of the vendored library are in its comments, and its bytes are known.
			if name == "doc.go" || !strings.Contains(rest, bad) || vendored[name] != "" && strings.HasPrefix(bad, "http") {
				continue
			}
			t.Errorf("%s has %q", name, bad)
		}
		if a.IsPage() && regexp.MustCompile(`<script(?:[^>]*)>[^<]|<style`).MatchString(text) {
			t.Errorf("%s has an inline script or style", name)
		}
		if path.Ext(name) != ".js" {
			continue
		}
		for _, m := range imports.FindAllStringSubmatch(text, -1) {
			target := path.Join(path.Dir(name), m[1])
			if _, ok := Assets()[target]; !ok || !strings.HasPrefix(m[1], ".") {
				t.Errorf("%s imports %s, which is not there", name, m[1])
			}
		}
	}
	t.Logf("all %d assets together: %d bytes compressed", len(Assets()), total)
	if total > firstLoad {
		t.Errorf("all assets together have %d bytes compressed", total)
	}
}

// vendored are the files of others, uPlot 1.6.32 as the npm registry has it, by their SHA-256 (ADR 0031).
var vendored = map[string]string{
	"js/vendor/uPlot.js": "5dd9b3281aa64b461b42d9945f6adb2649d346502b12281a9ae0d46599a80eba",
	"css/uPlot.css":      "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}

// TestVendoredFilesAreUnchanged compares them with what was fetched.
func TestVendoredFilesAreUnchanged(t *testing.T) {
	for name, want := range vendored {
		if a := Assets()[name]; a == nil || fmt.Sprintf("%x", sha256.Sum256(a.plain)) != want {
			t.Errorf("%s is not as it was fetched", name)
		}
	}
	if Assets()["js/vendor/uPlot-LICENSE.txt"] == nil {
		t.Error("the licence is missing")
	}
}

// TestPagesAreThere goes through the router's table: each page is a module.
func TestPagesAreThere(t *testing.T) {
	app, _ := Assets()["js/app.js"]
	modules := regexp.MustCompile(`module: "([a-z-]+)"`).FindAllStringSubmatch(string(app.plain), -1)
	if len(modules) < 15 {
		t.Fatalf("only %d pages", len(modules))
	}
	for _, m := range modules {
		if _, ok := Assets()["js/pages/"+m[1]+".js"]; !ok {
			t.Errorf("no page %s", m[1])
		}
	}
	for _, name := range []string{Page, CampaignPage, AuctionPage} {
		if a, ok := Assets()[name]; !ok || !a.IsPage() {
			t.Errorf("no page %s", name)
		}
	}
}

func TestServe(t *testing.T) {
	a, _ := Assets()["js/app.js"]
	for _, c := range []struct {
		method, accepts, has string
		status               int
		packed               bool
		body                 bool
	}{
		{"GET", "", "", 200, false, true},
		{"GET", "gzip, deflate, br", "", 200, true, true},
		{"GET", "br, gzip;q=0.5", "", 200, true, true},
		{"GET", "gzip;q=0", "", 200, false, true},
		{"GET", "gzip", a.tag, 304, false, false},
		{"HEAD", "gzip", "", 200, true, false},
		{"GET", "gzip", `"other"`, 200, true, true},
	} {
		r := httptest.NewRequest(c.method, "/", http.NoBody)
		r.Header.Set("Accept-Encoding", c.accepts)
		r.Header.Set("If-None-Match", c.has)
		w := httptest.NewRecorder()
		a.Serve(w, r, http.StatusOK)
		packed := w.Header().Get("Content-Encoding") == "gzip"
		if w.Code != c.status || packed != c.packed || (w.Body.Len() > 0) != c.body || w.Header().Get("ETag") != a.tag {
			t.Errorf("%+v: %d, packed %v, %d bytes", c, w.Code, packed, w.Body.Len())
		}
	}
}
