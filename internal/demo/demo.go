// Package demo tells what Fairlead does, in one terminal: it opens a server on a PostgreSQL, private unless one is given, lets many clients contend
// for positions, for places in an auction and for money, and asks the database itself which guarantees held.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead"
	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/replay"
	"github.com/fairlead-dev/fairlead/internal/screen"
)

// demoMarker is a file that marks data directories made by a demo. A directory without it may hold somebody's real data.
const demoMarker = "demo.txt"

// DefaultListen is where the demo listens when it can: the address in the documentation.
const DefaultListen = "127.0.0.1:8080"

// cleanupTimeout bounds what is to be undone in a database that may have gone away.
const cleanupTimeout = 10 * time.Second

// adminKeyVariable sets the admin key of the demo's server, as it does for fairlead serve.
const adminKeyVariable = "FAIRLEAD_ADMIN_KEY"

// ErrBroken is returned when a guarantee did not hold.
var ErrBroken = errors.New("demo: a guarantee did not hold")

// Demo is one run of the whole story. Out and ErrOut are required.
type Demo struct {
	Data        string // data directory; empty: a temporary one
	DatabaseURL string // empty: a private PostgreSQL in Data
	Listen      string // empty: DefaultListen, or a free port
	Exit        bool   // end after the table
	Out         io.Writer
	ErrOut      io.Writer
	Report      func(*Result) error // is given the results after the table; may be nil

	began  time.Time
	screen *screen.Screen
	server *fairlead.Server
	key    string // the admin key
	tag    string // tells this run's accounts from those of earlier runs on the same database
	api    *client.Client
	pool   *http.Transport // of api
	result Result

	databases  databases
	slack      time.Duration // what a test's machine may be late
	buyers     []string
	answers    []answer       // what the buyers got
	proof      []byte         // of the draw
	bidsPlaced []client.Bid   // every bid that was acknowledged
	events     []replay.Event // of the auction, as they came over the live stream
	posts      []string       // that were not cancelled
	cancelled  []string       // posts
	deliveries []delivery
	movements  []*movement // what was asked of servers that were killed

	// beforeCheck is called between the story and the table, so that a test can break a guarantee in the database.
	beforeCheck func(ctx context.Context) error
}

// Result is the document of --json.
type Result struct {
	URL        string      `json:"url"`
	StartMS    int64       `json:"start_ms"`
	Campaign   string      `json:"campaign"`
	Commitment string      `json:"commitment"`
	Race       Race        `json:"race"`
	Winners    []Winner    `json:"winners"`
	Proof      Proof       `json:"proof"`
	Auction    Auction     `json:"auction"`
	Transfers  Transfers   `json:"transfers"`
	Locks      Locks       `json:"locks"`
	Crash      Crash       `json:"crash"`
	Guarantees []Guarantee `json:"guarantees"`
	AllHeld    bool        `json:"all_held"`
	TotalMS    int64       `json:"total_ms"` // from the start to the table
}

// Run tells the story, prints the table, and serves until ctx ends unless it is to exit. It returns [ErrBroken] when the table
// has a guarantee that did not hold.
func (d *Demo) Run(ctx context.Context) (err error) {
	d.screen = screen.New(d.Out)
	d.began = time.Now()
	clean, err := d.prepareData() //nolint:contextcheck // Cleaning up happens whatever became of ctx.
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, clean()) }()

	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer func() { err = errors.Join(err, d.databases.close()) }() //nolint:contextcheck // As above.
	if err := d.startServer(ctx); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- d.server.Run(serving) }()
	defer func() {
		// The drain would wait for connections that nobody uses any more.
		d.pool.CloseIdleConnections()
		stop()
		if ended != nil {
			err = errors.Join(err, <-ended)
		}
	}()

	if err := d.tell(ctx); err != nil {
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
		return err
	}
	if d.Report != nil {
		if err := d.Report(&d.result); err != nil {
			return err
		}
	}
	if !d.Exit {
		d.showAround(ctx)
		select {
		case <-ctx.Done():
		case <-d.databases.lost():
		case err := <-ended:
			ended = nil
			return err
		}
		d.screen.Note("\nStopping.")
	}
	if !d.result.AllHeld {
		return ErrBroken
	}
	return nil
}

// prepareData finds or makes the data directory. The function that it returns removes a temporary one.
func (d *Demo) prepareData() (clean func() error, err error) {
	if d.DatabaseURL != "" {
		d.tag = "-" + uuid.NewString()[:8]
	}
	if d.Data == "" {
		if d.Data, err = os.MkdirTemp("", "fairlead-"); err != nil {
			return nil, err
		}
		dir := d.Data
		clean = func() error { return os.RemoveAll(dir) }
		if d.DatabaseURL != "" {
			// The database may have an admin key already, which nobody has told; and nobody keeps this one.
			if err := d.makeAdminKey(); err != nil {
				return nil, errors.Join(err, clean())
			}
			clean = func() error { return errors.Join(d.revokeAdminKey(), os.RemoveAll(dir)) }
		}
		return clean, nil
	}
	marker := filepath.Join(d.Data, demoMarker)
	_, err = os.Stat(marker)
	switch {
	case err == nil:
		d.tag = "-" + uuid.NewString()[:8]
	case !errors.Is(err, os.ErrNotExist):
		return nil, err
	default:
		if entries, err := os.ReadDir(d.Data); err == nil && len(entries) > 0 {
			return nil, fmt.Errorf("%s holds something that no demo made: give an empty or a new directory", d.Data)
		}
		if err := os.MkdirAll(d.Data, 0o700); err != nil {
			return nil, err
		}
		if err := os.WriteFile(marker, []byte("Made by fairlead demo.\n"), 0o600); err != nil {
			return nil, err
		}
	}
	return func() error { return nil }, nil
}

// startServer starts the server as fairlead serve does, in this process.
func (d *Demo) startServer(ctx context.Context) error {
	if d.Listen == "" {
		d.Listen = demoAddress(ctx)
	}
	o := fairlead.Options{
		Listen: d.Listen, Data: d.Data, AdminKey: os.Getenv(adminKeyVariable), DrainTimeout: 10 * time.Second,
		AdminKeyMade: func(key string) { d.key = key }, Logger: d.logger(), AllowPrivateTargets: true,
		PublishPerTarget: demoPerTarget, ClaimStaleAfter: demoStaleAfter, ClaimSweepEvery: demoSweepEvery,
	}
	d.screen.Note("%s\n", d.screen.Paint(screen.Bold, "Fairlead: contended things, decided exactly once"))
	what := "Starting PostgreSQL and the server"
	if d.DatabaseURL != "" {
		what = "Starting the server"
	}
	d.screen.Begin(what)
	err := d.openDatabases(ctx)
	if err == nil {
		if o.DatabaseURL = d.databases.url; d.databases.branch != "" {
			o.Ledgers = map[string]string{branchLedger: d.databases.branch}
		}
		d.server, err = fairlead.Open(ctx, o)
	}
	if err != nil {
		d.screen.Break()
		return err
	}
	addr, err := d.server.Listen(ctx)
	if err == nil && d.key == "" {
		d.key, err = existingAdminKey(d.Data)
	}
	if err != nil {
		return errors.Join(err, d.server.Close(ctx))
	}
	d.result.URL = "http://" + addr.String()
	d.pool = &http.Transport{MaxIdleConnsPerHost: demoOpening}
	if d.api, err = client.New(d.result.URL, d.key, client.WithHTTPClient(&http.Client{Transport: d.pool}), patient); err != nil {
		return errors.Join(err, d.server.Close(ctx))
	}
	took := time.Since(d.began)
	d.result.StartMS = took.Milliseconds()
	d.screen.End("%s, durable, in %s", d.result.URL, screen.Seconds(took))
	return nil
}

func (d *Demo) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(d.ErrOut, &slog.HandlerOptions{Level: slog.LevelError}))
}

// demoAddress is the documented address, or any free port when somebody has that one.
func demoAddress(ctx context.Context) string {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", DefaultListen)
	if err != nil || l.Close() != nil {
		return "127.0.0.1:0"
	}
	return DefaultListen
}

// existingAdminKey finds the key that a start did not have to make.
func existingAdminKey(data string) (string, error) {
	if key := os.Getenv(adminKeyVariable); key != "" {
		return key, nil
	}
	b, err := os.ReadFile(fairlead.AdminKeyFile(data))
	if err != nil {
		return "", fmt.Errorf("the demo needs the admin key: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// makeAdminKey puts a new admin key where the server's start finds and registers it.
func (d *Demo) makeAdminKey() error {
	if os.Getenv(adminKeyVariable) != "" {
		return nil
	}
	key, _, err := auth.GenerateKey(auth.RoleAdmin)
	if err != nil {
		return err
	}
	return os.WriteFile(fairlead.AdminKeyFile(d.Data), []byte(key), 0o600)
}

// revokeAdminKey revokes it, also where it is the only one: the next server makes another then.
func (d *Demo) revokeAdminKey() error {
	if os.Getenv(adminKeyVariable) != "" || d.key == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, d.DatabaseURL)
	if err != nil {
		return fmt.Errorf("the demo's admin key is not revoked: %w", err)
	}
	hash := auth.HashKey(d.key)
	_, err = conn.Exec(ctx, `UPDATE api_keys SET revoked_at = clock_timestamp() WHERE hash = $1`, hash[:])
	return errors.Join(err, conn.Close(ctx))
}

// tell runs the story from the first account to the table.
func (d *Demo) tell(ctx context.Context) error {
	for _, act := range []struct {
		name string
		play func(context.Context) error
	}{
		{"open accounts", d.openAccounts},
		{"make the campaign", d.makeCampaign},
		{"race", d.race},
		{"draw", d.showDraw},
		{"proof", d.showProof},
		{"auction", d.holdAuction},
		{"transfers", d.moveMoney},
		{"locks", d.contend},
		{"crash", d.crash},
		{"before the check", d.beforeCheck},
		{"check the database", d.check},
	} {
		if act.play == nil {
			continue
		}
		if err := act.play(ctx); err != nil {
			return fmt.Errorf("%s: %w", act.name, err)
		}
	}
	return nil
}

// showAround tells what there is to look at while the server stays up.
func (d *Demo) showAround(ctx context.Context) {
	link, _ := d.server.ConsoleLink(ctx, false)
	location := fairlead.AdminKeyFile(d.Data)
	credential := "$(cat " + location + ")"
	if os.Getenv(adminKeyVariable) != "" {
		location, credential = "$"+adminKeyVariable, "$"+adminKeyVariable
	}
	d.screen.Note("\nThe server stays up until Ctrl-C.\n")
	d.screen.Facts(
		"console", link,
		"API", d.result.URL+"/docs",
		"metrics", d.result.URL+"/metrics",
		"admin key", location,
	)
	d.screen.Note("\nFetch the proof and check it yourself:\n")
	d.screen.Note("curl -sH \"Authorization: Bearer %s\" \\\n%s/v1/campaigns/%s/proof |\n%s verify -",
		credential, d.result.URL, d.result.Campaign, os.Args[0])
}
