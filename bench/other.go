//go:build !linux

// Command bench compares Fairlead with the usual way of doing the same thing. It needs Linux (epoll and /proc).
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "bench: needs Linux")
	os.Exit(1)
}
