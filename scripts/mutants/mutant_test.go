package main

import (
	"errors"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const example = `Breaks: The limit lets one too many through.
Guarantee: W1
Test: ./a/b ^TestLimit$/^of_two$

--- a/a/b/limit.go
+++ b/a/b/limit.go
@@ -1,1 +1,1 @@
-if n >= limit {
+if n > limit {
`

func TestParse(t *testing.T) {
	m, err := parse("limit", example)
	if err != nil {
		t.Fatal(err)
	}
	if m.name != "limit" || m.breaks != "The limit lets one too many through." || m.guarantee != "W1" || m.pkg != "./a/b" || m.run != "^TestLimit$/^of_two$" ||
		!slices.Equal(m.files, []string{"a/b/limit.go"}) {
		t.Errorf("%+v", m)
	}
	for _, bad := range []string{
		"", "Breaks: x\n", strings.Replace(example, "W1", "", 1), strings.Replace(example, "Breaks", "Brakes", 1), strings.Replace(example, " ^TestLimit$/^of_two$", "", 1),
		strings.Replace(example, "Guarantee: W1\n", "", 1), "Breaks: again\n" + example, strings.Replace(example, "+++ b/", "+++ ", 1),
	} {
		if m, err := parse("bad", bad); err == nil {
			t.Errorf("%q is %+v", bad, m)
		}
	}
}

func TestFoundAfter(t *testing.T) {
	failed := errors.New("exit status 1")
	for out, want := range map[string]int{
		"--- FAIL: TestExplored/locks\n    explore_test.go:70: FAIRLEAD_SEED=16: two hold it\n": 17,
		"    explore_test.go:51: the schedule without faults: 3 of 2 were sold\n":               1,
	} {
		if n, err := foundAfter(out, failed); n != want || err != nil {
			t.Errorf("%q: %d, %v", out, n, err)
		}
	}
	if n, err := foundAfter("ok\n", nil); n != 0 || err != nil {
		t.Errorf("a test that passed: %d, %v", n, err)
	}
	for out, err := range map[string]error{"panic: test timed out\n": failed, "testing: warning: no tests to run\n": nil} {
		if n, err := foundAfter(out, err); err == nil {
			t.Errorf("%q: %d", out, n)
		}
	}
}

func TestExploredPage(t *testing.T) {
	page := exploredPage([]*mutant{{name: "a", breaks: "x|y", scenario: "locks", found: 7}, {name: "b", breaks: "z", scenario: "late bids"}}, 40)
	for _, line := range []string{"| [a](../../scripts/mutants/bugs/a.patch) | x\\|y | locks | 7 |\n", "| [b](../../scripts/mutants/bugs/b.patch) | z | late bids | not found |\n", "40 schedules", " 1 were found"} {
		if !strings.Contains(page, line) {
			t.Errorf("%q is not in\n%s", line, page)
		}
	}
}

func TestFailures(t *testing.T) {
	const output = `--- FAIL: TestA (0.00s)
    --- FAIL: TestA/one (0.00s)
        a_test.go:1: no
    --- PASS: TestA/two (0.00s)
--- FAIL: TestAB (1.00s)
FAIL
`
	if got := failures(output); !slices.Equal(got, []string{"TestA", "TestAB"}) {
		t.Errorf("%q", got)
	}
	for _, none := range []string{"ok  \tpackage\t0.1s\n", "panic: test timed out after 1s\nFAIL\tpackage\n", "FAIL\tpackage [build failed]\n"} {
		if got := failures(none); len(got) > 0 {
			t.Errorf("%q: %q", none, got)
		}
	}
}

func TestPage(t *testing.T) {
	m, err := parse("limit", strings.Replace(example, "The limit", "The limit|bound", 1))
	if err != nil {
		t.Fatal(err)
	}
	m.failed = []string{"TestA", "TestB", "TestC", "TestD"}
	const row = "| [limit](../../scripts/mutants/bugs/limit.patch) | The limit\\|bound lets one too many through. | W1 | `a/b`: `TestA`, `TestB`, `TestC`, 1 more | 0.0 |\n"
	if text := page([]*mutant{m}, 0); !strings.HasSuffix(text, row) {
		t.Error(text)
	}
}

func TestChecker(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("package a\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	whole := write("a.go", "func f() int { return g() }")
	write("b.go", "func g() int { return 1 }")
	c := &checker{packages: map[string]listed{dir: {ImportPath: "a", Dir: dir, GoFiles: []string{"a.go", "b.go"}}}, files: token.NewFileSet()}
	for text, good := range map[string]bool{
		"func f() int { return -g() }": true, "func f() string { return g() }": false, "func f() int { n := g(); return 1 }": false, "func f() int { return h() }": false,
		"func f() int {": false,
	} {
		if err := c.check(dir, map[string]string{whole: write("patched", text)}); (err == nil) != good {
			t.Errorf("%s: %v", text, err)
		}
	}
}
