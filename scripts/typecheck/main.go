// Command typecheck checks that this module's packages compile for other systems, which it names by their GOOS and GOARCH:
//
//	go run ./scripts/typecheck darwin/arm64 windows/amd64
//
// It does what the compiler does before it generates code, which takes a twentieth of the time of a build: what fails on one system
// alone is a name that is missing there, or of another type.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// listed is a package as go list describes it.
type listed struct {
	ImportPath, Dir string
	GoFiles         []string
	ImportMap       map[string]string
	Module          *struct{ Main bool }
}

func main() {
	for _, system := range os.Args[1:] {
		n, err := check(system)
		if err != nil {
			fmt.Fprintf(os.Stderr, "typecheck: %s:\n%v\n", system, err)
			os.Exit(1)
		}
		fmt.Printf("typecheck: %d packages for %s\n", n, system)
	}
}

// check checks the packages of the working directory's module, in the order of their dependencies, and returns how many those are.
func check(system string) (own int, err error) {
	goos, goarch, _ := strings.Cut(system, "/")
	list := exec.Command("go", "list", "-deps", "-json=ImportPath,Dir,GoFiles,ImportMap,Module", "./...") //nolint:noctx // It ends by itself.
	list.Env = append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0")
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return 0, fmt.Errorf("go list: %w", err)
	}
	done := map[string]*types.Package{"unsafe": types.Unsafe}
	var failures []error
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return own, errors.Join(failures...)
		} else if err != nil {
			return 0, err
		}
		if p.ImportPath == "unsafe" {
			continue
		}
		main := p.Module != nil && p.Module.Main
		if main {
			own++
		}
		files := token.NewFileSet()
		var parsed []*ast.File
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				return 0, err
			}
			parsed = append(parsed, f)
		}
		config := types.Config{
			Sizes: types.SizesFor("gc", goarch), IgnoreFuncBodies: !main, Importer: importer{done, p.ImportMap},
			Error: func(err error) { failures = append(failures, err) },
		}
		done[p.ImportPath], _ = config.Check(p.ImportPath, files, parsed, nil) // Error has them all.
	}
}

// importer finds the packages that were checked before, by the paths that a package's files name.
type importer struct {
	done   map[string]*types.Package
	mapped map[string]string
}

// Import returns a package.
func (i importer) Import(path string) (*types.Package, error) {
	if other, ok := i.mapped[path]; ok {
		path = other
	}
	if p := i.done[path]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("no package %s", path)
}
