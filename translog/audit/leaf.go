package audit

import (
	"bytes"
	"fmt"
	"strings"
	"time"
)

// Limits of leaves, of §2.
const (
	maxData  = 32_768   // bytes of data in one leaf; a larger fact has parts
	maxPiece = 16_384   // bytes of data in one part
	maxFact  = 64 << 20 // bytes of the data of a fact; the largest that a server can make has a fifth of it
	maxSeq   = 1<<53 - 1
)

// topic is a topic's name in a form that is small and can be compared: millions of topics may be in a log.
type topic struct {
	kind byte // its first letter: c, a, m, or b for books
	id   [16]byte
}

// The kinds of topics.
const (
	campaigns  = 'c'
	auctions   = 'a'
	multidraws = 'm'
	books      = 'b'
)

// prefixes are what the names of topics begin with; after it comes a UUID.
func prefixes() [3]string { return [3]string{"campaign:", "auction:", "multidraw:"} }

func parseTopic(name []byte) (topic, bool) {
	if string(name) == "books" {
		return topic{kind: books}, true
	}
	for _, prefix := range prefixes() {
		if rest, ok := bytes.CutPrefix(name, []byte(prefix)); ok {
			id, ok := parseUUID(rest)
			return topic{kind: prefix[0], id: id}, ok
		}
	}
	return topic{}, false
}

// parseUUID reads a UUID in lower case.
func parseUUID(s []byte) (id [16]byte, ok bool) {
	if len(s) != 36 {
		return id, false
	}
	n := 0
	for i := 0; i < len(s); {
		if i == 8 || i == 13 || i == 18 || i == 23 {
			if s[i] != '-' {
				return id, false
			}
			i++
			continue
		}
		high, low := digit(s[i]), digit(s[i+1])
		if high > 15 || low > 15 {
			return id, false
		}
		id[n] = high<<4 | low
		n, i = n+1, i+2
	}
	return id, true
}

// subject is the id of what a topic is about, as fairdraw and multi-draws name it.
func (t topic) subject() string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", t.id[:4], t.id[4:6], t.id[6:8], t.id[8:10], t.id[10:])
}

func (t topic) String() string {
	for _, prefix := range prefixes() {
		if prefix[0] == t.kind {
			return prefix + t.subject()
		}
	}
	return "books"
}

// leaf is one entry of the log: a fact, or a part of one.
type leaf struct {
	kind  string // the type
	topic topic
	seq   int64
	at    time.Time
	data  []byte // an object that scan has accepted; nil in a part
	// Of parts, from 1; 0 for a whole fact.
	part, parts int64
	text        string
}

// headSize is the least that a leaf is long, before its data.
const headSize = len(`{"type":"","topic":"","seq":0,"at":"2006-01-02T15:04:05.000000Z","data":`)

// parseLeaf reads an entry, whose form is exactly that of §2. It shares memory with the leaf. With a problem, the leaf has what could
// be read.
func parseLeaf(entry []byte) (l leaf, p *problem) {
	l.seq = -1
	bad := func(expected string) (leaf, *problem) {
		return l, &problem{"form of the leaf", quote(entry), expected}
	}
	if len(entry) < headSize {
		return bad("an object with type, topic, seq, at and data, in this order")
	}
	r := cutter{rest: entry}
	kind := r.str(`{"type":`)
	name := r.str(`,"topic":`)
	seq := r.number(`,"seq":`)
	at := r.str(`,"at":`)
	if r.failed {
		return bad("an object with type, topic, seq, at and data, in this order")
	}
	var ok bool
	if l.kind, ok = knownType(kind); !ok {
		return l, &problem{"type", quote(kind), "a type that this version knows"}
	}
	if l.topic, ok = parseTopic(name); !ok || topicOf(l.kind) != l.topic.kind {
		return l, &problem{"topic", quote(name), "a topic of the type " + l.kind}
	}
	l.seq = seq
	if l.at, ok = parseTime(at); !ok {
		return l, &problem{"at", quote(at), "a time such as 2006-01-02T15:04:05.000000Z"}
	}
	if rest, ok := bytes.CutPrefix(r.rest, []byte(`,"data":`)); ok {
		end, err := scan(rest)
		switch {
		case err != nil:
			return l, &problem{"form of the data", err.Error(), "JSON as the log has it"}
		case string(end) != "}":
			return bad("nothing behind the data")
		case rest[0] != '{':
			return l, &problem{"data", quote(rest), "an object"}
		case len(rest)-1 > maxData:
			return l, &problem{"size of the data", fmt.Sprint(len(rest) - 1), fmt.Sprintf("at most %d, or parts", maxData)}
		}
		l.data = rest[:len(rest)-1]
		return l, nil
	}
	l.part = r.number(`,"part":`)
	l.parts = r.number(`,"parts":`)
	text := r.quoted(`,"text":`)
	if r.failed || string(r.rest) != "}" {
		return bad("data, or part, parts and text, behind the time")
	}
	l.text = decoded(text)
	return l, first(
		within("parts", l.parts, 2, maxFact),
		within("part", l.part, 1, l.parts),
		within("size of the text", int64(len(l.text)), 1, maxPiece),
	)
}

func within(what string, n, least, most int64) *problem {
	if n >= least && n <= most {
		return nil
	}
	return &problem{what, fmt.Sprint(n), fmt.Sprintf("%d to %d", least, most)}
}

// cutter cuts the members of a leaf off, one after the other.
type cutter struct {
	rest   []byte
	failed bool
}

// quoted cuts off a string behind its name.
func (c *cutter) quoted(name string) []byte {
	rest, ok := bytes.CutPrefix(c.rest, []byte(name))
	if !ok || len(rest) == 0 || rest[0] != '"' || c.failed {
		c.failed = true
		return nil
	}
	s := scanner{text: rest}
	if s.str() != nil {
		c.failed = true
		return nil
	}
	c.rest = rest[s.at:]
	return rest[:s.at]
}

// str cuts off a string, and returns what is between the quotes, as it is written: names need no escapes.
func (c *cutter) str(name string) []byte {
	if s := c.quoted(name); s != nil {
		return s[1 : len(s)-1]
	}
	return nil
}

// number cuts off a number that is not negative.
func (c *cutter) number(name string) int64 {
	rest, ok := bytes.CutPrefix(c.rest, []byte(name))
	s := scanner{text: rest}
	if !ok || c.failed || s.number() != nil {
		c.failed = true
		return -1
	}
	n, ok := parseInteger(rest[:s.at])
	if !ok || n < 0 || n > maxSeq {
		c.failed = true
		return -1
	}
	c.rest = rest[s.at:]
	return n
}

// parseTime reads a time as leaves have it: in UTC, with six digits of the fraction.
func parseTime(s []byte) (time.Time, bool) {
	const layout = "2006-01-02T15:04:05.000000Z"
	if len(s) != len(layout) {
		return time.Time{}, false
	}
	var v [7]int
	for i, at := range [...]struct{ from, to int }{{0, 4}, {5, 7}, {8, 10}, {11, 13}, {14, 16}, {17, 19}, {20, 26}} {
		for _, c := range s[at.from:at.to] {
			if c < '0' || c > '9' {
				return time.Time{}, false
			}
			v[i] = v[i]*10 + int(c-'0')
		}
	}
	for i := range len(layout) {
		if c := layout[i]; (c < '0' || c > '9') && s[i] != c {
			return time.Time{}, false
		}
	}
	t := time.Date(v[0], time.Month(v[1]), v[2], v[3], v[4], v[5], v[6]*1000, time.UTC)
	// Date takes the 31st of February for a day in March.
	ok := t.Month() == time.Month(v[1]) && t.Day() == v[2] && v[3] < 24 && v[4] < 60 && v[5] < 60
	return t, ok
}

// The types of leaves, of §3 to §6.
const (
	campaignCreated   = "campaign.created"
	campaignPublished = "campaign.published"
	campaignSealed    = "campaign.sealed"
	campaignDrawn     = "campaign.drawn"
	campaignCancelled = "campaign.cancelled"
	auctionCreated    = "auction.created"
	auctionStarted    = "auction.started"
	auctionCompleted  = "auction.completed"
	auctionCancelled  = "auction.cancelled"
	bidPlaced         = "bid.placed"
	roundExtended     = "round.extended"
	roundCompleted    = "round.completed"
	roundStarted      = "round.started"
	bidCarriedOver    = "bid.carried_over"
	multidrawMade     = "multidraw.committed"
	multidrawEnded    = "multidraw.ended"
	booksClosed       = "books.closed"
)

// knownType returns a known type without an allocation: a log has few types and many leaves.
func knownType(s []byte) (string, bool) {
	for _, known := range [...]string{
		bidPlaced, bidCarriedOver, roundExtended, roundStarted, roundCompleted, booksClosed, auctionCreated, auctionStarted, auctionCompleted,
		auctionCancelled, campaignCreated, campaignPublished, campaignSealed, campaignDrawn, campaignCancelled, multidrawMade, multidrawEnded,
	} {
		if string(s) == known {
			return known, true
		}
	}
	return string(s), false
}

// topicOf is the kind of the topics that a type's leaves are of.
func topicOf(kind string) byte {
	if strings.HasPrefix(kind, "bid.") || strings.HasPrefix(kind, "round.") {
		return auctions
	}
	return kind[0]
}
