package client

import "time"

// NeverSlow has the next batch wait for the one that is under way however long that takes, so that it does not matter how fast a test is.
func NeverSlow(b *Batcher) *Batcher {
	b.batches.slowAfter = time.Hour
	return b
}
