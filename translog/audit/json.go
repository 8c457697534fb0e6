package audit

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"
)

// maxDepth is how deep values nest in each other. The known ones need three levels.
const maxDepth = 16

// maxNames is how many names of one object are compared with each other; of more, a map is made.
const maxNames = 16

// scan walks over one JSON value in the log's form (§2): no white space, integers alone, strings escaped in the one way, no name
// twice in an object. It returns what follows the value. The error says what is wrong, and where.
func scan(text []byte) (rest []byte, err error) {
	s := scanner{text: text}
	if err := s.value(0); err != nil {
		return nil, fmt.Errorf("byte %d: %w", s.at, err)
	}
	return text[s.at:], nil
}

type scanner struct {
	text []byte
	at   int
}

// formError is what is wrong with a text.
type formError string

func (e formError) Error() string { return string(e) }

const (
	errEnd     formError = "the text ends within a value"
	errValue   formError = "not a value"
	errDeep    formError = "values nest too deep"
	errNumber  formError = "not an integer without leading zeros"
	errEscape  formError = "a string is not escaped as the log does it"
	errUTF8    formError = "a string is not UTF-8"
	errTwice   formError = "an object has a name twice"
	errStructs formError = "not a comma, a colon or an end"
)

func (s *scanner) peek() byte {
	if s.at < len(s.text) {
		return s.text[s.at]
	}
	return 0
}

func (s *scanner) take(c byte) error {
	if s.at >= len(s.text) {
		return errEnd
	}
	if s.text[s.at] != c {
		return errStructs
	}
	s.at++
	return nil
}

func (s *scanner) value(depth int) error {
	if depth > maxDepth {
		return errDeep
	}
	switch c := s.peek(); {
	case s.at >= len(s.text):
		return errEnd
	case c == '"':
		return s.str()
	case c == '-' || '0' <= c && c <= '9':
		return s.number()
	case c == '{':
		return s.object(depth)
	case c == '[':
		return s.list(depth)
	}
	for _, word := range [...]string{"true", "false", "null"} {
		if bytes.HasPrefix(s.text[s.at:], []byte(word)) {
			s.at += len(word)
			return nil
		}
	}
	return errValue
}

func (s *scanner) list(depth int) error {
	s.at++
	if s.peek() == ']' {
		s.at++
		return nil
	}
	for {
		if err := s.value(depth + 1); err != nil {
			return err
		}
		if s.peek() == ',' {
			s.at++
			continue
		}
		return s.take(']')
	}
}

func (s *scanner) object(depth int) error {
	s.at++
	if s.peek() == '}' {
		s.at++
		return nil
	}
	var (
		few  [maxNames][]byte
		many map[string]bool
	)
	for n := 0; ; n++ {
		from := s.at
		if s.peek() != '"' {
			return errStructs
		}
		if err := s.str(); err != nil {
			return err
		}
		// One escape for each character: names that differ as they are written differ.
		name := s.text[from:s.at]
		if n < maxNames {
			for _, other := range few[:n] {
				if bytes.Equal(name, other) {
					return errTwice
				}
			}
			few[n] = name
		} else {
			if many == nil {
				many = make(map[string]bool, 4*maxNames)
				for _, other := range few {
					many[string(other)] = true
				}
			}
			if many[string(name)] {
				return errTwice
			}
			many[string(name)] = true
		}
		if err := s.take(':'); err != nil {
			return err
		}
		if err := s.value(depth + 1); err != nil {
			return err
		}
		if s.peek() != ',' {
			return s.take('}')
		}
		s.at++
	}
}

func (s *scanner) number() error {
	from := s.at
	if s.peek() == '-' {
		s.at++
	}
	digits := s.at
	for c := s.peek(); '0' <= c && c <= '9'; c = s.peek() {
		s.at++
	}
	zero := s.text[digits:s.at]
	if len(zero) == 0 || zero[0] == '0' && (len(zero) > 1 || digits > from) {
		return errNumber
	}
	return nil
}

// str walks over a string. Exactly the characters that must be are escaped, each in its shortest form.
func (s *scanner) str() error {
	s.at++
	from := s.at
	ascii := true
	for {
		if s.at >= len(s.text) {
			return errEnd
		}
		switch c := s.text[s.at]; {
		case c == '"':
			if !ascii && !utf8.Valid(s.text[from:s.at]) {
				return errUTF8
			}
			s.at++
			return nil
		case c == '\\':
			_, n := unescape(s.text[s.at:])
			if n == 0 {
				return errEscape
			}
			s.at += n
		case c < 0x20:
			return errEscape
		default:
			ascii = ascii && c < utf8.RuneSelf
			s.at++
		}
	}
}

// unescape returns the character that an escape stands for, and the escape's length, which is 0 for one that the log does not use.
func unescape(text []byte) (c byte, n int) {
	if len(text) < 2 {
		return 0, 0
	}
	switch text[1] {
	case '"', '\\':
		return text[1], 2
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		if len(text) < 6 || text[2] != '0' || text[3] != '0' {
			return 0, 0
		}
		high, low := digit(text[4]), digit(text[5])
		if high > 1 || low > 15 {
			return 0, 0
		}
		switch c := high<<4 | low; c {
		case '\b', '\f', '\n', '\r', '\t':
			return 0, 0 // They have a shorter one.
		default:
			return c, 6
		}
	}
	return 0, 0
}

// digit is the value of a lower-case hexadecimal digit, and 255 of anything else.
func digit(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	}
	return 255
}

// decoded is the content of a string that scan has accepted.
func decoded(quoted []byte) string {
	inner := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner)
	}
	out := make([]byte, 0, len(inner))
	for i := 0; i < len(inner); {
		if inner[i] == '\\' {
			c, n := unescape(inner[i:])
			out, i = append(out, c), i+n
			continue
		}
		out, i = append(out, inner[i]), i+1
	}
	return string(out)
}

// skip is the end of the value that begins a text which scan has accepted.
func skip(text []byte) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			for i++; text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			depth++
			continue
		case '}', ']':
			depth--
		default:
			for i+1 < len(text) && text[i+1] != ',' && text[i+1] != '}' && text[i+1] != ']' {
				i++
			}
		}
		if depth == 0 {
			return i + 1
		}
		if next := i + 1; next < len(text) && (text[next] == ',' || text[next] == ':') {
			i++
		}
	}
	return len(text)
}

// parseInteger reads an integer that scan has accepted. It returns false for one that is not within int64.
func parseInteger(text []byte) (int64, bool) {
	negative := text[0] == '-'
	if negative {
		text = text[1:]
	}
	if len(text) > 19 {
		return 0, false
	}
	var n uint64 // 19 digits fit.
	for _, c := range text {
		n = n*10 + uint64(c-'0')
	}
	switch {
	case !negative && n <= math.MaxInt64:
		return int64(n), true
	case negative && n <= 1<<63:
		return -int64(n-1) - 1, true //nolint:gosec // Also right for the least of all.
	}
	return 0, false
}

// field names a part of the data in a report.
func field(prefix string, index int, name string) string {
	if index >= 0 {
		prefix += "[" + strconv.Itoa(index) + "]"
	}
	if prefix != "" && name != "" {
		prefix += "."
	}
	return prefix + name
}
