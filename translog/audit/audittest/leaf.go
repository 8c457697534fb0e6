package audittest

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Leaf is a leaf of the log. Data is compact JSON.
type Leaf struct {
	Type, Topic string
	Seq         int64
	At          time.Time
	Data        string
}

// Entries are the leaf's entries: one, or its parts.
func (l Leaf) Entries() [][]byte {
	head := fmt.Sprintf(`{"type":"%s","topic":"%s","seq":%d,"at":"%s",`, l.Type, l.Topic, l.Seq, l.At.UTC().Format("2006-01-02T15:04:05.000000Z"))
	if len(l.Data) <= 32_768 {
		return [][]byte{[]byte(head + `"data":` + l.Data + "}")}
	}
	var pieces []string
	for rest := l.Data; rest != ""; {
		n := min(len(rest), 16_384)
		for n < len(rest) && !utf8.RuneStart(rest[n]) {
			n--
		}
		pieces, rest = append(pieces, rest[:n]), rest[n:]
	}
	entries := make([][]byte, 0, len(pieces))
	for i, piece := range pieces {
		entries = append(entries, fmt.Appendf(nil, `%s"part":%d,"parts":%d,"text":%s}`, head, i+1, len(pieces), Quote(piece)))
	}
	return entries
}

// Quote writes a string as the log does.
func Quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch r {
		case '"':
			b.WriteString(`\"`)
		case '\\':
			b.WriteString(`\\`)
		case '\b':
			b.WriteString(`\b`)
		case '\f':
			b.WriteString(`\f`)
		case '\n':
			b.WriteString(`\n`)
		case '\r':
			b.WriteString(`\r`)
		case '\t':
			b.WriteString(`\t`)
		default:
			if r < 0x20 {
				fmt.Fprintf(&b, `\u%04x`, r)
			} else {
				b.WriteRune(r)
			}
		}
	}
	b.WriteByte('"')
	return b.String()
}
