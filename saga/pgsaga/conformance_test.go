package pgsaga_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/sagatest"
)

// TestConformance runs the suite on two databases.
func TestConformance(t *testing.T) {
	t.Parallel()
	sagatest.Run(t, func(t *testing.T) sagatest.Harness {
		t.Helper()
		database := func() *pgxpool.Pool { return poolOf(t, pgtest.NewDatabase(t, installSuite)) }
		return sagatest.Harness{Pools: [2]*pgxpool.Pool{database(), database()}, Schema: testSchema, Prefix: "saga:"}
	})
}

func installSuite(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	return errors.Join(sagatest.Install(ctx, conn, testSchema), conn.Close(ctx))
}
