//go:build unix

package sim_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

// What reads may do to the rest, at a million positions.
const (
	readsMemory = 400 << 20 // of the server
	readsSlow   = 2         // times as slow as at rest may a deposit be, at p99
	readProofs  = 48        // whole proofs at once
	readPublic  = 64        // clients without a credential that ask for one inclusion proof after another
	roundLate   = 2 * time.Second
)

// reader asks a server for things.
type reader struct {
	t    *testing.T
	base string
	http *http.Client
}

func (r *reader) do(method, path, body string, credential bool, into io.Writer) (int, error) {
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.base+path, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	if credential {
		req.Header.Set("Authorization", "Bearer "+sim.AdminKey)
	}
	if method == http.MethodPost {
		req.Header.Set("Idempotency-Key", uuid.NewString())
	}
	response, err := r.http.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	_, err = io.Copy(into, response.Body)
	return response.StatusCode, err
}

// post sends a command that must succeed, and returns the id in its answer.
func (r *reader) post(path, body string) string {
	r.t.Helper()
	var answer bytes.Buffer
	status, err := r.do(http.MethodPost, path, body, true, &answer)
	if err != nil || status >= http.StatusMultipleChoices {
		r.t.Fatalf("POST %s: %d, %v: %s", path, status, err, answer.String())
	}
	var made struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal(answer.Bytes(), &made); err != nil {
		r.t.Fatal(err)
	}
	return made.ID
}

// drawn makes a campaign of n positions that is drawn, past the service, which is not asked for a million purchases.
func (r *reader) drawn(conn *pgx.Conn, n, prizes int) uuid.UUID {
	r.t.Helper()
	id := uuid.MustParse(r.post("/v1/campaigns", fmt.Sprintf(`{"name":"great","currency":"EUR","beneficiary":"house","price":1,
		"layers":[{"positions":%d}],"prizes":[{"name":"mug","quantity":%d}]}`, n, prizes)))
	exec := func(sql string, args ...any) {
		r.t.Helper()
		if _, err := conn.Exec(r.t.Context(), sql, args...); err != nil {
			r.t.Fatal(err)
		}
	}
	// Positions are sold in any order, and neighbours lie far apart.
	exec(`INSERT INTO purchases (campaign, seq, id, account, layer, number, ordinal, price, transfer, at)
		SELECT $1, i, gen_random_uuid(), 'account-' || lpad((i % 1000000)::text, 7, '0'), 1, o + 1, o, 1, gen_random_uuid(), now()
		FROM generate_series(1, $2::bigint) AS i, LATERAL (SELECT (i * 7919) % $2::bigint AS o) AS p`, id, n)
	exec(`UPDATE campaign_layers SET sold = positions WHERE campaign = $1`, id)
	rows, err := conn.Query(r.t.Context(), `SELECT account FROM purchases WHERE campaign = $1 ORDER BY ordinal`, id)
	if err != nil {
		r.t.Fatal(err)
	}
	owners, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		r.t.Fatal(err)
	}
	var seed []byte
	if err := conn.QueryRow(r.t.Context(), `SELECT seed FROM campaign_seeds WHERE campaign = $1`, id).Scan(&seed); err != nil {
		r.t.Fatal(err)
	}
	c := &lottery.Campaign{
		ID: id, TotalPositions: n, Layers: []lottery.Layer{{Positions: n, Sold: n, Price: 1}}, Prizes: []lottery.Prize{{Name: "mug", Quantity: prizes}},
	}
	result, err := fairdraw.Draw(lottery.NewDrawInput(c, fairdraw.Seed(seed), owners))
	if err != nil {
		r.t.Fatal(err)
	}
	winners, err := json.Marshal(result.Winners)
	if err != nil {
		r.t.Fatal(err)
	}
	exec(`INSERT INTO draws (campaign, root, winners, completed_at) VALUES ($1, $2, $3, now())`, id, result.Root[:], string(winners))
	exec(`UPDATE campaigns SET status = 'completed', sold_positions = total_positions, version = version + 1,
		published_at = now(), draw_started_at = now(), completed_at = now() WHERE id = $1`, id)
	return id
}

// deposits makes deposits until stop is closed, and returns how long each took.
func (r *reader) deposits(stop <-chan struct{}) func() []time.Duration {
	const clients = 4
	took := make([][]time.Duration, clients)
	var working sync.WaitGroup
	for i := range clients {
		working.Go(func() {
			for sim.GoesOn(r.t.Context(), stop) {
				began := time.Now()
				status, err := r.do(http.MethodPost, "/v1/deposits", fmt.Sprintf(`{"account":"depositor-%d","amount":1}`, i), true, io.Discard)
				if err != nil || status != http.StatusCreated {
					r.t.Errorf("a deposit: %d, %v", status, err)
					return
				}
				took[i] = append(took[i], time.Since(began))
			}
		})
	}
	return func() []time.Duration {
		working.Wait()
		return slices.Concat(took...)
	}
}

func p99(took []time.Duration) time.Duration {
	slices.Sort(took)
	return took[len(took)*99/100]
}

// memory is what the server has in memory.
func (r *reader) memory() int64 {
	var text bytes.Buffer
	if _, err := r.do(http.MethodGet, "/metrics", "", false, &text); err != nil {
		r.t.Error(err)
		return 0
	}
	found := regexp.MustCompile(`(?m)^process_resident_memory_bytes (\S+)$`).FindSubmatch(text.Bytes())
	if found == nil {
		return 0 // Not on this system.
	}
	size, err := strconv.ParseFloat(string(found[1]), 64)
	if err != nil {
		r.t.Error(err)
	}
	return int64(size)
}

// TestReadsLeaveCommandsAlone asks for proofs of a great campaign from all sides while money moves and a round ends. Memory
// and delays are held to their limits under FAIRLEAD_TORTURE.
func TestReadsLeaveCommandsAlone(t *testing.T) {
	beside(t)
	positions, public := testwait.Count(3000, 1_000_000), testwait.Count(500, 60_000)
	measure := time.Duration(testwait.Count(1, 15)) * time.Second
	strict := testwait.Count(0, 1) == 1
	program := binary(t)
	if strict { // The race detector takes memory and time of its own.
		var err error
		program, err = sim.Build(testwait.Context(t, 10*time.Minute), tempDir(t), false)
		testwait.Must(t, err)
	}
	database := newDatabase(t)
	server := newServerOf(t, program, database)
	transport := &http.Transport{MaxIdleConnsPerHost: 2 * (readProofs + readPublic), DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	r := &reader{t: t, base: server.URL(), http: &http.Client{Transport: transport}}
	for _, name := range []string{"house", "depositor-0", "depositor-1", "depositor-2", "depositor-3"} {
		r.post("/v1/accounts", fmt.Sprintf(`{"id":%q,"currency":"EUR"}`, name))
	}
	conn := pgtest.Connect(t, database)
	great, open := r.drawn(conn, positions, positions/100), r.drawn(conn, public, 10)
	testwait.Must(t, testwait.Err(conn.Exec(t.Context(), `VACUUM ANALYZE`)))

	rest := func() time.Duration {
		stop := make(chan struct{})
		took := r.deposits(stop)
		wait.For(t.Context(), measure)
		close(stop)
		return p99(took())
	}
	atRest := rest()
	memory := r.memory()
	t.Logf("at rest: deposits %v at p99, %d MB", atRest, memory>>20)

	auction := r.post("/v1/auctions", fmt.Sprintf(`{"title":"lot","currency":"EUR","seller":"house","rounds":[{"winners":1,"duration":"%ds"}]}`, int(measure.Seconds())))
	r.post("/v1/auctions/"+auction+"/start", "")
	stop := make(chan struct{})
	end := sync.OnceFunc(func() { close(stop) })
	took := r.deposits(stop)
	var storm, proofs sync.WaitGroup
	defer storm.Wait()
	defer end()
	var mu sync.Mutex
	most, included, refused := memory, 0, 0
	storm.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				most = max(most, r.memory())
			}
		}
	})
	for range readPublic {
		storm.Go(func() {
			for sim.GoesOn(r.t.Context(), stop) {
				ordinal := rand.IntN(public)
				var body bytes.Buffer
				status, err := r.do(http.MethodGet, "/p/campaigns/"+open.String()+"/positions/"+lottery.PositionID(open, ordinal).String(), "", false, &body)
				mu.Lock()
				switch {
				case err == nil && status == http.StatusOK:
					included++
				case err == nil && status == http.StatusServiceUnavailable:
					refused++
				default:
					t.Errorf("an inclusion proof: %d, %v: %s", status, err, body.String())
				}
				mu.Unlock()
			}
		})
	}
	began := time.Now()
	var size int64
	for range readProofs {
		proofs.Go(func() {
			var n counted
			if status, err := r.do(http.MethodGet, "/v1/campaigns/"+great.String()+"/proof", "", true, &n); err != nil || status != http.StatusOK {
				t.Errorf("a proof: %d, %v", status, err)
			}
			mu.Lock()
			size = int64(n)
			mu.Unlock()
		})
	}
	proofs.Wait()
	proved := time.Since(began)
	var late *float64
	closed := testwait.Context(t, measure+patience)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for ; late == nil; <-tick.C {
		err := conn.QueryRow(closed, `SELECT extract(epoch FROM ended_at - ends_at)::float8 FROM auction_rounds WHERE auction = $1`, auction).Scan(&late)
		if err != nil {
			t.Fatalf("the round is not closed: %v", err)
		}
	}
	end()
	storm.Wait()
	stormy := p99(took())
	t.Logf("%d proofs of %d MB in %v, %d inclusion proofs, %d refused; deposits %v at p99; the round closed %.3f s late; at most %d MB",
		readProofs, size>>20, proved.Round(time.Millisecond), included, refused, stormy, *late, most>>20)
	if strict && most > readsMemory {
		t.Errorf("the server took %d MB", most>>20)
	}
	if strict && stormy > readsSlow*atRest {
		t.Errorf("a deposit takes %v, %v at rest", stormy, atRest)
	}
	if strict && *late > roundLate.Seconds() {
		t.Errorf("the round closed %.3f s late", *late)
	}

	// What was served is right.
	var whole bytes.Buffer
	if status, err := r.do(http.MethodGet, "/v1/campaigns/"+great.String()+"/proof", "", true, &whole); err != nil || status != http.StatusOK {
		t.Fatalf("a proof: %d, %v", status, err)
	}
	proof, err := fairdraw.ParseProof(whole.Bytes())
	testwait.Must(t, err)
	testwait.Must(t, proof.Verify())
	var one bytes.Buffer
	place := rand.IntN(positions)
	path := "/v1/campaigns/" + great.String() + "/proof/positions/" + lottery.PositionID(great, place).String()
	if status, err := r.do(http.MethodGet, path, "", true, &one); err != nil || status != http.StatusOK {
		t.Fatalf("%s: %d, %v", path, status, err)
	}
	inclusion, err := fairdraw.ParseInclusionProof(one.Bytes())
	testwait.Must(t, err)
	root, err := hex.DecodeString(proof.Root)
	testwait.Must(t, err)
	testwait.Must(t, inclusion.Verify([32]byte(root)))
}

// counted counts what is written.
type counted int64

func (c *counted) Write(p []byte) (int, error) {
	*c += counted(len(p))
	return len(p), nil
}
