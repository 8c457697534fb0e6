package postgres

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/audit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/multidraw"
)

// TestMultidrawAuditFindsDamage keeps the auditor honest about multi-draws: each damage is one that it must see.
func TestMultidrawAuditFindsDamage(t *testing.T) {
	t.Parallel()
	url := pgtest.NewDatabase(t, migrated)
	db := open(t, Options{URL: url})
	s := newMultidraws(t, NewMultidraws(db), multidraw.Options{})
	made(t, s, inRange("k", 9_500, false))
	made(t, s, inRange("k", 10, false))
	conn := pgtest.Connect(t, url)
	testwait.Must(t, audit.Audit(t.Context(), conn))
	for damage, promise := range map[string]string{
		`DELETE FROM multidraw_chunks WHERE seq = 3`:                                                       "every checkpoint",
		`UPDATE multidraw_chunks SET seq = 11 WHERE seq = 10`:                                              "every checkpoint",
		`INSERT INTO multidraw_chunks SELECT multidraw, 11, data, at FROM multidraw_chunks WHERE seq = 10`: "every checkpoint",
		`UPDATE multidraw_chunks SET data = data || '\x00' WHERE seq = 10`:                                 "as many draws",
		`UPDATE multidraw_chunks SET data = substr(data, 2) WHERE seq = 2`:                                 "as many draws",
		`UPDATE multidraw_seeds SET seed = sha256(seed)`:                                                   "commitment",
		`DELETE FROM multidraw_seeds`:                                                                      "commitment",
	} {
		tx, err := conn.Begin(t.Context())
		testwait.Must(t, err)
		if tag, err := tx.Exec(t.Context(), damage); err != nil || tag.RowsAffected() == 0 {
			t.Fatalf("%s: %v, %v", damage, tag, err)
		}
		if err := audit.Audit(t.Context(), nested{tx}); err == nil || !strings.Contains(err.Error(), promise) {
			t.Errorf("%s: %v", damage, err)
		}
		testwait.Must(t, tx.Rollback(t.Context()))
	}
}

// nested lets the audit see what a transaction has damaged and will undo.
type nested struct{ pgx.Tx }

func (n nested) BeginTx(ctx context.Context, _ pgx.TxOptions) (pgx.Tx, error) { return n.Begin(ctx) }
