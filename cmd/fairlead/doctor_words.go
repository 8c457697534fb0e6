package main

import (
	"errors"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/operator"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/postgres"
)

// plainly tells an operator what a reason of /readyz means.
func plainly(reason operator.Unreadiness) string {
	switch reason {
	case operator.UnreadyDatabase:
		return "the database can't be reached, or does not answer"
	case operator.UnreadyReadOnly:
		return "the database is read-only"
	case operator.UnreadyCommit:
		return "a commit does not end within 2 s"
	case operator.UnreadyDisk:
		return "the database's disk is full"
	case operator.UnreadySchema:
		return "the schema is not one that this version can work with"
	case operator.UnreadyPool:
		return "the database has no free connection"
	case operator.UnreadyDraining:
	}
	return string(reason)
}

// plainlyFor is plainly for what a look at the database has met.
func plainlyFor(why *operator.UnreadyError) string {
	if denied(why) {
		return "the role of the database's URL may not do what commands need"
	}
	return plainly(why.Reason)
}

// denied reports whether the role lacks a privilege.
func denied(err error) bool {
	_, lacks := errors.AsType[*postgres.PrivilegesError](err)
	_, connecting := errors.AsType[*pgconn.ConnectError](err)
	return lacks || pgkit.IsDenied(err) && !connecting
}

// remedyForError tells an operator what to do about a database, or a server, that can't be used.
func remedyForError(err error) string {
	if lacks, ok := errors.AsType[*postgres.PrivilegesError](err); ok {
		return lacks.Grant()
	}
	if denied(err) {
		return `run the GRANT of the finding "privileges"; where there is none, grant the role of the database's URL what the message names`
	}
	switch client.CodeOf(err) {
	case "":
	case "unauthorized", "forbidden":
		return "give an admin or reader key in " + keyVariable
	default:
		return `ask /readyz for the reason, and see docs/operations/runbook.md, "When /readyz is 503"; the server's log says more`
	}
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch refused.Code {
		case "3D000": // invalid_catalog_name
			return "make the database, with createdb NAME or CREATE DATABASE, or mend its name in the URL"
		case "28P01", "28000": // invalid_password, invalid_authorization_specification
			return "mend the user or password in the database's URL, or what pg_hba.conf allows"
		}
	}
	if why, ok := errors.AsType[*operator.UnreadyError](err); ok {
		return remedyFor(why.Reason)
	}
	if errors.Is(err, postgres.ErrTooNew) {
		return remedyFor(operator.UnreadySchema)
	}
	_, connecting := errors.AsType[*pgconn.ConnectError](err)
	reason := postgres.Unready(err)
	if code := pgkit.Code(err); reason == operator.UnreadyDatabase && code != "" && !connecting && !strings.HasPrefix(code, "57P") {
		return "PostgreSQL is there, and has said what stands above: its log says more"
	}
	return remedyFor(reason)
}

// remedyFor tells an operator what to do about a reason of /readyz.
func remedyFor(reason operator.Unreadiness) string {
	switch reason {
	case operator.UnreadyDatabase:
		return "start PostgreSQL, or mend the address, user or password in the database's URL"
	case operator.UnreadyReadOnly:
		return "give the primary's URL, or promote this standby, or turn default_transaction_read_only off"
	case operator.UnreadyCommit:
		return "look at pg_stat_replication, synchronous_standby_names and the disk"
	case operator.UnreadyDisk:
		return "make room on the database's disk"
	case operator.UnreadySchema:
		return "run fairlead migrate up, or install the newer version of fairlead"
	case operator.UnreadyPool:
		return "end what holds the connections (pg_stat_activity), or raise max_connections"
	case operator.UnreadyDraining:
		return "wait for the next server, or start one"
	}
	return ""
}

// healthy says what it means that a check has found nothing.
func healthy(check string) string {
	return map[string]string{
		"database":           "it answers",
		"ready":              "the server commits commands",
		"commits":            "a small write commits within 2 s",
		"version":            "PostgreSQL 14 or newer",
		"encoding":           "the database keeps every text",
		"fsync":              "commits reach the disk",
		"full_page_writes":   "a power failure does not corrupt pages",
		"synchronous_commit": "a command is answered after its commit is durable",
		"replication":        "the standbys confirm commits, or there are none",
		"standby":            "this is the primary",
		"pooler":             "there is none that changes what a session means",
		"engine":             "the database does what PostgreSQL does",
		"costs":              "no setting makes every command slower",
		"partitions":         "the history has partitions for what is written now, and no archive is under way",
		"blocked":            "no session blocks others for longer than 5 s",
		"log":                "the public log has what the tables have, and is signed",
		"privileges":         "the role may do what commands need",
		"snapshots":          "no transaction older than a minute keeps dead rows",
		"schema":             "it is up to date, and this version can work with it",
		"history":            "no server has found that commits are lost",
		"sagas":              "no operation of several steps is stuck",
		"publications":       "none has failed for good, or waits for longer than it should",
		"rounds":             "each round is closed soon after its end",
		"draws":              "no draw is late",
		"multidraws":         "none is interrupted",
		"integrity":          "every balance is the sum of its entries",
		"closings":           "the books are closed and recounted in time",
	}[check]
}

// oneLine is an error of PostgreSQL's driver, which names each address that it tried on a line of its own, often twice.
func oneLine(err error) string {
	lines := strings.Split(err.Error(), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(slices.Compact(lines), " ")
}
