package main

import (
	"errors"
	"net"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/pflag"

	"github.com/fairlead-dev/fairlead"
	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/live/rediswire"
	"github.com/fairlead-dev/fairlead/internal/localpg"
	"github.com/fairlead-dev/fairlead/internal/operator"
	"github.com/fairlead-dev/fairlead/internal/torture"
	"github.com/fairlead-dev/fairlead/translog/witness"
)

// optionError is an option that can't be used, by the name of its flag.
type optionError struct {
	option string // the field of fairlead.Options
	err    error
}

func (e *optionError) Error() string { return flagOf(e.option) + ": " + e.err.Error() }
func (e *optionError) Unwrap() error { return e.err }

// nameFlag names an option that can't be used as the flag that it came from.
func nameFlag(err error) error {
	if bad, ok := errors.AsType[*fairlead.OptionError](err); ok {
		return &optionError{option: bad.Option, err: bad.Err}
	}
	return err
}

// say is an error as people read it: on one line, without codes of this program.
func say(err error) string {
	text := err.Error()
	if why, ok := errors.AsType[*operator.UnreadyError](err); ok {
		text = strings.Replace(text, why.Error(), plainlyFor(why)+": "+oneLine(why.Err), 1)
	}
	if why, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		text = strings.Replace(text, why.Error(), oneLine(why), 1)
	}
	text = strings.NewReplacer(": auth: ", ": ", ": client: ", ": ").Replace(text) // Names of packages help nobody here.
	for _, name := range []string{"auth: ", "client: ", "postgres: ", "connect: "} {
		text = strings.TrimPrefix(text, name)
	}
	return text
}

// nextStep says what somebody who sees an error for the first time can do. It is empty where the error says so itself.
func nextStep(err error) string {
	if bad, ok := errors.AsType[*optionError](err); ok {
		if step := nextStepOf(bad.option, err); step != "" {
			return step
		}
	}
	if step := nextAudit(err); step != "" {
		return step
	}
	_, isUnready := errors.AsType[*operator.UnreadyError](err)
	_, isUnconnected := errors.AsType[*pgconn.ConnectError](err)
	_, isURL := errors.AsType[*pgconn.ParseConfigError](err)
	refused, isRefused := errors.AsType[*pgconn.PgError](err)
	dial, isDial := errors.AsType[*net.OpError](err)
	switch code := client.CodeOf(err); {
	case isURL:
		return "write the URL as postgres://USER:PASSWORD@HOST:5432/DATABASE, with # as %23, / as %2F, : as %3A and @ as %40 in the password"
	case isUnready, isUnconnected:
		return remedyForError(err)
	case isRefused && refused.Code == "42P01": // undefined_table
		return "run fairlead migrate up, or give the URL of the database that the server uses"
	case isRefused && refused.Code == "53100": // disk_full
		return remedyFor(operator.UnreadyDisk)
	case errors.Is(err, torture.ErrRow):
		return "fairlead torture, without --only, lists the rows that can be caused from outside"
	case errors.Is(err, torture.ErrProduction):
		return "make an installation for it alone: createdb fairlead_test, then fairlead serve --database-url with that database"
	case errors.Is(err, torture.ErrOther):
		return "name the servers of that database with --url, and stop using them for anything else meanwhile"
	case errors.Is(err, localpg.ErrInUse):
		return "end the other server, or give another directory with --data. Several servers share one PostgreSQL with --database-url"
	case errors.Is(err, witness.ErrInUse):
		return "end the other witness, or give this one a key and a state of its own"
	case errors.Is(err, witness.ErrCorrupt):
		return "put back the state that belongs to the key. If it is lost, make a new key with another name and an empty state, and never use the old key again"
	case errors.Is(err, localpg.ErrNoBinaries) && !strings.Contains(err.Error(), "install them"):
		return "install PostgreSQL 14 or newer, or give the URL of a running one with --database-url"
	case errors.Is(err, auth.ErrUnknownKey):
		return "fairlead keys list shows the ids of all keys"
	case errors.Is(err, auth.ErrLastAdmin), code == "last_admin":
		return "make another one first: fairlead keys create --role admin --name NAME"
	case code == "unauthorized":
		return "set " + keyVariable + " to a key of this server that is in force: the first one is in admin.key in its data directory, fairlead keys create makes others"
	case code == "forbidden":
		return "set " + keyVariable + " to a key of another role; fairlead keys create --role admin makes one"
	case isDial && strings.HasPrefix(err.Error(), "redis at "):
		return "start that Redis, or mend --redis-url"
	case isDial && dial.Op == "dial":
		return "start the server with fairlead serve, or mend --url"
	}
	return ""
}

// nextStepOf says what can be done about an option of serve.
func nextStepOf(option string, err error) string {
	switch option {
	case "Listen":
		switch {
		case errors.Is(err, syscall.EADDRINUSE):
			return "another program listens there, perhaps another fairlead: end it, or give another port, such as --listen 127.0.0.1:8081; port 0 takes a free one"
		case errors.Is(err, syscall.EADDRNOTAVAIL):
			return "give an address of this machine: 127.0.0.1 for itself alone, 0.0.0.0 for all networks"
		case errors.Is(err, syscall.EACCES):
			return "ports below 1024 need privileges: give a higher one, such as --listen 127.0.0.1:8080"
		}
		return "write it as HOST:PORT, such as --listen 127.0.0.1:8080"
	case "Data":
		return "give a directory that this user can write to, such as --data ~/fairlead-data"
	case "AdminKey", "SecretsKey":
		return "make one with: openssl rand -hex 32"
	case "ReplicaURL":
		return "write it like --database-url, such as --replica-url postgres://reader:secret@standby/fairlead"
	case "RedisURL":
		if errors.Is(err, rediswire.ErrURL) {
			return "write it as redis://USER:PASSWORD@HOST:6379, or rediss:// with TLS"
		}
		return "start Redis there, or leave --redis-url out: PostgreSQL carries the hints then"
	}
	return ""
}

// explainValue says what a value must look like that a flag could not read.
func explainValue(f *pflag.Flag) string {
	switch kind := f.Value.Type(); {
	case kind == "duration":
		return "give a number with a unit, such as 500ms, 30s, 10m or 24h"
	case kind == "bool":
		return "give true or false"
	case strings.HasPrefix(kind, "int"), strings.HasPrefix(kind, "uint"):
		return "give a whole number"
	}
	return ""
}
