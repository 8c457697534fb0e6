//go:build unix

package sim_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/fairdraw/beacon/beacontest"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// pythonVerifier is the folder of a program that was written from the log's specification alone.
const pythonVerifier = "../../translog/testdata"

// verdict is what the program says.
type verdict struct {
	Valid      bool           `json:"valid"`
	Leaves     int            `json:"leaves"`
	Topics     map[string]int `json:"topics"`
	Bids       int            `json:"bids"`
	UnderWay   int            `json:"under_way"`
	Unverified []string       `json:"unverified"`
	Balance    int64          `json:"available"`
	Problem    string         `json:"problem"`
	Index      *int           `json:"index"`
}

// judge runs the program, which must end with this code.
func judge(t *testing.T, code int, args ...string) (v verdict) {
	t.Helper()
	// Go looks whether something in the folder has changed before it takes a cached result.
	if _, err := os.ReadDir(pythonVerifier); err != nil {
		t.Fatal(err)
	}
	args = append([]string{"-B", "-W", "error", filepath.Join(pythonVerifier, "verify_log.py"), "--json"}, args...)
	out, err := exec.CommandContext(testwait.Context(t, patience), "python3", args...).Output()
	exit := new(exec.ExitError)
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out, &v); err != nil {
		t.Fatalf("the program said %q: %v\n%s", out, err, exit.Stderr)
	}
	if err == nil && code != 0 || err != nil && exit.ExitCode() != code {
		t.Fatalf("the program ended with %v, want code %d: %s\n%s", err, code, out, exit.Stderr)
	}
	return v
}

// TestLogInPython plays campaigns, auctions and multi-draws. From the log alone, a program that shares no code with the server
// comes to the same draws, ranks and winners; it finds the leaf that is changed afterwards.
func TestLogInPython(t *testing.T) {
	beside(t)
	if _, err := exec.LookPath("python3"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("python3 is missing: scripts/setup.sh test installs it")
		}
		t.Skip("*** NOT TESTED: the log's second verifier needs python3")
	}
	rng, _ := testwait.Rand(t)
	const bidders, funds = 6, 100_000
	many := testwait.Count(10, 20) // One campaign in ten is of each kind.
	sellers := names("gallery", many)
	accounts := slices.Concat(names("bidder", many*bidders), sellers, []string{"house", "buyer"})
	random := beacontest.New(t)
	h := &auctionHouse{database: newDatabase(t), funds: map[string]int64{}}
	h.servers = append(h.servers, newServer(t, h.database, append(beaconFlags(t, random), "--close-books-every", "2s")...))
	h.client, h.history = newClient(t, h.servers...)
	h.open(t, accounts, funds)
	want := verdict{Valid: true, Topics: map[string]int{"campaign": many + 1, "auction": many, "multidraw": 4, "books": 1}}

	var auctions []*bidding
	var crowds []*crowd
	for i := range many {
		rules := randomRules(rng, i%3 > 0)
		rules.Seller = sellers[i]
		b := h.launch(t, fmt.Sprintf("logged-%d", i), accounts[i*bidders:(i+1)*bidders], rules)
		c := b.crowd(t, rng.Uint64(), 3, 0)
		c.group.Go(func() {
			defer close(c.stop)
			_, _ = b.subscribers[0].Await(t.Context(), "the end of the auction", isEnd) // Below, this is awaited with a limit.
		})
		auctions, crowds = append(auctions, b), append(crowds, c)
	}
	for i := range many {
		want.UnderWay += playCampaign(t, h.client, rng, i)
	}
	raffle := raffleOf(t, h.client, "logged")
	for i := range 3 {
		settle(t, h.client, "/v1/campaigns/"+raffle.ID+"/purchases", fmt.Sprintf("logged-raffle-%d", i), `{"account":"buyer-logged"}`)
	}
	drawMany(t, h.client)
	for i, b := range auctions {
		if i%5 == 4 {
			b.cancel(t)
		}
		b.await(t, 2*patience, "the end of the auction", isEnd)
		crowds[i].drain(t)
		want.Bids += len(b.finish(t, patience).Bids)
	}
	awaitRaffle(t, h.client, raffle.ID)
	h.close(t, 10)

	url := h.servers[0].URL()
	key := string(mustGet(t, h.client, "/log/key"))
	var got verdict
	testwait.Eventually(t, 2*patience, "everything in the log", func() bool {
		got = judge(t, 0, url, key)
		return got.Bids >= want.Bids && got.UnderWay <= want.UnderWay && maps.Equal(got.Topics, want.Topics)
	})
	if got.Bids != want.Bids || got.UnderWay != want.UnderWay {
		t.Errorf("the log has %+v, want %+v", got, want)
	}
	// It has no BLS signatures, says so, and knows no chain but drand's.
	if len(got.Unverified) != 2 {
		t.Errorf("what was not verified: %q", got.Unverified)
	}
	t.Logf("%+v", got)
	checkAnswers(t, h.client, key, auctions[0].id)

	// A leaf is changed behind the server's back. The server may have it in memory, so another one reads it.
	const changed = 100
	changeLeaf(t, h.database, changed)
	if v := judge(t, 1, newServer(t, h.database).URL(), key); v.Index == nil || *v.Index != changed {
		t.Errorf("the program names another leaf than %d: %+v", changed, v)
	}
}

// changeLeaf changes one bit of a leaf in the first bundle.
func changeLeaf(t *testing.T, database string, index int) {
	t.Helper()
	conn := pgtest.Connect(t, database)
	var entries []byte
	testwait.Must(t, conn.QueryRow(t.Context(), `SELECT entries FROM log_bundles WHERE number = 0`).Scan(&entries))
	at := 0
	for range index {
		at += 2 + int(entries[at])<<8 + int(entries[at+1])
	}
	entries[at+2] ^= 1
	testwait.Must(t, testwait.Err(conn.Exec(t.Context(), `UPDATE log_bundles SET entries = $1 WHERE number = 0`, entries)))
	testwait.Must(t, conn.Close(t.Context()))
}

// cancel cancels an auction that may end meanwhile.
func (b *bidding) cancel(t *testing.T) {
	t.Helper()
	op := sim.NewOp(sim.KindAuction, "/v1/auctions/"+b.id+"/cancel", b.name+"-cancel", nil)
	answer, err := b.house.client.Settle(testwait.Context(t, patience), op)
	testwait.Must(t, err)
	if answer.Status != http.StatusOK && answer.Code() != "bad_transition" {
		t.Errorf("%s: cancel: %v", b.name, answer)
	}
}

// playCampaign makes a campaign of some layers and prizes. One in five stays a draft, is cancelled as a draft, or is cancelled half
// sold; the others are sold out by buyers at the same moment. It returns 1 where the campaign is still open.
func playCampaign(t *testing.T, c *sim.Client, rng *rand.Rand, n int) (open int) {
	t.Helper()
	name := fmt.Sprintf("logged-campaign-%d", n)
	spec := client.CreateCampaignRequest{Name: name + " <\"é\u2028\\", Currency: "SIM", Beneficiary: "house"}
	var all int64
	for range 1 + rng.IntN(4) {
		spec.Layers = append(spec.Layers, client.LayerRequest{Positions: 1 + rng.Int64N(6), Price: 1 + rng.Int64N(5)})
		all += spec.Layers[len(spec.Layers)-1].Positions
	}
	for p := range 1 + rng.IntN(4) {
		prize, most := client.PrizeRequest{Name: fmt.Sprintf("prize %d 🎈", p), Layer: rng.Int64N(int64(len(spec.Layers) + 1))}, all
		if prize.Layer > 0 {
			most = spec.Layers[prize.Layer-1].Positions
		}
		prize.Quantity = 1 + rng.Int64N(most)
		spec.Prizes = append(spec.Prizes, prize)
	}
	answer, err := c.Expect(testwait.Context(t, patience), sim.NewOp(sim.KindCampaign, "/v1/campaigns", name+"-create", spec), http.StatusCreated)
	testwait.Must(t, err)
	var made client.Campaign
	testwait.Must(t, answer.JSON(&made))
	act := func(kind sim.Kind, verb string) {
		op := sim.NewOp(kind, "/v1/campaigns/"+made.ID+"/"+verb, name+"-"+verb, nil)
		testwait.Must(t, testwait.Err(c.Expect(testwait.Context(t, patience), op, http.StatusOK)))
	}
	fate := n % 10
	if fate == 0 {
		return 1
	}
	if fate != 1 {
		act(sim.KindPublish, "publish")
		if fate == 2 {
			all /= 2
		}
		counts := statuses(t, race(testwait.Context(t, patience), c, made.ID, name, slices.Repeat([]string{"buyer"}, int(all))))
		if counts["201"] != int(all) {
			t.Errorf("%s: %v", name, counts)
		}
	}
	if fate == 1 || fate == 2 {
		act(sim.KindCancel, "cancel")
	}
	return 0
}

// drawMany makes multi-draws of all widths of a draw, and rolls one back.
func drawMany(t *testing.T, c *sim.Client) {
	t.Helper()
	for i, of := range []string{
		`"range":{"min":-3,"max":3}`, `"range":{"min":-9223372036854775808,"max":9223372036854775807}`, `"range":{"min":0,"max":70000}`,
		`"prizes":[{"id":"a","name":"<a>","weight":0,"value":-1},{"id":"b","name":"b","weight":3,"value":7},{"id":"c","name":"ü","weight":2,"value":0}]`,
	} {
		answer := sendOnce(t, c, "/v1/multidraws", fmt.Sprintf(`{"lock_key":"logged-%d","count":%d,%s}`, i, 1+i*1000, of))
		var made drawn
		testwait.Must(t, answer.JSON(&made))
		if answer.Status != http.StatusCreated {
			t.Fatalf("%v", answer)
		}
		if i == 2 {
			if answer := sendOnce(t, c, "/v1/multidraws/"+made.ID+"/rollback", `{}`); answer.Status != http.StatusOK {
				t.Fatalf("%v", answer)
			}
		}
	}
}

// checkAnswers lets the program check the leaves of one auction and the balance of one account as the interface gives them.
func checkAnswers(t *testing.T, c *sim.Client, key, auction string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "answer.json")
	testwait.Must(t, os.WriteFile(file, mustGet(t, c, "/v1/auctions/"+auction+"/log"), 0o600))
	if v := judge(t, 0, "--leaves", file, key); v.Topics["auction"] != 1 || v.Leaves == 0 {
		t.Errorf("leaves of an auction: %+v", v)
	}
	var shown client.Account
	testwait.Must(t, c.GetJSON(testwait.Context(t, patience), "/v1/accounts/house", &shown))
	testwait.Eventually(t, 3*patience, "a closing with the balance", func() bool {
		answer := answerTo(t, c, "/v1/accounts/house/proof")
		if answer.Code() == "not_found" {
			return false // The account is younger than the newest closing.
		}
		testwait.Must(t, os.WriteFile(file, answer.Body, 0o600))
		return judge(t, 0, "--balance", file, key).Balance == shown.Available
	})
}
