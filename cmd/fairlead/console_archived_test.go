package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead"
	"github.com/fairlead-dev/fairlead/internal/archive"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/internal/postgres/partitions/partitionstest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestConsoleArchivedSales looks at campaigns whose purchases are archived, as an operator and as the public does: what is known still is there, and the rest
// is said to be archived.
func TestConsoleArchivedSales(t *testing.T) {
	t.Parallel()
	chromiumPath(t)
	month := time.Date(time.Now().Year()-1, 1, 1, 0, 0, 0, 0, time.UTC)
	drawn, cancelled := partitionstest.CampaignOf(month, partitionstest.Drawn).String(), partitionstest.CampaignOf(month, partitionstest.Cancelled).String()
	url := pgtest.Server(t).URL()
	testwait.Must(t, testwait.Err(postgres.Migrate(t.Context(), url)))
	conn := pgtest.Connect(t, url)
	testwait.Must(t, partitionstest.Begin(t.Context(), conn, month.AddDate(0, 0, 14), time.Now()))
	testwait.Must(t, testwait.Err(conn.Exec(t.Context(), partitionstest.Month(month.Year(), month.Month(), 1, 10))))
	testwait.Must(t, partitionstest.Sales(t.Context(), conn, month, 0))
	s := startSceneWith(t, func(o *fairlead.Options) { o.DatabaseURL = url })
	b := openBrowser(t, s.url)
	s.signsIn(b)
	look := func(name, path string, says ...string) {
		t.Helper()
		b.look(1440, "light")
		b.visit(path)
		for _, text := range says {
			b.await(name+" says "+text, fmt.Sprintf(`document.body.textContent.includes(%q)`, text))
		}
		b.everywhere(name)
	}
	look("sold", "/console/campaigns/"+drawn, "5 of 5 sold", "Revenue", "old-0")
	purchases, _ := s.call("GET", "/v1/campaigns/"+drawn+"/purchases?limit=1", nil)["items"].([]any)
	first, _ := purchases[0].(obj)
	place, _ := first["position"].(obj)
	r, err := s.db().Archive(t.Context(), archive.Options{Before: month.AddDate(0, 1, 0), Directory: t.TempDir()})
	if err != nil || len(r.Made) != 1 || r.Purchases != "" {
		t.Fatalf("archived %+v, %v", r, err)
	}
	b.expect("404") // Of what is archived.
	look("archived", "/console/campaigns/"+drawn, "5 of 5 sold", "its purchases are archived", "fairlead archive proof "+drawn)
	look("archived-cancelled", "/console/campaigns/"+cancelled, "2 of 6 sold", "its purchases are archived")
	look("archived-public", "/p/campaigns/"+drawn, "5 of 5 sold")
	b.write("main", "position", fmt.Sprint(place["id"]))
	b.click("main", "Check")
	b.await("that the position is archived", `document.body.textContent.includes("This campaign’s sales are archived")`)
	b.shoot("archived-position")
	look("archived-public-cancelled", "/p/campaigns/"+cancelled, "2 of 6 sold")
	look("archived-account", "/console/accounts/old-03", "old-03")
	b.quiet("archived sales")
}
