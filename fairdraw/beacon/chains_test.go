package beacon_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/fairdraw/beacon"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestDesignPageChains: the page that strangers implement from names the pinned chains in full.
func TestDesignPageChains(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "design", "fairdraw.md"))
	testwait.Must(t, err)
	for name, c := range map[string]fairdraw.Chain{"quicknet": beacon.Quicknet(), "default": beacon.Default()} {
		if !regexp.MustCompile(`(?m)^` + name + ` +` + c.Hash() + `$`).Match(page) {
			t.Errorf("the page does not say that %s is %s", name, c.Hash())
		}
	}
}
