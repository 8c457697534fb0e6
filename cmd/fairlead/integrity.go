package main

import (
	"fmt"
	"io"
	"net/http"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/internal/server"
)

func newIntegrity() *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use:   "integrity",
		Short: "Recompute all balances from the entries",
		Long:  "Recompute all balances from the entries and compare. Exit status 0: everything agrees; 1: something does not.",
		Example: "  fairlead integrity                          # the server in this directory\n" +
			"  fairlead integrity --database-url postgres://db.internal/fairlead --json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, document, err := t.integrity(cmd)
			if err != nil {
				return err
			}
			return conclude(cmd, false, nil, r.Valid, func(out io.Writer) {
				if t.json {
					_, _ = fmt.Fprintln(out, string(document)) // As the server wrote it.
				} else {
					printIntegrity(out, r)
				}
			})
		},
	}
	t.bind(cmd)
	return cmd
}

// integrity asks for the state of the books, and returns the document that says it, too.
func (t *target) integrity(cmd *cobra.Command) (*client.Integrity, jsontext.Value, error) {
	ctx := cmd.Context()
	if t.url != "" {
		return call[client.Integrity](ctx, t, http.MethodGet, "/v1/integrity", nil)
	}
	db, err := t.database(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer db.Close()
	in, err := postgres.NewLedger(db).Integrity(ctx)
	if err != nil {
		return nil, nil, err
	}
	var r client.Integrity
	document := server.IntegrityDocument(in)
	return &r, document, json.Unmarshal(document, &r)
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
