package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/fairlead-dev/fairlead/bench/load"
)

// races runs the race on each side in turn, pair after pair, after one race each that doesn't count.
func (h *house) races(ctx context.Context, o *options, results *Results) error {
	for pair := range o.racePairs + 1 {
		for _, s := range inTurn(pair, h.durable()) {
			turn, err := s.race(ctx)
			if err != nil {
				return fmt.Errorf("%s: race: %w", s.name, err)
			}
			slog.Info("race", "side", s.name, "pair", pair, "total_ms", turn.TotalMS, "p99_ms", turn.P99MS,
				"warm-up", pair == 0)
			if pair > 0 {
				results.Races = append(results.Races, *turn)
			}
		}
	}
	return nil
}

// race sells one campaign to buyers that all come at once, and checks that it was sold and drawn as it must be.
func (s *side) race(ctx context.Context) (*RaceTurn, error) {
	path, err := s.newCampaign(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.h.checkpoint(ctx); err != nil {
		return nil, err
	}
	engine, err := load.Dial(raceBuyers, s.addr)
	if err != nil {
		return nil, err
	}
	defer engine.Close()
	if err := s.greet(engine); err != nil {
		return nil, err
	}
	requests := make([][]byte, raceBuyers)
	for i := range requests {
		requests[i] = load.NewTemplate(path+"/purchases", s.key, fmt.Sprintf(`{"account":%q}`, accountID(i))).Next()
	}
	sold, refused := 0, 0
	before, err := s.usage()
	if err != nil {
		return nil, err
	}
	r, err := engine.Race(requests, func(status int, body []byte) error {
		switch {
		case status == http.StatusCreated:
			sold++
		case status == http.StatusConflict && bytes.Contains(body, []byte(`"sold_out"`)):
			refused++
		default:
			return fmt.Errorf("answer %d: %s", status, body)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	after, err := s.usage()
	if err != nil {
		return nil, err
	}
	if sold != racePositions || refused != raceBuyers-racePositions {
		return nil, fmt.Errorf("%d sold and %d refused", sold, refused)
	}
	if err := s.requireDrawn(ctx, path); err != nil {
		return nil, err
	}
	return &RaceTurn{
		Side: s.name, TotalMS: ms(r.Elapsed), P50MS: ms(r.Quantile(50)), P99MS: ms(r.Quantile(99)),
		Usage: after.since(before),
	}, nil
}

// greet sends one request on each connection, so that the server has accepted all of them before the start signal.
func (s *side) greet(engine *load.Engine) error {
	request := []byte("GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
	requests := make([][]byte, raceBuyers)
	for i := range requests {
		requests[i] = request
	}
	_, err := engine.Race(requests, func(status int, body []byte) error {
		if status != http.StatusOK {
			return fmt.Errorf("greeting: answer %d: %s", status, body)
		}
		return nil
	})
	return err
}

func (s *side) newCampaign(ctx context.Context) (path string, err error) {
	var campaign struct {
		ID string `json:"id"`
	}
	in := map[string]any{
		"name": "race", "base_length": raceBaseLength, "price": racePrice, "currency": currency,
		"beneficiary": beneficiary, "prizes": []any{
			map[string]any{"name": "first", "quantity": 1},
			map[string]any{"name": "second", "quantity": 2},
			map[string]any{"name": "third", "quantity": 3},
		},
	}
	if err := s.call(ctx, http.MethodPost, "/v1/campaigns", in, http.StatusCreated, &campaign); err != nil {
		return "", err
	}
	path = "/v1/campaigns/" + campaign.ID
	return path, s.call(ctx, http.MethodPost, path+"/publish", map[string]any{}, http.StatusOK, nil)
}

func (s *side) requireDrawn(ctx context.Context, path string) error {
	var campaign struct {
		Status string `json:"status"`
		Sold   int    `json:"sold_positions"`
	}
	if err := s.call(ctx, http.MethodGet, path, nil, http.StatusOK, &campaign); err != nil {
		return err
	}
	if campaign.Status != "completed" || campaign.Sold != racePositions {
		return fmt.Errorf("the campaign is %s with %d sold", campaign.Status, campaign.Sold)
	}
	var draw struct {
		Winners []any `json:"winners"`
	}
	if err := s.call(ctx, http.MethodGet, path+"/draw", nil, http.StatusOK, &draw); err != nil {
		return err
	}
	if len(draw.Winners) != raceWinners {
		return fmt.Errorf("%d winners were drawn, not %d", len(draw.Winners), raceWinners)
	}
	return nil
}
