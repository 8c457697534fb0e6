package server

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/services/auction"
)

// TestSocketIOPage compares the table of the page for users of Socket.IO with the types of events that there are, and the snippet with
// the table.
func TestSocketIOPage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/quickstart/socketio.md")
	must(t, err)
	want := []string{
		string(auction.EventAuctionStarted), string(auction.EventAuctionCompleted), string(auction.EventAuctionCancelled),
		string(auction.EventBidPlaced), string(auction.EventRoundExtended), string(auction.EventRoundCompleted),
		string(auction.EventRoundStarted), string(auction.EventBidCarriedOver), string(auction.EventCountdown), "bid.outbid",
	}
	var types []string
	for _, row := range regexp.MustCompile("(?m)^\\|.*\\| `(auction|account):ID` \\| `([a-z._]+)` \\|").FindAllStringSubmatch(string(text), -1) {
		types = append(types, row[2])
		if (row[1] == "account") != (row[2] == "bid.outbid") {
			t.Errorf("%s is on the topic of an %s", row[2], row[1])
		}
	}
	slices.Sort(want)
	if got := slices.Sorted(slices.Values(types)); !slices.Equal(got, want) {
		t.Errorf("the page has %q, there are %q", got, want)
	}
	_, use, found := strings.Cut(string(text), "const live = auctionSocket(")
	handlers := regexp.MustCompile(`(?m)^    "([a-z_.]+)": `).FindAllStringSubmatch(use, -1)
	if !found || len(handlers) < 5 {
		t.Fatalf("%d handlers in the snippet", len(handlers))
	}
	for _, h := range handlers {
		if !slices.Contains(want, h[1]) {
			t.Errorf("the snippet handles %q, which is no type", h[1])
		}
	}
}
