package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fairlead-dev/fairlead/internal/postgres"
)

// TestRemedyForAnAnswer: nobody is told to start a PostgreSQL that has answered with an error.
func TestRemedyForAnAnswer(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"PostgreSQL is there":          &pgconn.PgError{Code: "22P02"},
		"start PostgreSQL":             &pgconn.PgError{Code: "57P03"},
		"newer version of fairlead":    postgres.ErrTooNew,
		"make room on the database's ": &pgconn.PgError{Code: "53100"},
	} {
		if got := remedyForError(fmt.Errorf("look: %w", err)); !strings.Contains(got, want) {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}
