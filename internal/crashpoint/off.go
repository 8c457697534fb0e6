//go:build !crashpoints

package crashpoint

// Hit does nothing in ordinary builds; the compiler removes the call.
func Hit(string) {}
