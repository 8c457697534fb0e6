package audit

import (
	"encoding/hex"
	"fmt"
	"iter"
	"math"
	"math/big"
	"time"
)

// maxAmount is the largest amount of money, 2^53 − 1.
const maxAmount = 1<<53 - 1

// object is an object of a leaf's data, which scan has accepted. Its methods read members by name, and keep the first thing that is
// wrong: then they return zero values, and the caller looks at the problem once, behind all of them.
type object struct {
	text   []byte
	prefix string // what it is in the data, for a report
	index  int    // in a list, or -1
	bad    **problem
}

// newObject begins with the data of a leaf, a whole object.
func newObject(text []byte) object { return object{text: text, index: -1, bad: new(*problem)} }

// problem is the first one of all objects of the same data.
func (o object) problem() *problem { return *o.bad }

func (o object) wrong(name, said, expected string) {
	if *o.bad == nil {
		*o.bad = &problem{field(o.prefix, o.index, name), said, expected}
	}
}

// find returns a member's value as it is written, or nil.
func (o object) find(name string) []byte {
	for rest := o.text[1:]; len(rest) > 1; {
		colon := skip(rest)
		value := rest[colon+1:]
		end := skip(value)
		if string(rest[1:colon-1]) == name {
			return value[:end]
		}
		if rest = value[end:]; rest[0] == ',' {
			rest = rest[1:]
		}
	}
	return nil
}

// member is a value that must be there and begin as one of its kind does.
func (o object) member(name, kind string, begins func(byte) bool) []byte {
	value := o.find(name)
	switch {
	case value == nil:
		o.wrong(name, "nothing", kind)
		return nil
	case !begins(value[0]):
		o.wrong(name, quote(value), kind)
		return nil
	}
	return value
}

func isString(c byte) bool { return c == '"' }
func isObject(c byte) bool { return c == '{' }
func isList(c byte) bool   { return c == '[' }
func isNumber(c byte) bool { return c == '-' || '0' <= c && c <= '9' }

// has reports whether a member is there.
func (o object) has(name string) bool { return o.find(name) != nil }

// absent wants that a member is not there.
func (o object) absent(name, because string) {
	if value := o.find(name); value != nil {
		o.wrong(name, quote(value), "nothing: "+because)
	}
}

// integer reads a number from least to most.
func (o object) integer(name string, least, most int64) int64 {
	value := o.member(name, "a number", isNumber)
	if value == nil {
		return 0
	}
	n, ok := parseInteger(value)
	if !ok || n < least || n > most {
		o.wrong(name, quote(value), fmt.Sprintf("%d to %d", least, most))
		return 0
	}
	return n
}

// amount reads an amount of money that is at least so much.
func (o object) amount(name string, least int64) int64 { return o.integer(name, least, maxAmount) }

// number reads a number that is a small one.
func (o object) number(name string, least int) int {
	return int(o.integer(name, int64(least), math.MaxInt32))
}

// big reads a number of any size.
func (o object) big(name string, signed bool) *big.Int {
	n := new(big.Int)
	value := o.member(name, "a number", isNumber)
	if value == nil {
		return n
	}
	if value[0] == '-' && !signed || len(value) > maxQuoted {
		o.wrong(name, quote(value), "a number without sign, of reasonable size")
		return n
	}
	n.SetString(string(value), 10)
	return n
}

// boolean reads true or false.
func (o object) boolean(name string) bool {
	value := o.member(name, "true or false", func(c byte) bool { return c == 't' || c == 'f' })
	return len(value) > 0 && value[0] == 't'
}

// str reads a string.
func (o object) str(name string) string {
	if value := o.member(name, "a string", isString); value != nil {
		return decoded(value)
	}
	return ""
}

// hex reads a string of hexadecimal digits: exactly so many bytes, or from 1 to limit where bytes is 0.
func (o object) hex(name string, size, limit int) []byte {
	s := o.str(name)
	b, err := hex.DecodeString(s)
	ok := err == nil && (size > 0 && len(b) == size || size == 0 && 0 < len(b) && len(b) <= limit)
	for i := 0; ok && i < len(s); i++ {
		ok = digit(s[i]) < 16 // DecodeString takes capital letters, too.
	}
	if !ok {
		o.wrong(name, quote(s), "lower-case hexadecimal of the right length")
		return make([]byte, size)
	}
	return b
}

// aliasDigits is the length of an account's alias.
const aliasDigits = 32

// alias reads an account's alias.
func (o object) alias(name string) string {
	value := o.member(name, "an alias", isString)
	if value == nil {
		return ""
	}
	ok := len(value) == aliasDigits+2
	for i := 1; ok && i <= aliasDigits; i++ {
		ok = digit(value[i]) < 16
	}
	if !ok {
		o.wrong(name, quote(value), "an alias of 32 hexadecimal digits")
		return ""
	}
	return string(value[1 : aliasDigits+1])
}

// time reads a time in UTC, no finer than microseconds.
func (o object) time(name string) time.Time {
	value := o.member(name, "a time", isString)
	if value == nil {
		return time.Time{}
	}
	s := value[1 : len(value)-1]
	t, ok := parseTime(s)
	if !ok {
		// Members of data need not have all six digits of the fraction.
		var err error
		t, err = time.Parse(time.RFC3339Nano, string(s))
		if err != nil || s[len(s)-1] != 'Z' || t.Nanosecond()%1000 != 0 {
			o.wrong(name, quote(s), "a time in UTC, of microseconds")
			return time.Time{}
		}
	}
	return t
}

// timeOrNull reads a time that may be null, or not there.
func (o object) timeOrNull(name string) *time.Time {
	if value := o.find(name); value == nil || value[0] == 'n' {
		return nil
	}
	t := o.time(name)
	return &t
}

// object reads an object.
func (o object) object(name string) object {
	value := o.member(name, "an object", isObject)
	if value == nil {
		value = []byte("{}")
	}
	return object{text: value, prefix: field(o.prefix, o.index, name), index: -1, bad: o.bad}
}

// values yields the values of a list, as they are written.
func (o object) values(name string) iter.Seq2[int, []byte] {
	value := o.member(name, "a list", isList)
	return func(yield func(int, []byte) bool) {
		if value != nil {
			elements(value)(yield)
		}
	}
}

// elements yields the values of a list that scan has accepted.
func elements(list []byte) iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		i := 0
		for rest := list[1:]; len(rest) > 1; i++ {
			end := skip(rest)
			if !yield(i, rest[:end]) {
				return
			}
			if rest = rest[end:]; rest[0] == ',' {
				rest = rest[1:]
			}
		}
	}
}

// objects yields the objects of a list. It stops at one that is none.
func (o object) objects(name string) iter.Seq2[int, object] {
	return func(yield func(int, object) bool) {
		for i, value := range o.values(name) {
			item := object{text: value, prefix: name, index: i, bad: o.bad}
			if value[0] != '{' {
				item.wrong("", quote(value), "an object")
				return
			}
			if !yield(i, item) {
				return
			}
		}
	}
}
