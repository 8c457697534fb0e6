package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed bid.lua
var bidScript string

// redisServer answers the account and auction routes over Redis. A bid is one script; nothing is durable.
type redisServer struct {
	client   *redis.Client
	script   *redis.Script
	adminKey string
}

// openRedis connects to Redis and loads the script. All connections are opened beforehand.
func openRedis(ctx context.Context, addr string, pool int, adminKey string) (*redisServer, error) {
	network := "tcp"
	if strings.HasPrefix(addr, "/") {
		network = "unix"
	}
	s := &redisServer{
		client: redis.NewClient(&redis.Options{
			Network: network, Addr: addr, PoolSize: pool, MinIdleConns: pool, MaxIdleConns: pool, DisableIdentity: true,
		}),
		script:   redis.NewScript(bidScript),
		adminKey: adminKey,
	}
	if err := s.script.Load(ctx, s.client).Err(); err != nil {
		return nil, errors.Join(fmt.Errorf("load the script: %w", err), s.client.Close())
	}
	return s, nil
}

func (s *redisServer) close() {
	if err := s.client.Close(); err != nil {
		slog.Error("closing the connections to Redis failed", "error", err)
	}
}

func (s *redisServer) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	mux.HandleFunc("POST /v1/accounts", s.mutating(s.createAccount))
	mux.HandleFunc("POST /v1/deposits", s.mutating(s.deposit))
	mux.HandleFunc("POST /v1/auctions", s.mutating(s.createAuction))
	mux.HandleFunc("POST /v1/auctions/{id}/start", s.mutating(s.startAuction))
	mux.HandleFunc("POST /v1/auctions/{id}/bids", s.mutating(s.bid))
	mux.HandleFunc("POST /v1/commands", s.mutating(s.batch))
	mux.HandleFunc("GET /v1/integrity", s.getIntegrity)
	return mux
}

// mutating authenticates and reads a request as the other peer does. The key must be there, but is not kept.
func (s *redisServer) mutating(h func(ctx context.Context, id string, body []byte) (answer, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, body, refusal := receive(w, r, s.adminKey)
		if refusal.status != 0 {
			send(w, refusal)
			return
		}
		result, err := h(r.Context(), r.PathValue("id"), body)
		if err != nil {
			slog.Error("command failed", "path", r.URL.Path, "error", err)
			result = problem(http.StatusInternalServerError, "internal")
		}
		send(w, result)
	}
}

// Keys. What belongs to an auction is named after it; the sets of all accounts and auctions serve the integrity check.
const (
	accountsKey      = "accounts"
	auctionsKey      = "auctions"
	depositsKey      = "deposits"
	dirtyAccountsKey = "dirty:accounts"
	dirtyBidsKey     = "dirty:bids:"
)

func accountKey(id string) string { return "account:" + id }
func metaKey(id string) string    { return "auction:" + id }
func bidsKey(id string) string    { return "auction:" + id + ":bids" }
func boardKey(id string) string   { return "auction:" + id + ":board" }

func (s *redisServer) createAccount(ctx context.Context, _ string, body []byte) (answer, error) {
	var in struct {
		ID       string `json:"id"`
		Currency string `json:"currency"`
	}
	if !decode(body, &in) || in.ID == "" || in.Currency == "" {
		return problem(http.StatusBadRequest, "bad_request"), nil
	}
	created, err := s.client.SAdd(ctx, accountsKey, in.ID).Result()
	if err != nil {
		return answer{}, err
	}
	if created == 0 {
		return problem(http.StatusConflict, "account_exists"), nil
	}
	a := account{ID: in.ID, Currency: in.Currency, CreatedAt: time.Now()}
	err = s.client.HSet(ctx, accountKey(a.ID), "currency", a.Currency, "available", 0, "frozen", 0).Err()
	return jsonAnswer(http.StatusCreated, a), err
}

func (s *redisServer) deposit(ctx context.Context, _ string, body []byte) (answer, error) {
	var in struct {
		Account string `json:"account"`
		Amount  int64  `json:"amount"`
	}
	if !decode(body, &in) || in.Amount <= 0 || in.Amount > 1<<53-1 {
		return problem(http.StatusBadRequest, "bad_request"), nil
	}
	known, err := s.client.SIsMember(ctx, accountsKey, in.Account).Result()
	if err != nil {
		return answer{}, err
	}
	if !known {
		return problem(http.StatusNotFound, "not_found"), nil
	}
	tx := s.client.TxPipeline()
	available := tx.HIncrBy(ctx, accountKey(in.Account), "available", in.Amount)
	tx.IncrBy(ctx, depositsKey, in.Amount)
	if _, err := tx.Exec(ctx); err != nil {
		return answer{}, err
	}
	return jsonAnswer(http.StatusCreated, map[string]any{
		"account": in.Account, "amount": in.Amount, "available": available.Val(),
	}), nil
}

func (s *redisServer) createAuction(ctx context.Context, _ string, body []byte) (answer, error) {
	var in newAuction
	if !in.read(body) {
		return problem(http.StatusBadRequest, "bad_request"), nil
	}
	a := auction{ID: newID(), Title: in.Title, Status: "pending", Currency: in.Currency, Seller: in.Seller}
	tx := s.client.TxPipeline()
	tx.SAdd(ctx, auctionsKey, a.ID.String())
	tx.HSet(ctx, metaKey(a.ID.String()), "title", a.Title, "status", a.Status, "currency", a.Currency, "seller", a.Seller,
		"round", 0, "duration_ms", time.Duration(in.Rounds[0].Duration).Milliseconds(), "min_bid", in.MinBid,
		"min_increment", in.MinIncrement)
	_, err := tx.Exec(ctx)
	return jsonAnswer(http.StatusCreated, a), err
}

func (s *redisServer) startAuction(ctx context.Context, id string, _ []byte) (answer, error) {
	meta, err := s.client.HGetAll(ctx, metaKey(id)).Result()
	switch {
	case err != nil:
		return answer{}, err
	case len(meta) == 0:
		return problem(http.StatusNotFound, "not_found"), nil
	case meta["status"] != "pending":
		return problem(http.StatusConflict, "not_pending"), nil
	}
	length, err := strconv.ParseInt(meta["duration_ms"], 10, 64)
	if err != nil {
		return answer{}, err
	}
	now := time.Now()
	endsAt := now.Add(time.Duration(length) * time.Millisecond)
	err = s.client.HSet(ctx, metaKey(id), "status", "active", "round", 1, "started_at", now.UnixMilli(),
		"ends_at", endsAt.UnixMilli()).Err()
	return jsonAnswer(http.StatusOK, map[string]any{"id": id, "status": "active", "ends_at": endsAt}), err
}

// fastBidAnswer is what the fast path returns: success with amounts, and neither rank nor sequence number.
type fastBidAnswer struct {
	Auction        string    `json:"auction"`
	Account        string    `json:"account"`
	Amount         int64     `json:"amount"`
	PreviousAmount int64     `json:"previous_amount"`
	Round          int64     `json:"round"`
	RoundEndsAt    time.Time `json:"round_ends_at"`
	Available      int64     `json:"available"`
	Frozen         int64     `json:"frozen"`
}

// scriptResults is how many numbers the script returns.
const scriptResults = 6

func (s *redisServer) bid(ctx context.Context, id string, body []byte) (answer, error) {
	var in bidBody
	if !in.read(body) {
		return problem(http.StatusBadRequest, "bad_request"), nil
	}
	return scriptAnswer(id, in, s.script.Run(ctx, s.client, bidKeys(id, in.Account), in.Account, in.Amount, time.Now().UnixMilli()))
}

func bidKeys(id, account string) []string {
	return []string{metaKey(id), accountKey(account), bidsKey(id), boardKey(id), dirtyAccountsKey, dirtyBidsKey + id}
}

// scriptAnswer is what the script's result means.
func scriptAnswer(id string, in bidBody, ran *redis.Cmd) (answer, error) {
	out, err := ran.Int64Slice()
	if err != nil {
		return answer{}, fmt.Errorf("run the script: %w", err)
	}
	if len(out) != scriptResults {
		return answer{}, fmt.Errorf("the script returned %d numbers", len(out))
	}
	switch out[0] {
	case 0:
		return jsonAnswer(http.StatusCreated, fastBidAnswer{
			id, in.Account, in.Amount, out[1], out[4], time.UnixMilli(out[5]).UTC(), out[2], out[3],
		}), nil
	case 1, 4:
		return problem(http.StatusNotFound, "not_found"), nil
	case 2:
		return problem(http.StatusConflict, "not_active"), nil
	case 3:
		return problem(http.StatusConflict, "own_auction"), nil
	case 5:
		return problem(http.StatusUnprocessableEntity, "bid_too_low"), nil
	case 6:
		return problem(http.StatusPaymentRequired, "insufficient_funds"), nil
	default:
		return answer{}, fmt.Errorf("the script returned code %d", out[0])
	}
}

// batch runs the scripts of many bids in one pipeline. A request is laid out, and answered, as the product's.
func (s *redisServer) batch(ctx context.Context, _ string, body []byte) (answer, error) {
	var in struct {
		Commands []struct {
			Key  string          `json:"key"`
			Path string          `json:"path"`
			Body json.RawMessage `json:"body"`
		} `json:"commands"`
	}
	if !decode(body, &in) {
		return problem(http.StatusBadRequest, "bad_request"), nil
	}
	pipe := s.client.Pipeline()
	ids, bids, ran := make([]string, len(in.Commands)), make([]bidBody, len(in.Commands)), make([]*redis.Cmd, len(in.Commands))
	for i, c := range in.Commands {
		rest, isBid := strings.CutPrefix(c.Path, "/v1/auctions/")
		if ids[i], isBid = strings.CutSuffix(rest, "/bids"); !isBid || c.Key == "" || !bids[i].read(c.Body) {
			return problem(http.StatusBadRequest, "bad_request"), nil
		}
		ran[i] = s.script.EvalSha(ctx, pipe, bidKeys(ids[i], bids[i].Account), bids[i].Account, bids[i].Amount, time.Now().UnixMilli())
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return answer{}, fmt.Errorf("run the scripts: %w", err)
	}
	results := []byte(`{"results":[`)
	for i := range ran {
		a, err := scriptAnswer(ids[i], bids[i], ran[i])
		if err != nil {
			return answer{}, err
		}
		if i > 0 {
			results = append(results, ',')
		}
		results = fmt.Appendf(results, `{"status":%d,"body":%s,"replayed":false}`, a.status, a.body)
	}
	return answer{status: http.StatusOK, body: append(results, "]}"...)}, nil
}

// getIntegrity tells whether all money is where it must be: what was deposited is available or frozen, and an account's
// frozen money is the sum of its bids, each of which is on its leaderboard with its amount.
func (s *redisServer) getIntegrity(w http.ResponseWriter, r *http.Request) {
	valid, err := s.integrity(r.Context())
	if err != nil {
		slog.Error("integrity check failed", "error", err)
		send(w, problem(http.StatusInternalServerError, "internal"))
		return
	}
	send(w, jsonAnswer(http.StatusOK, map[string]any{"valid": valid}))
}

func (s *redisServer) integrity(ctx context.Context) (valid bool, err error) {
	auctions, err := s.client.SMembers(ctx, auctionsKey).Result()
	if err != nil {
		return false, err
	}
	frozen := make(map[string]int64)
	for _, id := range auctions {
		amounts, err := s.client.HGetAll(ctx, bidsKey(id)).Result()
		if err != nil {
			return false, err
		}
		board, err := s.client.ZRangeWithScores(ctx, boardKey(id), 0, -1).Result()
		if err != nil {
			return false, err
		}
		for _, place := range board {
			account := fmt.Sprint(place.Member)
			amount := int64(place.Score) >> 20
			if amounts[account] != strconv.FormatInt(amount, 10) {
				return false, nil
			}
			frozen[account] += amount
		}
		if len(board) != len(amounts) {
			return false, nil
		}
	}
	accounts, err := s.client.SMembers(ctx, accountsKey).Result()
	if err != nil {
		return false, err
	}
	deposits, err := s.client.Get(ctx, depositsKey).Int64()
	if err != nil && !errors.Is(err, redis.Nil) {
		return false, err
	}
	var total int64
	for _, id := range accounts {
		var money struct {
			Available int64 `redis:"available"`
			Frozen    int64 `redis:"frozen"`
		}
		if err := s.client.HMGet(ctx, accountKey(id), "available", "frozen").Scan(&money); err != nil {
			return false, err
		}
		if money.Frozen != frozen[id] || money.Available < 0 {
			return false, nil
		}
		total += money.Available + money.Frozen
	}
	return total == deposits, nil
}
