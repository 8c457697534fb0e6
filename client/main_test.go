package client_test

import (
	"os"
	"testing"

	"github.com/fairlead-dev/fairlead"
	"github.com/fairlead-dev/fairlead/internal/testserver"
)

// shared is the real server that tests and examples share.
var shared testserver.Server

func TestMain(m *testing.M) { os.Exit(testserver.Main(m, &shared, fairlead.Options{})) }
