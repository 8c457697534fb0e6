package groupcommit

import "time"

// Observer receives what a group does, for metrics. Its methods are called from the group's own
// goroutines (Refused from the caller's), concurrently, and outside every lock of the group; they delay
// the lane they report on, so they must not block, and they must not panic.
type Observer interface {
	// Taken reports a batch about to be flushed: its size in commands, how many commands still wait on
	// its lane, and for how long the oldest command of the batch has waited.
	Taken(size, depth int, oldestWait time.Duration)
	// Flushed reports one call of the flush: the whole batch or, when bisecting, a part of it. err is
	// the call's failure, a *PanicError or *ResultCountError included, and nil on success.
	Flushed(size int, duration time.Duration, err error)
	// Bisected reports that a failed batch, or part of one, of that size is halved and tried again.
	Bisected(size int)
	// Refused reports a command answered with ErrFull.
	Refused()
	// Panicked reports a recovered panic of the flush.
	Panicked(err *PanicError)
}

// ignore is the Observer of those who gave none.
type ignore struct{}

var _ Observer = ignore{}

func (ignore) Taken(int, int, time.Duration)     {}
func (ignore) Flushed(int, time.Duration, error) {}
func (ignore) Bisected(int)                      {}
func (ignore) Refused()                          {}
func (ignore) Panicked(*PanicError)              {}
