//go:build !linux && !darwin && !freebsd

package archive

// lock never has the directory: files that a killed run has left stay.
func lock(string, bool) (free func(), had bool, err error) { return func() {}, false, nil }
