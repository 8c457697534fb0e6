// Package top reads what a server measures into what an operator wants to see of it now: rates, latencies, sizes of batches,
// lengths of queues, who holds which lock.
//
// A [Snapshot] is what the server said at one moment, counted since its process began; a [View] is the difference of two. All
// of it is pure: the caller asks the server, measures the time between, and draws.
//
// Quantiles come from the buckets of histograms, as Prometheus' histogram_quantile has them: evenly spread within a bucket,
// and the highest bound for what lies above it. They are as exact as the buckets are narrow. Where a counter has shrunk, the
// process was started anew in between, and counts from nothing.
package top
