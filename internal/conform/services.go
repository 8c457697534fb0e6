package conform

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead"
	"github.com/fairlead-dev/fairlead/conformance"
	"github.com/fairlead-dev/fairlead/internal/servicetest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// serverConnections is how many pooled connections each server has.
const serverConnections = 6

// services runs the suite on real servers, whose tables and elections are in schemas of the run.
func (d *database) services(t *conformance.T) {
	dir, err := os.MkdirTemp("", "fairlead-conformance-")
	testwait.Must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	elections := d.schema + "_elections"
	d.installed(t, func(conn *pgx.Conn) error { return d.make(t.Context(), conn, elections) })
	address, err := inSchema(d.url, d.schema)
	testwait.Must(t, err)
	key := strings.Repeat(newID(), 4)
	open := func(t *conformance.T) *fairlead.Server {
		s, err := fairlead.Open(t.Context(), fairlead.Options{
			DatabaseURL: address, ElectionSchema: elections, Data: filepath.Join(dir, newID()), AdminKey: key, DatabaseConnections: serverConnections,
		})
		testwait.Must(t, err)
		t.Cleanup(func() { testwait.Check(t, s.Close(context.Background())) })
		return s
	}
	servers := []*fairlead.Server{open(t), open(t)}
	servicetest.Run(t, func(t *conformance.T) servicetest.Harness {
		return servicetest.Harness{Servers: servers, AdminKey: key, Open: func() *fairlead.Server { return open(t) }}
	})
}

// inSchema has the connections to a database find and make their tables in a schema. The address is a URL or a list of settings.
func inSchema(address, schema string) (string, error) {
	if !strings.HasPrefix(address, "postgres://") && !strings.HasPrefix(address, "postgresql://") {
		return address + " search_path=" + schema, nil
	}
	u, err := url.Parse(address)
	if err != nil {
		return "", errors.New("the database's URL can't be read")
	}
	q := u.Query()
	q.Set("search_path", schema)
	u.RawQuery = q.Encode()
	return u.String(), nil
}
