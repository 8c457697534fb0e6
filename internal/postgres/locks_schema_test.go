package postgres

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/lock/pglock"
)

// TestLocksAreThoseOfPglock compares the tables and functions, which have come to be by migrations, with the package's own.
func TestLocksAreThoseOfPglock(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	if err := pglock.Schema("reference").Install(t.Context(), db.pool); err != nil {
		t.Fatal(err)
	}
	describe := func(schema string) []string {
		rows, err := db.pool.Query(t.Context(), `
			SELECT format('%s %s %s %s %s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity)
			FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
			WHERE c.relnamespace = $1::text::regnamespace AND c.relname LIKE 'lock\_%' AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped
			UNION ALL SELECT format('%s %s', c.relname, pg_get_constraintdef(k.oid)) FROM pg_class c JOIN pg_constraint k ON k.conrelid = c.oid
			WHERE c.relnamespace = $1::text::regnamespace AND c.relname LIKE 'lock\_%'
			UNION ALL SELECT replace(indexdef, $1::text || '.', '') FROM pg_indexes WHERE schemaname = $1::text AND tablename LIKE 'lock\_%'
			UNION ALL SELECT format('%s %s %s', proname, pg_get_function_arguments(oid), prosrc) FROM pg_proc
			WHERE pronamespace = $1::text::regnamespace AND proname LIKE 'lock\_%'
			ORDER BY 1`, schema)
		if err != nil {
			t.Fatal(err)
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		return lines
	}
	own, reference := describe("public"), describe("reference")
	if len(own) < 40 || !slices.Equal(own, reference) {
		t.Errorf("the migrations make\n%q\nand the package\n%q", own, reference)
	}
}
