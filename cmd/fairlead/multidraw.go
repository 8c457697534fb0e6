package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/screen"
	"github.com/fairlead-dev/fairlead/internal/wait"
	"github.com/fairlead-dev/fairlead/multidraw"
)

// How often a multi-draw that is watched is looked at, and how long a server that does not answer is given.
const (
	watchEvery    = 100 * time.Millisecond
	watchPatience = 30 * time.Second
)

// exampleID is an id in examples.
const exampleID = "01a20b8a-0442-7248-acf3-79d759fad926"

func newMultidraw() *cobra.Command {
	var (
		t       target
		body    client.CreateMultidrawRequest
		low     int64
		high    int64
		prizes  string
		detach  bool
		results string
	)
	cmd := &cobra.Command{
		Use:   "multidraw",
		Short: "Draw many times at once, and watch it",
		Long: "Draw many times at once, from a range of integers or from weighted prizes, and watch the progress. Ctrl-C ends the\n" +
			"watching and not the draws; fairlead multidraw watch ID comes back to them. Exit status 0: completed; 1: not.",
		Example: "  fairlead multidraw --lock-key daily --count 1000000 --min 1 --max 6\n" +
			"  fairlead multidraw --lock-key prizes --count 500 --prizes prizes.json --results winners.txt\n" +
			"  echo '[{\"id\":\"gold\",\"name\":\"Gold\",\"weight\":1,\"value\":100},{\"id\":\"none\",\"name\":\"Nothing\",\"weight\":99,\"value\":0}]' > prizes.json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f := cmd.Flags()
			switch {
			case body.LockKey == "":
				return errors.New("--lock-key is needed; fairlead multidraw --help has examples")
			case body.Count < 1:
				return errors.New("--count is needed, from 1 to " + strconv.Itoa(multidraw.MaxCount))
			case f.Changed("min") != f.Changed("max"), f.Changed("min") == (prizes != ""):
				return errors.New("either --min and --max are needed, or --prizes")
			}
			if prizes != "" {
				list, err := os.ReadFile(prizes)
				if err != nil {
					return fmt.Errorf("--prizes: %w", err)
				}
				if err := json.Unmarshal(list, &body.Prizes, json.RejectUnknownMembers(true)); err != nil {
					return fmt.Errorf("--prizes: %w", err)
				}
			} else {
				body.Range = &client.RangeRequest{Min: low, Max: high}
			}
			body.Async = true
			return t.multidraw(cmd, http.MethodPost, "/v1/multidraws", body, !detach, results)
		},
	}
	f := cmd.PersistentFlags()
	t.bindServer(f)
	f.BoolVar(&t.json, "json", false, "print one JSON document: the operation")
	f.BoolVar(&detach, "detach", false, "do not wait for the last draw")
	f.StringVar(&results, "results", "", "file to write the draws to, one a line, once all are made; - for standard output")
	own := cmd.Flags()
	own.StringVar(&body.LockKey, "lock-key", "", "name of the draw: no other with the same name runs until this one is completed or rolled back")
	own.Int64Var(&body.Count, "count", 0, "draws to make, 1 to "+strconv.Itoa(multidraw.MaxCount))
	own.Int64Var(&low, "min", 0, "least integer to draw")
	own.Int64Var(&high, "max", 0, "largest integer to draw")
	own.StringVar(&prizes, "prizes", "", "JSON file of the prizes, instead of --min and --max")
	act := func(use, short, method, path string, wait bool) {
		cmd.AddCommand(&cobra.Command{
			Use: use + " ID", Short: short, Example: "  fairlead multidraw " + use + " " + exampleID, Args: one("the id of an operation"),
			RunE: func(cmd *cobra.Command, args []string) error {
				return t.multidraw(cmd, method, "/v1/multidraws/"+url.PathEscape(args[0])+path, nil, wait && !detach, results)
			},
		})
	}
	act("watch", "Watch an operation until it is completed", http.MethodGet, "", true)
	act("show", "Show an operation as it is", http.MethodGet, "", false)
	act("resume", "Go on with an interrupted operation, and watch it", http.MethodPost, "/resume", true)
	act("rollback", "End an interrupted or completed operation; its draws stay readable", http.MethodPost, "/rollback", false)
	return cmd
}

// multidraw asks for something about one operation, watches it if need be, and prints what it then is.
func (t *target) multidraw(cmd *cobra.Command, method, path string, body any, watch bool, results string) error {
	if t.json && results == "-" {
		return errors.New("--json and --results - both write to standard output: give --results a file")
	}
	if err := t.findServer(cmd); err != nil {
		return err
	}
	if results != "" && results != "-" { // Can it be written? Once all is drawn that would come late.
		f, err := os.OpenFile(results, os.O_WRONLY|os.O_CREATE, 0o666) //nolint:gosec // As with os.Create, which writes it.
		if err != nil {
			return fmt.Errorf("--results: %w", err)
		}
		_ = f.Close()
	}
	o, raw, err := call[client.Multidraw](cmd.Context(), t, method, path, body)
	if err != nil {
		return err
	}
	if watch {
		if o, raw, err = t.watch(cmd.Context(), screen.New(cmd.ErrOrStderr()), o); err != nil {
			return fmt.Errorf("%w; the draws go on: fairlead multidraw watch %s", err, o.ID)
		}
	}
	switch {
	case t.json:
		err = printJSON(cmd, raw)
	case results != "-":
		s := screen.New(cmd.OutOrStdout())
		s.Facts("operation", o.ID, "lock key", o.LockKey, "status", string(o.Status), "draws", fmt.Sprintf("%d of %d", o.CompletedCount, o.TotalCount), "commitment", o.SeedCommitment)
		if o.Seed != "" {
			s.Facts("seed", o.Seed)
		}
	}
	if err == nil && results != "" && o.CompletedCount == o.TotalCount {
		err = t.writeResults(cmd, o, results)
	}
	if err == nil && watch && o.Status != client.MultidrawStatusCompleted {
		err = exitCode(1)
	}
	return err
}

// watch follows an operation until it no longer runs. A server that is away for a moment, such as for a restart, is waited
// for.
func (t *target) watch(ctx context.Context, s *screen.Screen, o *client.Multidraw) (*client.Multidraw, jsontext.Value, error) {
	show, done := s.Status("drawing " + o.LockKey)
	began, heard := time.Now(), time.Now()
	from := o.CompletedCount
	for {
		now, raw, err := call[client.Multidraw](ctx, t, http.MethodGet, "/v1/multidraws/"+url.PathEscape(o.ID), nil)
		switch {
		case err == nil:
			o, heard = now, time.Now()
			rate := float64(o.CompletedCount-from) / max(time.Since(began).Seconds(), 1e-3)
			show(float64(o.CompletedCount)/float64(max(o.TotalCount, 1)), fmt.Sprintf("%d of %d, %.0f a second", o.CompletedCount, o.TotalCount, rate))
			if o.Status != client.MultidrawStatusRunning {
				done()
				s.End("%s: %d of %d in %s", o.Status, o.CompletedCount, o.TotalCount, screen.Seconds(time.Since(began)))
				return o, raw, nil
			}
		case ctx.Err() != nil, time.Since(heard) > watchPatience:
			done()
			s.Break()
			return o, nil, err
		}
		if !wait.For(ctx, watchEvery) {
			done()
			s.Break()
			return o, nil, ctx.Err()
		}
	}
}

// writeResults writes all draws, a line each.
func (t *target) writeResults(cmd *cobra.Command, o *client.Multidraw, name string) (err error) {
	c, err := t.server()
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if name != "-" {
		f, err := os.Create(name)
		if err != nil {
			return fmt.Errorf("--results: %w", err)
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		out = f
	}
	if o.Range != nil {
		return writeLines(out, c.MultidrawInts(cmd.Context(), o.ID))
	}
	return writeLines(out, c.MultidrawPrizes(cmd.Context(), o.ID))
}

func writeLines[T any](out io.Writer, lines iter.Seq2[T, error]) error {
	w := bufio.NewWriter(out)
	for line, err := range lines {
		if err != nil {
			return errors.Join(err, w.Flush())
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return w.Flush()
}
