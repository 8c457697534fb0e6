package translog

import (
	"errors"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"
)

// Limits of leaves.
const (
	// MaxData is the most bytes of JSON that a leaf has as its data. A larger fact is several leaves.
	MaxData = 32_768
	// maxPiece is the most bytes of a part, before they are escaped, which at most doubles them: a JSON text has no control characters.
	maxPiece = 16_384
	// MaxEntry is the most bytes of an entry that a bundle can hold (C2SP tlog-tiles).
	MaxEntry = 65_535
)

// TimeLayout is that of a leaf's time, in UTC.
const TimeLayout = "2006-01-02T15:04:05.000000Z"

// Leaf is a public fact.
type Leaf struct {
	Type  string
	Topic string
	Seq   int64 // in its topic, from 0
	At    time.Time
	Data  []byte // a JSON object, compact, and escaped as docs/design/log.md says
}

// ErrLeaf is returned for what is no leaf.
var ErrLeaf = errors.New("translog: not a leaf")

// Entries appends the leaf's entries to dst: one, or one for each part where it is large. They share memory with buffer, whose
// extension is returned too.
func (l *Leaf) Entries(dst [][]byte, buffer []byte) (entries [][]byte, rest []byte, err error) {
	if !utf8.Valid(l.Data) || len(l.Data) < 2 || l.Data[0] != '{' {
		return dst, buffer, fmt.Errorf("%w: the data of %s %d is no JSON object", ErrLeaf, l.Topic, l.Seq)
	}
	if len(l.Data) <= MaxData {
		from := len(buffer)
		buffer = append(append(append(l.head(buffer), `,"data":`...), l.Data...), '}')
		return append(dst, buffer[from:len(buffer):len(buffer)]), buffer, nil
	}
	pieces := split(l.Data)
	for i, piece := range pieces {
		from := len(buffer)
		buffer = append(l.head(buffer), `,"part":`...)
		buffer = append(strconv.AppendInt(buffer, int64(i)+1, 10), `,"parts":`...)
		buffer = append(strconv.AppendInt(buffer, int64(len(pieces)), 10), `,"text":`...)
		buffer = append(AppendString(buffer, string(piece)), '}')
		dst = append(dst, buffer[from:len(buffer):len(buffer)])
	}
	return dst, buffer, nil
}

// split cuts a text into pieces, between code points.
func split(text []byte) (pieces [][]byte) {
	for len(text) > maxPiece {
		at := maxPiece
		for !utf8.RuneStart(text[at]) {
			at--
		}
		pieces, text = append(pieces, text[:at]), text[at:]
	}
	return append(pieces, text)
}

// head appends what a leaf and all its parts begin with.
func (l *Leaf) head(to []byte) []byte {
	to = AppendString(append(to, `{"type":`...), l.Type)
	to = AppendString(append(to, `,"topic":`...), l.Topic)
	to = strconv.AppendInt(append(to, `,"seq":`...), l.Seq, 10)
	to = append(l.At.UTC().AppendFormat(append(to, `,"at":"`...), TimeLayout), '"')
	return to
}

const hexDigits = "0123456789abcdef"

// AppendString appends a JSON string that escapes what must be, and nothing else.
func AppendString(to []byte, s string) []byte {
	to = append(to, '"')
	from := 0
	for i := range len(s) {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		to = append(to, s[from:i]...)
		from = i + 1
		switch c {
		case '"', '\\':
			to = append(to, '\\', c)
		case '\b':
			to = append(to, '\\', 'b')
		case '\f':
			to = append(to, '\\', 'f')
		case '\n':
			to = append(to, '\\', 'n')
		case '\r':
			to = append(to, '\\', 'r')
		case '\t':
			to = append(to, '\\', 't')
		default:
			to = append(to, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return append(append(to, s[from:]...), '"')
}
