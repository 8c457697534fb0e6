//go:build unix

package sim_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/services/publish/deviantart/deviantarttest"
	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestUploadGoesOnPastHeartbeats uploads a file that comes piece by piece, the next one when a heartbeat has told of the last, for longer
// than a claim lives without a heartbeat. Another server could take over, and does not. On a machine that stalls for as long as that, it does, and
// all is begun anew.
func TestUploadGoesOnPastHeartbeats(t *testing.T) {
	beside(t)
	for tries := 1; !uploadGoesOn(t); tries++ {
		if tries == claimTries {
			t.Fatal("each time, the first attempt was lost")
		}
	}
}

// uploadGoesOn reports false if the first attempt was lost.
func uploadGoesOn(t *testing.T) bool {
	t.Helper()
	const (
		staleAfter = 10 * time.Second
		piece      = 10_000
	)
	database := newDatabase(t)
	args := []string{"--allow-private-targets", "--claim-stale-after", staleAfter.String(), "--claim-sweep-every", "1s"}
	servers := []*sim.Server{newServer(t, database, args...), newServer(t, database, args...)}
	pieces, over := make(chan string), make(chan struct{})
	end := sync.OnceFunc(func() { close(over) })
	t.Cleanup(end) // The file may be under way when the test has failed.
	files := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for {
			select {
			case <-r.Context().Done():
				return
			case <-over:
				return
			case text := <-pieces:
				_, _ = w.Write([]byte(text))
				_ = http.NewResponseController(w).Flush()
			}
		}
	}))
	t.Cleanup(files.Close)
	art := newArt(t)
	var target, made publication
	ask(t, servers[0], "/v1/targets", fmt.Sprintf(`{"name":"art","kind":"deviantart","url":%q,"timeout":"15m","config":{"client_id":%q,"client_secret":%q,"refresh_token":%q}}`,
		art.URL, deviantarttest.ClientID, deviantarttest.ClientSecret, art.Refresh()), &target)
	ask(t, servers[0], "/v1/publications", fmt.Sprintf(`{"target":"art","publish_at":"2020-01-01T00:00:00Z","payload":{"title":"slow","file":{"name":"a.mp4","url":%q}}}`, files.URL), &made)

	var first, last time.Time
	var file strings.Builder
	same := true
	for n := 1; last.Sub(first) <= staleAfter || n <= 4; n++ {
		text := strings.Repeat(string(rune('a'+n%26)), piece)
		hand(t, pieces, text)
		file.WriteString(text)
		testwait.Eventually(t, patience, "a heartbeat tells of the next piece", func() bool {
			var p longPublication
			testwait.Must(t, clientOf(t, servers[n%2]).GetJSON(testwait.Context(t, patience), "/v1/publications/"+made.ID, &p))
			a := p.Current
			if p.Version != 1 || p.Status != "publishing" || a == nil || a.EndedAt != nil {
				t.Logf("%+v, want the first attempt under way", p)
				same = false
				return true
			}
			if a.Heartbeat == nil || !a.Heartbeat.After(last) || a.Sent == nil || *a.Sent < int64(file.Len()) {
				return false
			}
			if *a.Sent != int64(file.Len()) || a.Stage == nil || *a.Stage != "uploading" {
				t.Fatalf("%d bytes sent of %d, at %v", *a.Sent, file.Len(), a.Stage)
			}
			if last = *a.Heartbeat; first.IsZero() {
				first = last
			}
			return true
		})
		if !same {
			return false
		}
	}
	end()
	if p := published(t, servers[0], made.ID); p.Version != 1 {
		t.Logf("published by attempt %d", p.Version)
		return false
	}
	if got := art.Gallery(); len(got) != 1 || got[0].File != file.String() {
		t.Errorf("%d deviations, or another file", len(got))
	}
	auditNow(t, database)
	return true
}

// hand gives the next piece to the server of the file.
func hand(t *testing.T, pieces chan<- string, text string) {
	t.Helper()
	select {
	case pieces <- text:
	case <-testwait.Context(t, patience).Done():
		t.Fatal("nobody fetches the file")
	}
}
