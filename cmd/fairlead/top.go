package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/screen"
	"github.com/fairlead-dev/fairlead/internal/top"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

// Bounds of fairlead top.
const (
	minTopInterval = 100 * time.Millisecond
	maxTopInterval = time.Hour
	// topPatience is how long a server may take to say what it measures.
	topPatience = 10 * time.Second
	// topLocks is how many keys are shown.
	topLocks = 8
)

// topFrame is what is shown at one moment.
type topFrame struct {
	At      time.Time `json:"at"`
	Version string    `json:"version"`
	top.View
	Backlog topBacklog `json:"backlog"`
	Held    int        `json:"locks_held"`
	Waiting int        `json:"locks_waiting"`
	Locks   []lockView `json:"locks"`
}

// topBacklog is what waits in the whole system; the names are the server's.
type topBacklog struct {
	CampaignsActive     int `json:"campaigns_active"`
	CampaignsDrawing    int `json:"campaigns_drawing"`
	DrawsDelayed        int `json:"draws_delayed"`
	AuctionsActive      int `json:"auctions_active"`
	RoundsOverdue       int `json:"rounds_overdue"`
	PublicationsDue     int `json:"publications_due"`
	PublicationsLate    int `json:"publications_late"`
	PublicationsRunning int `json:"publications_running"`
	PublicationsFailed  int `json:"publications_failed"`
	TransfersPending    int `json:"transfers_pending"`
	SagasPending        int `json:"sagas_pending"`
	SagasStuck          int `json:"sagas_stuck"`
	MultidrawsRunning   int `json:"multidraws_running"`
	MultidrawsStopped   int `json:"multidraws_interrupted"`
}

func newTop() *cobra.Command {
	var (
		t        target
		interval time.Duration
		once     bool
	)
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch a running server: rates, latency, batches, queues, locks, leader",
		Long: "Watch a running server: rates, latency, sizes of batches, queues, locks and the leader, drawn anew each second until\n" +
			"you press q. A terminal of 60 columns is wide enough. Where standard output is no terminal, there is one line for each\n" +
			"interval instead, for grep and awk.\n\n" +
			"The figures are those of the interval that has just ended, and of the one server that --url names; what waits and who\n" +
			"holds locks is of the whole system. Quantiles are read from histograms, and are as exact as their buckets are narrow. It\n" +
			"costs the server three requests an interval, which are among those that are shown.\n\n" +
			"It needs an admin or a reader key in " + keyVariable + ". While the server is away, top says so and goes on trying.",
		Example: "  fairlead top                                # the server that was started in this directory\n" +
			"  fairlead top --url https://fairlead.example --interval 5s | tee load.log\n" +
			"  fairlead top --json | jq .latency_seconds.p99",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if interval < minTopInterval || interval > maxTopInterval {
				return fmt.Errorf("--interval must be between %s and %s", minTopInterval, maxTopInterval)
			}
			if err := t.findServer(cmd); err != nil {
				return err
			}
			if u, err := url.Parse(t.url); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
				return errors.New("--url must be the URL of a server, such as http://127.0.0.1:8080")
			}
			w := topWatch{t: &t, interval: interval}
			if once || t.json {
				return w.once(cmd)
			}
			return w.run(cmd)
		},
	}
	f := cmd.Flags()
	t.bindServer(f)
	f.DurationVar(&interval, "interval", time.Second, "time between two looks, over which rates are measured")
	f.BoolVar(&once, "once", false, "measure one interval, print it, and end")
	f.BoolVar(&t.json, "json", false, "print one JSON document, of one interval, and end")
	return cmd
}

// topWatch looks at a server again and again.
type topWatch struct {
	t        *target
	interval time.Duration
	before   *top.Snapshot // nil before the first look
	at       time.Time     // of it
}

// look asks the server. It returns nil, and no error, the first time: there is nothing yet to compare with.
func (w *topWatch) look(ctx context.Context) (*topFrame, error) {
	ctx, cancel := context.WithTimeout(ctx, topPatience)
	defer cancel()
	c, err := w.t.server()
	if err != nil {
		return nil, err
	}
	metrics, err := c.Open(ctx, "/metrics")
	if err != nil {
		return nil, w.explain(err)
	}
	now := time.Now()
	after, err := top.Parse(metrics.Body)
	if err = errors.Join(err, metrics.Body.Close()); err != nil {
		return nil, fmt.Errorf("%s: %w", w.t.url, err)
	}
	// What waits in all servers, which only admin and reader keys may know.
	overview, err := client.Call[struct {
		Version string     `json:"version"`
		Backlog topBacklog `json:"backlog"`
	}](ctx, c, http.MethodGet, "/v1/admin/overview", nil)
	if err != nil {
		return nil, w.explain(err)
	}
	locks, err := c.Locks(ctx)
	if err != nil {
		return nil, w.explain(err)
	}
	f := &topFrame{
		At: now.UTC(), Version: overview.Version, Backlog: overview.Backlog,
		Held: len(locks.Holders), Waiting: len(locks.Waiters), Locks: busiest(locks, topLocks, now),
	}
	before, elapsed := w.before, now.Sub(w.at)
	w.before, w.at = after, now
	if before == nil {
		return nil, nil //nolint:nilnil // As documented.
	}
	f.View = top.Between(before, after, elapsed, now)
	return f, nil
}

// explain says of a failure what can be done about it.
func (w *topWatch) explain(err error) error {
	var unreached *url.Error
	switch code := client.CodeOf(err); {
	case errors.As(err, &unreached):
		return fmt.Errorf("no server answers at %s: %w", w.t.url, unreached.Err)
	case code == "unauthorized":
		return fmt.Errorf("the server at %s does not know the key in %s", w.t.url, keyVariable)
	case code == "forbidden":
		return fmt.Errorf("the key in %s is neither an admin nor a reader key: top needs one of those", keyVariable)
	}
	return err
}

// once measures one interval.
func (w *topWatch) once(cmd *cobra.Command) error {
	ctx := cmd.Context()
	if _, err := w.look(ctx); err != nil {
		return err
	}
	if !wait.For(ctx, w.interval) {
		return ctx.Err()
	}
	f, err := w.look(ctx)
	if err != nil {
		return err
	}
	if w.t.json {
		return printJSON(cmd, f)
	}
	s := screen.New(cmd.OutOrStdout())
	_, err = io.WriteString(s.Out, f.page(s, w.t.url, w.interval, defaultTopWidth))
	return err
}

// run goes on until the command is ended, which is a success. That the first look fails is an error; later the server may have
// gone for a while.
func (w *topWatch) run(cmd *cobra.Command) error {
	ctx, quit := context.WithCancel(cmd.Context())
	defer quit()
	if _, err := w.look(ctx); err != nil {
		return err
	}
	d := newTopDisplay(cmd.OutOrStdout(), w.t.url, w.interval)
	d.open(cmd.InOrStdin(), quit)
	defer d.close()
	for wait.For(ctx, w.interval) {
		f, err := w.look(ctx)
		switch {
		case ctx.Err() != nil:
			return nil // It was ended while it looked.
		case err != nil:
			err = d.lost(err)
		case f != nil:
			err = d.show(f)
		}
		if err != nil {
			return err // Nobody reads any more.
		}
	}
	return nil
}
