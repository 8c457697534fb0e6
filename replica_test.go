package fairlead

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/standby"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestReplicaOverHTTP: a client that sends back what it was told sees its own writes in lists, singly and in batches, whoever answers. The Go
// client does.
func TestReplicaOverHTTP(t *testing.T) {
	primary := pgtest.Server(t)
	o := Options{DatabaseURL: primary.URL(), Data: t.TempDir(), AdminKey: strings.Repeat("k", 32), JWTSecret: strings.Repeat("j", 32)}
	first, err := Open(t.Context(), o) // It makes the schema.
	testwait.Must(t, err)
	testwait.Must(t, first.Close(t.Context()))
	o.ReplicaURL = pgtest.StandbyOf(t, primary, "replica").URL()
	s, err := Open(t.Context(), o)
	testwait.Must(t, err)
	defer func() { testwait.Check(t, s.Close(t.Context())) }()
	own := httptest.NewServer(s.Handler())
	defer own.Close()
	c, err := client.New(own.URL, o.AdminKey, client.WithHTTPClient(own.Client()))
	testwait.Must(t, err)
	batching, err := client.New(own.URL, o.AdminKey, client.WithHTTPClient(own.Client()))
	testwait.Must(t, err)
	defer own.Client().CloseIdleConnections()

	_, err = c.CreateAccount(t.Context(), client.CreateAccountRequest{ID: "ann", Currency: "EUR"})
	testwait.Must(t, err)
	batched := client.NewBatcher(batching)
	entries := func(c *client.Client) (n int) {
		for _, err := range c.Entries(t.Context(), "ann") {
			testwait.Must(t, err)
			n++
		}
		return n
	}
	for made := 0; ; {
		for _, each := range []*client.Client{c, batched.Client} {
			var a client.Answer
			_, err := each.Deposit(t.Context(), client.MovementRequest{Account: "ann", Amount: 1}, client.Into(&a))
			testwait.Must(t, err)
			if made++; entries(each) != made {
				t.Fatalf("a client does not see its own deposit, number %d", made)
			}
			if _, err := standby.Parse(a.Header.Get("Fairlead-After")); each == c && err != nil {
				t.Fatalf("the answer's headers are %v: %v", a.Header, err)
			}
		}
		if state, _ := s.db.Replica(); state.Served > 0 && made > 20 {
			break
		}
	}
	// A user does not see drafts. The standby still has one; the primary has sold in it.
	testwait.Eventually(t, testwait.Patience, "a standby that is read from", func() bool { state, _ := s.db.Replica(); return state.Usable })
	_, err = c.CreateAccount(t.Context(), client.CreateAccountRequest{ID: "house", Currency: "EUR"})
	testwait.Must(t, err)
	campaign, err := c.CreateCampaign(t.Context(), client.CreateCampaignRequest{
		Name: "two", BaseLength: 2, Price: 1, Currency: "EUR", Beneficiary: "house", Prizes: []client.PrizeRequest{{Name: "one", Quantity: 1}},
	})
	testwait.Must(t, err)
	for range 40 { // Until the standby has it, with luck, and a bit longer.
		for _, err := range c.Positions(t.Context(), campaign.ID) {
			testwait.Must(t, err)
		}
	}
	replay := func(sql string) {
		conn, err := pgx.Connect(t.Context(), o.ReplicaURL)
		testwait.Must(t, err)
		_, err = conn.Exec(t.Context(), sql)
		testwait.Must(t, errors.Join(err, conn.Close(t.Context())))
	}
	replay(`SELECT pg_wal_replay_pause()`)
	_, err = c.PublishCampaign(t.Context(), campaign.ID)
	testwait.Must(t, err)
	_, err = c.Buy(t.Context(), campaign.ID, client.PurchaseRequest{Account: "ann"})
	testwait.Must(t, err)
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"sub": "ann", "exp": time.Now().Add(time.Hour).Unix()}).SignedString([]byte(o.JWTSecret))
	testwait.Must(t, err)
	user, err := client.New(own.URL, token, client.WithHTTPClient(own.Client()))
	testwait.Must(t, err)
	for _, err := range user.Positions(t.Context(), campaign.ID) {
		testwait.Must(t, err)
	}
	replay(`SELECT pg_wal_replay_resume()`)
	for _, after := range [][]string{{"1"}, {"nowhere"}, {"0/0, 0/0"}, {"0/0", "0/0"}} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, own.URL+"/v1/accounts/ann/entries", http.NoBody)
		testwait.Must(t, err)
		req.Header = http.Header{"Authorization": {"Bearer " + o.AdminKey}, "Fairlead-After": after}
		resp, err := own.Client().Do(req)
		testwait.Must(t, err)
		testwait.Must(t, resp.Body.Close())
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%q: status %d", after, resp.StatusCode)
		}
	}
}
