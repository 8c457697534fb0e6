package replay

import (
	"cmp"
	"fmt"
	"reflect"
	"strings"
	"time"
)

// Difference is the first thing that the server says otherwise than the auditor recomputes it. Returned by everything
// that compares.
type Difference struct {
	// Seq is the event's sequence number; 0 for an answer that is no event.
	Seq int64
	// What names the field, by its path, or the rule.
	What string
	// Said is what the server says, Recomputed what it should be.
	Said, Recomputed string
}

// Error tells the difference in one line.
func (d *Difference) Error() string {
	where := "answer"
	if d.Seq > 0 {
		where = fmt.Sprintf("event %d", d.Seq)
	}
	return fmt.Sprintf("%s: %s: the server says %s, recomputed %s", where, d.What, d.Said, d.Recomputed)
}

// differ keeps the first difference of one comparison.
type differ struct {
	seq   int64
	first *Difference
}

func (d *differ) note(what, said, recomputed string) {
	if d.first == nil {
		d.first = &Difference{Seq: d.seq, What: what, Said: said, Recomputed: recomputed}
	}
}

// err is the difference as an error, and a true nil where there is none.
func (d *differ) err() error {
	if d.first == nil {
		return nil
	}
	return d.first
}

func same[T comparable](d *differ, what string, said, recomputed T) {
	if said != recomputed {
		d.note(what, fmt.Sprintf("%+v", said), fmt.Sprintf("%+v", recomputed))
	}
}

// wrongTime notes a time that is on the wrong side of a bound, which it may be equal to.
func wrongTime(d *differ, what string, said, bound time.Time) {
	d.note(what, said.Format(time.RFC3339Nano), bound.Format(time.RFC3339Nano))
}

// Compare compares an answer of the server with what the events come to, part by part: values of one type. The answer must be of
// the same moment as the last event. The error is a *[Difference], the first.
func Compare(what string, said, recomputed any) error {
	d := &differ{}
	deep(d, what, said, recomputed)
	return d.err()
}

// deep compares two values of one type part by part, times as moments. It names a part by its path, such as rounds[0].ends_at.
func deep(d *differ, path string, said, recomputed any) {
	deepValue(d, path, reflect.ValueOf(said), reflect.ValueOf(recomputed))
}

func deepValue(d *differ, path string, said, recomputed reflect.Value) {
	if s, isTime := reflect.TypeAssert[time.Time](said); isTime {
		if r, _ := reflect.TypeAssert[time.Time](recomputed); !s.Equal(r) {
			wrongTime(d, path, s, r)
		}
		return
	}
	switch said.Kind() {
	case reflect.Pointer:
		same(d, "presence of "+path, !said.IsNil(), !recomputed.IsNil())
		if !said.IsNil() && !recomputed.IsNil() {
			deepValue(d, path, said.Elem(), recomputed.Elem())
		}
	case reflect.Slice:
		same(d, "length of "+path, said.Len(), recomputed.Len())
		for i := range min(said.Len(), recomputed.Len()) {
			deepValue(d, fmt.Sprintf("%s[%d]", path, i), said.Index(i), recomputed.Index(i))
		}
	case reflect.Map:
		same(d, "length of "+path, said.Len(), recomputed.Len())
		for key, v := range recomputed.Seq2() {
			if s := said.MapIndex(key); s.IsValid() {
				deepValue(d, fmt.Sprintf("%s[%v]", path, key), s, v)
			} else {
				same(d, fmt.Sprintf("presence of %s[%v]", path, key), false, true)
			}
		}
	case reflect.Struct:
		for f, v := range said.Fields() {
			name := cmp.Or(f.Tag.Get("json"), strings.ToLower(f.Name))
			deepValue(d, strings.TrimPrefix(path+"."+name, "."), v, recomputed.FieldByIndex(f.Index))
		}
	default:
		same(d, path, said.Interface(), recomputed.Interface())
	}
}
