package postgres

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// verbs begin the statements of this package.
func verbs() []string {
	return []string{"SELECT", "INSERT", "UPDATE", "DELETE", "WITH", "LOCK", "MERGE", "TRUNCATE", "SET", "NOTIFY", "LISTEN"}
}

// statement is an SQL text and where it stands.
type statement struct{ sql, at string }

// source finds the SQL in Go files. It knows the string constants of the package, function-local ones included, whose
// names are therefore unique.
type source struct {
	fset      *token.FileSet
	constants map[string]ast.Expr
	found     []statement
	problems  []string
}

func newSource(fset *token.FileSet, files []*ast.File) *source {
	s := &source{fset: fset, constants: map[string]ast.Expr{}}
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok {
				for i, name := range spec.Names {
					if i < len(spec.Values) {
						s.constants[name.Name] = spec.Values[i]
					}
				}
			}
			return true
		})
	}
	for _, f := range files {
		ast.Inspect(f, s.visit)
	}
	return s
}

// visit looks at every outermost string expression.
func (s *source) visit(n ast.Node) bool {
	e, ok := n.(ast.Expr)
	if !ok {
		return true
	}
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind != token.STRING {
			return true
		}
	case *ast.BinaryExpr:
		if e.Op != token.ADD || s.leftmost(e) == "" {
			return true
		}
	default:
		return true
	}
	at := s.fset.Position(e.Pos()).String()
	word, _, _ := strings.Cut(strings.TrimSpace(s.leftmost(e)), " ")
	word = strings.TrimSpace(strings.SplitN(word, "\n", 2)[0])
	if !slices.Contains(verbs(), word) {
		return false
	}
	sql, ok := s.value(e)
	if !ok {
		s.problems = append(s.problems, at+": this statement is not made of constants")
		return false
	}
	s.found = append(s.found, statement{sql: sql, at: at})
	return false
}

// leftmost is the text that an expression begins with.
func (s *source) leftmost(e ast.Expr) string {
	if b, ok := e.(*ast.BinaryExpr); ok {
		return s.leftmost(b.X)
	}
	text, _ := s.value(e)
	return text
}

// value evaluates a constant string expression.
func (s *source) value(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil && e.Kind == token.STRING
	case *ast.Ident:
		if c, ok := s.constants[e.Name]; ok {
			return s.value(c)
		}
	case *ast.BinaryExpr:
		x, okX := s.value(e.X)
		y, okY := s.value(e.Y)
		return x + y, okX && okY && e.Op == token.ADD
	case *ast.ParenExpr:
		return s.value(e.X)
	}
	return "", false
}

// parsePackage parses the package's files, tests left out.
func parsePackage(t *testing.T) *source {
	t.Helper()
	names, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, entry := range names {
		name := entry.Name()
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	return newSource(fset, files)
}

// prepare prepares every statement and returns those that can't be.
func prepare(t *testing.T, conn *pgx.Conn, statements []statement) (failures []string) {
	t.Helper()
	for i, s := range statements {
		if _, err := conn.Prepare(t.Context(), fmt.Sprintf("s%d", i), s.sql); err != nil {
			failures = append(failures, fmt.Sprintf("%s: %v\n%s", s.at, err, s.sql))
		}
	}
	return failures
}

// TestEveryStatementCanBePrepared finds the SQL of this package in its source and prepares it on the migrated schema.
func TestEveryStatementCanBePrepared(t *testing.T) {
	t.Parallel()
	s := parsePackage(t)
	for _, p := range s.problems {
		t.Error(p)
	}
	// The search itself must not rot: these are there under their names, and so are many more.
	for _, sql := range []string{
		lockAccounts, selectHolds, insertKeys, updateAccounts, updateCampaign, lockCampaignRow, sumCurrencies, firstBadAccount, listKeys,
	} {
		if !slices.ContainsFunc(s.found, func(f statement) bool { return f.sql == sql }) {
			t.Errorf("not found in the source: %s", sql)
		}
	}
	if len(s.found) < 45 {
		t.Errorf("found %d statements", len(s.found))
	}
	db := open(t, Options{URL: database(t), MaxConns: 1})
	conn, err := db.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(t.Context(), makeScratch); err != nil { // What follows it needs it.
		t.Fatal(err)
	}
	s.found = append(s.found, statement{sql: claimDue(), at: "claimDue"})
	for _, f := range prepare(t, conn.Conn(), s.found) {
		t.Error(f)
	}
	t.Logf("%d statements", len(s.found))
}

// TestBrokenStatementsAreFound keeps the test above honest.
func TestBrokenStatementsAreFound(t *testing.T) {
	t.Parallel()
	const code = `package p
const fields = "id, available"
const fine = "SELECT " + fields + " FROM accounts"
const absent = "SELECT " + fields + ", colour FROM accounts"
func f(name string) {
	const inner = ` + "`\n\tUPDATE accounts SET colour = $1`" + `
	use("SELECT " + fields + " FROM " + name)
	use("selected by hand, and no statement", 1 + 2, "an UPDATE within")
}`
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "p.go", code, 0)
	if err != nil {
		t.Fatal(err)
	}
	s := newSource(fset, []*ast.File{f})
	if len(s.problems) != 1 || len(s.found) != 3 {
		t.Fatalf("found %q, problems %q", s.found, s.problems)
	}
	db := open(t, Options{URL: database(t), MaxConns: 1})
	conn, err := db.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if failures := prepare(t, conn.Conn(), s.found); len(failures) != 2 {
		t.Errorf("failures %q", failures)
	}
}
