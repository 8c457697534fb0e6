package main

import (
	"testing"

	"github.com/fairlead-dev/fairlead/internal/demo"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestDemoTakesNoDatabaseFromTheEnvironment: that is the server's, and its money is real.
func TestDemoTakesNoDatabaseFromTheEnvironment(t *testing.T) {
	t.Setenv("FAIRLEAD_DATABASE_URL", "postgres://production")
	t.Setenv("FAIRLEAD_LISTEN", "127.0.0.1:0")
	flags := newDemo().Flags()
	testwait.Must(t, bindEnvironment(flags, nil))
	if url, listen := flags.Lookup("database-url").Value.String(), flags.Lookup("listen").Value.String(); url != "" || listen != "127.0.0.1:0" {
		t.Errorf("database %q, address %q", url, listen)
	}
}

// TestDemoStartsServers parses the command line of the servers that the demo starts and kills.
func TestDemoStartsServers(t *testing.T) {
	t.Parallel()
	cmd, args, err := newRoot().Find(demo.ServeArgs("data", "addr"))
	if err != nil || cmd.Name() != "serve" {
		t.Fatalf("%v, %v", cmd, err)
	}
	testwait.Check(t, cmd.ParseFlags(args))
}
