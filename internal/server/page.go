package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
)

// Page limits of lists.
const (
	defaultLimit = 50
	maxLimit     = 200
)

// list is a page of items.
type list[T any] struct {
	Items []T     `json:"items"`
	Next  *string `json:"next" doc:"cursor of the next page, null on the last"`
}

// order says where a list begins, and how the places of its rows are written in cursors.
type order[P any] struct {
	begin P
	// write makes the cursor of a place in the list at path.
	write func(path string, place P) string
	// read finds the place in a cursor's first part. What it accepts and write would spell otherwise is refused by the caller.
	read func(digits string) (P, bool)
}

// oldestFirst orders a list by numbers from 1; rows are those with a greater number than the place.
func oldestFirst() order[int64] {
	return order[int64]{write: cursor, read: func(digits string) (int64, bool) {
		n, err := strconv.ParseInt(digits, 36, 64)
		return n, err == nil && n > 0
	}}
}

// newestFirst is oldestFirst backwards; rows are those with a smaller number.
func newestFirst() order[int64] {
	o := oldestFirst()
	o.begin = math.MaxInt64
	return o
}

// byName orders a list by text.
func byName() order[string] {
	return order[string]{write: textCursor, read: func(digits string) (string, bool) {
		place, err := hex.DecodeString(digits)
		var c checks
		c.name("after", string(place)) // Anybody can make the check that a cursor carries.
		return string(place), err == nil && c.err == nil
	}}
}

// newestIDs orders a list backwards by ids that the server made.
func newestIDs() order[uuid.UUID] {
	return order[uuid.UUID]{
		begin: uuid.Max,
		write: func(path string, id uuid.UUID) string { return textCursor(path, id.String()) },
		read: func(digits string) (id uuid.UUID, ok bool) {
			place, err := hex.DecodeString(digits)
			if err == nil {
				id, err = uuid.Parse(string(place))
			}
			return id, err == nil
		},
	}
}

// cursor names a place in the list at path: the place in base 36, and a checksum that binds it to that list. A cursor
// that was made up, cut short, or belongs to another list fails the check.
func cursor(path string, place int64) string {
	n := strconv.FormatInt(place, 36)
	return n + "." + cursorCheck(path, n)
}

// textCursor is cursor for lists whose places are text.
func textCursor(path, place string) string {
	return hex.EncodeToString([]byte(place)) + "." + cursorCheck(path, place)
}

func cursorCheck(path, place string) string {
	sum := sha256.Sum256([]byte(path + "?after=" + place))
	return hex.EncodeToString(sum[:4])
}

// page is the part of a list that a request asks for.
type page[P any] struct {
	order order[P]
	path  string // of the list, as cursors have it
	limit int
	after P // the place of the last item before the page
}

// parsePage reads ?limit=, which is at most most, and ?after= of the list at path.
func parsePage[P any](r *http.Request, path string, most int, o order[P]) (page[P], error) {
	p := page[P]{order: o, path: path, limit: defaultLimit, after: o.begin}
	q := r.URL.Query()
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
		place, ok := o.read(digits)
		if !ok || o.write(path, place) != v[0] {
			return p, refuse("after must be the next of an earlier answer")
		}
		p.after = place
	}
	return p, nil
}

// newList makes the answer from up to limit+1 rows: the one too many says that there is a next page.
func newList[R, T, P any](p page[P], rows []R, item func(R) T, place func(R) P) list[T] {
	out := list[T]{Items: make([]T, 0, min(len(rows), p.limit))}
	for i, row := range rows {
		if i == p.limit {
			out.Next = new(p.order.write(p.path, place(rows[i-1])))
			break
		}
		out.Items = append(out.Items, item(row))
	}
	return out
}

// writePage answers with the page of the list at path that r asks for. rows reads up to limit rows behind a place.
func writePage[R, T, P any](
	w http.ResponseWriter, r *http.Request, path string, o order[P], rows func(after P, limit int) ([]R, error), item func(R) T, place func(R) P,
) error {
	p, err := parsePage(r, path, maxLimit, o)
	if err != nil {
		return err
	}
	found, err := rows(p.after, p.limit+1)
	if err != nil {
		return err
	}
	return writeView(w, newList(p, found, item, place))
}

// filter narrows a list by a query parameter, which is any text, or one of those known.
type filter struct {
	name, doc string
	known     []string
	beside    bool // whether it may be given beside others
}

// beside is a filter that may be given beside others.
func beside(f filter) filter {
	f.beside = true
	return f
}

// withStatus narrows a list to one of the known statuses.
func withStatus[S ~string](known ...S) filter {
	return filter{name: "status", doc: "only those of this status", known: as[[]string](known)}
}

// listRoute is a list's route. It is narrowed by one of its filters at most, unless they may be given beside others.
func listRoute[R, T, P any](
	path string, a access, summary string, o order[P], rows func(r *http.Request, after P, limit int) ([]R, error), item func(R) T, place func(R) P, filters ...filter,
) route {
	list := get(path, a, paged[T](summary), func(w http.ResponseWriter, r *http.Request) error {
		path, given := r.URL.Path, 0
		for _, f := range filters {
			value, err := one(r, f.name)
			if err != nil {
				return err
			}
			if value == "" {
				continue
			}
			if f.known != nil && !slices.Contains(f.known, value) {
				return refuse("%s must be one of %v", f.name, f.known)
			}
			if given++; given > 1 && !f.beside { // Of the lists, the audit log alone has several.
				return refuse("the log is narrowed by one of action, object and principal")
			}
			path = narrowed(path, f.name, value)
		}
		return writePage(w, r, path, o, func(after P, limit int) ([]R, error) { return rows(r, after, limit) }, item, place)
	})
	for _, f := range filters {
		list = filtered(list, f.name, f.doc)
	}
	return stale(list)
}

// narrowed is a list's path with a filter, so that a cursor of one filter is refused with another.
func narrowed(path, name, value string) string {
	if value == "" {
		return path
	}
	return path + "?" + name + "=" + value
}

// rowsWith reads the rows of what a finder has found.
func rowsWith[A, R, P any](first func(*http.Request) (A, error), rows func(ctx context.Context, a A, after P, limit int) ([]R, error)) func(*http.Request, P, int) ([]R, error) {
	return func(r *http.Request, after P, limit int) ([]R, error) {
		a, err := first(r)
		if err != nil {
			return nil, err
		}
		return rows(r.Context(), a, after, limit)
	}
}

// asked finds the value of a filter.
func asked[S ~string](name string) func(*http.Request) (S, error) {
	return func(r *http.Request) (S, error) { return S(r.URL.Query().Get(name)), nil }
}

// rowsOf reads the rows of a list that is the same for all.
func rowsOf[R any](rows func(ctx context.Context, after int64, limit int) ([]R, error)) func(*http.Request, int64, int) ([]R, error) {
	return func(r *http.Request, after int64, limit int) ([]R, error) { return rows(r.Context(), after, limit) }
}
