//go:build unix

package explore

import (
	"os"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
)

func TestMain(m *testing.M) {
	takeChances()
	os.Exit(pgtest.Main(m))
}
