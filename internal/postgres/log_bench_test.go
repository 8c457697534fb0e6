package postgres

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/logkeeper"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/translog"
)

// BenchmarkLog appends the bids of one auction to the log, as fast as it goes: what a leaf costs here and in PostgreSQL together.
func BenchmarkLog(b *testing.B) {
	db, err := Open(b.Context(), Options{URL: pgtest.NewDatabase(b, migrated)})
	testwait.Must(b, err)
	b.Cleanup(db.Close)
	if err := pgx.BeginFunc(b.Context(), db.pool, func(tx pgx.Tx) error {
		insertLot(b, tx, time.Now(), b.N, 0, 0)
		return nil
	}); err != nil {
		b.Fatal(err)
	}
	key, err := translog.GenerateKey("bench.test/log")
	testwait.Must(b, err)
	store, err := NewLog(db)
	testwait.Must(b, err)
	k := logkeeper.New(logkeeper.Options{Store: store, Publisher: logkeeper.NewPublisher(logkeeper.PublisherOptions{
		Store: store, Tiles: store.Tile, Key: key, Guard: logkeeper.NewGuard(filepath.Join(b.TempDir(), "log.signed")),
	})})
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan struct{})
	before := ownTime(b)
	b.ResetTimer()
	go func() {
		defer close(done)
		k.Lead(ctx, 1)
	}()
	for {
		p, err := NewLogReader(db).Published(b.Context())
		testwait.Must(b, err)
		if p.Leaves > int64(b.N) {
			break
		}
		time.Sleep(200 * time.Millisecond)
	}
	b.StopTimer()
	b.ReportMetric((ownTime(b)-before)/float64(b.N)*1e6, "server-µs/leaf")
	b.ReportMetric(backendTime(b, db)/float64(b.N)*1e6, "backend-µs/leaf")
	cancel()
	<-done
	var bytes int64
	testwait.Must(b, db.pool.QueryRow(b.Context(), `SELECT sum(pg_total_relation_size(c)) FROM unnest(ARRAY['log_tiles', 'log_bundles', 'log_runs', 'log_topics']::regclass[]) AS c`).Scan(&bytes))
	b.ReportMetric(float64(bytes)/float64(b.N), "B/leaf")
	_ = store.Shutdown(context.Background())
}

// ownTime is the processor time of this process, in seconds.
func ownTime(b *testing.B) float64 {
	b.Helper()
	var u syscall.Rusage
	testwait.Must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// backendTime is the processor time of the keeper's sessions in PostgreSQL, in seconds; 0 where it can't be read.
func backendTime(b *testing.B, db *DB) (seconds float64) {
	b.Helper()
	pids, err := query(b.Context(), db, func(row pgx.CollectableRow) (pid int, err error) {
		err = row.Scan(&pid)
		return pid, err
	}, `SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'fairlead log'`)
	testwait.Must(b, err)
	for _, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return 0
		}
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		for _, field := range fields[11:13] { // utime and stime, in hundredths of a second
			n, _ := strconv.Atoi(field)
			seconds += float64(n) / 100
		}
	}
	return seconds
}
