package main

import (
	"errors"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
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
		strings.Replace(example, "Guarantee: W1\n", "", 1), "Breaks: again\n" + example, "Scenario: a\nUnexplored: b\n" + example, strings.Replace(example, "+++ b/", "+++ ", 1),
	} {
		if m, err := parse("bad", bad); err == nil {
			t.Errorf("%q is %+v", bad, m)
		}
	}
}

func TestReadFinding(t *testing.T) {
	failed := errors.New("exit status 1")
	for out, want := range map[string]finding{
		"--- FAIL: TestExplored/locks\n    explore_test.go:70: FAIRLEAD_SEED=16: two hold it\n":                                                    {by: "seed 16"},
		"explore_test.go:69: of 100 times more, seed 3 failed 99 times, with the same history 98 times\nexplore_test.go:70: FAIRLEAD_SEED=3: no\n": {"seed 3", "99 of 100, 98 the same"},
		"    explore_test.go:51: the schedule without faults: 3 of 2 were sold\n":                                                                  {by: "all"},
	} {
		if f, err := readFinding(out, failed, 40); f != want || err != nil {
			t.Errorf("%q: %+v, %v", out, f, err)
		}
	}
	if f, err := readFinding("ok\n", nil, 40); f != (finding{by: "none of 40"}) || err != nil {
		t.Errorf("a test that passed: %+v, %v", f, err)
	}
	for out, err := range map[string]error{"panic: test timed out\n": failed, "testing: warning: no tests to run\n": nil} {
		if f, err := readFinding(out, err, 40); err == nil {
			t.Errorf("%q: %+v", out, f)
		}
	}
}

func TestWithRow(t *testing.T) {
	a := &mutant{name: "a", breaks: "x|y", scenario: "locks", found: finding{"seed 7", "5 of 5, 5 the same"}}
	b := &mutant{name: "b", breaks: "z", scenario: "late bids", found: finding{by: "none of 40"}}
	page := "before\n" + beginExplored + "| [a](old) |\n| [gone](gone) |\n" + endExplored + "after\n"
	for _, m := range []*mutant{b, a} {
		var err error
		if page, err = withRow(page, m, []*mutant{a, b, {name: "c", breaks: "w", unexplored: "a guard hides it"}}); err != nil {
			t.Fatal(err)
		}
	}
	const want = "| [a](../../scripts/mutants/bugs/a.patch) | x\\|y | locks | seed 7 | 5 of 5, 5 the same |\n" +
		"| [b](../../scripts/mutants/bugs/b.patch) | z | late bids | none of 40 |  |\n" +
		"| [c](../../scripts/mutants/bugs/c.patch) | w | | a guard hides it | |\n\n" + endExplored + "after\n"
	if !strings.HasPrefix(page, "before\n"+beginExplored) || !strings.HasSuffix(page, "|---|\n"+want) {
		t.Error(page)
	}
	if _, err := withRow("no marks", a, nil); err == nil {
		t.Error("a page without marks")
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

// TestTable tries bugs in parts: lines of those that were not tried stay, and one that survives has none.
func TestTable(t *testing.T) {
	var all []*mutant
	for _, name := range []string{"a", "b", "c"} {
		m, err := parse(name, strings.Replace(example, "The limit", "The limit|bound", 1))
		if err != nil {
			t.Fatal(err)
		}
		m.failed = []string{"TestA", "TestB", "TestC", "TestD"}
		all = append(all, m)
	}
	names := func(some []*mutant) (names []string) {
		for _, m := range some {
			names = append(names, m.name)
		}
		return names
	}
	first := &table{commit: "0123456", lines: parseLines("")}
	if got := names(first.oldest(all, 2)); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("of no lines the oldest are %q", got)
	}
	now := time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
	first.tried(all[0], true, now)
	first.tried(all[1], true, now.Add(-time.Hour))
	page := first.page(all)
	const row = "\n| [a](../../scripts/mutants/bugs/a.patch) | The limit\\|bound lets one too many through. | W1 | `a/b`: `TestA`, `TestB`, `TestC`, 1 more | 0.0 | 2026-01-02 03:04 | 0123456 |\n"
	for _, want := range []string{row, "There are 3 bugs, and 2 of them were seen to be caught: 2 on 2026-01-02 at commit 0123456.", "have no line: `c`."} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is not in\n%s", want, page)
		}
	}
	second := &table{commit: "89abcde", lines: parseLines(page)}
	if got := names(second.oldest(all, 9)); !slices.Equal(got, []string{"c", "b", "a"}) {
		t.Errorf("the oldest are %q", got)
	}
	second.tried(all[1], false, now)
	second.tried(all[2], true, now.Add(48*time.Hour))
	page = second.page(all)
	for _, want := range []string{row, "2 of them were seen to be caught: 1 on 2026-01-02 at commit 0123456, 1 on 2026-01-04 at commit 89abcde. ", "have no line: `b`.", "| 2026-01-04 03:04 | 89abcde |"} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is not in\n%s", want, page)
		}
	}
}

// TestOpenTable refuses to name a commit for a source that was changed since.
func TestOpenTable(t *testing.T) {
	t.Chdir(t.TempDir())
	commit := func(args ...string) {
		t.Helper()
		if out, err := git(t.Context(), append([]string{"-c", "user.name=a", "-c", "user.email=a@b"}, args...)...); err != nil {
			t.Fatal(out, err)
		}
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("a.go", "package a\n")
	write("table.md", "")
	commit("init", "-q")
	commit("add", ".")
	commit("commit", "-q", "-m", "x")
	write("table.md", "changed")
	if opened, err := openTable(t.Context(), "table.md"); err != nil || len(opened.commit) < 7 {
		t.Errorf("%+v, %v", opened, err)
	}
	write("a.go", "package b\n")
	if _, err := openTable(t.Context(), "table.md"); err == nil || !strings.Contains(err.Error(), "a.go") {
		t.Errorf("a changed file: %v", err)
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
