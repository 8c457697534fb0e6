//go:build !unix

package server

// maxConnections bounds nothing where nothing bounds descriptors.
func maxConnections() int { return 0 }
