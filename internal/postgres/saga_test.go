package postgres

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/saga/pgsaga"
)

// TestSagasAreThoseOfPgsaga compares the log's tables, which have come to be by migrations, with the package's own definition.
func TestSagasAreThoseOfPgsaga(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	if err := pgsaga.Schema("reference").Install(t.Context(), db.pool); err != nil {
		t.Fatal(err)
	}
	describe := func(schema, table string) []string {
		rows, err := db.pool.Query(t.Context(), `
			SELECT format('%s %s %s %s', a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity)
			FROM pg_attribute a WHERE a.attrelid = ($1 || '.' || $2)::regclass AND a.attnum > 0 AND NOT a.attisdropped
			UNION ALL SELECT pg_get_constraintdef(c.oid) FROM pg_constraint c WHERE c.conrelid = ($1 || '.' || $2)::regclass
			UNION ALL SELECT replace(pg_get_indexdef(i.indexrelid), $1 || '.', '') FROM pg_index i WHERE i.indrelid = ($1 || '.' || $2)::regclass
			ORDER BY 1`, schema, table)
		if err != nil {
			t.Fatal(err)
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		return lines
	}
	for table, least := range map[string]int{"sagas": 20, "saga_coordinator": 5, "saga_tokens": 3, "saga_fences": 5} {
		own, reference := describe("public", table), describe("reference", table)
		if len(own) < least || !slices.Equal(own, reference) {
			t.Errorf("%s: the migrations make\n%q\nand the package\n%q", table, own, reference)
		}
	}
}
