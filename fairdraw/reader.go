package fairdraw

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// reader reads JSON (RFC 8259) of a known shape. The standard decoder takes names in any case, lets the last of two equal
// names win and mends broken text: each would let two programs see two documents in the same bytes, which a document that
// settles disputes cannot afford.
type reader struct {
	data []byte
	pos  int
}

// readDocument reads one value with nothing after it.
func readDocument(data []byte, read func(*reader) error) error {
	r := &reader{data: data}
	if !utf8.Valid(data) {
		for r.pos < len(data) {
			c, size := utf8.DecodeRune(data[r.pos:])
			if c == utf8.RuneError && size == 1 {
				break
			}
			r.pos += size
		}
		return r.fail("not valid UTF-8")
	}
	r.space()
	if err := read(r); err != nil {
		return err
	}
	r.space()
	if r.pos != len(data) {
		return r.fail("data after the end of the document")
	}
	return nil
}

func (r *reader) fail(format string, args ...any) error {
	return &FormatError{Offset: r.pos, Reason: fmt.Sprintf(format, args...)}
}

// within puts a step in front of an error's path, on its way outward.
func within(step string, err error) error {
	if e, ok := err.(*FormatError); ok { //nolint:errorlint // made here, never wrapped
		if e.Path != "" && e.Path[0] != '[' {
			step += "."
		}
		e.Path = step + e.Path
	}
	return err
}

func (r *reader) space() {
	for r.pos < len(r.data) {
		switch r.data[r.pos] {
		case ' ', '\t', '\n', '\r':
			r.pos++
		default:
			return
		}
	}
}

// peek gives the next byte, or 0 at the end; 0 is not legal anywhere.
func (r *reader) peek() byte {
	if r.pos < len(r.data) {
		return r.data[r.pos]
	}
	return 0
}

func (r *reader) expect(c byte, what string) error {
	if r.peek() != c {
		return r.fail("%s expected", what)
	}
	r.pos++
	return nil
}

// object reads an object with exactly the given names, in any order; the last optional of them may be absent. It calls read
// with the index of each name, where the value begins.
func (r *reader) object(names []string, optional int, read func(i int) error) error {
	if err := r.expect('{', "an object"); err != nil {
		return err
	}
	var seen uint
	r.space()
	for first := true; r.peek() != '}'; first = false {
		if !first {
			if err := r.expect(',', "',' or '}'"); err != nil {
				return err
			}
			r.space()
		}
		i, err := r.name(names)
		if err != nil {
			return err
		}
		if seen&(1<<i) != 0 {
			return within(names[i], r.fail("appears twice"))
		}
		seen |= 1 << i
		r.space()
		if err := r.expect(':', "':'"); err != nil {
			return within(names[i], err)
		}
		r.space()
		if err := read(i); err != nil {
			return within(names[i], err)
		}
		r.space()
	}
	for i, name := range names[:len(names)-optional] {
		if seen&(1<<i) == 0 {
			return within(name, r.fail("missing"))
		}
	}
	r.pos++
	return nil
}

// name reads a field's name. No name of the formats needs an escape, so one with an escape is just unknown.
func (r *reader) name(names []string) (int, error) {
	start := r.pos
	if err := r.expect('"', "a field name"); err != nil {
		return 0, err
	}
	begin := r.pos
	for r.pos < len(r.data) && r.data[r.pos] != '"' {
		r.pos++
	}
	if r.pos == len(r.data) {
		r.pos = start
		return 0, r.fail("a field name that does not end")
	}
	got := r.data[begin:r.pos]
	r.pos++
	for i, name := range names {
		if string(got) == name {
			return i, nil
		}
	}
	r.pos = start
	return 0, r.fail("unknown field %q", clip(got))
}

// clip keeps a hostile document from filling a log through its error.
func clip(b []byte) string {
	const most = 40
	if len(b) > most {
		return strings.ToValidUTF8(string(b[:most]), "") + "…"
	}
	return string(b)
}

// array reads a list of at most limit values.
func (r *reader) array(limit int, read func(i int) error) error {
	if err := r.expect('[', "a list"); err != nil {
		return err
	}
	r.space()
	for i := 0; r.peek() != ']'; i++ {
		if i > 0 {
			if err := r.expect(',', "',' or ']'"); err != nil {
				return err
			}
			r.space()
		}
		if i == limit {
			return r.fail("over %d entries", limit)
		}
		if err := read(i); err != nil {
			return within(fmt.Sprintf("[%d]", i), err)
		}
		r.space()
	}
	r.pos++
	return nil
}

// integer reads a number that fits an int on every platform.
func (r *reader) integer(low, high int) (int, error) {
	n, err := r.integer64(int64(low), int64(high))
	return int(n), err
}

// integer64 reads a number in its one plain form: no sign, leading zero, fraction or exponent. high is at most 2^53.
func (r *reader) integer64(low, high int64) (int64, error) {
	start, n := r.pos, int64(0)
	for r.pos < len(r.data) && r.data[r.pos] >= '0' && r.data[r.pos] <= '9' {
		n = n*10 + int64(r.data[r.pos]-'0')
		r.pos++
		if n > high {
			r.pos = start
			return 0, r.fail("a number over %d", high)
		}
	}
	plain := r.pos > start && (r.data[start] != '0' || r.pos == start+1)
	if c := r.peek(); !plain || c == '.' || c == 'e' || c == 'E' {
		r.pos = start
		return 0, r.fail("a plain integer expected")
	}
	if n < low {
		r.pos = start
		return 0, r.fail("a number under %d", low)
	}
	return n, nil
}

// version reads a version number, of which some are known.
func (r *reader) version(known ...int) (int, error) {
	const most = 1_000_000
	start := r.pos
	n, err := r.integer(0, most)
	if err == nil && !slices.Contains(known, n) {
		r.pos = start
		return 0, r.fail("version %d is not known, only %s", n, strings.Trim(fmt.Sprint(known), "[]"))
	}
	return n, err
}

// hex reads low to high bytes in lower-case hexadecimal.
func (r *reader) hex(low, high int) (string, error) {
	start := r.pos
	s, err := r.text()
	if err != nil {
		return "", err
	}
	if size := len(s) / 2; size < low || size > high || !isHex(s, size) {
		r.pos = start
		if low == high {
			return "", r.fail("%d lower-case hexadecimal digits expected", 2*low)
		}
		return "", r.fail("%d to %d bytes in lower-case hexadecimal expected", low, high)
	}
	return s, nil
}

// text reads a string.
func (r *reader) text() (string, error) {
	if err := r.expect('"', "a string"); err != nil {
		return "", err
	}
	begin := r.pos
	for r.pos < len(r.data) {
		switch c := r.data[r.pos]; {
		case c == '"':
			s := string(r.data[begin:r.pos])
			r.pos++
			return s, nil
		case c == '\\':
			return r.escapedText(begin)
		case c < 0x20:
			return "", r.fail("a control character in a string")
		}
		r.pos++
	}
	return "", r.fail("a string that does not end")
}

// escapedText goes on with a string at its first escape.
func (r *reader) escapedText(begin int) (string, error) {
	out := append([]byte(nil), r.data[begin:r.pos]...)
	for r.pos < len(r.data) {
		switch c := r.data[r.pos]; {
		case c == '"':
			r.pos++
			return string(out), nil
		case c == '\\':
			char, err := r.escape()
			if err != nil {
				return "", err
			}
			out = utf8.AppendRune(out, char)
		case c < 0x20:
			return "", r.fail("a control character in a string")
		default:
			out = append(out, c)
			r.pos++
		}
	}
	return "", r.fail("a string that does not end")
}

// escape reads one escape; for a character beyond U+FFFF, its pair of them.
func (r *reader) escape() (rune, error) {
	start := r.pos
	r.pos++
	c := r.peek()
	if c == 'u' {
		char, err := r.unit(start)
		if err != nil || !utf16.IsSurrogate(char) {
			return char, err
		}
		if r.peek() == '\\' && r.pos+1 < len(r.data) && r.data[r.pos+1] == 'u' {
			r.pos++
			second, err := r.unit(start)
			if err != nil {
				return 0, err
			}
			if pair := utf16.DecodeRune(char, second); pair != utf8.RuneError {
				return pair, nil
			}
		}
		r.pos = start
		return 0, r.fail("a lone surrogate")
	}
	i := strings.IndexByte(`"\/bfnrt`, c)
	if c == 0 || i < 0 {
		r.pos = start
		return 0, r.fail("not an escape of JSON")
	}
	r.pos++
	return rune("\"\\/\b\f\n\r\t"[i]), nil
}

// unit reads the u and the four digits of an escape that began at start.
func (r *reader) unit(start int) (rune, error) {
	r.pos++
	if r.pos+4 > len(r.data) {
		r.pos = start
		return 0, r.fail("not an escape of JSON")
	}
	var v rune
	for _, c := range r.data[r.pos : r.pos+4] {
		switch {
		case c >= '0' && c <= '9':
			v = v<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			v = v<<4 | rune(c-'a'+10)
		case c >= 'A' && c <= 'F':
			v = v<<4 | rune(c-'A'+10)
		default:
			r.pos = start
			return 0, r.fail("not an escape of JSON")
		}
	}
	r.pos += 4
	return v, nil
}
