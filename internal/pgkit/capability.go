package pgkit

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Capability is something that PostgreSQL does, and that an engine which speaks its protocol may refuse, or may accept and not do.
type Capability string

// The capabilities, by the names that the setting fairlead.without has for them.
const (
	Notify        Capability = "notify"                // LISTEN, NOTIFY, and that what is sent arrives
	AdvisoryLocks Capability = "advisory-locks"        // and that they are held
	RowPlaces     Capability = "ctid"                  // rows by their place in the table
	RowVersions   Capability = "xmin"                  // rows tell which transaction wrote them, and snapshots which ones they see
	Functions     Capability = "functions"             // in PL/pgSQL
	Deferrable    Capability = "deferrable"            // unique constraints that are checked at the end of a statement
	Batches       Capability = "implicit-transactions" // statements up to a Sync are one transaction
	Partitions    Capability = "partitions"            // tables in partitions by range
	// Prepare is PREPARE TRANSACTION. It is not probed: a probe that dies midway would leave a transaction that nobody ends. The first
	// two-phase transaction finds out.
	Prepare       Capability = "prepare-transaction"
	ReadCommitted Capability = "read-committed" // each statement sees what was committed before it
)

// Without is the setting of a session that switches capabilities off, by a list of their names with commas. Set it on a database
// (ALTER DATABASE … SET), for all programs that use it: they have to agree on how they exclude each other.
const Without = "fairlead.without"

// Lack is a capability that a database does not have.
type Lack struct {
	Capability Capability
	What       string // it is, in words
	Why        string // it is known to be missing
	Instead    string // of it
	Off        bool   // the setting [Without] switches it off
}

// Capabilities are what a database was found to have. The zero value has everything, as PostgreSQL does.
type Capabilities struct{ lacks, unsure []Lack }

// Has reports whether the database has a capability, as far as was probed.
func (c Capabilities) Has(x Capability) bool {
	return !slices.ContainsFunc(c.lacks, func(l Lack) bool { return l.Capability == x })
}

// Lacks lists what is missing of what was probed.
func (c Capabilities) Lacks() []Lack { return slices.Clone(c.lacks) }

// Unsure lists what this role may not try. It counts as there.
func (c Capabilities) Unsure() []Lack { return slices.Clone(c.unsure) }

// Foreign reports whether the engine itself lacks something, so that it is not PostgreSQL.
func (c Capabilities) Foreign() bool {
	return slices.ContainsFunc(c.lacks, func(l Lack) bool { return !l.Off })
}

// And returns the capabilities without another one.
func (c Capabilities) And(l Lack) Capabilities {
	c.lacks = append(slices.Clone(c.lacks), l)
	return c
}

// errIdle is returned by a trial whose statements were accepted and did nothing.
var errIdle = errors.New("it is accepted, and does nothing")

// absent reports whether an error says that the database lacks what was tried.
func absent(err error) bool { return errors.Is(err, errIdle) || Refused(err) }

// SQLSTATEs that say nothing of the engine.
const (
	readOnly      = "25006" // on a standby
	notPrivileged = "42501"
	notReady      = "55000" // of many kinds
)

// Refused reports whether an error says that the engine does not know a statement, or does not carry it out. A missing privilege, and
// something that is there already, say nothing of the engine.
func Refused(err error) bool {
	code := Code(err)
	switch code {
	case notPrivileged, "42701", "42710", "42712", "42723", "42P03", "42P04", "42P05", "42P06", "42P07":
		return false
	}
	return strings.HasPrefix(code, "0A") || strings.HasPrefix(code, "42")
}

// selectSwitchedOff reads the setting [Without].
const selectSwitchedOff = `SELECT coalesce(current_setting('` + Without + `', true), '')`

// SwitchedOff reads the setting [Without]. An engine that knows no settings of others has none.
func SwitchedOff(ctx context.Context, tx pgx.Tx) ([]Capability, error) {
	var list string
	err := tx.QueryRow(ctx, selectSwitchedOff, pgx.QueryExecModeSimpleProtocol).Scan(&list)
	if err != nil && !Refused(err) {
		return nil, err
	}
	return listed(list), nil
}

// listed are the names in a list.
func listed(list string) (off []Capability) {
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); name != "" {
			off = append(off, Capability(name))
		}
	}
	return off
}
