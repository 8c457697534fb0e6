package fairlead

import (
	"errors"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/live/rediswire"
	"github.com/fairlead-dev/fairlead/internal/services/ledger/cross"
	"github.com/fairlead-dev/fairlead/internal/tracing"
)

// checkURLs finds what is wrong with the options that are URLs.
func (o *Options) checkURLs() error {
	for _, database := range []struct{ option, url string }{{"DatabaseURL", o.DatabaseURL}, {"ReplicaURL", o.ReplicaURL}} {
		if err := checkDatabaseURL(database.url); err != nil {
			return wrong(database.option, "%w", err)
		}
		if mode, bad := unprepared(database.url); bad {
			return wrong(database.option, "a server can't work with default_query_exec_mode=%s: leave it out", mode)
		}
	}
	if o.RedisURL != "" {
		if _, err := rediswire.ParseURL(o.RedisURL); err != nil {
			return wrong("RedisURL", "%w", err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.Ledgers)) {
		address := o.Ledgers[name]
		switch {
		case !ledgerName.MatchString(name) || name == "." || name == "..":
			return wrong("Ledgers", "%q is no name: 1 to 64 characters of A-Z a-z 0-9 . _ : @ -", name)
		case name == cross.Local:
			return wrong("Ledgers", "%q is the name of the server's own ledger", cross.Local)
		}
		var err error
		if isServer(address) {
			_, _, err = parseServer(address)
		} else {
			err = checkDatabaseURL(address)
		}
		if err != nil {
			return wrong("Ledgers", "%s: %w", name, err)
		}
	}
	if o.OTLPEndpoint != "" {
		if _, err := tracing.ParseEndpoint(o.OTLPEndpoint); err != nil {
			return wrong("OTLPEndpoint", "%w", err)
		}
	}
	if o.JWKSURL != "" {
		if err := auth.ValidSetURL(o.JWKSURL); err != nil {
			return wrong("JWKSURL", "%w", err)
		}
	}
	return nil
}

// checkDatabaseURL returns an error for a URL of a database that can't be read. An empty one is of none.
func checkDatabaseURL(address string) error {
	if address == "" {
		return nil
	}
	_, err := pgx.ParseConfig(address)
	return err
}

// isServer reports whether a ledger's address is that of another server, and not of a database.
func isServer(address string) bool {
	return strings.HasPrefix(address, "http://") || strings.HasPrefix(address, "https://")
}

// parseServer reads the address of another server, with its key in place of a password.
func parseServer(address string) (base, key string, err error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", "", errors.New("this is no URL") // The error would show the key.
	}
	key, _ = u.User.Password()
	if key == "" {
		return "", "", errors.New("the URL of another server needs its API key: https://:KEY@HOST")
	}
	u.User = nil
	base = strings.TrimSuffix(u.String(), "/")
	_, err = client.New(base, key)
	return base, key, err
}
