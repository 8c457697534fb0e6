package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// selectForbidden lists the tables on which this role lacks a privilege that commands need, and which ones: all four on the first, and two on the second.
// Tables that are not there are left out.
const selectForbidden = `SELECT t.name, string_agg(p.privilege, ', ' ORDER BY p.privilege) FROM (
		SELECT name, ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE'] AS privileges FROM unnest($1::text[]) AS name
		UNION ALL SELECT name, ARRAY['SELECT', 'INSERT'] FROM unnest($2::text[]) AS name
	) AS t CROSS JOIN LATERAL unnest(t.privileges) AS p (privilege)
	WHERE to_regclass(t.name) IS NOT NULL AND NOT has_table_privilege(to_regclass(t.name), p.privilege) GROUP BY t.name ORDER BY t.name`

// written are tables in which commands insert rows, and change none.
func written() []string {
	return []string{
		"entries", "transfers", "transfer_legs", "transfer_references", "purchases", "draws", "auction_bids", "auction_events", "auction_winners", "audit_log",
		"idempotency_keys_1",
	}
}

// Privileges says on which tables this role may not do what commands need.
func (db *DB) Privileges(ctx context.Context) ([]Finding, error) {
	type forbidden struct{ Table, Privileges string }
	lacks, err := query(ctx, db, pgx.RowToStructByPos[forbidden], selectForbidden, needed(), written())
	if err != nil {
		return nil, fmt.Errorf("postgres: look at privileges: %w", err)
	}
	if len(lacks) == 0 {
		return nil, nil
	}
	var what, names []string
	for _, l := range lacks {
		what, names = append(what, l.Privileges+" on "+l.Table), append(names, l.Table)
	}
	return []Finding{{
		Check: "privileges", Fatal: true, Message: "this role lacks " + strings.Join(what, "; ") + ": commands that need it fail",
		Remedy: "GRANT SELECT, INSERT, UPDATE, DELETE ON " + strings.Join(names, ", ") + " TO the role of the database URL",
	}}, nil
}
