package server

import (
	"bytes"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestCatalogue looks for every code that the server's source has in the catalogue, on the page that problems link to, and in the copy
// that the repository keeps.
func TestCatalogue(t *testing.T) {
	t.Parallel()
	codes := codesInSource(t)
	if len(codes) < 55 {
		t.Errorf("only %d codes were found", len(codes))
	}
	page := newEnv(t).by("").get("/docs/problems").want(http.StatusOK)
	if got := page.header.Get("Content-Type"); got != "text/html; charset=utf-8" {
		t.Errorf("the page is %s", got)
	}
	for code, place := range codes {
		e, found := explain(code)
		if !found {
			t.Errorf("%s: %s is not in the catalogue: add its kind to catalogue.go", place, code)
			continue
		}
		if e.Text == "" {
			t.Errorf("%s: %s is not explained: add it to explanations.go", place, code)
		}
		if !bytes.Contains(page.body, []byte(`<section id="`+code+`">`)) {
			t.Errorf("%s is not on the page", code)
		}
		for _, k := range e.Kinds {
			if k.Status != e.Kinds[0].Status || k.Retryable != e.Kinds[0].Retryable {
				t.Errorf("%s has two meanings: %v", code, e.Kinds)
			}
		}
	}
	for code := range explanations {
		if _, found := codes[code]; !found {
			t.Errorf("%s is explained, and nothing has it", code)
		}
	}
	file, err := os.ReadFile("../../docs/problems.md")
	must(t, err)
	if !bytes.Equal(file, ProblemsDocument()) {
		t.Error("docs/problems.md is not what the code makes: run scripts/generate.sh")
	}
}

// codesInSource finds what is written as the Code of a problem's kind, and where.
func codesInSource(t *testing.T) map[string]string {
	t.Helper()
	codes := map[string]string{}
	must(t, filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(gotoken.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if member, ok := n.(*ast.KeyValueExpr); ok {
				name, _ := member.Key.(*ast.Ident)
				if value, ok := member.Value.(*ast.BasicLit); ok && name != nil && name.Name == "Code" && value.Kind == gotoken.STRING {
					code, _ := strconv.Unquote(value.Value)
					codes[code] = path
				}
			}
			return true
		})
		return nil
	}))
	return codes
}
