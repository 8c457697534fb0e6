package postgres

import (
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/postgres/partitions"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// corruption is what somebody does to a database by hand, and what must be said of it.
type corruption struct {
	sql          string
	account      string
	mayName      string // an account that may be named as well as none
	badTransfers int64
	difference   int64
	late         bool // found by a recount, where closings have counted what is changed
}

func corruptions() map[string]corruption {
	return map[string]corruption{
		"none":                           {sql: `SELECT 1`},
		"available":                      {sql: `UPDATE accounts SET available = available + 7 WHERE id = 'ben'`, account: "ben", difference: 7},
		"available of two":               {sql: `UPDATE accounts SET available = available + 7 WHERE id >= 'ben'`, account: "ben", difference: 14},
		"one to another":                 {sql: `UPDATE accounts SET available = available + CASE id WHEN 'ann' THEN 1 ELSE -1 END WHERE currency = 'EUR'`, account: "ann"},
		"held":                           {sql: `UPDATE accounts SET held = held + 3 WHERE id = 'ann'`, account: "ann", difference: 3},
		"held to available":              {sql: `UPDATE accounts SET held = held - 1, available = available + 1 WHERE id = 'ben'`, account: "ben"},
		"an account's currency":          {sql: `UPDATE accounts SET currency = 'USD' WHERE id = 'ben'`, mayName: "ben", difference: 80},
		"an account is gone":             {sql: `DELETE FROM accounts WHERE id = 'cleo'`, mayName: "cleo", difference: 30},
		"an entry's amount":              {sql: `UPDATE entries SET amount = amount + 1 WHERE account = 'ben'`, account: "ben", badTransfers: 1, late: true},
		"an entry is gone":               {sql: `DELETE FROM entries WHERE account = 'ben'`, account: "ben", badTransfers: 1, late: true},
		"an outside entry is gone":       {sql: `DELETE FROM entries WHERE account = 'outside/USD' AND amount > 0`, badTransfers: 1, difference: 20, late: true},
		"an entry of no account":         {sql: `UPDATE entries SET account = 'zoe' WHERE account = 'ben'`, account: "ben", badTransfers: 1, late: true},
		"entries of no transfer":         {sql: `DELETE FROM transfers WHERE status = 'completed' AND kind = 'transfer'`, badTransfers: 1, late: true},
		"an entry of its own":            {sql: `INSERT INTO entries VALUES ('ann', gen_random_uuid(), 99, gen_random_uuid(), 5, 'EUR', now())`, account: "ann", badTransfers: 1, late: true},
		"an entry's currency":            {sql: `UPDATE entries SET currency = 'USD' WHERE account = 'ben'`, mayName: "ben", badTransfers: 1, late: true},
		"a transfer's amount":            {sql: `UPDATE transfers SET amount = amount + 1 WHERE status = 'completed' AND kind = 'transfer'`, badTransfers: 1, late: true},
		"a transfer failed afterwards":   {sql: `UPDATE transfers SET status = 'failed' WHERE status = 'completed' AND kind = 'deposit'`, badTransfers: 2, late: true},
		"a failed transfer completed":    {sql: `UPDATE transfers SET status = 'completed' WHERE status = 'failed'`, badTransfers: 1, late: true},
		"a hold's amount":                {sql: `UPDATE hold_rows SET amount = amount + 1 WHERE account = 'ben'`, account: "ben"},
		"a hold was released by hand":    {sql: `UPDATE hold_rows SET status = 'released', closed_at = now() WHERE account = 'ann'`, account: "ann"},
		"a hold of no account":           {sql: `UPDATE hold_rows SET account = 'aaron' WHERE account = 'ann'`, account: "aaron"},
		"a hold is gone":                 {sql: `DELETE FROM hold_rows WHERE account = 'ann'`, account: "ann"},
		"a transfer that is not counted": {sql: `INSERT INTO transfers VALUES (gen_random_uuid(), 'transfer', 'ann', 'ben', 5, 'EUR', 'completed', '', '', now())`, badTransfers: 1, late: true},
	}
}

func (c *corruption) found(t *testing.T, in ledger.Integrity, err error, valid bool) {
	t.Helper()
	testwait.Must(t, err)
	if in.Valid != valid {
		t.Errorf("valid: %v", in.Valid)
	}
	named := in.FirstBadAccount == c.account || (c.mayName != "" && in.FirstBadAccount == c.mayName)
	if !named || in.BadTransfers != c.badTransfers || in.Difference.Int64() != c.difference {
		t.Errorf("first bad account %q, %d bad transfers, difference %s; want %q, %d, %d",
			in.FirstBadAccount, in.BadTransfers, in.Difference, c.account, c.badTransfers, c.difference)
	}
}

// TestIntegrityFindsEveryKindOfCorruption changes what closings have counted already. What they can't see is found by a recount, in parts of
// one block, and by a count in one snapshot, as small ledgers have it.
func TestIntegrityFindsEveryKindOfCorruption(t *testing.T) {
	t.Parallel()
	for name, c := range corruptions() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := open(t, Options{URL: pgtest.NewDatabase(t, corruptible), MaxConns: 2})
			books := large(db)
			recounted(t, books, true)
			closes(t, books, 0)
			// As if all of it were old.
			old := time.Now().Add(3 * lateAtMost)
			exec(t, db, `UPDATE ledger_closing SET at = $1, upto = $2`, old, partitions.At(old))
			exec(t, db, c.sql)
			in, err := books.Integrity(t.Context())
			testwait.Must(t, err)
			if in.Valid != (name == "none") && !c.late {
				t.Errorf("before the recount: valid: %v: %+v", in.Valid, in)
			}
			if !c.late {
				c.found(t, in, err, name == "none")
			}
			in = recounted(t, books, name == "none")
			c.found(t, in, nil, name == "none")
			if in, err = books.Integrity(t.Context()); in.Valid != (name == "none") || in.BadTransfers != c.badTransfers {
				t.Errorf("after the recount: %+v, %v", in, err)
			}
			in, err = NewLedger(db).Integrity(t.Context())
			c.found(t, in, err, name == "none")
		})
	}
}

// large is a ledger that counts as a large one does.
func large(db *DB) *Ledger {
	l := NewLedger(db)
	l.wholeBelow = -1
	return l
}

// recounted counts everything in parts of one block.
func recounted(t *testing.T, l *Ledger, valid bool) ledger.Integrity {
	t.Helper()
	in, err := l.Recount(t.Context(), RecountOptions{Runner: RunnerOperator, Blocks: 1, AtOnce: 2})
	testwait.Must(t, err)
	if in.Valid != valid {
		t.Errorf("a recount: valid: %v: %+v", in.Valid, in)
	}
	return in
}
