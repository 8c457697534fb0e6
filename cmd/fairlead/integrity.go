package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/internal/server"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

func newIntegrity() *cobra.Command {
	var t target
	var restart bool
	var archives string
	cmd := &cobra.Command{
		Use:   "integrity",
		Short: "Recompute all balances from the entries, and compare the public log with the tables",
		Long: "Recompute all balances from the entries and compare. On the database, without --url, compare every leaf of the public log with the\n" +
			"tables that its facts are in, too, and make every draw anew. Exit status 0: everything agrees; 1: something does not.\n\n" +
			"The entries of a large ledger are counted part by part, and the database keeps the progress: after an interruption, the next run\n" +
			"goes on. With --url the server answers at once, from its last closing and recount.",
		Example: "  fairlead integrity                          # the server in this directory\n" +
			"  fairlead integrity --database-url postgres://db.internal/fairlead --json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			count := func(ctx context.Context, books *postgres.Ledger) (ledger.Integrity, error) {
				return books.Recount(ctx, postgres.RecountOptions{
					Runner: postgres.RunnerOperator, Restart: restart, Blocks: recountBlocks, AtOnce: 2, Progress: showRecount(cmd.ErrOrStderr()),
				})
			}
			if archives != "" && t.url != "" {
				return errors.New("--archives needs the database: leave --url out, and give --database-url or --data")
			}
			r, document, err := t.integrity(cmd, count)
			if err != nil {
				return err
			}
			sound, err := t.checkArchives(cmd, archives)
			if err != nil {
				return err
			}
			log, err := t.compareLog(cmd)
			if err != nil {
				return err
			}
			if document, err = withLog(document, log, sound); err != nil {
				return err
			}
			return conclude(cmd, false, nil, sound && r.Valid && (log == nil || log.Difference == ""), func(out io.Writer) {
				if t.json {
					_, _ = fmt.Fprintln(out, string(document))
				} else {
					printIntegrity(out, r)
				}
				if log != nil && (!t.json || log.Difference != "") {
					printLogCheck(cmd.ErrOrStderr(), log)
				}
			})
		},
	}
	t.bind(cmd)
	cmd.Flags().StringVar(&archives, "archives", "", "directory of the archives that fairlead archive has made: read them, too")
	cmd.Flags().BoolVar(&restart, "restart", false, "count from the beginning, where an interrupted run would go on")
	return cmd
}

const (
	// recountBlocks are read in one snapshot: some two million entries, and all accounts, in a few seconds.
	recountBlocks = 32768
	// showEvery is how often the progress of a recount is told.
	showEvery = time.Second
)

// showRecount returns what tells how far a recount is.
func showRecount(out io.Writer) func(postgres.RecountProgress) {
	var told time.Time
	return func(at postgres.RecountProgress) {
		switch {
		case told.IsZero() && at.Resumed:
			_, _ = fmt.Fprintf(out, "going on with the recount of %s; --restart begins anew\n", at.Began.UTC().Format(time.RFC3339))
		case time.Since(told) < showEvery:
			return
		}
		told = time.Now()
		_, _ = fmt.Fprintf(out, "counting: %3.0f %%, %d entries\n", 100*float64(at.Done)/float64(max(at.Total, 1)), at.Entries)
	}
}

// integrity asks for the state of the books, and returns the document that says it, too.
func (t *target) integrity(cmd *cobra.Command, check func(context.Context, *postgres.Ledger) (ledger.Integrity, error)) (*client.Integrity, jsontext.Value, error) {
	ctx := cmd.Context()
	if t.url != "" {
		return call[client.Integrity](ctx, t, http.MethodGet, "/v1/integrity", nil)
	}
	db, err := t.database(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer db.Close()
	in, err := check(ctx, postgres.NewLedger(db))
	if err != nil {
		return nil, nil, err
	}
	var r client.Integrity
	document := server.IntegrityDocument(in)
	return &r, document, json.Unmarshal(document, &r)
}

// compareLog compares the public log with the tables; nil where the verb asks a server, which doesn't do that for others.
func (t *target) compareLog(cmd *cobra.Command) (*postgres.LogCheck, error) {
	if t.url != "" {
		return nil, nil
	}
	db, err := t.database(cmd.Context())
	if err != nil {
		return nil, err
	}
	defer db.Close()
	c, err := db.CheckLog(cmd.Context(), 0)
	return &c, err
}

// withLog adds to the document of the books what the comparison of the public log has found. Where there is a difference, or the archives are not sound, not
// everything is valid.
func withLog(document jsontext.Value, log *postgres.LogCheck, sound bool) (jsontext.Value, error) {
	if log == nil {
		return document, nil
	}
	compared, err := json.Marshal(struct {
		Valid      bool   `json:"valid"`
		Topics     int    `json:"topics"`
		Facts      int64  `json:"facts"`
		Leaves     int64  `json:"leaves"`
		Difference string `json:"difference"`
	}{log.Difference == "", log.Topics, log.Facts, log.Leaves, log.Difference})
	if err != nil {
		return nil, err
	}
	var members map[string]jsontext.Value
	if err := json.Unmarshal(document, &members); err != nil {
		return nil, err
	}
	members["log"] = compared
	if log.Difference != "" || !sound {
		members["valid"] = jsontext.Value("false")
	}
	return json.Marshal(members, json.Deterministic(true))
}

// checkArchives reads the archives in a directory, and compares them with the database. It tells what differs.
func (t *target) checkArchives(cmd *cobra.Command, directory string) (sound bool, err error) {
	if directory == "" {
		return true, nil
	}
	db, err := t.database(cmd.Context())
	if err != nil {
		return false, err
	}
	defer db.Close()
	c, difference, err := db.CheckArchives(cmd.Context(), directory, showArchive(cmd.ErrOrStderr()))
	switch {
	case err != nil:
		return false, err
	case difference != "":
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "NOT VALID: the archives: %s\n", difference)
		return false, nil
	}
	_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "the archives agree with the database: %d archives, %d entries, %d transfers, %d closed holds, %d purchases in %d campaigns\n",
		c.Archives, c.Entries, c.Transfers, c.Holds, c.Purchases, c.Campaigns)
	return true, nil
}

func printLogCheck(out io.Writer, c *postgres.LogCheck) {
	if c.Difference != "" {
		_, _ = fmt.Fprintf(out, "NOT VALID: the public log and the tables disagree: %s\n", c.Difference)
		return
	}
	_, _ = fmt.Fprintf(out, "the public log agrees with the tables: %d facts of %d topics, %d leaves in all\n", c.Facts, c.Topics, c.Leaves)
}

func printIntegrity(out io.Writer, r *client.Integrity) {
	for _, c := range r.Currencies {
		_, _ = fmt.Fprintf(out, "%-12s deposits %s − withdrawals %s = available %s + held %s; difference %s\n",
			c.Currency, c.Deposits, c.Withdrawals, c.Available, c.Held, c.Difference)
	}
	verdict := "valid: every balance is the sum of its entries"
	if !r.Valid {
		verdict = fmt.Sprintf("NOT VALID: difference %s, bad transfers %d", r.Difference, r.BadTransfers)
		if r.FirstBadAccount != "" {
			verdict += ", first bad account " + r.FirstBadAccount
		}
	}
	_, _ = fmt.Fprintln(out, verdict)
}
