// Package load generates HTTP load with as little processor time as it can, because it shares the machine with what it
// measures. It drives all connections from one goroutine with epoll, sends request bytes that were laid out beforehand,
// and reads no more of an answer than its status, its length and what the check asks for. Both sides of a comparison
// get the same bytes.
//
// Three shapes of load:
//
//   - Race: every connection sends one request at the start signal. Latencies count from the signal, not from the
//     request's own write, so a late write can't hide waiting.
//   - Closed: every connection sends its next request when its answer has come, for a time or until the requests run
//     out. It finds the throughput; its latencies are those of a saturated server.
//   - Open: requests are due at a fixed rate whether answers come or not. Latencies count from when a request was due
//     (no coordinated omission).
//
// Latencies are nanoseconds in HDR histograms with three significant digits. The package promises nothing about HTTP in
// general: it reads answers with Content-Length or chunked bodies and takes anything else, a closed connection
// included, as a failure of the run. It needs Linux.
package load
