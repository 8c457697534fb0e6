package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// queueSide is a side of the comparison of claims, with the number of items that it has under way at a time.
type queueSide struct {
	name    string
	side    string // as the program queue knows it
	shape   string
	workers int
	pool    int
}

// Names of the sides, as the tables and the JSON show them.
const (
	queueFairlead = "fairlead"
	queueRiver    = "River"
)

// The shapes, as the program queue knows them.
const (
	shapeWork     = "work"
	shapeSchedule = "schedule"
)

// riverWorkers are the MaxWorkers that River is tried with; its best counts.
func riverWorkers() []int { return []int{200, 1000, 2000} }

// queueSides are all of them, in the order of their turns. README.md has the trials of their connections.
func queueSides() []queueSide {
	all := []queueSide{{name: queueFairlead, side: "fairlead", shape: shapeWork, workers: claimBatch, pool: workPool}}
	for _, n := range riverWorkers() {
		all = append(all, queueSide{name: fmt.Sprintf("%s, MaxWorkers %d", queueRiver, n), side: "river", shape: shapeWork, workers: n, pool: workPool})
	}
	return append(all,
		queueSide{name: queueFairlead, side: "fairlead", shape: shapeSchedule, workers: 1, pool: schedulePoolFairlead},
		queueSide{name: queueRiver, side: "river", shape: shapeSchedule, workers: 1, pool: schedulePoolRiver})
}

const (
	// claimBatch is how many items Fairlead has under way, half of them in each of two loops.
	claimBatch = 1000
	workPool   = 10
	// River's callers wait for a commit each, so that it needs many connections; Fairlead's share them.
	schedulePoolFairlead = 16
	schedulePoolRiver    = 32
	// queuePatience bounds one turn.
	queuePatience = 5 * time.Minute
)

// claims lets both sides take their turns, each turn in a new process on a new database.
func (h *house) claims(ctx context.Context, o *options, results *Results) error {
	for len(h.sides) > 0 { // They have connections that PostgreSQL has no room for.
		s := h.sides[0]
		h.sides = h.sides[1:]
		if err := s.stop(); err != nil {
			return err
		}
	}
	for pair := range o.claimPairs {
		for _, s := range inTurn(pair, queueSides()) {
			turn, err := h.queueTurn(ctx, o, s)
			if err != nil {
				return fmt.Errorf("claims, %s, %s: %w", s.shape, s.name, err)
			}
			slog.Info("claims", "shape", s.shape, "side", s.name, "pair", pair+1, "per_second", math.Round(turn.PerSecond))
			results.Claims = append(results.Claims, *turn)
		}
	}
	return nil
}

// queueTurn runs one side once.
func (h *house) queueTurn(ctx context.Context, o *options, s queueSide) (*ClaimTurn, error) {
	ctx, cancel := context.WithTimeout(ctx, queuePatience)
	defer cancel()
	url, err := h.makeDatabase(ctx, h.serverURL, "bench_queue")
	if err != nil {
		return nil, err
	}
	var complaint bytes.Buffer
	cmd := exec.CommandContext(ctx, o.queueBinary, //nolint:gosec // The program is that of this tree.
		"--side="+s.side, "--shape="+s.shape, "--database-url="+url, "--items="+strconv.Itoa(o.claimItems), "--workers="+strconv.Itoa(s.workers),
		"--pool="+strconv.Itoa(s.pool), "--warmup="+o.claimWarmup.String(), "--measure="+o.claimMeasure.String())
	cmd.Env = append(os.Environ(), "GOGC=400")
	cmd.Stderr = &complaint
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	start, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start the queue: %w", err)
	}
	turn, err := h.queueMeasure(ctx, s, start, bufio.NewReader(out))
	_ = start.Close() // It has been closed already where the process has ended.
	if err != nil {
		_ = cmd.Process.Kill() // Where it has ended, nothing happens.
	}
	if ended := cmd.Wait(); err != nil || ended != nil {
		return nil, fmt.Errorf("the queue: %w, %w: %s", err, ended, strings.TrimSpace(complaint.String()))
	}
	return turn, nil
}

// queueMeasure starts what is measured and gathers what it used.
func (h *house) queueMeasure(ctx context.Context, s queueSide, start io.Writer, out *bufio.Reader) (*ClaimTurn, error) {
	if line, err := out.ReadString('\n'); err != nil || line != "ready\n" {
		return nil, fmt.Errorf("it says %q: %w", line, err)
	}
	if err := h.checkpoint(ctx); err != nil {
		return nil, err
	}
	before, err := treeTime(h.pgPID)
	if err != nil {
		return nil, err
	}
	if _, err := io.WriteString(start, "go\n"); err != nil {
		return nil, err
	}
	var r struct {
		Done             int64   `json:"done"`
		Seconds          float64 `json:"seconds"`
		ProcessorSeconds float64 `json:"processor_s"`
	}
	if err := json.NewDecoder(out).Decode(&r); err != nil {
		return nil, err
	}
	after, err := treeTime(h.pgPID)
	if err != nil {
		return nil, err
	}
	return &ClaimTurn{
		Side: s.name, Shape: s.shape, Done: r.Done, PerSecond: float64(r.Done) / r.Seconds,
		ClientSeconds: r.ProcessorSeconds, StoreSeconds: after - before,
	}, nil
}

// bestRiver is the MaxWorkers side whose median is the best.
func (r *Results) bestRiver() string {
	best, rate := "", 0.0
	for _, s := range queueSides() {
		if s.shape != shapeWork || s.side != "river" {
			continue
		}
		if m := r.medianClaims(s.name, shapeWork, func(t ClaimTurn) float64 { return t.PerSecond }); m > rate {
			best, rate = s.name, m
		}
	}
	return best
}

// namesOf lists the sides that take part in a shape.
func namesOf(shape string) []string {
	var names []string
	for _, s := range queueSides() {
		if s.shape == shape && !slices.Contains(names, s.name) {
			names = append(names, s.name)
		}
	}
	return names
}
