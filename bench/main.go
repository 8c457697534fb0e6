//go:build linux

// Command bench compares Fairlead with the usual way of doing the same thing, in one run on one machine, load generator
// included. README.md says what is compared and how it is kept fair.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// options are what one run of the benchmarks is asked for.
type options struct {
	productBinary    string
	beforeBinary     string
	peerBinary       string
	databaseURL      string
	racePairs        int
	transferPairs    int
	warmup           time.Duration
	measure          time.Duration
	accounts         int
	openRate         float64
	transferPool     int
	bidPairs         int
	bidPool          int
	redisPool        int
	redisSocket      bool
	contendBinary    string
	lockPairs        int
	lockProcesses    int
	lockSides        string
	lockShapes       string
	lockWarmup       time.Duration
	lockMeasure      time.Duration
	queueBinary      string
	claimPairs       int
	claimItems       int
	claimWarmup      time.Duration
	claimMeasure     time.Duration
	drawPairs        int
	drawCount        int
	drawMeasure      time.Duration
	mixPairs         int
	mixNames         string
	serverPairs      int
	serverLoads      string
	mixWarmup        time.Duration
	mixMeasure       time.Duration
	freshWindow      time.Duration
	freshLater       time.Duration
	freshPairs       int
	freshLoads       string
	batchPairs       int
	snapshotPairs    int
	snapshotKinds    string
	snapshotAfter    time.Duration
	tailsPairs       int
	tailsMeasure     time.Duration
	tailsRate        float64
	sizeCommands     int
	tbperfPairs      int
	tbperfAccounts   int
	logPairs         int
	logEvents        int
	logRate          float64
	archivePairs     int
	archiveTransfers int
	archiveRest      int
	archiveNow       time.Time
	grownPairs       int
	grownAccounts    int
	grownEntries     int
	grownWarmup      time.Duration
	grownMeasure     time.Duration
	sagaPairs        int
	sagaWarmup       time.Duration
	sagaMeasure      time.Duration
	only             string
	jsonFile         string
	check            bool
	keepDir          bool
	productOptions   string
}

// connectionCounts are the closed-loop loads of the transfers and of the bids.
func connectionCounts() []int { return []int{64, 256} }

// errBelow is returned when --check was given and a ratio is below what is required of it.
var errBelow = errors.New("a ratio is below its threshold")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parseOptions(args []string) (*options, error) {
	o := &options{archiveNow: time.Now().UTC()}
	quick := false
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.StringVar(&o.productBinary, "product", "", "fairlead binary; empty leaves the product out")
	f.StringVar(&o.beforeBinary, "before", "", "fairlead binary of an older state, with which races, transfers and bids are compared instead of the peers")
	f.StringVar(&o.peerBinary, "peer", "", "peer binary")
	f.StringVar(&o.databaseURL, "database-url", "", "PostgreSQL superuser URL; empty starts a private PostgreSQL")
	f.IntVar(&o.racePairs, "race-pairs", 5, "races on each side")
	f.IntVar(&o.transferPairs, "transfer-pairs", 3, "turns of transfers on each side")
	f.IntVar(&o.bidPairs, "bid-pairs", 3, "turns of bids on each side")
	f.DurationVar(&o.warmup, "warmup", 2*time.Second, "unmeasured beginning of each turn of transfers or bids")
	f.DurationVar(&o.measure, "measure", 8*time.Second, "measured part of each turn of transfers or bids")
	f.IntVar(&o.accounts, "accounts", 10_000, "accounts among which money is transferred, and that bid (up to 99,999)")
	f.Float64Var(&o.openRate, "open-rate", 0, "transfers a second of the open-loop turns; 0 is half the peer's throughput")
	f.IntVar(&o.transferPool, "transfer-pool", defaultTransferPool, "the peer's connections for transfers")
	f.StringVar(&o.productOptions, "product-options", "", "further options of fairlead serve, separated by spaces")
	f.IntVar(&o.bidPool, "bid-pool", defaultBidPool, "the peer's connections for bids")
	f.IntVar(&o.redisPool, "redis-pool", defaultRedisPool, "the Redis peer's connections")
	f.BoolVar(&o.redisSocket, "redis-socket", true, "the Redis peer uses a Unix socket, as all others do for PostgreSQL")
	f.StringVar(&o.contendBinary, "contend", "", "contend binary; empty leaves the locks out")
	f.IntVar(&o.lockPairs, "lock-pairs", 3, "turns of locks on each side")
	f.IntVar(&o.lockProcesses, "lock-processes", 4, "processes that the 64 contenders for locks are in")
	f.StringVar(&o.lockSides, "lock-sides", "", "only the sides of locks whose names match this regular expression")
	f.StringVar(&o.lockShapes, "lock-shapes", "", "only the shapes of locks whose names match this regular expression")
	f.DurationVar(&o.lockWarmup, "lock-warmup", 2*time.Second, "unmeasured beginning of each turn of locks")
	f.DurationVar(&o.lockMeasure, "lock-measure", 5*time.Second, "measured part of each turn of locks")
	f.StringVar(&o.queueBinary, "queue", "", "queue binary; empty leaves the claims out")
	f.IntVar(&o.claimPairs, "claim-pairs", 3, "turns of claims on each side")
	f.IntVar(&o.claimItems, "claim-items", 40_000, "items that a turn of claims works off")
	f.DurationVar(&o.claimWarmup, "claim-warmup", time.Second, "unmeasured beginning of each turn of scheduling")
	f.DurationVar(&o.claimMeasure, "claim-measure", 4*time.Second, "measured part of each turn of scheduling")
	f.IntVar(&o.drawPairs, "draw-pairs", 3, "turns of draws on each side")
	f.IntVar(&o.drawCount, "draw-count", 1_000_000, "draws of a saved multi-draw (up to 1,000,000)")
	f.DurationVar(&o.drawMeasure, "draw-measure", time.Second, "length of each turn of draws")
	f.IntVar(&o.mixPairs, "mix-pairs", 3, "turns of each mix")
	f.StringVar(&o.mixNames, "mix-names", "", "only the mixes whose names match this regular expression")
	f.DurationVar(&o.mixWarmup, "mix-warmup", time.Second, "unmeasured beginning of each turn of a mix")
	f.IntVar(&o.serverPairs, "server-pairs", 3, "turns of each load on one server and on two")
	f.StringVar(&o.serverLoads, "server-loads", "", "only the loads on one server and on two whose names match this regular expression")
	f.DurationVar(&o.mixMeasure, "mix-measure", 4*time.Second, "measured part of each turn of a mix")
	f.IntVar(&o.freshPairs, "fresh-pairs", 1, "turns on fresh databases")
	f.StringVar(&o.freshLoads, "fresh-loads", "", "only the loads on fresh databases whose names match this regular expression")
	f.DurationVar(&o.freshWindow, "fresh-window", 10*time.Second, "measured beginning, and end, of a turn on a fresh database")
	f.DurationVar(&o.freshLater, "fresh-later", time.Minute, "when the measured end of a turn on a fresh database begins")
	f.IntVar(&o.batchPairs, "batch-pairs", 3, "turns of each way to send commands in batches")
	f.StringVar(&o.snapshotKinds, "snapshot-kinds", "", "only what matches this regular expression, of "+strings.Join(snapshotKinds(), ", "))
	f.IntVar(&o.snapshotPairs, "snapshot-pairs", 1, "turns with and without a long snapshot")
	f.DurationVar(&o.snapshotAfter, "snapshot-after", 3*time.Minute, "load under a long snapshot before what is measured")
	f.IntVar(&o.tailsPairs, "tails-pairs", 1, "turns of tails")
	f.Float64Var(&o.tailsRate, "tails-rate", 0, "bids and transfers a second in turns of tails; 0 is half the peak")
	f.DurationVar(&o.tailsMeasure, "tails-measure", 5*time.Minute, "measured part of each turn of tails")
	f.IntVar(&o.sizeCommands, "size-commands", 200_000, "bids, purchases and transfers whose bytes are counted (up to 900,000)")
	f.IntVar(&o.tbperfPairs, "tbperf-pairs", 3, "turns of tb-perf's case on each side")
	f.IntVar(&o.tbperfAccounts, "tbperf-accounts", 100_000, "accounts of tb-perf's case (up to 100,000)")
	f.IntVar(&o.logPairs, "log-pairs", 3, "turns of the public log on each side")
	f.IntVar(&o.logEvents, "log-events", 300_000, "events that wait to be leaves before a turn of the log")
	f.Float64Var(&o.logRate, "log-rate", 4000, "bids a second whose processor time is compared with that of --before in the turns of the log")
	f.IntVar(&o.archivePairs, "archive-pairs", 3, "archives, with transfers alone before and beside each (only with --only archive)")
	f.IntVar(&o.archiveTransfers, "archive-transfers", 500_000, "transfers in each archive (up to 2,000,000)")
	f.IntVar(&o.archiveRest, "archive-rest", 19, "fairlead archive --rest")
	f.IntVar(&o.grownPairs, "grown-pairs", 5, "turns on an empty and on a grown database (up to 8; only with --only grown)")
	f.IntVar(&o.grownAccounts, "grown-accounts", 100_000, "accounts of the grown database (--accounts at least, up to 9,000,000)")
	f.IntVar(&o.grownEntries, "grown-entries", 1_000_000, "entries of the grown database (4 an account at least)")
	f.DurationVar(&o.grownWarmup, "grown-warmup", 5*time.Second, "unmeasured beginning of each turn on an empty and on a grown database")
	f.DurationVar(&o.grownMeasure, "grown-measure", 20*time.Second, "measured part of each turn on an empty and on a grown database")
	f.IntVar(&o.sagaPairs, "saga-pairs", 3, "turns of sagas")
	f.DurationVar(&o.sagaWarmup, "saga-warmup", time.Second, "unmeasured beginning of each turn of sagas")
	f.DurationVar(&o.sagaMeasure, "saga-measure", 4*time.Second, "measured part of each turn of sagas")
	f.StringVar(&o.only, "only", "", "race, transfers, bids, batches, tbperf, mixes, fresh, snapshot, tails, sizes, log, archive, grown, servers, locks, claims, draws or sagas: leave the others out")
	f.StringVar(&o.jsonFile, "json", "", "file that receives the results as JSON")
	f.BoolVar(&o.check, "check", false, "exit 1 when a ratio is below its threshold")
	f.BoolVar(&o.keepDir, "keep", false, "keep the working directory (database, logs)")
	f.BoolVar(&quick, "quick", false, "a short run that shows that everything works; its figures mean little")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if quick {
		o.racePairs, o.transferPairs, o.bidPairs, o.accounts = 2, 1, 1, 1000
		o.warmup, o.measure = 500*time.Millisecond, 2*time.Second
		o.lockPairs, o.lockWarmup, o.lockMeasure = 1, 300*time.Millisecond, time.Second
		o.claimPairs, o.claimItems, o.claimWarmup, o.claimMeasure = 1, 5000, 300*time.Millisecond, time.Second
		o.drawPairs, o.drawCount, o.drawMeasure = 1, 200_000, 200*time.Millisecond
		o.mixPairs, o.serverPairs, o.mixWarmup, o.mixMeasure = 1, 1, 500*time.Millisecond, 2*time.Second
		o.freshWindow, o.freshLater = 3*time.Second, 8*time.Second
		o.batchPairs, o.snapshotAfter = 1, 10*time.Second
		o.tbperfPairs, o.tbperfAccounts, o.tailsMeasure = 1, 10_000, 10*time.Second
		o.sizeCommands = 5000
		o.logPairs, o.logEvents, o.logRate = 1, 20_000, 500
		o.archivePairs, o.archiveTransfers = 1, 30_000
		o.grownPairs, o.grownAccounts, o.grownEntries, o.grownWarmup, o.grownMeasure = 1, 5000, 100_000, 500*time.Millisecond, 2*time.Second
		o.sagaPairs, o.sagaWarmup, o.sagaMeasure = 1, 300*time.Millisecond, time.Second
	}
	switch {
	case o.peerBinary == "":
		return nil, errors.New("--peer is required")
	case o.beforeBinary != "" && o.productBinary == "":
		return nil, errors.New("--before needs --product")
	case o.accounts < raceBuyers || o.accounts > 99_999:
		return nil, fmt.Errorf("--accounts must be from %d to 99999", raceBuyers)
	case o.racePairs < 1 || o.transferPairs < 1 || o.bidPairs < 1 || o.lockPairs < 1 || o.claimPairs < 1 || o.claimItems < 1:
		return nil, errors.New("at least one pair of each is needed")
	case o.drawPairs < 1 || o.drawCount < 1 || o.drawCount > 1_000_000:
		return nil, errors.New("--draw-pairs and --draw-count must be positive, and the latter at most 1000000")
	case o.sagaPairs < 1 || o.mixPairs < 1 || o.freshPairs < 1 || o.batchPairs < 1 || o.snapshotPairs < 1 || o.serverPairs < 1:
		return nil, errors.New("--saga-pairs, --mix-pairs, --server-pairs, --fresh-pairs, --batch-pairs and --snapshot-pairs must be positive")
	case o.tbperfPairs < 1 || o.tbperfAccounts < 2 || o.tbperfAccounts > 100_000:
		return nil, errors.New("--tbperf-pairs must be positive, and --tbperf-accounts from 2 to 100000")
	case o.only == onlyTBPerf && (o.productBinary == "" || o.databaseURL != ""):
		return nil, errors.New("--only tbperf needs --product, and a private PostgreSQL to which it can add a standby")
	case o.sizeCommands < 1 || o.sizeCommands > 900_000:
		return nil, errors.New("--size-commands must be from 1 to 900000")
	case o.tailsPairs < 1 || o.tailsMeasure < time.Second || o.tailsRate < 0:
		return nil, errors.New("--tails-pairs must be positive, and --tails-measure a second at least")
	case o.logPairs < 1 || o.logEvents < 1 || o.logRate <= 0:
		return nil, errors.New("--log-pairs, --log-events and --log-rate must be positive")
	case o.archivePairs < 1 || o.archiveTransfers < 1 || o.archiveTransfers > 2_000_000 || o.archiveRest < 0:
		return nil, errors.New("--archive-pairs and --archive-transfers must be positive, the latter at most 2000000, and --archive-rest not negative")
	case o.only == onlyArchive && o.productBinary == "":
		return nil, errors.New("--only archive needs --product")
	case o.grownPairs < 1 || o.grownPairs > 8:
		return nil, errors.New("--grown-pairs must be from 1 to 8")
	case o.only == onlyGrown && (o.productBinary == "" || o.grownAccounts < o.accounts || o.grownAccounts > 9_000_000 || o.grownEntries < 4*o.grownAccounts):
		return nil, errors.New("--only grown needs --product, as many --grown-accounts as --accounts, up to 9000000, and four --grown-entries for each")
	case o.freshWindow < time.Second || o.freshLater < o.freshWindow:
		return nil, errors.New("--fresh-window must be a second at least, and --fresh-later no shorter")
	case o.lockProcesses < 1 || o.lockProcesses > contenders:
		return nil, fmt.Errorf("--lock-processes must be from 1 to %d", contenders)
	case o.only == onlyLocks && o.contendBinary == "":
		return nil, errors.New("--only locks needs --contend")
	case o.only == onlyClaims && o.queueBinary == "":
		return nil, errors.New("--only claims needs --queue")
	case o.only != "" && !slices.Contains(parts(), o.only):
		return nil, fmt.Errorf("--only takes one of %s", strings.Join(parts(), ", "))
	}
	return o, nil
}

// What --only takes.
const (
	onlyRace      = "race"
	onlyTransfers = "transfers"
	onlyBids      = "bids"
	onlyLocks     = "locks"
	onlyClaims    = "claims"
	onlyDraws     = "draws"
	onlySagas     = "sagas"
	onlyMixes     = "mixes"
	onlyFresh     = "fresh"
	onlyBatches   = "batches"
	onlySnapshot  = "snapshot"
	onlyTBPerf    = "tbperf"
	onlyTails     = "tails"
	onlySizes     = "sizes"
	onlyLog       = "log"
	onlyServers   = "servers"
	onlyArchive   = "archive"
	onlyGrown     = "grown"
)

func parts() []string {
	return []string{onlyRace, onlyTransfers, onlyBids, onlyBatches, onlyTBPerf, onlyMixes, onlyFresh, onlySnapshot, onlyTails, onlySizes, onlyLog, onlyArchive, onlyGrown, onlyServers, onlyLocks, onlyClaims, onlyDraws, onlySagas}
}

// wants tells whether a part of the benchmarks is to be run.
func (o *options) wants(part string) bool { return o.only == "" || o.only == part }

func run(ctx context.Context, args []string, w io.Writer) (err error) {
	out := &printer{w: w}
	o, err := parseOptions(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	// The load generator stays on its thread, as a separate program would.
	runtime.LockOSThread()
	house, err := open(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, house.close(ctx)) }()

	results := &Results{StartedAt: time.Now().UTC(), Options: o.describe()}
	results.Machine, err = house.machine(ctx)
	if err != nil {
		return err
	}
	results.Machine.print(out)
	if o.only == onlyArchive {
		if err := house.beginHistory(ctx, o); err != nil {
			return fmt.Errorf("begin a history: %w", err)
		}
	}
	for _, s := range house.sides {
		slog.Info("filling accounts", "side", s.name, "accounts", o.accounts)
		if err := s.fill(ctx, 0, o.accounts, openingBalance); err != nil {
			return fmt.Errorf("%s: fill accounts: %w", s.name, err)
		}
	}
	if err := house.measure(ctx, o, results, out); err != nil {
		return err
	}
	for _, s := range house.sides {
		if err := s.requireIntegrity(ctx); err != nil {
			return err
		}
	}
	if len(house.sides) > 0 {
		out.printf("\nBooks: every side's entries, transfers, bids and balances agree.\n")
	}
	if o.wants(onlyLocks) && o.contendBinary != "" {
		if err := house.locks(ctx, o, results); err != nil {
			return err
		}
		results.printLocks(out)
	}
	if o.wants(onlyClaims) && o.queueBinary != "" {
		if err := house.claims(ctx, o, results); err != nil {
			return err
		}
		results.printClaims(out)
	}
	if o.wants(onlyDraws) {
		if err := house.draws(ctx, o, results); err != nil {
			return err
		}
		results.printDraws(out)
	}
	if o.wants(onlySagas) {
		if err := house.sagas(ctx, o, results); err != nil {
			return err
		}
		results.printSagas(out)
	}
	pass := results.judge(out)
	if o.jsonFile != "" {
		text, err := json.MarshalIndent(results, "", "  ")
		if err != nil {
			return fmt.Errorf("marshal the results: %w", err)
		}
		if err := os.WriteFile(o.jsonFile, append(text, '\n'), 0o644); err != nil { //nolint:gosec // Results are for all to read.
			return fmt.Errorf("write the results: %w", err)
		}
	}
	if out.err != nil {
		return fmt.Errorf("print the results: %w", out.err)
	}
	if o.check && !pass {
		return errBelow
	}
	return nil
}

// measure runs the parts that are wanted and prints each when it is done.
func (h *house) measure(ctx context.Context, o *options, results *Results, out *printer) error {
	if o.wants(onlyRace) {
		if err := h.races(ctx, o, results); err != nil {
			return err
		}
		results.printRaces(out)
	}
	if o.wants(onlyTransfers) {
		if err := h.transfers(ctx, o, results); err != nil {
			return err
		}
		results.printTransfers(out)
	}
	if o.wants(onlyBids) {
		if err := h.bids(ctx, o, results); err != nil {
			return err
		}
		results.printBids(out)
	}
	if o.wants(onlyBatches) && o.beforeBinary == "" {
		if err := h.batches(ctx, o, results); err != nil {
			return err
		}
		results.printBatches(out)
	}
	if o.wants(onlyTBPerf) && o.productBinary != "" && o.beforeBinary == "" && h.postgres != nil {
		if err := h.tbperf(ctx, o, results); err != nil {
			return fmt.Errorf("tb-perf's case: %w", err)
		}
		results.printTBPerf(out)
	}
	if o.wants(onlyMixes) {
		if err := h.mixes(ctx, o, results); err != nil {
			return err
		}
		results.printMixes(out)
	}
	if o.wants(onlyServers) && o.productBinary != "" && o.beforeBinary == "" {
		if err := h.servers(ctx, o, results); err != nil {
			return err
		}
		results.printServers(out)
	}
	if o.wants(onlyFresh) {
		if err := h.fresh(ctx, o, results); err != nil {
			return err
		}
		results.printFresh(out)
	}
	if o.wants(onlySnapshot) {
		if err := h.snapshots(ctx, o, results); err != nil {
			return err
		}
		results.printSnapshots(out)
	}
	if o.wants(onlyTails) {
		if err := h.tails(ctx, o, results); err != nil {
			return err
		}
		results.printTails(out)
	}
	if o.wants(onlySizes) {
		if err := h.sizes(ctx, o, results); err != nil {
			return fmt.Errorf("sizes: %w", err)
		}
		results.printSizes(out)
	}
	if o.wants(onlyLog) {
		if err := h.publicLog(ctx, o, results); err != nil {
			return err
		}
		results.printLog(out)
	}
	if o.only == onlyArchive {
		if err := h.archives(ctx, o, results); err != nil {
			return err
		}
		results.printArchives(out)
	}
	if o.only == onlyGrown {
		if err := h.grown(ctx, o, results); err != nil {
			return err
		}
		results.printGrown(out)
	}
	return nil
}

// describe keeps what shaped the figures with the results.
func (o *options) describe() map[string]any {
	return map[string]any{
		"race_pairs": o.racePairs, "transfer_pairs": o.transferPairs, "accounts": o.accounts,
		"warmup_s": o.warmup.Seconds(), "measure_s": o.measure.Seconds(), "transfer_pool": o.transferPool,
		"bid_pairs": o.bidPairs, "bid_pool": o.bidPool, "redis_pool": o.redisPool, "redis_socket": o.redisSocket,
		"product_options": o.productOptions, "lock_pairs": o.lockPairs, "lock_processes": o.lockProcesses,
		"lock_warmup_s": o.lockWarmup.Seconds(), "lock_measure_s": o.lockMeasure.Seconds(),
		"claim_pairs": o.claimPairs, "claim_items": o.claimItems, "claim_warmup_s": o.claimWarmup.Seconds(), "claim_measure_s": o.claimMeasure.Seconds(),
		"draw_pairs": o.drawPairs, "draw_count": o.drawCount, "draw_measure_s": o.drawMeasure.Seconds(),
		"mix_pairs": o.mixPairs, "server_pairs": o.serverPairs, "mix_warmup_s": o.mixWarmup.Seconds(), "mix_measure_s": o.mixMeasure.Seconds(),
		"fresh_pairs": o.freshPairs, "fresh_window_s": o.freshWindow.Seconds(), "fresh_later_s": o.freshLater.Seconds(),
		"batch_pairs": o.batchPairs, "snapshot_pairs": o.snapshotPairs, "snapshot_after_s": o.snapshotAfter.Seconds(),
		"tails_pairs": o.tailsPairs, "tails_measure_s": o.tailsMeasure.Seconds(), "tails_rate": o.tailsRate, "size_commands": o.sizeCommands,
		"tbperf_pairs": o.tbperfPairs, "tbperf_accounts": o.tbperfAccounts,
		"log_pairs": o.logPairs, "log_events": o.logEvents, "log_rate": o.logRate,
		"archive_pairs": o.archivePairs, "archive_transfers": o.archiveTransfers, "archive_rest": o.archiveRest,
		"grown_pairs": o.grownPairs, "grown_warmup_s": o.grownWarmup.Seconds(), "grown_measure_s": o.grownMeasure.Seconds(),
		"saga_pairs": o.sagaPairs, "saga_warmup_s": o.sagaWarmup.Seconds(), "saga_measure_s": o.sagaMeasure.Seconds(),
	}
}
