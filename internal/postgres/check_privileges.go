package postgres

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
)

// The privileges of a role on a table or view, by the letters that PostgreSQL's own lists have for them: r is SELECT, a is INSERT, w is UPDATE,
// d is DELETE, D is TRUNCATE.
const (
	looks      = "r"
	appends    = "ra"
	changes    = "raw"
	removes    = "rad"
	everything = "rawd"
)

// rights are privileges by the name of a table or view.
type rights map[string]string

// commandRights are what commands need: without one of them, commands of some kind fail. A row that a statement locks needs UPDATE. A table that
// is looked at for who locks it does, too. TestPrivilegesAreThoseOfTheStatements compares this and otherRights with the schema and with what the
// statements need.
func commandRights() rights {
	return rights{
		"accounts": changes, "transfers": appends, "transfer_legs": changes, "transfer_references": changes, "entries": appends, "hold_rows": changes,
		"holds": looks, "current_holds": looks, "closed_holds": looks,
		"idempotency_keys": appends, "idempotency_keys_1": appends, "stored_keys": looks, "key_slots": looks,
		"campaigns": changes, "campaign_layers": changes, "campaign_prizes": appends, "campaign_seeds": appends, "campaign_beacons": changes, "purchases": appends, "draws": appends,
		"multidraws": changes, "multidraw_seeds": appends, "multidraw_chunks": appends,
		"auctions": changes, "auction_rounds": changes, "auction_standing": everything, "auction_bids": appends, "auction_events": appends, "auction_winners": appends,
		"targets": changes, "target_tokens": changes, "publications": changes, "automations": changes, "subscriptions": changes, "subscription_topics": everything,
		"sagas": everything, "saga_coordinator": changes, "saga_legs": removes, "saga_tokens": changes, "saga_fences": changes, "saga_marks": everything,
		"lock_arbiter": "rw", "lock_keys": changes, "lock_grants": everything, "lock_waiters": everything, "lock_queue": everything,
		"api_keys": changes, "audit_log": changes,
	}
}

// otherRights are what the work in the background, the console, operators' commands and the public log need beside those.
func otherRights() rights {
	return rights{
		"idempotency_keys": "wd", "auction_events": "d", "key_slots": "w", "lock_fences": changes,
		"publication_attempts": changes, "target_outcomes": changes, "automation_firings": appends,
		"console_links": changes, "console_sessions": everything, "secrets": looks,
		"log_state": "rw", "log_tiles": changes, "log_bundles": changes, "log_topics": changes, "log_runs": appends, "log_seals": changes,
		"log_closings": changes, "log_closing_accounts": removes,
		"ledger_closing": everything, "ledger_recounts": everything, "brought_forward": looks,
		"servers": everything, "history_losses": changes, "schema_support": looks, "goose_db_version": looks,
		"archives": looks, "archived": looks, "archived_sales": looks, "hold_turns": looks,
	}
}

// referenceRights are what commands need beside commandRights where the role owns the tables: PostgreSQL looks rows that a foreign key names up in the
// name of their table's owner, and locks them.
func referenceRights() rights { return rights{"campaign_seeds": "w"} }

// ownerRights are what is needed beside all of those by a role that owns the tables: it alone empties and divides them, and views read in its name.
func ownerRights() rights {
	return rights{"idempotency_keys": "D", "idempotency_keys_1": "D", "hold_turns": "aw", "archive_sums": looks}
}

// electionRights are what elections need in their own schema.
func electionRights() rights {
	return rights{"lock_arbiter": "rw", "lock_keys": changes, "lock_grants": everything, "lock_waiters": everything, "lock_queue": everything}
}

// lists are the tables and their privileges, as parameters of a statement.
func (r rights) lists() (tables, privileges []string) {
	for _, table := range slices.Sorted(maps.Keys(r)) {
		tables, privileges = append(tables, table), append(privileges, r[table])
	}
	return tables, privileges
}

// with returns the privileges of both.
func (r rights) with(others rights) rights {
	sum := maps.Clone(r)
	for table, privileges := range others {
		sum[table] += privileges
	}
	return sum
}

const (
	// privilegeLetters follows a list n of names and letters.
	privilegeLetters = ` JOIN (VALUES ('r', 'SELECT'), ('a', 'INSERT'), ('w', 'UPDATE'), ('d', 'DELETE'), ('D', 'TRUNCATE')) AS p (letter, privilege)
		ON strpos(letters, letter) > 0`
	// selectLacks lists which of the privileges on tables of the search path this role lacks, with those that an owner needs. Tables that
	// are not there are left out.
	selectLacks = `SELECT name, string_agg(DISTINCT privilege, ', ' ORDER BY privilege) FROM (
			SELECT name, letters FROM unnest($1::text[], $2::text[]) AS g (name, letters)
			UNION ALL SELECT name, letters FROM unnest($3::text[], $4::text[]) AS o (name, letters) JOIN pg_class ON oid = to_regclass(name)
			WHERE pg_has_role(relowner, 'USAGE')
		) AS n` + privilegeLetters + ` WHERE NOT has_table_privilege(to_regclass(name), privilege) GROUP BY name ORDER BY name`
	// selectSchemaLacks does so for the tables of schemas, whose own privilege comes first. It finds them in the catalog, since a role that may
	// not use a schema can't name its tables.
	selectSchemaLacks = `SELECT name, string_agg(privilege, ', ' ORDER BY privilege) FROM (
			SELECT format('SCHEMA %I', nspname) AS name, 'USAGE' AS privilege, 0 AS place FROM pg_namespace
			WHERE nspname = ANY($3::text[]) AND NOT has_schema_privilege(oid, 'USAGE')
			UNION ALL SELECT format('%I.%I', nspname, relname), privilege, 1 FROM unnest($1::text[], $2::text[]) AS n (name, letters)` + privilegeLetters + `
			JOIN pg_class AS c ON relname = name JOIN pg_namespace AS s ON s.oid = relnamespace AND nspname = ANY($3::text[])
			WHERE NOT has_table_privilege(c.oid, privilege)
		) AS n GROUP BY name, place ORDER BY place, name`
	selectRole = `SELECT quote_ident(current_user)`
)

// lack is what a role may not do with a table, or a schema.
type lack struct{ On, Privileges string }

// commandLacks is what the role of a connection lacks of what commands need, nil where that is nothing. An engine that can't tell has none to tell of.
func commandLacks(ctx context.Context, conn *pgx.Conn) error {
	tables, privileges := commandRights().lists()
	owned, owning := referenceRights().lists()
	rows, err := conn.Query(ctx, selectLacks, tables, privileges, owned, owning)
	if err != nil {
		return err
	}
	lacks, err := pgx.CollectRows(rows, pgx.RowToStructByPos[lack])
	if err != nil || len(lacks) == 0 {
		return err
	}
	missing := &PrivilegesError{lacks: lacks}
	if err := conn.QueryRow(ctx, selectRole).Scan(&missing.Role); err != nil {
		return err
	}
	return missing
}

// allLacks is what the role lacks of all that the server needs, nil where that is nothing.
func (db *DB) allLacks(ctx context.Context) (*PrivilegesError, error) {
	tables, privileges := commandRights().with(otherRights()).lists()
	owned, owning := referenceRights().with(ownerRights()).lists()
	lacks, err := query(ctx, db, pgx.RowToStructByPos[lack], selectLacks, tables, privileges, owned, owning)
	if err != nil {
		return nil, err
	}
	tables, privileges = electionRights().lists()
	elections, err := query(ctx, db, pgx.RowToStructByPos[lack], selectSchemaLacks, tables, privileges, []string{string(db.elections)})
	if err != nil {
		return nil, err
	}
	if lacks = append(lacks, elections...); len(lacks) == 0 {
		return nil, nil
	}
	role, err := queryOne(ctx, db, errEmpty, pgx.RowTo[string], selectRole)
	return &PrivilegesError{Role: role, lacks: lacks}, err
}

// byPrivileges are the tables by what is lacking on them.
func byPrivileges(lacks []lack) (privileges []string, tables map[string][]string) {
	tables = map[string][]string{}
	for _, l := range lacks {
		tables[l.Privileges] = append(tables[l.Privileges], l.On)
	}
	return slices.Sorted(maps.Keys(tables)), tables
}

// PrivilegesError is returned where the role of the database's URL lacks privileges.
type PrivilegesError struct {
	Role  string // quoted where SQL needs that
	lacks []lack
}

// Error names what is lacking, and where.
func (e *PrivilegesError) Error() string {
	var what []string
	privileges, tables := byPrivileges(e.lacks)
	for _, p := range privileges {
		what = append(what, p+" on "+strings.Join(tables[p], ", "))
	}
	return "the role " + e.Role + " lacks " + strings.Join(what, "; ")
}

// Grant is the SQL that gives the role what is lacking.
func (e *PrivilegesError) Grant() string {
	var grants []string
	privileges, tables := byPrivileges(e.lacks)
	for _, p := range privileges {
		grants = append(grants, "GRANT "+p+" ON "+strings.Join(tables[p], ", ")+" TO "+e.Role)
	}
	return strings.Join(grants, "; ")
}

// Privileges says on which tables this role may not do what the server needs.
func (db *DB) Privileges(ctx context.Context) ([]Finding, error) {
	lacks, err := db.allLacks(ctx)
	if pgkit.Refused(err) { // The engine has other privileges.
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("postgres: look at privileges: %w", err)
	}
	if lacks == nil {
		return nil, nil
	}
	return []Finding{{Check: "privileges", Fatal: true, Message: lacks.Error() + ": what needs that fails", Remedy: lacks.Grant()}}, nil
}
