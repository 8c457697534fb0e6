package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"

	"github.com/fairlead-dev/fairlead/bench/etcdserver"
	"github.com/fairlead-dev/fairlead/bench/redisserver"
	"github.com/fairlead-dev/fairlead/internal/localpg"
)

// The peers' best numbers of connections; README.md has the trials.
const (
	defaultTransferPool = 16
	defaultBidPool      = 8
	defaultRedisPool    = 64
)

// Times that starting and stopping a server may take.
const (
	startTimeout = 30 * time.Second
	stopTimeout  = 10 * time.Second
	pollInterval = 10 * time.Millisecond
)

// Names of the sides, as the tables and the JSON show them.
const (
	product       = "fairlead"
	peer          = "peer"
	peerPipelined = "peer, pipelined"
	peerRedis     = "redis script"
	productBefore = "fairlead before"
	secondServer  = "fairlead, second server"
)

// house is everything that runs during the benchmarks: one PostgreSQL, and the servers on it, each with a database of
// its own; for bids also a Redis and the server on that. Only one of them has work at a time.
type house struct {
	dir      string
	keepDir  bool
	admin    *pgx.Conn
	postgres *localpg.Instance
	standby  *localpg.Instance // nil but while something is measured with one
	pgPID    int
	redis    *redisserver.Server
	etcd     *etcdserver.Server
	sides    []*side

	serverURL      string // of PostgreSQL
	productOptions []string
}

func open(ctx context.Context, o *options) (h *house, err error) {
	h = &house{keepDir: o.keepDir}
	defer func() {
		if err != nil {
			h.keepDir = true // The logs in it say why.
			err = errors.Join(err, h.close(ctx))
		}
	}()
	if h.dir, err = os.MkdirTemp("", "fairlead-bench-"); err != nil {
		return h, fmt.Errorf("make a working directory: %w", err)
	}
	slog.Info("working directory", "dir", h.dir)
	serverURL := o.databaseURL
	if serverURL == "" {
		if err := refuseMemory(h.dir); err != nil {
			return h, err
		}
		h.postgres, err = localpg.Start(ctx, localpg.Options{Dir: filepath.Join(h.dir, "data"), DieWithParent: true})
		if err != nil {
			return h, fmt.Errorf("start PostgreSQL: %w", err)
		}
		serverURL = h.postgres.URL()
	}
	if h.admin, err = pgx.Connect(ctx, serverURL); err != nil {
		return h, fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	if h.pgPID, err = h.postmasterPID(ctx); err != nil {
		return h, err
	}
	h.serverURL = serverURL
	var random [24]byte
	_, _ = rand.Read(random[:]) // It never fails.
	key := hex.EncodeToString(random[:])
	return h, h.startSides(ctx, o, serverURL, key)
}

// startSides starts the servers, in the order in which they take their turns.
func (h *house) startSides(ctx context.Context, o *options, serverURL, key string) error {
	h.productOptions = strings.Fields(o.productOptions)
	if o.only == onlyLocks || o.only == onlyClaims || o.only == onlySagas || o.only == onlyFresh || o.only == onlyTBPerf || o.only == onlyGrown {
		return nil
	}
	if o.productBinary != "" {
		if err := h.startProduct(ctx, product, serverURL, key, o.productBinary); err != nil {
			return err
		}
	}
	if o.only == onlyDraws || o.only == onlyMixes || o.only == onlyServers || o.only == onlySnapshot || o.only == onlyTails || o.only == onlySizes || o.only == onlyArchive {
		return nil
	}
	if o.beforeBinary != "" {
		return h.startProduct(ctx, productBefore, serverURL, key, o.beforeBinary)
	}
	if o.only == onlyLog {
		return nil
	}
	if o.wants(onlyBids) || o.wants(onlyBatches) {
		var err error
		if h.redis, err = redisserver.Start(ctx, h.dir); err != nil {
			return fmt.Errorf("%w (--only %s and --only %s do without)", err, onlyRace, onlyTransfers)
		}
		addr := h.redis.Addr()
		if o.redisSocket {
			addr = h.redis.Socket()
		}
		s := &side{name: peerRedis, store: h.redis.PID()}
		if err := h.start(ctx, s, key, o.peerBinary, "--redis="+addr, "--redis-pool="+strconv.Itoa(o.redisPool)); err != nil {
			return err
		}
	}
	pools := []string{"--transfer-pool=" + strconv.Itoa(o.transferPool), "--bid-pool=" + strconv.Itoa(o.bidPool)}
	if err := h.startOnPostgres(ctx, peer, serverURL, key, o.peerBinary, pools...); err != nil {
		return err
	}
	if o.only == onlyBatches {
		return nil
	}
	return h.startOnPostgres(ctx, peerPipelined, serverURL, key, o.peerBinary, append(pools, "--pipelined")...)
}

// startProduct starts the product on a new database.
func (h *house) startProduct(ctx context.Context, name, serverURL, key, binary string) error {
	arguments := append([]string{"serve", "--allow-private-targets", "--data=" + filepath.Join(h.dir, name)}, h.productOptions...)
	return h.startOnPostgres(ctx, name, serverURL, key, binary, arguments...)
}

// refuseMemory returns an error when a directory is kept in memory, where a durable commit costs nothing.
func refuseMemory(dir string) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return fmt.Errorf("look at the file system of %s: %w", dir, err)
	}
	if fs.Type == unix.TMPFS_MAGIC || fs.Type == unix.RAMFS_MAGIC {
		return fmt.Errorf("%s is in memory, where commits aren't durable: set TMPDIR to a directory on a disk", dir)
	}
	return nil
}

// postmasterPID finds the PostgreSQL server's process, so that its processor time can be told.
func (h *house) postmasterPID(ctx context.Context) (int, error) {
	var dir string
	if err := h.admin.QueryRow(ctx, "SHOW data_directory").Scan(&dir); err != nil {
		return 0, fmt.Errorf("ask for PostgreSQL's data directory: %w", err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "postmaster.pid")) //nolint:gosec // The path is our own server's.
	if err != nil {
		return 0, fmt.Errorf("find PostgreSQL's process: %w", err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return strconv.Atoi(line)
}

// startOnPostgres makes a database and starts a server on it.
func (h *house) startOnPostgres(ctx context.Context, name, serverURL, key, binary string, arguments ...string) error {
	databaseURL, err := h.makeDatabase(ctx, serverURL, "bench_"+strconv.Itoa(len(h.sides)))
	if err != nil {
		return err
	}
	s := &side{name: name, store: h.pgPID, databaseURL: databaseURL}
	return h.start(ctx, s, key, binary, append(slices.Clone(arguments), "--database-url="+s.databaseURL)...)
}

// makeDatabase makes a database anew and returns its URL.
func (h *house) makeDatabase(ctx context.Context, serverURL, database string) (string, error) {
	if _, err := h.admin.Exec(ctx, "DROP DATABASE IF EXISTS "+database); err != nil {
		return "", fmt.Errorf("drop database %s: %w", database, err)
	}
	if _, err := h.admin.Exec(ctx, "CREATE DATABASE "+database); err != nil {
		return "", fmt.Errorf("create database %s: %w", database, err)
	}
	u, err := url.Parse(serverURL)
	if err != nil {
		return "", fmt.Errorf("parse PostgreSQL's URL: %w", err)
	}
	u.Path = "/" + database
	return u.String(), nil
}

// start starts a side's server and waits until it is ready.
func (h *house) start(ctx context.Context, s *side, key, binary string, arguments ...string) error {
	base := filepath.Join(h.dir, "side_"+strconv.Itoa(len(h.sides)))
	s.key, s.h, s.logFile = key, h, base+".log"
	addrFile := base + ".addr"
	logFile, err := os.Create(s.logFile)
	if err != nil {
		return fmt.Errorf("make a log: %w", err)
	}
	defer logFile.Close() //nolint:errcheck // The child has its own handle.
	arguments = append(arguments, "--listen=127.0.0.1:0", "--addr-file="+addrFile)
	s.cmd = exec.Command(binary, arguments...) //nolint:gosec,noctx // Ended by close, with SIGTERM, not with the context.
	s.cmd.Env = append(os.Environ(), "FAIRLEAD_ADMIN_KEY="+key)
	s.cmd.Stdout, s.cmd.Stderr = logFile, logFile
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := s.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", s.name, err)
	}
	s.exited = make(chan error, 1)
	go func() { s.exited <- s.cmd.Wait() }()
	h.sides = append(h.sides, s)
	return s.awaitReady(ctx, addrFile)
}

// inTurn returns the sides in the order of a pair of turns: every second pair has it backwards, so that no side is always behind
// another, whose disk writes and heat it would meet.
func inTurn[S any](pair int, sides []S) []S {
	if sides = slices.Clone(sides); pair%2 == 1 {
		slices.Reverse(sides)
	}
	return sides
}

// durable returns the sides that take part in everything: those on PostgreSQL.
func (h *house) durable() []*side {
	return slices.DeleteFunc(slices.Clone(h.sides), func(s *side) bool { return s.name == peerRedis })
}

// checkpoint writes out what the previous turn left behind, so that the next one doesn't pay for it.
func (h *house) checkpoint(ctx context.Context) error {
	if _, err := h.admin.Exec(ctx, "CHECKPOINT"); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}

// close stops everything, also when the context has ended already.
func (h *house) close(ctx context.Context) error {
	var failures []error
	for _, s := range h.sides {
		failures = append(failures, s.stop())
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if h.redis != nil {
		failures = append(failures, h.redis.Stop())
	}
	if h.etcd != nil {
		failures = append(failures, h.etcd.Stop())
	}
	if h.standby != nil {
		failures = append(failures, h.standby.Stop(ctx))
	}
	if h.admin != nil {
		failures = append(failures, h.admin.Close(ctx))
	}
	if h.postgres != nil {
		failures = append(failures, h.postgres.Stop(ctx))
	}
	switch {
	case h.dir == "":
	case h.keepDir:
		slog.Info("kept the working directory", "dir", h.dir)
	default:
		failures = append(failures, os.RemoveAll(h.dir)) //nolint:gosec // We made it.
	}
	return errors.Join(failures...)
}
