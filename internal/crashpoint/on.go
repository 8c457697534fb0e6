//go:build crashpoints

package crashpoint

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
)

// Enabled says whether the binary was built to be killed.
const Enabled = true

//nolint:gochecknoglobals // This file exists only in binaries built to be killed; the count must outlive a call.
var hits atomic.Int64

// Named reports whether FAIRLEAD_CRASH_AT names a place.
func Named(name string) bool {
	want, _, _ := strings.Cut(os.Getenv("FAIRLEAD_CRASH_AT"), ":")
	return name == want
}

// Hit kills the process, without any clean-up, when name is the place that FAIRLEAD_CRASH_AT names.
func Hit(name string) {
	want, count, counted := strings.Cut(os.Getenv("FAIRLEAD_CRASH_AT"), ":")
	if name != want {
		return
	}
	n := int64(1)
	if counted {
		var err error
		if n, err = strconv.ParseInt(count, 10, 64); err != nil {
			panic("FAIRLEAD_CRASH_AT: " + err.Error())
		}
	}
	if hits.Add(1) != n {
		return
	}
	p, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = p.Kill()
	}
	if err != nil {
		panic(err)
	}
	select {} // The signal arrives asynchronously; nothing may happen in the meantime.
}
