package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/audit"
)

// ErrModel is returned when the database differs from the answers that clients got.
var ErrModel = errors.New("database differs from what clients were told")

// Difference is one between what clients were told and what the database has.
type Difference struct {
	// Doubled says that something is there twice, or that nobody was told of it; else it is not there, or is there otherwise.
	Doubled bool
	Text    string
}

func (d *Difference) Error() string { return ErrModel.Error() + ": " + d.Text }

// Unwrap makes it an [ErrModel].
func (d *Difference) Unwrap() error { return ErrModel }

// told holds the commands with their final answers.
const told = `CREATE TEMP TABLE told (kind text, request jsonb, status int, body jsonb, raw bytea, stored bool)`

// Scope is a part of a database: the accounts whose names begin with Prefix, what was done with them, and the keys that were stored
// since a time of the database's clock. The zero value is all of it.
type Scope struct {
	Prefix string
	Since  time.Time
}

// views hide what is out of scope: a temporary view goes before the table of its name.
const views = `
	CREATE TEMP VIEW accounts AS SELECT a.* FROM accounts a, scope WHERE starts_with(id, prefix);
	CREATE TEMP VIEW transfers AS SELECT t.* FROM transfers t, scope WHERE starts_with(source, prefix) OR starts_with(destination, prefix);
	CREATE TEMP VIEW holds AS SELECT h.* FROM holds h, scope WHERE starts_with(account, prefix);
	CREATE TEMP VIEW campaigns AS SELECT c.* FROM campaigns c, scope WHERE starts_with(beneficiary, prefix);
	CREATE TEMP VIEW purchases AS SELECT p.* FROM purchases p WHERE campaign IN (SELECT id FROM campaigns);
	CREATE TEMP VIEW stored_keys AS SELECT k.* FROM stored_keys k, scope WHERE created_at >= since`

// books are the clients' own: what was done, what was bought, and what became of each campaign. The order of commands does not
// matter: each answer says what its command did, and what was done only adds.
const books = `
	CREATE TEMP TABLE done AS SELECT kind, request, body, body ->> 'id' AS id, (request ->> 'amount')::bigint AS asked,
		(body ->> 'amount')::bigint AS amount, (body ->> 'captured')::bigint AS captured FROM told WHERE status < 300;
	CREATE TEMP TABLE legs AS SELECT id, n - 1 AS leg, l ->> 'from' AS source, l ->> 'to' AS destination, (l ->> 'amount')::bigint AS amount
		FROM done, jsonb_array_elements(request -> 'legs') WITH ORDINALITY AS l (l, n) WHERE kind = 'legs';
	CREATE TEMP TABLE bought AS SELECT id, body ->> 'campaign' AS campaign, body ->> 'account' AS account, (body ->> 'price')::bigint AS price,
		(body -> 'position' ->> 'layer')::int AS layer, (body -> 'position' ->> 'number')::int AS number FROM done WHERE kind = 'purchase';
	CREATE INDEX ON bought (campaign);
	ANALYZE told, done, legs, bought;
	CREATE TEMP TABLE sales AS SELECT id, beneficiary, total, sold, cancelled, CASE WHEN cancelled THEN 'cancelled' WHEN NOT published THEN 'pending'
			WHEN sold = total THEN 'completed' ELSE 'active' END AS status
		FROM (SELECT id, body ->> 'beneficiary' AS beneficiary, (body ->> 'total_positions')::int AS total,
			id IN (SELECT id FROM done WHERE kind = 'cancel') AS cancelled, id IN (SELECT id FROM done WHERE kind = 'publish') AS published,
			(SELECT count(*) FROM bought WHERE campaign = c.id) AS sold FROM done c WHERE kind = 'campaign') c;
	ANALYZE sales`

// differences are questions, each of which yields a row a difference, as [Difference] has it: an acknowledged effect that is absent, or there with
// another content; an effect in no answer (with all keys settled that is a key with two effects).
func differences() []string {
	return []string{
		`SELECT true, format('%s %s was told to %s commands', what, id, count(*))
			FROM (SELECT id, CASE WHEN kind IN ('capture', 'release') THEN 'end of hold' ELSE kind END AS what FROM done
			      WHERE kind IN ('deposit', 'withdrawal', 'transfer', 'legs', 'hold', 'capture', 'release', 'purchase', 'campaign', 'publish', 'cancel')) d
			GROUP BY what, id HAVING count(*) > 1 OR id IS NULL`,
		`SELECT false, format('capture of hold %s: took %s of %s, asked for %s', id, captured, amount, asked)
			FROM done WHERE kind = 'capture' AND captured <> coalesce(asked, amount)`,
		// No client opened the campaigns' escrows. The auditor checks their balances.
		`WITH money (account, available, held) AS (
			SELECT request ->> 'account', CASE kind WHEN 'deposit' THEN asked ELSE -asked END, 0 FROM done WHERE kind IN ('deposit', 'withdrawal')
			UNION ALL SELECT request ->> 'from', -asked, 0 FROM done WHERE kind = 'transfer'
			UNION ALL SELECT request ->> 'to', asked, 0 FROM done WHERE kind = 'transfer'
			UNION ALL SELECT source, -amount, 0 FROM legs
			UNION ALL SELECT destination, amount, 0 FROM legs
			UNION ALL SELECT body ->> 'account', -amount, amount FROM done WHERE kind = 'hold'
			UNION ALL SELECT body ->> 'account', amount - captured, -amount FROM done WHERE kind IN ('capture', 'release')
			UNION ALL SELECT request ->> 'to', captured, 0 FROM done WHERE kind = 'capture'
			UNION ALL SELECT account, -price, 0 FROM bought
			UNION ALL SELECT CASE s.status WHEN 'completed' THEN s.beneficiary ELSE b.account END, price, 0
				FROM bought b JOIN sales s ON s.id = b.campaign WHERE s.status IN ('completed', 'cancelled'))
		SELECT c.id IS NULL, format('account %s: database has %s + %s %s, clients %s + %s %s', id, d.available, d.held, d.currency, c.available, c.held, c.currency)
			FROM (SELECT request ->> 'id' AS id, request ->> 'currency' AS currency, coalesce(sum(m.available), 0) AS available, coalesce(sum(m.held), 0) AS held
			      FROM done LEFT JOIN money m ON m.account = request ->> 'id' WHERE kind = 'account' GROUP BY 1, 2) c
			FULL JOIN (SELECT * FROM accounts WHERE id NOT IN (SELECT escrow FROM campaigns)) d USING (id)
			WHERE (d.available = c.available AND d.held = c.held AND d.currency = c.currency) IS NOT TRUE`,
		`SELECT c.id IS NULL, format('transfer %s: database has %s, clients %s', coalesce(c.id, d.id::text), d, c)
			FROM (SELECT id, kind, 'completed' AS status, asked AS amount,
			             CASE kind WHEN 'deposit' THEN 'outside/SIM' WHEN 'withdrawal' THEN request ->> 'account' ELSE request ->> 'from' END AS source,
			             CASE kind WHEN 'withdrawal' THEN 'outside/SIM' WHEN 'deposit' THEN request ->> 'account' ELSE request ->> 'to' END AS destination
			      FROM done WHERE kind IN ('deposit', 'withdrawal', 'transfer')
			      UNION ALL SELECT body ->> 'transfer', kind, 'failed', (request ->> 'amount')::bigint, request ->> 'from', request ->> 'to'
			      FROM told WHERE kind = 'transfer' AND status >= 400 AND body ->> 'transfer' <> ''
			      UNION ALL SELECT (SELECT part::text FROM transfer_legs t WHERE t.transfer::text = legs.id AND t.leg = legs.leg), 'transfer', 'completed', amount, source, destination
			      FROM legs
			      UNION ALL SELECT body ->> 'transfer', 'transfer', 'failed', (l ->> 'amount')::bigint, l ->> 'from', l ->> 'to'
			      FROM (SELECT body, request -> 'legs' -> (body ->> 'leg')::int AS l FROM told WHERE kind = 'legs' AND status >= 400 AND body ->> 'transfer' <> '') f) c
			FULL JOIN (SELECT * FROM transfers WHERE kind IN ('deposit', 'withdrawal', 'transfer')) d ON d.id::text = c.id
			WHERE (d.kind = c.kind AND d.status = c.status AND d.amount = c.amount AND d.source = c.source AND d.destination = c.destination) IS NOT TRUE`,
		`SELECT c.id IS NULL, format('hold %s: database has %s, clients %s', coalesce(c.id, d.id::text), d, c)
			FROM (SELECT h.id, h.amount, h.body ->> 'account' AS account, coalesce(e.captured, 0) AS captured, coalesce(e.body ->> 'status', 'open') AS status
			      FROM (SELECT * FROM done WHERE kind = 'hold') h FULL JOIN (SELECT * FROM done WHERE kind IN ('capture', 'release')) e ON e.id = h.id) c
			FULL JOIN holds d ON d.id::text = c.id
			WHERE (d.account = c.account AND d.amount = c.amount AND d.captured = c.captured AND d.status = c.status) IS NOT TRUE`,
		`SELECT c.id IS NULL, format('campaign %s: database has %s, %s of %s, clients %s; %s draws', coalesce(c.id, d.id::text), d.status, d.sold_positions, d.total_positions, c, d.draws)
			FROM sales c FULL JOIN (SELECT *, (SELECT count(*) FROM draws WHERE campaign = campaigns.id) AS draws FROM campaigns) d ON d.id::text = c.id
			WHERE (d.status = c.status AND d.total_positions = c.total AND d.sold_positions = c.sold AND d.draws = (c.status = 'completed')::int
			       AND NOT (c.cancelled AND c.sold = c.total)) IS NOT TRUE`,
		`SELECT c.id IS NULL, format('purchase %s: database has %s, clients %s', coalesce(c.id, d.id::text), d, c)
			FROM bought c FULL JOIN purchases d ON d.id::text = c.id
			WHERE (d.campaign::text = c.campaign AND d.account = c.account AND d.layer = c.layer AND d.number = c.number AND d.price = c.price) IS NOT TRUE`,
		`SELECT coalesce(d.n > c.n, c.n IS NULL), format('answer %s %s: stored under %s keys, given to clients for %s', status, encode(hash, 'hex'), d.n, c.n)
			FROM (SELECT status, sha256(raw) AS hash, count(*) AS n FROM told WHERE stored GROUP BY 1, 2) c
			FULL JOIN (SELECT status, sha256(body) AS hash, count(*) AS n FROM stored_keys GROUP BY 1, 2) d USING (status, hash)
			WHERE c.n IS DISTINCT FROM d.n`,
	}
}

// Check compares a settled history with the database, or with h.Scope of it. It assumes that every command the database ever saw is in the history and
// that no more are under way, and reports the differences: those of [differences], a command without a final answer, a stored
// answer that no client got, or that is absent.
func (h *History) Check(ctx context.Context, db audit.Beginner) (err error) {
	if err := h.CheckReplies(); err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		return fmt.Errorf("check the history: %w", err)
	}
	defer func() { err = errors.Join(err, tx.Rollback(context.WithoutCancel(ctx))) }() // The tables go with it.
	if _, err := tx.Exec(ctx, told); err != nil {
		return fmt.Errorf("check the history: %w", err)
	}
	ops := h.Ops()
	if _, err := tx.CopyFrom(ctx, pgx.Identifier{"told"}, []string{"kind", "request", "status", "body", "raw", "stored"},
		pgx.CopyFromSlice(len(ops), func(i int) ([]any, error) {
			final, _ := ops[i].Final()
			return []any{string(ops[i].Kind), ops[i].Body, final.Status, final.Body, final.Body, final.Stored()}, nil
		})); err != nil {
		return fmt.Errorf("check the history: %w", err)
	}
	if h.Scope != (Scope{}) {
		_, err := tx.Exec(ctx, `CREATE TEMP TABLE scope (prefix text, since timestamptz)`)
		if err == nil {
			_, err = tx.Exec(ctx, `INSERT INTO scope VALUES ($1, $2)`, h.Scope.Prefix, h.Scope.Since)
		}
		if err == nil {
			_, err = tx.Exec(ctx, views)
		}
		if err != nil {
			return fmt.Errorf("check the history: %w", err)
		}
	}
	if _, err := tx.Exec(ctx, books); err != nil {
		return fmt.Errorf("check the history: %w", err)
	}
	var wrong []error
	lost, doubled := 0, 0
	for _, sql := range differences() {
		rows, err := tx.Query(ctx, sql)
		if err != nil {
			return fmt.Errorf("check the history: %w", err)
		}
		found, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByPos[Difference])
		if err != nil {
			return fmt.Errorf("check the history: %w: %s", err, sql)
		}
		for i, difference := range found {
			if difference.Doubled {
				doubled++
			} else {
				lost++
			}
			if i < 20 {
				wrong = append(wrong, difference)
			}
		}
	}
	h.Recorder.Differ(lost, doubled)
	return errors.Join(wrong...)
}
