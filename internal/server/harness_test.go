package server

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/groupcommit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/services/ledger/cross"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
	"github.com/fairlead-dev/fairlead/internal/services/publish"
	"github.com/fairlead-dev/fairlead/internal/services/publish/deliver"
	"github.com/fairlead-dev/fairlead/internal/sim/wire"
	"github.com/fairlead-dev/fairlead/internal/telemetry"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock/lockprom"
	"github.com/fairlead-dev/fairlead/multidraw"
)

// patience bounds every wait for something that should happen soon, on a machine that has other things to do.
const patience = testwait.Patience

// jwtSecret signs the users' tokens of the tests.
const jwtSecret = "a secret of the tests that has thirty-two bytes or more"

// env is a server on a database of its own, wired as the binary wires it.
type env struct {
	patient    bool // repeat what is refused because the database is away
	t          testing.TB
	url        string
	dbURL      string
	http       *http.Client
	server     *Server
	stop       func()       // ends Serve
	ended      func() error // waits for Serve to return
	ledger     *ledger.Service
	lottery    *lottery.Service
	auction    *auction.Service
	multidraw  *multidraw.Service
	cross      *cross.Service
	publish    *publish.Service
	publishing func() // makes the worker work, and the deliverer
	deliverer  *deliver.Deliverer
	locks      *postgres.Locks
	keys       *postgres.APIKeys
	adminID    string
	admin      string // credential of the first admin key
	service    string // credential of a service key
	logs       *testwait.Buffer
	as         string                              // who sends: admin unless changed
	observe    func(method, path string, r *reply) // sees every answer; nil: nobody does
	proxy      *wire.Proxy                         // between the server and its database; nil unless asked for
	through    string                              // the database's URL by way of it
}

// setup is what a test may want different.
type setup struct {
	lanes   groupcommit.Options
	limiter *auth.LimiterOptions
	ledgers map[string]string // further ledgers' databases, by name
	beacon  *lottery.BeaconOptions
	// unavailableAfter is how long the database may be silent, and proxied lets a test take it away; 0 is as usual where it may, else all of
	// the tests' patience.
	unavailableAfter time.Duration
	proxied          bool
	ledgersAway      time.Duration // how long the further ledgers' databases may be silent; 0: all of the tests' patience
}

func migrate(ctx context.Context, url string) error {
	_, err := postgres.Migrate(ctx, url)
	return err
}

func newEnv(tb testing.TB) *env { tb.Helper(); return newEnvWith(tb, setup{}) }

func newEnvWith(tb testing.TB, o setup) *env {
	tb.Helper()
	e := &env{t: tb, dbURL: pgtest.NewDatabase(tb, migrate), logs: &testwait.Buffer{}}
	logger := slog.New(slog.NewTextHandler(e.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	registry := prometheus.NewRegistry()
	url := e.dbURL
	if o.proxied {
		e.proxy, e.through = wire.Through(tb, e.dbURL, wire.Options{})
		url = e.through
	}
	if o.unavailableAfter == 0 && !o.proxied {
		o.unavailableAfter = patience
	}
	db, err := postgres.Open(tb.Context(), postgres.Options{
		URL: url, MaxConns: 8, Patience: patience, Logger: logger, Observer: telemetry.NewTransactions(registry), UnavailableAfter: o.unavailableAfter,
	})
	must(tb, err)
	telemetry.ObservePools(registry, db.Pools)
	telemetry.ObserveShared(registry, db.SharedTargets)
	draws := telemetry.NewLottery(registry, lottery.Failures())
	ledgerLanes, lotteryLanes, auctionLanes := o.lanes, o.lanes, o.lanes
	ledgerLanes.Observer, lotteryLanes.Observer = telemetry.NewLanes(registry, "ledger"), telemetry.NewLanes(registry, "lottery")
	auctionLanes.Observer = telemetry.NewLanes(registry, "auction")
	e.ledger = ledger.NewService(postgres.NewLedger(db), ledgerLanes)
	e.lottery = lottery.NewService(postgres.NewLottery(db), lottery.Options{Lanes: lotteryLanes, Observer: draws, Logger: logger, Beacon: o.beacon})
	e.auction = auction.NewService(postgres.NewAuctions(db), auction.Options{Lanes: auctionLanes, Observer: telemetry.NewAuctions(registry, auction.Outcomes()), Logger: logger})
	e.multidraw = multidraw.NewService(postgres.NewMultidraws(db), multidraw.Options{Logger: logger, States: telemetry.NewCheckpoints(registry)})
	e.startPublishing(db, o.lanes)
	e.startCross(db, o.ledgers, cmp.Or(o.ledgersAway, patience), logger)
	e.locks = postgres.NewLocks(db, lockprom.New(registry))
	e.keys = postgres.NewAPIKeys(db)
	authenticator, err := auth.New(auth.Options{Store: e.keys, JWT: auth.JWTOptions{Secret: []byte(jwtSecret)}})
	must(tb, err)
	var limiter *auth.Limiter
	if o.limiter != nil {
		limiter, err = auth.NewLimiter(*o.limiter)
		must(tb, err)
	}
	e.server, err = New(Options{
		Ledger: e.ledger, Lottery: e.lottery, Auction: e.auction, Multidraw: e.multidraw, Publish: e.publish, Cross: e.cross, Locks: e.locks, Keys: e.keys, Log: postgres.NewLogReader(db), Operator: postgres.NewOperator(db), PublicPages: true, Auth: authenticator, Limiter: limiter, Ready: db.Ready,
		Registry: registry, Logger: logger, Version: "test",
	})
	must(tb, err)
	e.makeKeys()
	listener, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	must(tb, err)
	e.url = "http://" + listener.Addr().String()
	serving, stop := context.WithCancel(context.WithoutCancel(tb.Context()))
	served := make(chan error, 1)
	go func(s *Server) { served <- s.Serve(serving, listener, patience) }(e.server) // A test may put another in its place.
	e.stop, e.ended = stop, sync.OnceValue(func() error { return <-served })
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	e.http = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	tb.Cleanup(func() {
		transport.CloseIdleConnections()
		stop()
		if err := e.ended(); err != nil {
			tb.Errorf("Serve: %v", err)
		}
		// The test's own context is over by now.
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		integrity, err := e.ledger.Integrity(ctx)
		for errors.Is(err, command.ErrUnavailable) && ctx.Err() == nil { // A machine that stalls.
			integrity, err = e.ledger.Integrity(ctx)
		}
		if err != nil || !integrity.Valid {
			tb.Errorf("the books do not balance at the end: %+v, %v", integrity, err)
		}
		for what, err := range map[string]error{
			"locks": e.locks.Close(ctx), "publish": e.publish.Close(ctx), "multidraw": e.multidraw.Close(ctx), "auction": e.auction.Close(ctx), "lottery": e.lottery.Close(ctx), "ledger": e.ledger.Close(ctx),
		} {
			if err != nil {
				tb.Errorf("close the %s: %v", what, err)
			}
		}
		authenticator.Close()
		db.Close()
	})
	return e
}

func (e *env) makeKeys() {
	e.t.Helper()
	for _, role := range []auth.Role{auth.RoleAdmin, auth.RoleService} {
		secret, hash, err := auth.GenerateKey(role)
		must(e.t, err)
		key := auth.Key{ID: newUUID(), Role: role, Name: "tests", Hash: hash, CreatedAt: time.Now().UTC()}
		must(e.t, e.keys.InsertKey(e.t.Context(), key))
		if role == auth.RoleAdmin {
			e.adminID, e.admin, e.as = key.ID, secret, secret
		} else {
			e.service = secret
		}
	}
}

// by returns the same server with another sender.
func (e *env) by(credential string) *env {
	other := *e
	other.as = credential
	return &other
}

// user returns a token for the account of that name.
func (e *env) user(account string) string {
	e.t.Helper()
	return token(e.t, jwt.MapClaims{"sub": account, "exp": time.Now().Add(time.Hour).Unix()}, jwtSecret)
}

func token(tb testing.TB, claims jwt.MapClaims, secret string) string {
	tb.Helper()
	signed, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString([]byte(secret))
	must(tb, err)
	return signed
}

// sql runs one query that gives one value.
func (e *env) sql(into any, query string, args ...any) {
	e.t.Helper()
	conn := e.connect()
	defer func() { _ = conn.Close(context.Background()) }()
	must(e.t, conn.QueryRow(e.t.Context(), query, args...).Scan(into))
}

func (e *env) connect() *pgx.Conn {
	e.t.Helper()
	conn, err := pgx.Connect(e.t.Context(), e.dbURL)
	must(e.t, err)
	return conn
}

// snapshot is a digest of every row of every table, so that two equal ones mean that nothing was written in between.
func (e *env) snapshot() map[string]string {
	e.t.Helper()
	conn := e.connect()
	defer func() { _ = conn.Close(context.Background()) }()
	// The background writes fences and their tokens whenever it likes.
	rows, err := conn.Query(e.t.Context(), `SELECT tablename::text FROM pg_tables WHERE schemaname = 'public'
		AND tablename NOT IN ('saga_fences', 'saga_tokens') ORDER BY 1`)
	must(e.t, err)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	must(e.t, err)
	if len(tables) < 10 {
		e.t.Fatalf("only %d tables are looked at", len(tables))
	}
	for i, table := range tables {
		tables[i] = fmt.Sprintf(`SELECT '%s', count(*) || ' rows, ' || coalesce(md5(string_agg(r::text, ';' ORDER BY r::text)), '') FROM %s r`,
			table, pgx.Identifier{table}.Sanitize())
	}
	out := map[string]string{}
	rows, err = conn.Query(e.t.Context(), strings.Join(tables, " UNION ALL "), pgx.QueryExecModeSimpleProtocol)
	must(e.t, err)
	var table, digest string
	_, err = pgx.ForEachRow(rows, []any{&table, &digest}, func() error { out[table] = digest; return nil })
	must(e.t, err)
	return out
}

// unchanged fails when anything was written since the snapshot.
func (e *env) unchanged(before map[string]string) {
	e.t.Helper()
	for table, now := range e.snapshot() {
		if before[table] != now {
			e.t.Errorf("table %s changed: %s, was %s", table, now, before[table])
		}
	}
}

// count returns the number of rows that a condition holds for.
func (e *env) count(fromWhere string, args ...any) int {
	e.t.Helper()
	var n int
	e.sql(&n, "SELECT count(*) FROM "+fromWhere, args...)
	return n
}

// gate holds every transaction that inserts into a table, as long as the test likes: a row that the test locks would be
// waited for a moment only. The caller waits until one is held, and opens the gate.
func (e *env) gate(table string) (held func(what string), open func()) {
	e.t.Helper()
	conn := e.connect()
	e.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	exec := func(sql string) {
		_, err := conn.Exec(context.WithoutCancel(e.t.Context()), sql, pgx.QueryExecModeSimpleProtocol)
		must(e.t, err)
	}
	exec(`CREATE TABLE gate AS SELECT true AS closed;
		CREATE FUNCTION wait_at_gate() RETURNS trigger LANGUAGE plpgsql AS $$
			BEGIN WHILE EXISTS (SELECT FROM gate) LOOP PERFORM pg_sleep(0.05); END LOOP; RETURN NULL; END $$;
		CREATE TRIGGER gate AFTER INSERT ON ` + table + ` FOR EACH STATEMENT EXECUTE FUNCTION wait_at_gate()`)
	held = func(what string) {
		e.t.Helper()
		eventually(e.t, patience, what, func() bool {
			return e.count("pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'") == 1
		})
	}
	return held, func() { e.t.Helper(); exec(`DELETE FROM gate`) }
}

// raw sends bytes as they are on a connection of their own, for requests that no honest client can be made to send.
func (e *env) raw(method, target string, headers ...string) *reply {
	e.t.Helper()
	conn, err := new(net.Dialer).DialContext(e.t.Context(), "tcp", strings.TrimPrefix(e.url, "http://"))
	must(e.t, err)
	defer func() { _ = conn.Close() }()
	must(e.t, conn.SetDeadline(time.Now().Add(patience)))
	head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: test\r\nConnection: close\r\n", method, target)
	if e.as != "" {
		head += "Authorization: Bearer " + e.as + "\r\n"
	}
	for _, h := range headers {
		head += h + "\r\n"
	}
	_, err = conn.Write([]byte(head + "\r\n"))
	must(e.t, err)
	response, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	must(e.t, err)
	defer func() { _ = response.Body.Close() }()
	return e.received(method, target, "", response)
}

func newUUID() string { return uuid.Must(uuid.NewV7()).String() }

// The short names of what every test here uses.
var (
	must       = testwait.Must
	eventually = testwait.Eventually
)
