package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// listed is a package as go list describes it.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
	ImportMap               map[string]string
}

// checker does what the compiler does before it generates code, which takes a tenth of the time.
type checker struct {
	packages map[string]listed // by directory
	exports  map[string]string // what packages export, by import path
	files    *token.FileSet
	imports  types.Importer
}

// newChecker has the module's packages compiled as they are, unless they are already.
func newChecker(ctx context.Context) (*checker, error) {
	list := exec.CommandContext(ctx, "go", "list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles,ImportMap", "./...")
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	c := &checker{packages: map[string]listed{}, exports: map[string]string{}, files: token.NewFileSet()}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		c.packages[p.Dir], c.exports[p.ImportPath] = p, p.Export
	}
	c.imports = importer.ForCompiler(c.files, "gc", func(path string) (io.ReadCloser, error) { return os.Open(c.exports[path]) })
	return c, nil
}

// check checks the package of a directory with some of its files replaced.
func (c *checker) check(dir string, replace map[string]string) error {
	p, ok := c.packages[dir]
	if !ok {
		return fmt.Errorf("no package in %s", dir)
	}
	var parsed []*ast.File
	for _, name := range p.GoFiles {
		path := filepath.Join(p.Dir, name)
		if patched, ok := replace[path]; ok {
			path = patched
		}
		f, err := parser.ParseFile(c.files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		parsed = append(parsed, f)
	}
	var failures []error
	config := types.Config{
		Sizes: types.SizesFor("gc", runtime.GOARCH), Importer: mapped{c.imports, p.ImportMap}, Error: func(err error) { failures = append(failures, err) },
	}
	_, _ = config.Check(p.ImportPath, c.files, parsed, nil) // Error has them all.
	return errors.Join(failures...)
}

// mapped imports by the paths that a package's files name.
type mapped struct {
	types.Importer

	paths map[string]string
}

// Import returns a package.
func (m mapped) Import(path string) (*types.Package, error) {
	if other, ok := m.paths[path]; ok {
		path = other
	}
	return m.Importer.Import(path)
}
