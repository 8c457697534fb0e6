//go:build unix

package sim_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/services/publish/deviantart/deviantarttest"
	"github.com/fairlead-dev/fairlead/internal/sim"
)

// gallery is an account that can be asked what it has.
type gallery struct{ *deviantarttest.Server }

func newArt(t *testing.T) gallery {
	t.Helper()
	g := gallery{deviantarttest.New()}
	t.Cleanup(g.Close)
	return g
}

func (g gallery) register(t *testing.T, server *sim.Server) {
	t.Helper()
	var made publication
	ask(t, server, "/v1/targets", fmt.Sprintf(`{"name":"art","kind":"deviantart","url":%q,"config":{"client_id":%q,"client_secret":%q,"refresh_token":%q}}`,
		g.URL, deviantarttest.ClientID, deviantarttest.ClientSecret, g.Refresh()), &made)
}

// publication is the body that makes the nth of them.
func (gallery) publication(n int) string {
	return fmt.Sprintf(`{"target":"art","payload":{"title":"picture %d","file":{"name":"a.png","data":"UE5H"}}}`, n)
}

// check wants each of the publications in the gallery once.
func (g gallery) check(t *testing.T, made int) {
	t.Helper()
	times := map[string]int{}
	for _, d := range g.Gallery() {
		times[d.Title]++
	}
	for n := range made {
		if title := fmt.Sprint("picture ", n); times[title] != 1 {
			t.Errorf("%s is there %d times", title, times[title])
		}
	}
	if len(times) != made {
		t.Errorf("%d pictures, want %d", len(times), made)
	}
}

// claimTimes is the p99 of the claims of all servers, rounded up to a bucket of their histogram.
func claimTimes(t *testing.T, servers []*sim.Server) time.Duration {
	t.Helper()
	var (
		bounds []float64
		counts = map[float64]float64{}
	)
	for _, server := range servers {
		for line := range strings.Lines(string(metricsOf(t, server))) {
			rest, ok := strings.CutPrefix(strings.TrimSpace(line), `fairlead_publish_claim_duration_seconds_bucket{le="`)
			if !ok {
				continue
			}
			text, value, _ := strings.Cut(rest, `"} `)
			bound, err := strconv.ParseFloat(text, 64)
			n, countErr := strconv.ParseFloat(value, 64)
			if err != nil || countErr != nil {
				t.Fatalf("%s: %v, %v", line, err, countErr)
			}
			if _, there := counts[bound]; !there {
				bounds = append(bounds, bound)
			}
			counts[bound] += n
		}
	}
	for _, bound := range bounds {
		if total := counts[bounds[len(bounds)-1]]; total > 0 && counts[bound] >= 0.99*total {
			return time.Duration(bound * float64(time.Second))
		}
	}
	t.Fatal("no claims in the metrics")
	return 0
}
