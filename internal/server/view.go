package server

import (
	"encoding/hex"
	"fmt"
	"reflect"
	"strings"
	"sync"
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
