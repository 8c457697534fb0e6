package wire

// Manner is how the database is taken away.
type Manner int

// The manners of [Proxy.TakeAway].
const (
	Unsent  Manner = iota // the step does not arrive; connections are cut, and refused from then on
	Carried               // the step is carried out and its answer lost, at the end of which connections are cut and refused
	Silent                // the step does not arrive; connections stay, and new ones are taken, but nothing is answered
)

// outage is a time in which the database cannot be reached.
type outage struct {
	manner Manner
	left   int // steps until it begins
	begun  bool
}

// TakeAway makes the database go away at a step from now on, the first being 0, until [Proxy.GiveBack]. A step is a message
// for whose answer the client waits: a simple query, or the end of a pipeline. All connections share one count.
func (p *Proxy) TakeAway(step int, m Manner) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.outage = &outage{manner: m, left: step}
}

// GiveBack ends the outage and reports whether it had begun. Connections that were silent are cut.
func (p *Proxy) GiveBack() bool {
	p.mu.Lock()
	gone := p.outage
	p.outage = nil
	p.mu.Unlock()
	if gone == nil || !gone.begun {
		return false
	}
	p.cutAll()
	return true
}

// step counts a step and tells its fate. It is [Delivered] unless the outage begins with it, or is under way.
func (p *Proxy) step(l *link) Fate {
	p.mu.Lock()
	o := p.outage
	if o == nil || !o.begun && o.left > 0 {
		if o != nil {
			o.left--
		}
		p.mu.Unlock()
		return Delivered
	}
	first := !o.begun
	o.begun = true
	p.mu.Unlock()
	if o.manner == Silent {
		return Delivered // And swallowed.
	}
	p.cutAllBut(l)
	if first && o.manner == Carried {
		return AnswerLost
	}
	return CommitLost
}

// silent reports whether what is sent is to be swallowed.
func (p *Proxy) silent() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.outage != nil && p.outage.begun && p.outage.manner == Silent
}

// refuses reports whether connections are refused. The caller has the mutex.
func (o *outage) refuses() bool { return o != nil && o.begun && o.manner != Silent }

// steps reports whether the client waits for the answer to a message.
func steps(kind byte) bool {
	const query, sync = 'Q', 'S'
	return kind == query || kind == sync
}
