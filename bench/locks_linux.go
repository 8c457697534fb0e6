package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/bench/etcdserver"
	"github.com/fairlead-dev/fairlead/bench/redisserver"
	"github.com/fairlead-dev/fairlead/lock/pglock"
)

// lockSide is a library, and where its locks are.
type lockSide struct {
	name  string
	side  string // as the program contend knows it
	store string // which of the stores below
	// contended leaves the side out where nobody is in anybody's way: it differs from another one by its waiting only.
	contended bool
}

// The stores.
const (
	onPostgres = "PostgreSQL"
	onRedis    = "Redis"
	onEtcd     = "etcd"
)

// Names of the sides, as the tables and the JSON show them.
const (
	lockRedis     = "fairlead, Redis"
	lockBSM       = "bsm/redislock"
	lockBSMOften  = "bsm/redislock, every ms"
	lockRedsync   = "redsync"
	lockPostgres  = "fairlead, PostgreSQL"
	lockLeaseRow  = "lease row, every ms"
	lockAdvisory  = "pg_advisory_xact_lock"
	lockEtcdMutex = "etcd Mutex"
)

// lockSides are all of them, in the order of their turns.
func lockSides() []lockSide {
	return []lockSide{
		{name: lockRedis, side: "fairlead-redis", store: onRedis},
		{name: lockBSM, side: "redislock", store: onRedis},
		{name: lockBSMOften, side: "redislock-1ms", store: onRedis, contended: true},
		{name: lockRedsync, side: "redsync", store: onRedis},
		{name: lockPostgres, side: "fairlead-postgres", store: onPostgres},
		{name: lockLeaseRow, side: "lease-row", store: onPostgres},
		{name: lockAdvisory, side: "advisory", store: onPostgres},
		{name: lockEtcdMutex, side: "etcd", store: onEtcd},
	}
}

// lockShape is who contends for what.
type lockShape struct {
	name    string
	workers int
	own     bool // each has a key of its own
}

// contenders is how many there are where there are many.
const contenders = 64

// The shapes.
const (
	shapeAlone = "one worker, one key"
	shapeOwn   = "64 workers, a key each"
	shapeOne   = "64 contenders on one key"
)

func lockShapes() []lockShape {
	return []lockShape{
		{name: shapeAlone, workers: 1},
		{name: shapeOwn, workers: contenders, own: true},
		{name: shapeOne, workers: contenders},
	}
}

// lockStores are the servers that keep the locks.
type lockStores struct {
	address map[string]string // by store, as contend takes it
	pid     map[string]int
}

// locks stops the servers of the other parts, and lets the libraries take their turns.
func (h *house) locks(ctx context.Context, o *options, results *Results) error {
	for len(h.sides) > 0 { // They have connections that PostgreSQL has no room for.
		s := h.sides[0]
		h.sides = h.sides[1:]
		if err := s.stop(); err != nil {
			return err
		}
	}
	stores, err := h.openStores(ctx, o)
	if err != nil {
		return err
	}
	sides, err := regexp.Compile(o.lockSides)
	if err != nil {
		return fmt.Errorf("--lock-sides: %w", err)
	}
	shapes, err := regexp.Compile(o.lockShapes)
	if err != nil {
		return fmt.Errorf("--lock-shapes: %w", err)
	}
	for _, shape := range lockShapes() {
		for pair := range o.lockPairs {
			for _, s := range inTurn(pair, lockSides()) {
				alone := shape.own || shape.workers == 1
				if s.contended && alone || !sides.MatchString(s.name) || !shapes.MatchString(shape.name) {
					continue
				}
				turn, err := h.lockTurn(ctx, o, stores, s, shape, pair)
				if err != nil {
					return fmt.Errorf("locks, %s, %s: %w", shape.name, s.name, err)
				}
				slog.Info("locks", "shape", shape.name, "side", s.name, "pair", pair+1,
					"per_second", math.Round(turn.PerSecond), "p99_ms", turn.P99MS)
				results.Locks = append(results.Locks, *turn)
			}
		}
	}
	return nil
}

func (h *house) openStores(ctx context.Context, o *options) (stores lockStores, err error) {
	url, err := h.lockDatabase(ctx)
	if err != nil {
		return stores, err
	}
	if h.redis == nil {
		if h.redis, err = redisserver.Start(ctx, h.dir); err != nil {
			return stores, err
		}
	}
	if h.etcd, err = etcdserver.Start(ctx, h.dir); err != nil {
		return stores, err
	}
	stores.address = map[string]string{onPostgres: url, onRedis: h.redis.Addr(), onEtcd: h.etcd.Addr()}
	if o.redisSocket {
		stores.address[onRedis] = h.redis.Socket()
	}
	stores.pid = map[string]int{onPostgres: h.pgPID, onRedis: h.redis.PID(), onEtcd: h.etcd.PID()}
	return stores, nil
}

// lockDatabase makes a database with the tables of the product's locks and that of the lease rows.
func (h *house) lockDatabase(ctx context.Context) (string, error) {
	url, err := h.makeDatabase(ctx, h.serverURL, "bench_locks")
	if err != nil {
		return "", err
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return "", fmt.Errorf("connect to the locks' database: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // Its work is committed.
	if err := pglock.Schema("").Install(ctx, conn); err != nil {
		return "", err
	}
	const leases = `CREATE TABLE bench_leases (key text PRIMARY KEY, owner uuid, expires_at timestamptz) WITH (fillfactor = 50)`
	if _, err := conn.Exec(ctx, leases); err != nil {
		return "", fmt.Errorf("make the table of leases: %w", err)
	}
	return url, nil
}

// contender is one process of contenders.
type contender struct {
	cmd    *exec.Cmd
	signal io.WriteCloser
	out    *bufio.Reader
	log    bytes.Buffer
}

// report is what a process of contenders answers.
type report struct {
	Grants           []int64 `json:"grants"`
	Latencies        []byte  `json:"latencies"`
	ProcessorSeconds float64 `json:"processor_s"`
}

// lockTurn runs one side in one shape.
func (h *house) lockTurn(ctx context.Context, o *options, stores lockStores, s lockSide, shape lockShape, pair int) (*LockTurn, error) {
	if err := h.checkpoint(ctx); err != nil {
		return nil, err
	}
	processes := min(o.lockProcesses, shape.workers)
	var all []*contender
	defer func() {
		for _, c := range all {
			_ = c.cmd.Process.Kill() // Where it has ended, nothing happens.
			_ = c.cmd.Wait()
		}
	}()
	first := 0
	for i := range processes {
		workers := (shape.workers - first) / (processes - i)
		arguments := []string{
			"--side=" + s.side, "--store=" + stores.address[s.store], "--workers=" + strconv.Itoa(workers), "--first=" + strconv.Itoa(first),
			"--own=" + strconv.FormatBool(shape.own), "--prefix=" + fmt.Sprintf("%s-%d", s.side, pair),
			"--warmup=" + o.lockWarmup.String(), "--measure=" + o.lockMeasure.String(),
		}
		c, err := startContender(ctx, o.contendBinary, arguments)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
		first += workers
	}
	for _, c := range all {
		if line, err := c.out.ReadString('\n'); err != nil || strings.TrimSpace(line) != "ready" {
			return nil, c.failed(err)
		}
	}
	before, err := treeTime(stores.pid[s.store])
	if err != nil {
		return nil, err
	}
	for _, c := range all {
		if _, err := io.WriteString(c.signal, "go\n"); err != nil {
			return nil, c.failed(err)
		}
	}
	turn := &LockTurn{Side: s.name, Shape: shape.name}
	var latencies *hdrhistogram.Histogram
	var grants []int64
	for _, c := range all {
		var r report
		if err := json.NewDecoder(c.out).Decode(&r); err != nil {
			return nil, c.failed(err)
		}
		times, err := hdrhistogram.Decode(r.Latencies)
		if err != nil {
			return nil, fmt.Errorf("read the latencies: %w", err)
		}
		if latencies == nil {
			latencies = times
		} else {
			latencies.Merge(times)
		}
		grants = append(grants, r.Grants...)
		turn.ClientSeconds += r.ProcessorSeconds
	}
	after, err := treeTime(stores.pid[s.store])
	if err != nil {
		return nil, err
	}
	// The store's time can't be had for the measured part alone, which all processes leave a little apart: it is that of
	// the whole turn, scaled.
	turn.StoreSeconds = (after - before) * o.lockMeasure.Seconds() / (o.lockWarmup + o.lockMeasure).Seconds()
	turn.count(grants, o.lockMeasure.Seconds())
	const us = 1e3
	turn.P50MS = float64(latencies.ValueAtQuantile(50)) / us
	turn.P99MS = float64(latencies.ValueAtQuantile(99)) / us
	turn.FairP99MS = float64(corrected(latencies, shape.workers, turn.PerSecond).ValueAtQuantile(99)) / us
	turn.MaxMS = float64(latencies.Max()) / us
	for _, c := range all {
		if err := c.cmd.Wait(); err != nil {
			return nil, c.failed(err)
		}
	}
	return turn, nil
}

// corrected adds to the latencies, in microseconds, those that starving contenders would have had, had they asked as often
// as a fair share of the grants would let them: for each wait of w, also w − i, w − 2i and so on, where i is the mean time
// between two grants of one contender. It is HdrHistogram's correction for coordinated omission.
func corrected(latencies *hdrhistogram.Histogram, workers int, perSecond float64) *hdrhistogram.Histogram {
	out := hdrhistogram.New(latencies.LowestTrackableValue(), latencies.HighestTrackableValue(), int(latencies.SignificantFigures()))
	interval := latencies.HighestTrackableValue()
	if perSecond > 0 {
		interval = max(1, int64(math.Ceil(1e6*float64(workers)/perSecond)))
	}
	for _, bar := range latencies.Distribution() {
		if bar.Count == 0 {
			continue
		}
		for value := bar.To; ; value -= interval {
			_ = out.RecordValues(value, bar.Count) // It is no greater than one that was taken.
			if value < 2*interval {
				break
			}
		}
	}
	return out
}

// count fills in what follows from the grants of each worker.
func (t *LockTurn) count(grants []int64, seconds float64) {
	for _, n := range grants {
		t.Grants += n
	}
	t.PerSecond = float64(t.Grants) / seconds
	if mean := float64(t.Grants) / float64(len(grants)); mean > 0 {
		t.Spread = float64(slices.Max(grants)-slices.Min(grants)) / mean
	}
}

func startContender(ctx context.Context, binary string, arguments []string) (*contender, error) {
	c := &contender{cmd: exec.CommandContext(ctx, binary, arguments...)} //nolint:gosec // The program is that of this tree.
	c.cmd.Env = append(os.Environ(), "GOGC=400")
	c.cmd.Stderr = &c.log
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	var err error
	if c.signal, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = bufio.NewReader(out)
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start contenders: %w", err)
	}
	return c, nil
}

// failed says why a process of contenders ended.
func (c *contender) failed(err error) error {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait() // What it said is complete then.
	if errors.Is(err, io.EOF) || err == nil {
		return fmt.Errorf("contenders ended: %s", strings.TrimSpace(c.log.String()))
	}
	return fmt.Errorf("contenders: %w: %s", err, strings.TrimSpace(c.log.String()))
}
