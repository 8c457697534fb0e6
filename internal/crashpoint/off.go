//go:build !crashpoints

package crashpoint

// Enabled says whether the binary was built to be killed.
const Enabled = false

// Hit does nothing in ordinary builds; the compiler removes the call.
func Hit(string) {}

// Named reports whether the process is to be killed at a place: never in ordinary builds.
func Named(string) bool { return false }
