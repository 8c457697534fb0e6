package main

import (
	"fmt"
	"math/big"
	"net/http"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/internal/server"
)

// integrityReport is the server's document; the fields that are not printed are kept for --json.
type integrityReport struct {
	Valid      bool     `json:"valid"`
	Difference *big.Int `json:"difference"`
	Currencies []struct {
		Currency    string   `json:"currency"`
		Deposits    *big.Int `json:"deposits"`
		Withdrawals *big.Int `json:"withdrawals"`
		Available   *big.Int `json:"available"`
		Held        *big.Int `json:"held"`
		Difference  *big.Int `json:"difference"`
	} `json:"currencies"`
	FirstBadAccount *string `json:"first_bad_account"`
	BadTransfers    int64   `json:"bad_transfers"`
}

func newIntegrity() *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use:   "integrity",
		Short: "Recompute all balances from the entries",
		Long:  "Recompute all balances from the entries and compare. Exit status 0: everything agrees; 1: something does not.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			document, err := t.integrity(cmd)
			if err != nil {
				return err
			}
			var r integrityReport
			if err := json.Unmarshal(document, &r); err != nil {
				return err
			}
			if t.json {
				_, err = fmt.Fprintln(cmd.OutOrStdout(), string(document))
			} else {
				err = printIntegrity(cmd, r)
			}
			if err == nil && !r.Valid {
				err = exitCode(1)
			}
			return err
		},
	}
	t.bind(cmd)
	return cmd
}

func (t *target) integrity(cmd *cobra.Command) ([]byte, error) {
	ctx := cmd.Context()
	if t.url != "" {
		return t.call(ctx, http.MethodGet, "/v1/integrity", nil)
	}
	db, err := t.database(ctx)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	in, err := postgres.NewLedger(db).Integrity(ctx)
	if err != nil {
		return nil, err
	}
	return server.IntegrityDocument(in), nil
}

func printIntegrity(cmd *cobra.Command, r integrityReport) error {
	out := cmd.OutOrStdout()
	for _, c := range r.Currencies {
		if _, err := fmt.Fprintf(out, "%-12s deposits %s − withdrawals %s = available %s + held %s; difference %s\n",
			c.Currency, c.Deposits, c.Withdrawals, c.Available, c.Held, c.Difference); err != nil {
			return err
		}
	}
	verdict := "valid: every balance is the sum of its entries"
	if !r.Valid {
		verdict = fmt.Sprintf("NOT VALID: difference %s, bad transfers %d", r.Difference, r.BadTransfers)
		if r.FirstBadAccount != nil {
			verdict += ", first bad account " + *r.FirstBadAccount
		}
	}
	_, err := fmt.Fprintln(out, verdict)
	return err
}
