package wire

import "time"

// lateness says how answers are held back.
type lateness struct {
	oneIn       int // 0 holds none back
	least, most time.Duration

	next   int // answers until one that is held back for the time of nextBy; 0 holds none back
	nextBy time.Duration
}

// Delay makes the proxy hold back one answer in oneIn, on average, for a time from least to most; 0 stops that. An answer is
// all that PostgreSQL sends for one Sync or one simple query. It is held back as a whole and on the way to the client, so
// that the database has done the work by then. The answers behind it on the same connection come later, too.
func (p *Proxy) Delay(oneIn int, least, most time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.late = lateness{oneIn: oneIn, least: least, most: max(least, most)}
}

// DelayNext makes the proxy hold back one answer after so many others.
func (p *Proxy) DelayNext(others int, by time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.late = lateness{next: others + 1, nextBy: by}
}

// Refuse cuts all connections and refuses new ones, until it is called with false.
func (p *Proxy) Refuse(on bool) {
	p.mu.Lock()
	p.refusing = on
	p.mu.Unlock()
	if on {
		p.cutAll()
	}
}

// delay draws for how long the next answer is to be held back.
func (p *Proxy) delay() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.late.next > 0 {
		p.late.next--
		if p.late.next > 0 {
			return 0
		}
		p.stats.Delayed++
		return p.late.nextBy
	}
	if p.late.oneIn == 0 || p.rng.IntN(p.late.oneIn) > 0 {
		return 0
	}
	p.stats.Delayed++
	return p.late.least + time.Duration(p.rng.Int64N(int64(p.late.most-p.late.least)+1))
}
