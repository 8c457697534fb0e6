package fairdraw

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// reader reads JSON (RFC 8259) of a known shape. The standard decoder takes names in any case, lets the last of two equal
// names win and mends broken text: each would let two programs see two documents in the same bytes, which a document that
// settles disputes cannot afford.
type reader struct {
	data []byte
	pos  int
}

// value reads one value of a document to where it belongs.
type value func(*reader) error

// field is a member of an object.
type field struct {
	name string
	read value
}

// readDocument reads one value with nothing after it.
func readDocument(data []byte, read value) error {
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

// object reads an object that has each of the fields once, in any order.
func object(fields ...field) value {
	return func(r *reader) error {
		_, err := r.object(0, fields)
		return err
	}
}

// object reads an object that has each of the fields once, in any order; the last optional of them may be absent. It returns
// how many there were.
func (r *reader) object(optional int, fields []field) (n int, err error) {
	if err := r.expect('{', "an object"); err != nil {
		return 0, err
	}
	var seen uint
	r.space()
	for ; r.peek() != '}'; n++ {
		if n > 0 {
			if err := r.expect(',', "',' or '}'"); err != nil {
				return 0, err
			}
			r.space()
		}
		i, err := r.name(fields)
		if err != nil {
			return 0, err
		}
		if seen&(1<<i) != 0 {
			return 0, within(fields[i].name, r.fail("appears twice"))
		}
		seen |= 1 << i
		r.space()
		if err := r.expect(':', "':'"); err != nil {
			return 0, within(fields[i].name, err)
		}
		r.space()
		if err := fields[i].read(r); err != nil {
			return 0, within(fields[i].name, err)
		}
		r.space()
	}
	for i, f := range fields[:len(fields)-optional] {
		if seen&(1<<i) == 0 {
			return 0, within(f.name, r.fail("missing"))
		}
	}
	r.pos++
	return n, nil
}

// name reads a field's name. No name of the formats needs an escape, so one with an escape is just unknown.
func (r *reader) name(fields []field) (int, error) {
	start := r.pos
	if err := r.expect('"', "a field name"); err != nil {
		return 0, err
	}
	got, _, ended := bytes.Cut(r.data[r.pos:], []byte{'"'})
	for i, f := range fields {
		if ended && string(got) == f.name {
			r.pos += len(got) + 1
			return i, nil
		}
	}
	r.pos = start
	if !ended {
		return 0, r.fail("a field name that does not end")
	}
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

// list reads an array of at most limit values.
func list[T any](into *[]T, limit int, read func(*T) value) value {
	var v, zero T
	one := read(&v)
	return func(r *reader) error {
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
			v = zero
			if err := one(r); err != nil {
				return within(fmt.Sprintf("[%d]", i), err)
			}
			*into = append(*into, v)
			r.space()
		}
		r.pos++
		return nil
	}
}

// integer reads a number in its one plain form: no sign, leading zero, fraction or exponent. high is at most 2^53.
func integer[T int | int64 | uint64](into *T, low, high int64) value {
	return func(r *reader) error {
		start, n := r.pos, int64(0)
		bad := func(format string, args ...any) error {
			r.pos = start
			return r.fail(format, args...)
		}
		for ; r.peek() >= '0' && r.peek() <= '9'; r.pos++ {
			if n = n*10 + int64(r.peek()-'0'); n > high {
				return bad("a number over %d", high)
			}
		}
		plain := r.pos > start && (r.data[start] != '0' || r.pos == start+1)
		if c := r.peek(); !plain || c == '.' || c == 'e' || c == 'E' {
			return bad("a plain integer expected")
		}
		if n < low {
			return bad("a number under %d", low)
		}
		*into = T(n)
		return nil
	}
}

// hexa reads low to high bytes in lower-case hexadecimal.
func hexa(into *string, low, high int) value {
	read := text(into)
	return func(r *reader) error {
		start := r.pos
		if err := read(r); err != nil {
			return err
		}
		if size := len(*into) / 2; size < low || size > high || !isHex(*into, size) {
			r.pos = start
			if low == high {
				return r.fail("%d lower-case hexadecimal digits expected", 2*low)
			}
			return r.fail("%d to %d bytes in lower-case hexadecimal expected", low, high)
		}
		return nil
	}
}

func digest(into *string) value { return hexa(into, 32, 32) }

// bounded reads a text of 1 to high bytes.
func bounded(into *string, high int) value {
	read := text(into)
	return func(r *reader) error {
		start := r.pos
		if err := read(r); err != nil {
			return err
		}
		if n := len(*into); n < 1 || n > high {
			r.pos = start
			return r.fail("1 to %d bytes expected", high)
		}
		return nil
	}
}

// base64Text reads 1 to high bytes in base64, written in the one way that there is: with padding, and with zeros in the bits that
// are left over.
func base64Text(into *string, high int) value {
	read := bounded(into, base64.StdEncoding.EncodedLen(high))
	return func(r *reader) error {
		start := r.pos
		if err := read(r); err != nil {
			return err
		}
		// Writing it again finds line ends, which the decoder passes over.
		if raw, err := base64.StdEncoding.DecodeString(*into); err != nil || len(raw) > high || base64.StdEncoding.EncodeToString(raw) != *into {
			r.pos = start
			return r.fail("1 to %d bytes in base64 expected", high)
		}
		return nil
	}
}

func text(into *string) value {
	return func(r *reader) error {
		start := r.pos
		if err := r.expect('"', "a string"); err != nil {
			return err
		}
		bad := func(reason string) error {
			r.pos = start
			return r.fail("%s", reason)
		}
		escaped := false
		for ; r.peek() != '"'; r.pos++ {
			switch c := r.peek(); {
			case r.pos >= len(r.data):
				return bad("a string that does not end")
			case c < 0x20:
				return r.fail("a control character in a string")
			case c == '\\':
				escaped = true
				r.pos++ // What follows belongs to the escape.
			}
		}
		r.pos++
		quoted := r.data[start:r.pos]
		if !escaped {
			*into = string(quoted[1 : len(quoted)-1])
			return nil
		}
		if json.Unmarshal(quoted, into) != nil {
			return bad("not an escape of JSON")
		}
		if hasLoneSurrogate(string(quoted), *into) {
			return bad("a lone surrogate")
		}
		return nil
	}
}

// hasLoneSurrogate reports whether an escape of a string is half of a pair of surrogates. The standard decoder reads U+FFFD
// in its place. A string may also have that character itself, as it is or as an escape.
func hasLoneSurrogate(quoted, decoded string) bool {
	quoted = strings.ToLower(strings.ReplaceAll(quoted, `\\`, ""))
	return strings.Count(decoded, "\ufffd") != strings.Count(quoted, "\ufffd")+strings.Count(quoted, `\ufffd`)
}
