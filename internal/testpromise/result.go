package testpromise

import (
	"fmt"
	"regexp"
	"strconv"
	"time"
)

// Result is how one test found one promise.
type Result struct {
	Name, Test string
	Promised   time.Duration
	Seen       time.Duration // the median
	Worst      time.Duration
	Tries      int
	Retries    int // how often it was missed on a delayed machine before
	Machine    Machine
	Delayed    bool // so much that a miss is measured again
}

// Missed reports whether the median is over the limit.
func (r Result) Missed() bool { return r.Seen > r.Promised }

// String is the line that [ParseResult] reads.
func (r Result) String() string {
	return fmt.Sprintf("PROMISE name=%s test=%s promised=%s seen=%s worst=%s tries=%d retries=%d late=%s slow=%.2f delayed=%t",
		r.Name, r.Test, r.Promised, round(r.Seen), round(r.Worst), r.Tries, r.Retries, round(r.Machine.Late), r.Machine.Slow, r.Delayed)
}

// round keeps a time beyond a limit beyond it.
func round(d time.Duration) time.Duration {
	return (d + time.Microsecond - 1).Truncate(time.Microsecond)
}

var resultLine = regexp.MustCompile(
	`PROMISE name=(\S+) test=(\S+) promised=(\S+) seen=(\S+) worst=(\S+) tries=(\d+) retries=(\d+) late=(\S+) slow=(\S+) delayed=(true|false)$`)

// ParseResult reads a line of a test's output, which may be something else.
func ParseResult(line string) (r Result, ok bool) {
	m := resultLine.FindStringSubmatch(line)
	if m == nil {
		return r, false
	}
	r.Name, r.Test, r.Delayed = m[1], m[2], m[10] == "true"
	ok = true
	for at, into := range map[int]*time.Duration{3: &r.Promised, 4: &r.Seen, 5: &r.Worst, 8: &r.Machine.Late} {
		d, err := time.ParseDuration(m[at])
		*into, ok = d, ok && err == nil
	}
	var err error
	if r.Tries, err = strconv.Atoi(m[6]); err != nil {
		return r, false
	}
	if r.Retries, err = strconv.Atoi(m[7]); err != nil {
		return r, false
	}
	r.Machine.Slow, err = strconv.ParseFloat(m[9], 64)
	return r, ok && err == nil
}
