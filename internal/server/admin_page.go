package server

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"net/http"
	"net/url"
	"reflect"
	"strings"

	"github.com/google/uuid"
)

// textCursor is cursor for lists whose places are ids and not numbers.
func textCursor(path, place string) string {
	sum := sha256.Sum256([]byte(path + "?after=" + place))
	return hex.EncodeToString([]byte(place)) + "." + hex.EncodeToString(sum[:4])
}

// readTextCursor finds the place that a cursor names; it is empty where none is given.
func readTextCursor(path, value string) (string, error) {
	if value == "" {
		return "", nil
	}
	digits, _, _ := strings.Cut(value, ".")
	place, err := hex.DecodeString(digits)
	var c checks
	c.name("after", string(place)) // Anybody can make the check that a cursor carries.
	if err != nil || c.err != nil || textCursor(path, string(place)) != value {
		return "", refuse("after must be the next of an earlier answer")
	}
	return string(place), nil
}

// textPage is page for lists whose places are ids.
type textPage struct {
	limit int
	after string
}

// parseIDPage reads ?limit= and ?after= of a list whose places are ids that the server made.
func parseIDPage(r *http.Request) (textPage, error) {
	p, err := parseTextPage(r)
	if err == nil && p.after != "" {
		if id, malformed := uuid.Parse(p.after); malformed != nil || id.String() != p.after {
			err = refuse("after must be the next of an earlier answer")
		}
	}
	return p, err
}

// parseTextPage reads ?limit= and ?after= of a list whose places are names.
func parseTextPage(r *http.Request) (textPage, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return textPage{}, refuse("the query is malformed")
	}
	after, given := q["after"]
	q.Del("after")
	p, err := readPage(r.URL.Path, q.Encode())
	if err != nil || !given {
		return textPage{limit: p.limit}, err
	}
	if len(after) > 1 || after[0] == "" {
		return textPage{}, refuse("after must be the next of an earlier answer")
	}
	place, err := readTextCursor(r.URL.Path, after[0])
	return textPage{limit: p.limit, after: place}, err
}

// before is the id below which a page of a list that goes back in time is.
func (p textPage) before() uuid.UUID {
	if id, err := uuid.Parse(p.after); err == nil {
		return id
	}
	return uuid.Max
}

// before is the number below which a page of a list that goes back in time is.
func (p page) before() int64 {
	if p.after > 0 {
		return p.after
	}
	return math.MaxInt64
}

// newTextList is newList for lists whose places are ids.
func newTextList[R, T any](r *http.Request, rows []R, limit int, item func(R) T, place func(R) string) list[T] {
	out := list[T]{Items: make([]T, 0, min(len(rows), limit))}
	for i, row := range rows {
		if i == limit {
			next := textCursor(r.URL.Path, place(rows[i-1]))
			out.Next = &next
			break
		}
		out.Items = append(out.Items, item(row))
	}
	return out
}

// filtered documents a list with filters, given as name and description in turn.
func filtered(o operation, filters ...string) operation {
	for i := 0; i+1 < len(filters); i += 2 {
		o.query = append(o.query, parameter{name: filters[i], doc: filters[i+1], schema: reflect.TypeFor[string]()})
	}
	return o
}
