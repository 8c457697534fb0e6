package pgtest

import (
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// optionsVariable is where every connection of a run finds settings: make portable switches capabilities off by it.
const optionsVariable = "PGOPTIONS"

// Without is the address of a database for which capabilities are switched off, and no others, whatever the run switches off.
func Without(tb testing.TB, database string, off ...pgkit.Capability) string {
	tb.Helper()
	u, err := url.Parse(database)
	testwait.Must(tb, err)
	names := make([]string, len(off))
	for i := range off {
		names[i] = string(off[i])
	}
	q := u.Query()
	q.Set("options", "-c "+pgkit.Without+"="+strings.Join(names, ","))
	u.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20") // A plus is no space to every parser.
	return u.String()
}

// Off reports whether the run switches one of some capabilities off.
func Off(some ...pgkit.Capability) bool {
	_, list, _ := strings.Cut(os.Getenv(optionsVariable), pgkit.Without+"=")
	list, _, _ = strings.Cut(list, " ")
	return slices.ContainsFunc(some, func(c pgkit.Capability) bool { return slices.Contains(strings.Split(list, ","), string(c)) })
}

// Needs skips a test that is about a capability, where the run switches that off.
func Needs(tb testing.TB, all ...pgkit.Capability) {
	tb.Helper()
	for _, c := range all {
		if Off(c) {
			tb.Skipf("this run has no %s", c)
		}
	}
}
