package postgres

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// Columns that are not as Go has them are read by these types.
type (
	micros   time.Duration     // a bigint of microseconds
	digest   [sha256.Size]byte // a bytea; NULL leaves it as it is
	fromJSON struct{ into any }
)

// ScanInt64 implements [pgtype.Int64Scanner].
func (m *micros) ScanInt64(v pgtype.Int8) error {
	*m = micros(time.Duration(v.Int64) * time.Microsecond)
	return nil
}

// ScanBytes implements [pgtype.BytesScanner].
func (d *digest) ScanBytes(v []byte) error {
	if v != nil && copy(d[:], v) != len(d) {
		return fmt.Errorf("a digest of %d bytes", len(v))
	}
	return nil
}

// ScanText implements [pgtype.TextScanner].
func (j fromJSON) ScanText(v pgtype.Text) error { return json.Unmarshal([]byte(v.String), j.into) }

// expectRows makes the queued statement fail with err unless it affects exactly n rows.
func expectRows(q *pgx.QueuedQuery, n int, err error) {
	q.Exec(func(tag pgconn.CommandTag) error {
		if tag.RowsAffected() != int64(n) {
			return fmt.Errorf("%w: %d of %d rows", err, tag.RowsAffected(), n)
		}
		return nil
	})
}

// writes says how a statement whose count of rows matters is checked.
type writes int

const (
	countedWrites writes = iota // by its count, before COMMIT is sent
	guardedWrites               // by itself, because COMMIT is sent along
)

// queue queues a statement that must write exactly n rows, in one of its two forms; surprise is what another count means
// where it is counted. The guarded form takes n as its last parameter, and divides by zero unless the statement inside it
// returns as many rows: a transaction that is committed in the same round trip is checked by that.
func (how writes) queue(b *pgx.Batch, counted, guarded string, n int, surprise error, args ...any) {
	if how == guardedWrites {
		b.Queue(guarded, append(args, n)...)
		return
	}
	expectRows(b.Queue(counted, args...), n, surprise)
}
