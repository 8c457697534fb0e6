package server

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

// Limits of the contract, in characters.
const (
	maxID   = 64
	maxName = 200
	maxMemo = 500
)

// maxExpiry bounds how long a hold may last; longer ones are better without an expiry.
const maxExpiry = 10 * 365 * 24 * time.Hour

// validID reports whether s is an id that a client may choose: [A-Za-z0-9._:@-]{1,64}, but . and .. which would vanish
// from a path. It is on the way of every command, so it is no regular expression.
func validID(s string) bool {
	if len(s) == 0 || len(s) > maxID || s == "." || s == ".." {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case 'A' <= c && c <= 'Z', 'a' <= c && c <= 'z', '0' <= c && c <= '9':
		case c == '.', c == '_', c == ':', c == '@', c == '-':
		default:
			return false
		}
	}
	return true
}

// validCurrency reports whether s is [A-Z][A-Z0-9]{2,11}.
func validCurrency(s string) bool {
	if len(s) < 3 || len(s) > 12 || s[0] < 'A' || s[0] > 'Z' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < 'A' || c > 'Z') && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}

// legible lets those requests pass whose URL is text: UTF-8 without NUL, which no database takes. What a handler reads from the
// path or the query it may pass on.
func (s *Server) legible(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := checkURL(r.URL); err != nil {
			s.writeProblem(w, r, err)
			return
		}
		next(w, r)
	}
}

func checkURL(u *url.URL) error {
	if !isText(u.Path) {
		return refuse("the path must be UTF-8 without NUL")
	}
	if u.RawQuery == "" {
		return nil
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return refuse("the query is malformed")
	}
	for name, values := range q {
		if !isText(name) || !isText(strings.Join(values, "")) {
			return refuse("the query must be UTF-8 without NUL")
		}
	}
	return nil
}

func isText(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }

// checks collects the first thing that is wrong with a request, so that validators read as a list.
type checks struct{ err error }

func (c *checks) fail(format string, args ...any) {
	if c.err == nil {
		c.err = refuse(format, args...)
	}
}

func (c *checks) id(field, value string) {
	if !validID(value) {
		c.fail("%s must be 1 to 64 characters of A-Z a-z 0-9 . _ : @ - (and not . or ..)", field)
	}
}

func (c *checks) currency(field, value string) {
	if !validCurrency(value) {
		c.fail("%s must be an upper-case letter and 2 to 11 upper-case letters or digits", field)
	}
}

func (c *checks) amount(field string, value int64) {
	if value < 1 || value > ledger.MaxAmount {
		c.fail("%s must be an integer from 1 to %d", field, int64(ledger.MaxAmount))
	}
}

func (c *checks) upTo(field string, value, high int) {
	if value < 1 || value > high {
		c.fail("%s must be an integer from 1 to %d", field, high)
	}
}

func (c *checks) name(field, value string) { c.text(field, value, 1, maxName) }

func (c *checks) memo(field, value string) { c.text(field, value, 0, maxMemo) }

func (c *checks) text(field, value string, low, high int) {
	n := utf8.RuneCountInString(value)
	switch {
	case n < low || n > high:
		c.fail("%s must have %d to %d characters", field, low, high)
	case !utf8.ValidString(value):
		c.fail("%s must be UTF-8", field)
	case strings.ContainsFunc(value, unicode.IsControl):
		c.fail("%s must not contain control characters", field)
	}
}

// duration reads a Go duration string within (0, most]; an absent one is nil.
func (c *checks) duration(field string, value *string, most time.Duration) *time.Duration {
	if value == nil {
		return nil
	}
	d, err := time.ParseDuration(*value)
	if err != nil || d <= 0 || d > most {
		c.fail("%s must be a duration such as \"30m\" or \"1.5s\", above 0 and at most %s", field, most)
		return nil
	}
	return &d
}

// pathUUID reads an id that the server made from the path. What is not one names nothing, so it is not found.
func pathUUID(s, what string) (uuid.UUID, error) {
	// Other spellings of the same id (upper case, braces) would make other paths, and so other keys, of one object.
	id, err := uuid.Parse(s)
	if err != nil || id.String() != s {
		return uuid.UUID{}, &refusal{kind: notFound, detail: "there is no such " + what}
	}
	return id, nil
}

// pathAccount reads an account's id from the path.
func pathAccount(s string) (string, error) {
	if !validID(s) {
		return "", &refusal{kind: notFound, detail: "there is no such account"}
	}
	return s, nil
}

// Page limits of lists.
const (
	defaultLimit = 50
	maxLimit     = 200
)

// page is the part of a list that a request asks for.
type page struct {
	limit int
	after int64 // the last item's place in the list's order; 0 from the start
}

// cursor names a place in the list at path: the place in base 36, and a check that binds it to that list, so that a cursor
// which was made up, cut short, or belongs to another list is told from a good one.
func cursor(path string, place int64) string {
	n := strconv.FormatInt(place, 36)
	sum := sha256.Sum256([]byte(path + "?after=" + n))
	return n + "." + hex.EncodeToString(sum[:4])
}

// parsePage reads ?limit= and ?after= of a list.
func parsePage(r *http.Request) (page, error) { return readPage(r.URL.Path, r.URL.RawQuery) }

func readPage(path, rawQuery string) (page, error) { return readPageUpTo(path, rawQuery, maxLimit) }

// readPageUpTo is readPage of a list whose pages may be longer.
func readPageUpTo(path, rawQuery string, most int) (page, error) {
	p := page{limit: defaultLimit}
	q, err := url.ParseQuery(rawQuery)
	if err != nil {
		return p, refuse("the query is malformed")
	}
	for name, values := range q {
		if len(values) > 1 {
			return p, refuse("%s is given more than once", name)
		}
	}
	if v, ok := q["limit"]; ok {
		n, err := strconv.Atoi(v[0])
		if err != nil || n < 1 || n > most || strconv.Itoa(n) != v[0] {
			return p, refuse("limit must be an integer from 1 to %d", most)
		}
		p.limit = n
	}
	if v, ok := q["after"]; ok {
		digits, _, _ := strings.Cut(v[0], ".")
		n, err := strconv.ParseInt(digits, 36, 64)
		if err != nil || n < 1 || cursor(path, n) != v[0] {
			return p, refuse("after must be the next of an earlier answer")
		}
		p.after = n
	}
	return p, nil
}

// list is a page of items.
type list[T any] struct {
	Items []T     `json:"items"`
	Next  *string `json:"next" doc:"cursor of the next page, null on the last"`
}

// newList makes the answer from up to limit+1 rows: the one too many says that there is a next page.
func newList[R, T any](r *http.Request, rows []R, limit int, item func(R) T, place func(R) int64) list[T] {
	out := list[T]{Items: make([]T, 0, min(len(rows), limit))}
	for i, row := range rows {
		if i == limit {
			next := cursor(r.URL.Path, place(rows[i-1]))
			out.Next = &next
			break
		}
		out.Items = append(out.Items, item(row))
	}
	return out
}
