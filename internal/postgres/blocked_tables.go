package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

// Tables that only some commands of a batch work on. They are blocked as rows are, with an empty id.
const (
	holdTable      rowKind = "the table of holds"
	legTable       rowKind = "the table of legs"
	referenceTable rowKind = "the table of references"
	auditTable     rowKind = "the audit log"
)

// tables write nothing, for which they have to wait for whoever keeps writers off.
var tables = map[rowKind]string{ //nolint:gochecknoglobals // A constant, but for the type.
	holdTable:      `UPDATE hold_rows SET id = id WHERE false`,
	legTable:       `UPDATE transfer_legs SET transfer = transfer WHERE false`,
	referenceTable: `UPDATE transfer_references SET transfer = transfer WHERE false`,
	auditTable:     `UPDATE audit_log SET id = id WHERE false`,
}

// tableOf is the table of a part of the ledger.
func tableOf(p ledger.Part) rowKind {
	switch p {
	case ledger.Legs:
		return legTable
	case ledger.References:
		return referenceTable
	case ledger.Audit:
		return auditTable
	case ledger.Holds:
	}
	return holdTable
}

// findTable returns why the table of one of the parts can't be had, nil where none is known to be locked.
func (b *blockedRows) findTable(parts []ledger.Part) error {
	for _, p := range parts {
		if reason := b.find(tableOf(p), ""); reason != nil {
			return reason
		}
	}
	return nil
}

// contestedTable is [contested] for a table; b has what goes before. To prepare the statement locks the table already.
func contestedTable(ctx context.Context, tx pgx.Tx, b *pgx.Batch, kind rowKind, ids []string) (taken []string, err error) {
	if err := pgkit.Send(ctx, tx, b); err != nil {
		return nil, err
	}
	_, err = tx.Exec(ctx, tables[kind], pgx.QueryExecModeExec)
	if isLockTimeout(err) {
		taken, err = ids, nil
	}
	if err == nil {
		_, err = tx.Exec(ctx, `ROLLBACK TO SAVEPOINT contest`)
	}
	return taken, err
}

// without returns the parts whose tables somebody else has locked, with the reasons: those that are known, and, in a run after one that waited in
// vain, those that turn out to be. It is called before anything of them is read or locked.
func (a *setAside) without(ctx context.Context, tx pgx.Tx, parts []ledger.Part) (map[ledger.Part]error, error) {
	if len(parts) == 0 {
		return nil, nil
	}
	a.begin(tx)
	found := map[ledger.Part]error{}
	for _, p := range parts {
		err := a.contest(ctx, tx, tableOf(p), []string{""}, func(string) bool { return true }, func(_ string, reason error) { found[p] = reason })
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}
