package wire

import (
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// Through starts a proxy to a database, which ends with the test, and returns the database's URL by way of it.
func Through(tb testing.TB, database string, o Options) (p *Proxy, through string) {
	tb.Helper()
	config, err := pgx.ParseConfig(database)
	testwait.Must(tb, err)
	o.Network, o.Address = pgconn.NetworkAddress(config.Host, config.Port)
	p, err = Listen(tb.Context(), o)
	testwait.Must(tb, err)
	tb.Cleanup(func() { _ = p.Close() }) // A test may have closed it.
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(config.User, config.Password), Host: p.Addr(), Path: "/" + config.Database,
		RawQuery: "sslmode=disable",
	}
	return p, u.String()
}
