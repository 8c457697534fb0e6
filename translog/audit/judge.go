package audit

import (
	"fmt"
	"time"
)

// Counts are what an audit has seen and checked.
type Counts struct {
	Leaves     int64 `json:"leaves"`
	Campaigns  int64 `json:"campaigns"`
	Draws      int64 `json:"draws"`   // of campaigns
	Winners    int64 `json:"winners"` // of campaigns
	Auctions   int64 `json:"auctions"`
	Settled    int64 `json:"auctions_ended"`
	Bids       int64 `json:"bids"`
	Rounds     int64 `json:"rounds_completed"`
	Sold       int64 `json:"payments"` // by winners of rounds
	Multidraws int64 `json:"multidraws"`
	Redrawn    int64 `json:"draws_of_multidraws"` // that were made again
	Closings   int64 `json:"closings"`
	// Unfinished are the facts and transactions of which a part stands at the log's end and the rest is still to come.
	Unfinished int64 `json:"unfinished"`
}

// subject plays the leaves of one topic. It says when no leaf may follow.
type subject interface {
	apply(l *leaf) (over bool, p *problem)
}

// topicState is what is kept of a topic. Of one that is over, that is all.
type topicState struct {
	next    int64 // the seq of the next leaf
	at      int64 // of the last one, in microseconds
	subject subject
}

// judge plays a whole log, leaf by leaf, in order.
type judge struct {
	topics  map[topic]*topicState
	trusted map[string]bool // hashes of chains
	counts  Counts
	index   int64 // of the next leaf
	fact    fact
}

// fact is one whose parts are still to come.
type fact struct {
	leaf  leaf
	index int64 // of the first part
	data  []byte
}

func newJudge(chains []string) *judge {
	j := &judge{topics: map[topic]*topicState{}, trusted: map[string]bool{}}
	for _, hash := range chains {
		j.trusted[hash] = true
	}
	return j
}

// next plays the next entry, as parseLeaf has read it.
func (j *judge) next(l *leaf, p *problem) *Finding {
	index := j.index
	j.index++
	j.counts.Leaves++
	if p == nil && (l.part > 0 || j.fact.leaf.part > 0) {
		if p = j.part(l, index); p == nil && l.part < l.parts {
			return nil // More are to come.
		}
		if p == nil {
			index = j.fact.index
			p = j.assemble(l)
		}
	}
	if p == nil {
		p = j.apply(l)
	}
	if p == nil {
		return nil
	}
	f := &Finding{Index: index, Seq: l.seq, Type: l.kind, What: p.what, Said: p.said, Expected: p.expected}
	if l.topic.kind != 0 {
		f.Topic = l.topic.String()
	}
	return f
}

// part takes a part of a fact.
func (j *judge) part(l *leaf, index int64) *problem {
	f := &j.fact
	if f.leaf.part == 0 {
		*f = fact{leaf: *l, index: index}
		if l.part != 1 {
			return differs("part", l.part, 1)
		}
	} else {
		last := &f.leaf
		if l.kind != last.kind || l.topic != last.topic || l.seq != last.seq || !l.at.Equal(last.at) || l.parts != last.parts || l.part != last.part+1 {
			return &problem{
				"part", fmt.Sprintf("%s, seq %d, part %d of %d", l.topic, l.seq, l.part, l.parts),
				fmt.Sprintf("%s, seq %d, part %d of %d, right behind the one before", last.topic, last.seq, last.part+1, last.parts),
			}
		}
		last.part = l.part
	}
	if len(f.data)+len(l.text) > maxFact {
		return &problem{"size of the fact", "more", fmt.Sprintf("at most %d bytes", maxFact)}
	}
	f.data = append(f.data, l.text...)
	f.leaf.text = ""
	return nil
}

// assemble makes the last part of a fact the whole leaf.
func (j *judge) assemble(l *leaf) *problem {
	data := j.fact.data
	j.fact = fact{}
	rest, err := scan(data)
	switch {
	case len(data) <= maxData:
		return &problem{"size of the data in parts", fmt.Sprint(len(data)), fmt.Sprintf("more than %d, or one leaf", maxData)}
	case err != nil:
		return &problem{"form of the data", err.Error(), "JSON as the log has it"}
	case len(rest) > 0 || data[0] != '{':
		return &problem{"data", quote(data), "an object, and nothing behind it"}
	}
	l.data = data
	return nil
}

// apply plays a whole leaf.
func (j *judge) apply(l *leaf) *problem {
	t := j.topics[l.topic]
	if t == nil {
		if l.seq != 0 {
			return differs("seq", l.seq, 0)
		}
		t = &topicState{subject: j.begin(l.topic)}
		j.topics[l.topic] = t
	}
	at := l.at.UnixMicro()
	switch {
	case l.seq != t.next:
		return differs("seq", l.seq, t.next)
	case t.next > 0 && at < t.at:
		return &problem{"at, which never runs backwards", stamp(l.at), stamp(time.UnixMicro(t.at)) + " or later"}
	case t.subject == nil:
		return &problem{"order", l.kind, "no leaf behind the end of the topic"}
	}
	t.next, t.at = t.next+1, at
	over, p := t.subject.apply(l)
	if over {
		t.subject = nil
	}
	return p
}

func (j *judge) begin(t topic) subject {
	switch t.kind {
	case campaigns:
		return &campaign{id: t.subject(), trusted: j.trusted, counts: &j.counts}
	case auctions:
		return &auction{counts: &j.counts}
	case multidraws:
		return &drawing{operation: operation{id: t.subject()}, counts: &j.counts}
	}
	return &ledgers{counts: &j.counts}
}

// tally is the counts so far.
func (j *judge) tally() Counts {
	c := j.counts
	if j.fact.leaf.part > 0 {
		c.Unfinished++
	}
	for _, t := range j.topics {
		if a, ok := t.subject.(*auction); ok && a.stream != nil && a.stream.Missing() != "" {
			c.Unfinished++
		}
	}
	return c
}
