package tally

import (
	"strings"

	"github.com/fairlead-dev/fairlead/internal/crashpoint"
)

// Names of rows that are not those of crash points.
const (
	ServerKilled         = "server-killed"
	ServerPaused         = "server-paused"
	LeasePaused          = "lease-paused"
	DatabaseKilled       = "database-killed"
	CommitAnswerLost     = "commit-answer-lost"
	CommitLost           = "commit-lost"
	AnswerLost           = "answer-lost"
	NetworkCut           = "network-cut"
	NetworkSlow          = "network-slow"
	BackendsTerminated   = "backends-terminated"
	TableLocked          = "table-locked"
	RowLocked            = "row-locked"
	ConnectionsExhausted = "connections-exhausted"
	DiskFull             = "disk-full"
	ClockStepped         = "clock-stepped"
	BranchOrphaned       = "branch-orphaned"
	RedisKilled          = "redis-killed"
	RedisFlushed         = "redis-flushed"
	RedisFailedOver      = "redis-failed-over"
	EtcdKilled           = "etcd-killed"
	EtcdFailedOver       = "etcd-failed-over"

	crash = "crash-" // before the name of a crash point
)

// Crash is the row of a crash point, which may have a count as in FAIRLEAD_CRASH_AT ("lottery.draw:3").
func Crash(point string) string {
	name, _, _ := strings.Cut(point, ":")
	return crash + name
}

// Row is a fault of the table.
type Row struct {
	Name string
	// Fault says what happens.
	Fault string
	// Tries and Acknowledged are the full counts; Acknowledged 0: whatever comes.
	Tries, Acknowledged int
	// Package and Tests are what causes it, as go test takes them.
	Package, Tests string
}

// Reached reports whether a count is a full one.
func (r Row) Reached(c Count) bool { return c.Tries >= r.Tries && c.Acknowledged >= r.Acknowledged }

// Full counts.
const (
	eachPoint   = 50
	kills       = 1000
	killAnswers = 2_000_000
	pauses      = 500
	databases   = 500
	commits     = 2000
	others      = 300 // of Redis, etcd and orphaned branches
	networks    = 500 // of each kind
	disks       = 50
	pools       = 20
	clocks      = 200
)

// Rows are all faults of the table, in its order.
func Rows() []Row {
	const sim, locks, etcd = "./internal/sim", "./lock/redislock", "./lock/etcdlock"
	var rows []Row
	for _, point := range crashpoint.Names() {
		rows = append(rows, Row{Crash(point), "a server kills itself at " + point, eachPoint, 0, sim, crashTest(point)})
	}
	return append(
		rows,
		Row{ServerKilled, "one of three servers is killed at a random moment", kills, killAnswers, sim, "^TestOneOfThreeServersIsKilled$"},
		Row{ServerPaused, "one of two servers is stopped, past its leases, and goes on", pauses, 0, sim, "^TestStoppedServerWakes$"},
		Row{LeasePaused, "the holder of a lock is stopped past its lease, and then writes", pauses, 0, "./lock/pglock", "^TestStoppedHolderWritesNothing$"},
		Row{DatabaseKilled, "PostgreSQL is killed, with or without all its processes", databases, 0, sim, "^TestPostgresIsKilled$"},
		Row{CommitAnswerLost, "a server hears no answer to its COMMIT, which took place or may have", commits, 0, sim, "^TestLostAnswersToCommit$"},
		Row{CommitLost, "a COMMIT is lost on its way to PostgreSQL", commits, 0, sim, "^TestLostAnswersToCommit$"},
		Row{AnswerLost, "a client hears no answer to a command that was carried out", commits, 0, sim, "^TestTorture$/^answer-lost$"},
		Row{NetworkCut, "clients can't reach one server, or any", networks, 0, sim, "^TestTorture$/^network-cut$"},
		Row{NetworkSlow, "what clients say arrives late at one server, or at all", networks, 0, sim, "^TestTorture$/^network-slow$"},
		Row{BackendsTerminated, "all sessions of the database are ended, again and again", disks, 0, sim, "^TestTorture$/^backends-terminated$"},
		Row{TableLocked, "another program locks a table", disks, 0, sim, "^TestTorture$/^table-locked$"},
		Row{RowLocked, "another program locks an account's row", disks, 0, sim, "^TestTorture$/^row-locked$"},
		Row{ConnectionsExhausted, "the database has no free connection", pools, 0, sim, "^TestTorture$/^connections-exhausted$"},
		Row{DiskFull, "the database's disk is full", disks, 0, sim, "^TestOutages$/session/disk"},
		Row{ClockStepped, "the database's clock steps by 5 s or 1 h, forwards or back", clocks, 0, sim, "^TestClockSteps$"},
		Row{BranchOrphaned, "a prepared branch of a transaction over two databases is left without its coordinator", others, 0, sim, crashTest(crashpoint.CrossReady)},
		Row{RedisKilled, "Redis is killed, and comes back without its data", others, 0, locks, "^TestRestartWithoutPersistence$"},
		Row{RedisFlushed, "Redis loses all its data, and goes on", others, 0, locks, "^TestFlush$"},
		Row{RedisFailedOver, "a replica takes over that has not heard of the newest grants", others, 0, locks, "^TestReplicaTakesOver$"},
		Row{EtcdKilled, "etcd is killed, and started again on its data", others, 0, etcd, "^TestRestart$"},
		Row{EtcdFailedOver, "the leader of three etcd servers is killed", others, 0, etcd, "^TestFailover$"},
	)
}

// crashTest is what kills a server at a crash point.
func crashTest(point string) string {
	switch service, _, _ := strings.Cut(point, "."); {
	case point == crashpoint.LotterySealed, point == crashpoint.LotteryRound, point == crashpoint.LotteryRoundDrawn:
		return "^TestABeaconsDrawSurvivesEveryCrash$"
	case service == "auction":
		return "^TestAuctionServerDiesAtEveryCrashPoint$"
	case service == "publish":
		return "^TestPublisherDiesAtEveryCrashPoint$"
	case service == "subscription":
		return "^TestDelivererDiesBeforeItRecords$"
	case service == "cross":
		return "^TestCrossCoordinatorDiesAtEveryCrashPoint$"
	case service == "multidraw":
		return "^TestMultidrawSurvivesKills$"
	case service == "books":
		return "^TestBooksAreKeptThroughEveryCrash$"
	case service == "archive":
		return "^TestArchivesAreMadeThroughEveryCrash$"
	case service == "keys":
		return "^TestKeySlotsAreTurnedThroughEveryCrash$"
	case service == "log":
		return "^TestLogKeeperDiesAtEveryCrashPoint$"
	default:
		return "^TestServerDiesAtEveryCrashPoint$"
	}
}
