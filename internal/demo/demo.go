// Package demo tells what Fairlead does, in one terminal: it opens a server on a private PostgreSQL, lets many clients contend
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

	"github.com/fairlead-dev/fairlead"
	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/replay"
	"github.com/fairlead-dev/fairlead/internal/screen"
)

// demoMarker is a file that marks data directories made by a demo. A directory without it may hold somebody's real data.
const demoMarker = "demo.txt"

// DefaultListen is where the demo listens when it can: the address in the documentation.
const DefaultListen = "127.0.0.1:8080"

// adminKeyVariable sets the admin key of the demo's server, as it does for fairlead serve.
const adminKeyVariable = "FAIRLEAD_ADMIN_KEY"

// ErrBroken is returned when a guarantee did not hold.
var ErrBroken = errors.New("demo: a guarantee did not hold")

// Demo is one run of the whole story. Out and ErrOut are required.
type Demo struct {
	Data   string // data directory; empty: a temporary one
	Listen string // empty: DefaultListen, or a free port
	Exit   bool   // end after the table
	Out    io.Writer
	ErrOut io.Writer
	Report func(*Result) error // is given the results after the table; may be nil

	screen *screen.Screen
	server *fairlead.Server
	key    string // the admin key
	tag    string // tells this run's accounts from those of earlier runs in the same directory
	api    *client.Client
	pool   *http.Transport // of api
	result Result

	buyers     []string
	answers    []answer       // what the buyers got
	proof      []byte         // of the draw
	bidsPlaced []client.Bid   // every bid that was acknowledged
	events     []replay.Event // of the auction, as they came over the live stream

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
	Guarantees []Guarantee `json:"guarantees"`
	AllHeld    bool        `json:"all_held"`
}

// Run tells the story, prints the table, and serves until ctx ends unless it is to exit. It returns [ErrBroken] when the table
// has a guarantee that did not hold.
func (d *Demo) Run(ctx context.Context) (err error) {
	d.screen = screen.New(d.Out)
	clean, err := d.prepareData()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, clean()) }()

	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
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
	if d.Data == "" {
		if d.Data, err = os.MkdirTemp("", "fairlead-"); err != nil {
			return nil, err
		}
		dir := d.Data
		return func() error { return os.RemoveAll(dir) }, nil
	}
	marker := filepath.Join(d.Data, demoMarker)
	_, err = os.Stat(marker)
	switch {
	case err == nil:
		d.tag = "-" + uuid.NewString()[:4]
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
	began := time.Now()
	if d.Listen == "" {
		d.Listen = demoAddress(ctx)
	}
	o := fairlead.Options{
		Listen: d.Listen, Data: d.Data, AdminKey: os.Getenv(adminKeyVariable), DrainTimeout: 10 * time.Second,
		AdminKeyMade: func(key string) { d.key = key },
		Logger:       slog.New(slog.NewTextHandler(d.ErrOut, &slog.HandlerOptions{Level: slog.LevelError})),
	}
	d.screen.Note("%s\n", d.screen.Paint(screen.Bold, "Fairlead: contended things, decided exactly once"))
	d.screen.Begin("Starting PostgreSQL and the server")
	var err error
	if d.server, err = fairlead.Open(ctx, o); err != nil {
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
	if d.api, err = client.New(d.result.URL, d.key, client.WithHTTPClient(&http.Client{Transport: d.pool})); err != nil {
		return errors.Join(err, d.server.Close(ctx))
	}
	took := time.Since(began)
	d.result.StartMS = took.Milliseconds()
	d.screen.End("%s, durable, in %s", d.result.URL, screen.Seconds(took))
	return nil
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
