//go:build !crashpoints

package crashpoint_test

import (
	"testing"

	"github.com/fairlead-dev/fairlead/internal/crashpoint"
)

// TestOrdinaryBuildsGoOn makes sure that the variable alone kills nobody.
func TestOrdinaryBuildsGoOn(t *testing.T) {
	t.Setenv("FAIRLEAD_CRASH_AT", crashpoint.LotteryDraw)
	crashpoint.Hit(crashpoint.LotteryDraw)
	if crashpoint.Named(crashpoint.LotteryDraw) {
		t.Error("an ordinary build is to be killed")
	}
}
