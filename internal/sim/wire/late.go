package wire

import "time"

// lateness says how answers are held back.
type lateness struct {
	oneIn       int // 0 holds none back
	least, most time.Duration
}

// Delay makes the proxy hold back one answer in oneIn, on average, for a time from least to most; 0 stops that. An answer is
// all that PostgreSQL sends for one Sync or one simple query. It is held back as a whole and on the way to the client, so
// that the database has done the work by then. The answers behind it on the same connection come later, too.
func (p *Proxy) Delay(oneIn int, least, most time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.late = lateness{oneIn, least, max(least, most)}
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

// hold waits for as long as the next answer is to be held back.
func (p *Proxy) hold() {
	p.mu.Lock()
	late := p.late
	var d time.Duration
	if late.oneIn > 0 && p.rng.IntN(late.oneIn) == 0 {
		d = late.least + time.Duration(p.rng.Int64N(int64(late.most-late.least)+1))
		p.stats.Delayed++
	}
	p.mu.Unlock()
	if d > 0 {
		<-time.After(d)
	}
}
