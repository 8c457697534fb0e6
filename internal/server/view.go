package server

import (
	"encoding/hex"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/server/edge"
)

// as makes the view V of what a service has: a field of the view gets the value of the field of the same name, or of the one
// whose path its tag from names. A view that says more marks those fields with from:"-" and sets them itself. Values are
// converted where the contract spells them otherwise: times, durations, hashes as hex, and a pointer in the view is null for a
// zero value. A view that does not fit its source panics at its first use. Hot routes spell their few views out.
func as[V, R any](r R) V {
	var v V
	dst, src := reflect.ValueOf(&v).Elem(), reflect.Indirect(reflect.ValueOf(r))
	key := [2]reflect.Type{dst.Type(), src.Type()}
	set, ok := assignments.Load(key)
	if !ok {
		set, _ = assignments.LoadOrStore(key, assignment(dst.Type(), src.Type()))
	}
	set.(func(dst, src reflect.Value))(dst, src) //nolint:errcheck,forcetypeassert // The map has nothing else.
	return v
}

//nolint:gochecknoglobals // What two types have in common never changes.
var assignments sync.Map // of a view's type and its source's

// assignment finds how a value of one type is set from one of another.
func assignment(to, from reflect.Type) func(dst, src reflect.Value) {
	switch {
	case to == from:
		return reflect.Value.Set
	case to.Kind() == from.Kind() && from.ConvertibleTo(to):
		return func(dst, src reflect.Value) { dst.Set(src.Convert(to)) }
	case to.Kind() == reflect.Pointer && from.Kind() != reflect.Pointer:
		set := assignment(to.Elem(), from)
		return func(dst, src reflect.Value) {
			if !src.IsZero() {
				dst.Set(reflect.New(to.Elem()))
				set(dst.Elem(), src)
			}
		}
	case to.Kind() == reflect.Slice && from.Kind() == reflect.Slice:
		set := assignment(to.Elem(), from.Elem())
		return func(dst, src reflect.Value) {
			dst.Set(reflect.MakeSlice(to, src.Len(), src.Len()))
			for i := range src.Len() {
				set(dst.Index(i), src.Index(i))
			}
		}
	case to.Kind() == reflect.String && from.ConvertibleTo(reflect.TypeFor[[32]byte]()):
		return func(dst, src reflect.Value) {
			b := make([]byte, src.Len())
			reflect.Copy(reflect.ValueOf(b), src)
			dst.SetString(hex.EncodeToString(b))
		}
	case to.Kind() == reflect.Struct && from.Kind() == reflect.Struct:
		return fieldByField(to, from)
	}
	panic(fmt.Sprintf("server: a %s cannot be shown as a %s", from, to))
}

func fieldByField(to, from reflect.Type) func(dst, src reflect.Value) {
	var all []func(dst, src reflect.Value)
	for i := range to.NumField() {
		path := to.Field(i).Tag.Get("from")
		if path == "-" {
			continue
		}
		if path == "" {
			path = to.Field(i).Name
		}
		source, index := from, []int{}
		for name := range strings.SplitSeq(path, ".") {
			f, ok := source.FieldByName(name)
			if !ok {
				panic(fmt.Sprintf("server: %s shows %s of %s, which has none", to, path, from))
			}
			source, index = f.Type, append(index, f.Index...)
		}
		set := assignment(to.Field(i).Type, source)
		all = append(all, func(dst, src reflect.Value) { set(dst.Field(i), src.FieldByIndex(index)) })
	}
	return func(dst, src reflect.Value) {
		for _, set := range all {
			set(dst, src)
		}
	}
}

// appender is a document of a hot route, which says itself how it is spelt: exactly as the encoder would spell it, at a
// fifth of the cost. Answers are spelt inside the transaction, one after the other, so this is time that all of a batch
// wait for.
type appender interface {
	// appendJSON appends the document to b. Its strings are valid UTF-8, as all that was decoded is.
	appendJSON(b []byte) []byte
}

func (q *transferRequest) appendJSON(b []byte) []byte {
	if q.Legs != nil || q.From == nil || q.To == nil || q.Amount == nil { // Rare: the encoder knows what is left out.
		return append(b, edge.Marshal(q)...)
	}
	b = appendString(append(b, `{"from":`...), *q.From)
	b = appendString(append(b, `,"to":`...), *q.To)
	b = strconv.AppendInt(append(b, `,"amount":`...), *q.Amount, 10)
	if q.Memo != "" {
		b = appendString(append(b, `,"memo":`...), q.Memo)
	}
	if q.Reference != nil {
		b = appendString(append(b, `,"reference":`...), *q.Reference)
	}
	return append(b, '}')
}

func (v transferView) appendJSON(b []byte) []byte {
	if v.Legs != nil {
		return append(b, edge.Marshal(v)...)
	}
	b = appendUUID(append(b, `{"id":`...), v.ID)
	b = appendString(append(b, `,"kind":`...), string(v.Kind))
	b = appendString(append(b, `,"from":`...), v.From)
	b = appendString(append(b, `,"to":`...), v.To)
	b = strconv.AppendInt(append(b, `,"amount":`...), v.Amount, 10)
	b = appendString(append(b, `,"currency":`...), v.Currency)
	b = appendString(append(b, `,"status":`...), string(v.Status))
	b = appendString(append(b, `,"reason":`...), v.Reason)
	b = appendString(append(b, `,"memo":`...), v.Memo)
	b = appendTime(append(b, `,"created_at":`...), v.CreatedAt)
	if b = append(b, `,"completed_at":`...); v.CompletedAt == nil {
		b = append(b, `null`...)
	} else {
		b = appendTime(b, *v.CompletedAt)
	}
	if v.Reference != "" {
		b = appendString(append(b, `,"reference":`...), v.Reference)
	}
	return append(b, '}')
}

func (q *bidRequest) appendJSON(b []byte) []byte {
	b = appendString(append(b, `{"account":`...), q.Account)
	b = strconv.AppendInt(append(b, `,"amount":`...), q.Amount, 10)
	return append(b, '}')
}

func (v bidView) appendJSON(b []byte) []byte {
	b = appendUUID(append(b, `{"auction":`...), v.Auction)
	b = appendString(append(b, `,"account":`...), v.Account)
	b = strconv.AppendInt(append(b, `,"amount":`...), v.Amount, 10)
	b = strconv.AppendInt(append(b, `,"previous_amount":`...), v.PreviousAmount, 10)
	b = strconv.AppendInt(append(b, `,"round":`...), int64(v.Round), 10)
	b = appendTime(append(b, `,"round_ends_at":`...), v.RoundEndsAt)
	b = strconv.AppendInt(append(b, `,"rank":`...), int64(v.Rank), 10)
	b = strconv.AppendInt(append(b, `,"seq":`...), v.Seq, 10)
	return append(b, '}')
}

func appendString(b []byte, s string) []byte {
	b, err := jsontext.AppendQuote(b, s)
	if err != nil {
		panic("server: a string could not be encoded: " + err.Error())
	}
	return b
}

func appendUUID(b []byte, id uuid.UUID) []byte {
	return append(append(append(b, '"'), id.String()...), '"')
}

func appendTime(b []byte, t timestamp) []byte {
	b = time.Time(t).UTC().AppendFormat(append(b, '"'), timestampLayout)
	return append(b, '"')
}
