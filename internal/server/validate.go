package server

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/server/edge"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

// Limits of the contract, in characters.
const (
	maxName = 200
	maxMemo = 500
)

// maxExpiry bounds how long a hold may last; longer ones are better without an expiry.
const maxExpiry = 10 * 365 * 24 * time.Hour

var currencyForm = regexp.MustCompile(`^[A-Z][A-Z0-9]{2,11}$`)

// checkURL refuses a URL that is no text: UTF-8 without NUL, which no database takes. What a handler reads from the path or the
// query it may pass on.
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

// or is an optional member of a request, or what it is when absent.
func or[T any](member *T, absent T) T {
	if member == nil {
		return absent
	}
	return *member
}

func (c *checks) id(field, value string) {
	if !auth.ValidAccount(value) {
		c.fail("%s must be 1 to 64 characters of A-Z a-z 0-9 . _ : @ - (and not . or ..)", field)
	}
}

func (c *checks) currency(field, value string) {
	if !currencyForm.MatchString(value) {
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

// span reads a Go duration string from low to high, of whole microseconds, which is how finely times are kept, or of whole
// seconds. example is such a duration, in quotes.
func (c *checks) span(field, value, example string, low, high, unit time.Duration) time.Duration {
	d, err := time.ParseDuration(value)
	if err != nil || d < low || d > high || d%unit != 0 {
		units := map[time.Duration]string{time.Microsecond: "microseconds", time.Second: "seconds"}
		c.fail("%s must be a duration such as %s, from %s to %s, in whole %s", field, example, low, high, units[unit])
	}
	return d
}

// pathUUID reads an id that the server made from the path. What is not one names nothing, so it is not found.
func pathUUID(s, what string) (uuid.UUID, error) {
	// Other spellings of the same id (upper case, braces) would make other paths, and so other keys, of one object.
	id, err := uuid.Parse(s)
	if err != nil || id.String() != s {
		return uuid.UUID{}, &refusal{Kind: edge.NotFound, Detail: "there is no such " + what}
	}
	return id, nil
}

// pathID finds the id in the path. what names the kind of thing that it is of.
func pathID(what string) func(*http.Request) (uuid.UUID, error) {
	return func(r *http.Request) (uuid.UUID, error) { return pathUUID(r.PathValue("id"), what) }
}

// pathAccount reads an account's id from the path.
func pathAccount(s string) (string, error) {
	if !auth.ValidAccount(s) {
		return "", &refusal{Kind: edge.NotFound, Detail: "there is no such account"}
	}
	return s, nil
}
