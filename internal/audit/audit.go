package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// maxListed bounds the violations kept for one check: a database that broke one promise a million times is as broken
// as one that broke it twenty times, and the list must stay readable.
const maxListed = 20

// Beginner opens transactions: a *pgx.Conn or a *pgxpool.Pool.
type Beginner interface {
	BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error)
}

// Guarantee names the group of promises that a check belongs to.
type Guarantee string

// The groups of checks.
const (
	Money    Guarantee = "money"
	Lottery  Guarantee = "lottery"
	Auctions Guarantee = "auctions"
	Keys     Guarantee = "keys"
	// Publications is about what goes out once.
	Publications Guarantee = "publications"
	// Multidraws is about operations of many draws.
	Multidraws Guarantee = "multi-draws"
)

// Result is the outcome of one check.
type Result struct {
	// Guarantee is the group that the check belongs to.
	Guarantee Guarantee
	// Promise says in one sentence what was checked.
	Promise string
	// Violations lists what broke the promise, at most twenty; empty when it holds.
	Violations []string
	// Total counts all violations, listed or not.
	Total int
}

// check is one promise and the question that finds its violations.
type check struct {
	guarantee Guarantee
	promise   string
	// sql yields one text column, a row a violation; it is empty when find asks instead.
	sql string
	// find answers what SQL alone can't say.
	find func(ctx context.Context, tx pgx.Tx, report func(format string, args ...any)) error
}

// Audit runs every check on one snapshot of db, or those of some groups alone. It returns nil when all promises hold, and an error that lists
// what broke them when some do not, or when the database could not be asked.
func Audit(ctx context.Context, db Beginner, groups ...Guarantee) error {
	results, err := report(ctx, db, slices.DeleteFunc(allChecks(), func(c check) bool { return len(groups) > 0 && !slices.Contains(groups, c.guarantee) }))
	wrong := []error{err}
	for _, r := range results {
		if r.Total > 0 {
			wrong = append(wrong, fmt.Errorf("audit: %s: %s: %d violations:\n    %s", r.Guarantee, r.Promise, r.Total, strings.Join(r.Violations, "\n    ")))
		}
	}
	return errors.Join(wrong...)
}

// Report runs every check on one snapshot of db and returns the result of each, kept or broken, for those who want
// to show both. The error is about asking, never about what was found.
func Report(ctx context.Context, db Beginner) (results []Result, err error) {
	return report(ctx, db, allChecks())
}

func report(ctx context.Context, db Beginner, checks []check) (results []Result, err error) {
	tx, err := db.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return nil, fmt.Errorf("audit: begin snapshot: %w", err)
	}
	defer func() {
		// Nothing was written; a failed rollback matters only in that the connection is of no more use.
		if rollbackErr := tx.Rollback(context.WithoutCancel(ctx)); rollbackErr != nil && !errors.Is(rollbackErr, pgx.ErrTxClosed) {
			err = errors.Join(err, rollbackErr)
		}
	}()
	for _, c := range checks {
		r := Result{Guarantee: c.guarantee, Promise: c.promise}
		report := func(format string, args ...any) {
			r.Total++
			if r.Total <= maxListed {
				r.Violations = append(r.Violations, fmt.Sprintf(format, args...))
			}
		}
		if c.find != nil {
			err = c.find(ctx, tx, report)
		} else {
			err = ask(ctx, tx, c.sql, report)
		}
		if err != nil {
			return results, fmt.Errorf("audit: %s: %w", c.promise, err)
		}
		results = append(results, r)
	}
	return results, nil
}

func allChecks() []check {
	return slices.Concat(moneyChecks(), lotteryChecks(), auctionChecks(), multidrawChecks(), publicationChecks(), keyChecks())
}

// ask reports each row of a question with one text column.
func ask(ctx context.Context, tx pgx.Tx, sql string, report func(string, ...any), args ...any) error {
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return err
	}
	var violation string
	_, err = pgx.ForEachRow(rows, []any{&violation}, func() error { report("%s", violation); return nil })
	return err
}
