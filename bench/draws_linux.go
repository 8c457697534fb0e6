package main

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/big"
	"net/http"
	"time"

	"github.com/redis/rueidis"

	"github.com/fairlead-dev/fairlead/bench/redisserver"
	"github.com/fairlead-dev/fairlead/checkpoint/redisstore"
	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/lock"
	"github.com/fairlead-dev/fairlead/lock/redislock"
	"github.com/fairlead-dev/fairlead/multidraw"
	"github.com/fairlead-dev/fairlead/redisclient/rueidisclient"
)

// What is drawn: integers of a range, or one of five prizes.
const (
	drawLow     = 1
	drawHigh    = 1_000_000
	drawsAtOnce = 1_000 // draws of one call
)

func drawPrizes() []multidraw.Prize {
	return []multidraw.Prize{
		{ID: "grand", Name: "Grand prize", Weight: 1, Value: 100_000},
		{ID: "gold", Name: "Gold", Weight: 9, Value: 10_000},
		{ID: "silver", Name: "Silver", Weight: 90, Value: 1_000},
		{ID: "bronze", Name: "Bronze", Weight: 400, Value: 100},
		{ID: "none", Name: "Nothing", Weight: 500},
	}
}

// originPrize is a prize as the requirement has it.
type originPrize struct {
	ID          string
	Name        string
	Probability float64
	Value       int
}

// float53 is the requirement's random number: 53 bits of the system's source, asked for each anew. Reading 8 bytes is the fastest
// way to write it.
func float53() float64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // It never fails.
	return float64(binary.BigEndian.Uint64(b[:])>>11) / (1 << 53)
}

// float53Big is the same by way of math/big, as many write it.
func float53Big() float64 {
	n, err := rand.Int(rand.Reader, big.NewInt(1<<53))
	if err != nil {
		panic(err) // The system's source never fails.
	}
	return float64(n.Int64()) / (1 << 53)
}

// originRange is the requirement's loop over draws of a range.
func originRange(float func() float64) func() int {
	return func() int {
		results := make([]int, 0, drawsAtOnce)
		for range drawsAtOnce {
			results = append(results, drawLow+int(float()*(drawHigh-drawLow+1)))
		}
		return results[len(results)-1]
	}
}

// originPick is the requirement's loop over draws of prizes.
func originPick(float func() float64) func() int {
	prizes := []*originPrize{}
	for _, p := range drawPrizes() {
		prizes = append(prizes, &originPrize{ID: p.ID, Name: p.Name, Probability: float64(p.Weight) / 1000, Value: int(p.Value)})
	}
	return func() int {
		results := make([]*originPrize, 0, drawsAtOnce)
		for range drawsAtOnce {
			won, sum, r := prizes[len(prizes)-1], 0.0, float()
			for _, p := range prizes {
				if sum += p.Probability; r < sum {
					won = p
					break
				}
			}
			results = append(results, won)
		}
		return results[len(results)-1].Value
	}
}

// productDraws walks over the draws of one operation.
func productDraws(prizes bool) (func() int, error) {
	seed, err := fairdraw.NewSeed(rand.Reader)
	if err != nil {
		return nil, err
	}
	spec := multidraw.Spec{Range: &multidraw.Range{Min: drawLow, Max: drawHigh}}
	if prizes {
		spec = multidraw.Spec{Prizes: drawPrizes()}
	}
	d, err := multidraw.New(seed, "bench", spec)
	if err != nil {
		return nil, err
	}
	at := int64(-drawsAtOnce)
	if prizes {
		return func() int {
			at += drawsAtOnce
			results := d.Places(at, drawsAtOnce)
			return results[len(results)-1]
		}, nil
	}
	return func() int {
		at += drawsAtOnce
		results := d.Ints(at, drawsAtOnce)
		return int(results[len(results)-1])
	}, nil
}

// draws runs the turns of draws in process, and then those of draws that are saved.
func (h *house) draws(ctx context.Context, o *options, results *Results) error {
	for _, shape := range []string{shapeRange, shapePrizes} {
		ours, err := productDraws(shape == shapePrizes)
		if err != nil {
			return err
		}
		origin := originRange
		if shape == shapePrizes {
			origin = originPick
		}
		sides := []struct {
			name string
			call func() int
		}{{product, ours}, {drawOrigin, origin(float53)}, {drawOriginBig, origin(float53Big)}}
		for pair := range o.drawPairs {
			for _, s := range inTurn(pair, sides) {
				rate, last := drawFor(ctx, o.drawMeasure, s.call)
				slog.Debug("draws", "last", last) // So that the compiler leaves none out.
				results.add(pair, DrawTurn{Side: s.name, Shape: shape, PerSecond: rate})
			}
		}
	}
	if err := h.savedDraws(ctx, o, results); err != nil {
		return fmt.Errorf("saved draws: %w", err)
	}
	return ctx.Err()
}

// drawFor calls again and again, and returns draws a second, and the last draw.
func drawFor(ctx context.Context, d time.Duration, call func() int) (perSecond float64, last int) {
	for range 100 {
		last = call()
	}
	calls, began := 0, time.Now()
	for time.Since(began) < d && ctx.Err() == nil {
		for range 10 {
			last = call()
		}
		calls += 10
	}
	return float64(calls*drawsAtOnce) / time.Since(began).Seconds(), last
}

// savedDraws measures multi-draws with a checkpoint each 1,000 draws: over HTTP on the product's PostgreSQL, with durable
// commits, and as a library with lock and states in Redis.
func (h *house) savedDraws(ctx context.Context, o *options, results *Results) (err error) {
	engine, done, err := h.redisEngine(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	for pair := range o.drawPairs {
		for _, s := range h.sides {
			if s.name != product {
				continue
			}
			began := time.Now()
			var answer struct {
				Status    string `json:"status"`
				Completed int    `json:"completed_count"`
			}
			body := map[string]any{
				"lock_key": fmt.Sprintf("bench-%d", pair), "count": o.drawCount, "range": map[string]any{"min": drawLow, "max": drawHigh},
			}
			if err := s.call(ctx, http.MethodPost, "/v1/multidraws", body, http.StatusCreated, &answer); err != nil {
				return err
			}
			if answer.Status != "completed" || answer.Completed != o.drawCount {
				return fmt.Errorf("it is %s with %d draws", answer.Status, answer.Completed)
			}
			results.add(pair, DrawTurn{Side: savedServer, Shape: shapeSaved, PerSecond: float64(o.drawCount) / time.Since(began).Seconds()})
		}
		began := time.Now()
		// A state in Redis is written whole with each save, and its size is limited.
		count := int64(min(o.drawCount, 200_000))
		got, err := engine.DrawMultipleInRange(ctx, fmt.Sprintf("bench-%d", pair), drawLow, drawHigh, count, multidraw.Order{})
		if err != nil {
			return err
		}
		if got.Completed != count {
			return fmt.Errorf("the library made %d draws", got.Completed)
		}
		results.add(pair, DrawTurn{Side: savedRedis, Shape: shapeSaved, PerSecond: float64(count) / time.Since(began).Seconds()})
	}
	return nil
}

func (r *Results) add(pair int, turn DrawTurn) {
	slog.Info("draws", "side", turn.Side, "shape", turn.Shape, "pair", pair+1, "per_second", math.Round(turn.PerSecond))
	r.Draws = append(r.Draws, turn)
}

// redisEngine is a multi-draw engine on the house's Redis.
func (h *house) redisEngine(ctx context.Context) (e *multidraw.Engine, done func() error, err error) {
	if h.redis == nil {
		if h.redis, err = redisserver.Start(ctx, h.dir); err != nil {
			return nil, nil, err
		}
	}
	r, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{h.redis.Addr()}, DisableCache: true, ForceSingleClient: true})
	if err != nil {
		return nil, nil, err
	}
	client := rueidisclient.New(r)
	locks, err := redislock.New(client, redislock.Options{Namespace: "bench:draws"})
	if err != nil {
		r.Close()
		return nil, nil, err
	}
	e, err = multidraw.NewEngine(redisstore.New(client), lock.New(locks, lock.LockerOptions{}), multidraw.EngineOptions{Every: multidraw.DefaultEvery})
	return e, func() error {
		locks.Close()
		r.Close()
		return nil
	}, err
}
