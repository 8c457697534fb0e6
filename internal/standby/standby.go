// Package standby says, in a context, that a read may be answered by a standby of the database, and which commits it has to see.
//
// Whoever takes the request says so ([Allow]), and whoever reads asks ([Allowed]); what lies between need not know of standbys.
package standby

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
)

// Position is a place in the primary's write-ahead log (an LSN): who has replayed it sees every commit before it.
type Position uint64

// ErrMalformed is returned by [Parse].
var ErrMalformed = errors.New("a position is two hexadecimal numbers of up to eight digits with a slash between them, such as 16/B374D848")

// Parse reads a position as PostgreSQL writes it. It returns [ErrMalformed].
func Parse(text string) (Position, error) {
	high, low, ok := strings.Cut(text, "/")
	h, err := strconv.ParseUint(high, 16, 32)
	l, wrong := strconv.ParseUint(low, 16, 32)
	if !ok || err != nil || wrong != nil {
		return 0, ErrMalformed
	}
	return Position(h<<32 | l), nil
}

// String is what [Parse] reads.
func (p Position) String() string { return fmt.Sprintf("%X/%X", uint64(p)>>32, uint64(p)&0xFFFFFFFF) }

type key struct{}

// scope is what [Allow] puts into a context.
type scope struct {
	after      Position
	used, left atomic.Bool
}

// Allow marks the reads of a context as ones that a standby may answer which has replayed after. used reports whether it has answered one.
func Allow(ctx context.Context, after Position) (allowed context.Context, used func() bool) {
	s := &scope{after: after}
	return context.WithValue(ctx, key{}, s), s.used.Load
}

// Allowed returns what [Allow] has said, and what is to be called with whether a standby has answered a read. Once one could not, none may answer what
// is read after that: it may lack what the primary has shown.
func Allowed(ctx context.Context) (after Position, answered func(byStandby bool), ok bool) {
	s, ok := ctx.Value(key{}).(*scope)
	if !ok || s.left.Load() {
		return 0, nil, false
	}
	return s.after, func(byStandby bool) {
		if byStandby {
			s.used.Store(true)
		} else {
			s.left.Store(true)
		}
	}, true
}
