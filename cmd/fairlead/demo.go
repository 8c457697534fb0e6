package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead"
	"github.com/fairlead-dev/fairlead/client"
)

// demoMarker is a file in data directories that a demo made. A directory without it may be somebody's real one.
const demoMarker = "demo.txt"

// demoListen is where the demo listens when it can: the address in the documentation.
const demoListen = "127.0.0.1:8080"

// demo is one run of the whole story.
type demo struct {
	data   string // data directory; empty: a temporary one
	listen string // empty: demoListen, or a free port
	exit   bool   // end after the table
	json   bool

	screen *screen
	errOut io.Writer
	node   *fairlead.Server
	key    string // the admin key
	tag    string // tells this run's accounts from those of earlier runs in the same directory
	api    *client.Client
	pool   *http.Transport // of api
	result demoResult

	// beforeCheck is called between the story and the table, so that a test can break a guarantee in the database.
	beforeCheck func(ctx context.Context, d *demo, answers []demoAnswer) error
}

// demoResult is the document of --json.
type demoResult struct {
	URL        string          `json:"url"`
	StartMS    int64           `json:"start_ms"`
	Campaign   string          `json:"campaign"`
	Commitment string          `json:"commitment"`
	Race       demoRace        `json:"race"`
	Winners    []demoWinner    `json:"winners"`
	Proof      demoProof       `json:"proof"`
	Auction    demoAuction     `json:"auction"`
	Transfers  demoTransfers   `json:"transfers"`
	Guarantees []demoGuarantee `json:"guarantees"`
	AllHeld    bool            `json:"all_held"`
}

func newDemo() *cobra.Command {
	var d demo
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show the whole story in one terminal",
		Long: "Show the whole story in one terminal, on a private PostgreSQL: 500 buyers race for 210 positions over HTTP,\n" +
			"winners are drawn once, the proof is checked offline; bots bid in an auction of three rounds, watched over\n" +
			"the live stream; money moves both ways; and a table tells which guarantees held, asked of the database\n" +
			"itself. Then the server stays up until Ctrl-C.\n\n" +
			"Exit status 0: every guarantee held; 1: one did not.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := cmd.OutOrStdout()
			d.errOut = cmd.ErrOrStderr()
			d.screen = newScreen(out)
			if d.json {
				d.screen = newScreen(io.Discard)
			}
			// A closed terminal must not leave a PostgreSQL behind.
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGHUP)
			defer stop()
			return d.run(ctx, func() error { return printJSON(cmd, d.result) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&d.data, "data", "", "directory to keep the data in; without it a temporary one is used and removed")
	f.StringVar(&d.listen, "listen", "", "address to listen on (default "+demoListen+", or a free port when that is taken)")
	f.BoolVar(&d.exit, "exit", false, "end at once after the table")
	f.BoolVar(&d.json, "json", false, "print one JSON document of the results instead of the story")
	return cmd
}

// run tells the story, prints the table, and serves until ctx ends unless it is to exit.
func (d *demo) run(ctx context.Context, printResult func() error) (err error) {
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
	go func() { ended <- d.node.Run(serving) }()
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
	if d.json {
		if err := printResult(); err != nil {
			return err
		}
	}
	if !d.exit {
		d.showAround(ctx)
		select {
		case <-ctx.Done():
		case err := <-ended:
			ended = nil
			return err
		}
		d.screen.note("\nStopping.")
	}
	if !d.result.AllHeld {
		return exitCode(1)
	}
	return nil
}

// prepareData finds or makes the data directory. The function that it returns removes a temporary one.
func (d *demo) prepareData() (clean func() error, err error) {
	if d.data == "" {
		if d.data, err = os.MkdirTemp("", "fairlead-"); err != nil {
			return nil, err
		}
		dir := d.data
		return func() error { return os.RemoveAll(dir) }, nil
	}
	marker := filepath.Join(d.data, demoMarker)
	_, err = os.Stat(marker)
	switch {
	case err == nil:
		d.tag = "-" + uuid.NewString()[:4]
	case !errors.Is(err, os.ErrNotExist):
		return nil, err
	default:
		if entries, err := os.ReadDir(d.data); err == nil && len(entries) > 0 {
			return nil, fmt.Errorf("%s holds something that no demo made: give an empty or a new directory", d.data)
		}
		if err := os.MkdirAll(d.data, 0o700); err != nil {
			return nil, err
		}
		if err := os.WriteFile(marker, []byte("Made by fairlead demo.\n"), 0o600); err != nil {
			return nil, err
		}
	}
	return func() error { return nil }, nil
}

// startServer starts the server as fairlead serve does, in this process.
func (d *demo) startServer(ctx context.Context) error {
	began := time.Now()
	if d.listen == "" {
		d.listen = demoAddress(ctx)
	}
	o := fairlead.Options{
		Listen: d.listen, Data: d.data, AdminKey: os.Getenv(adminKeyVariable), DrainTimeout: 10 * time.Second,
		AdminKeyMade: func(key string) { d.key = key },
		Logger:       slog.New(slog.NewTextHandler(d.errOut, &slog.HandlerOptions{Level: slog.LevelError})),
	}
	d.screen.note("%s\n", d.screen.paint(bold, "Fairlead: contended things, decided exactly once"))
	d.screen.begin("Starting PostgreSQL and the server")
	var err error
	if d.node, err = openServer(ctx, o); err != nil {
		d.screen.breakLine()
		return err
	}
	addr, err := d.node.Listen(ctx)
	if err == nil && d.key == "" {
		d.key, err = existingAdminKey(d.data)
	}
	if err != nil {
		return errors.Join(err, d.node.Close(ctx))
	}
	d.result.URL = "http://" + addr.String()
	d.pool = &http.Transport{MaxIdleConnsPerHost: demoOpening}
	if d.api, err = client.New(d.result.URL, d.key, client.WithHTTPClient(&http.Client{Transport: d.pool})); err != nil {
		return errors.Join(err, d.node.Close(ctx))
	}
	took := time.Since(began)
	d.result.StartMS = took.Milliseconds()
	d.screen.end("%s, durable, in %s", d.result.URL, seconds(took))
	return nil
}

// demoAddress is the documented address, or any free port when somebody has that one.
func demoAddress(ctx context.Context) string {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", demoListen)
	if err != nil || l.Close() != nil {
		return "127.0.0.1:0"
	}
	return demoListen
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
func (d *demo) tell(ctx context.Context) error {
	buyers, err := d.openAccounts(ctx)
	if err != nil {
		return fmt.Errorf("open accounts: %w", err)
	}
	if err := d.makeCampaign(ctx); err != nil {
		return fmt.Errorf("make the campaign: %w", err)
	}
	answers, err := d.race(ctx, buyers)
	if err != nil {
		return fmt.Errorf("race: %w", err)
	}
	if err := d.showDraw(ctx); err != nil {
		return fmt.Errorf("draw: %w", err)
	}
	if err := d.showProof(ctx); err != nil {
		return fmt.Errorf("proof: %w", err)
	}
	if err := d.holdAuction(ctx); err != nil {
		return fmt.Errorf("auction: %w", err)
	}
	if err := d.moveMoney(ctx, buyers); err != nil {
		return fmt.Errorf("transfers: %w", err)
	}
	if d.beforeCheck != nil {
		if err := d.beforeCheck(ctx, d, answers); err != nil {
			return err
		}
	}
	if err := d.check(ctx, answers); err != nil {
		return fmt.Errorf("check the database: %w", err)
	}
	return nil
}

// showAround tells what there is to look at while the server stays up.
func (d *demo) showAround(ctx context.Context) {
	link, _ := d.node.ConsoleLink(ctx, false)
	location := fairlead.AdminKeyFile(d.data)
	credential := "$(cat " + location + ")"
	if os.Getenv(adminKeyVariable) != "" {
		location, credential = "$"+adminKeyVariable, "$"+adminKeyVariable
	}
	d.screen.note("\nThe server stays up until Ctrl-C.\n")
	d.screen.facts(
		"console", link,
		"API", d.result.URL+"/docs",
		"metrics", d.result.URL+"/metrics",
		"admin key", location,
	)
	d.screen.note("\nFetch the proof and check it yourself:\n")
	d.screen.note("curl -sH \"Authorization: Bearer %s\" \\\n%s/v1/campaigns/%s/proof |\n%s verify -",
		credential, d.result.URL, d.result.Campaign, os.Args[0])
}
