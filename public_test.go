package fairlead

import (
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestPublic walks every exported name outside internal/, and wants none to mention a type that only this module can name.
func TestPublic(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", "./...").Output()
	testwait.Must(t, err)
	exports := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		exports[path] = file
	}
	load := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	walked := 0
	for path, file := range exports {
		if !strings.HasPrefix(path, module) || internal(path) || file == "" || strings.Contains(path, "/cmd/") || strings.Contains(path, "/examples/") {
			continue
		}
		pkg, err := load.Import(path)
		testwait.Must(t, err)
		walked++
		for _, name := range pkg.Scope().Names() {
			if o := pkg.Scope().Lookup(name); o.Exported() {
				for _, where := range hidden(o) {
					t.Errorf("%s: %s", path, where)
				}
			}
		}
	}
	if walked < 15 {
		t.Errorf("only %d packages were walked", walked)
	}
}

func internal(path string) bool { return strings.Contains(path, "/internal/") }

// hidden lists where an exported name mentions a type of internal/.
func hidden(o types.Object) (where []string) {
	look := func(what string, t types.Type) {
		if mentions(t, map[types.Type]bool{}) {
			where = append(where, what+" "+t.String())
		}
	}
	name, ok := o.(*types.TypeName)
	if !ok || name.IsAlias() {
		look(o.Name(), o.Type())
		return where
	}
	switch under := o.Type().Underlying().(type) {
	case *types.Struct:
		for f := range under.Fields() {
			if f.Exported() {
				look(o.Name()+"."+f.Name(), f.Type())
			}
		}
	default:
		look(o.Name(), under)
	}
	if named, ok := o.Type().(*types.Named); ok {
		for m := range named.Methods() {
			if m.Exported() {
				look(o.Name()+"."+m.Name(), m.Signature())
			}
		}
	}
	return where
}

// mentions reports whether a type names one of internal/. The packages of other names are walked for themselves.
func mentions(t types.Type, seen map[types.Type]bool) bool {
	if seen[t] {
		return false
	}
	seen[t] = true
	tuple := func(v *types.Tuple) bool {
		for x := range v.Variables() {
			if mentions(x.Type(), seen) {
				return true
			}
		}
		return false
	}
	switch t := types.Unalias(t).(type) {
	case *types.Named:
		if p := t.Obj().Pkg(); p != nil && strings.HasPrefix(p.Path(), module) && internal(p.Path()) {
			return true
		}
		for arg := range t.TypeArgs().Types() {
			if mentions(arg, seen) {
				return true
			}
		}
	case interface{ Elem() types.Type }: // Pointers, slices, arrays, channels and maps.
		if m, ok := t.(*types.Map); ok && mentions(m.Key(), seen) {
			return true
		}
		return mentions(t.Elem(), seen)
	case *types.Signature:
		return tuple(t.Params()) || tuple(t.Results())
	case *types.Struct:
		for f := range t.Fields() {
			if f.Exported() && mentions(f.Type(), seen) {
				return true
			}
		}
	case *types.Interface:
		for m := range t.Methods() {
			if m.Exported() && mentions(m.Signature(), seen) {
				return true
			}
		}
	}
	return false
}
