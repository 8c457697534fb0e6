package fairlead

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

const requirementsPage = "docs/requirements.md"

// tree is the text of the repository's files by their path.
type tree map[string]string

func readTree(t *testing.T) tree {
	t.Helper()
	files := tree{}
	testwait.Must(t, filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (name != "." && strings.HasPrefix(d.Name(), ".") && d.Name() != ".github" || d.Name() == "node_modules"):
			return fs.SkipDir
		case !written.MatchString(name) || !d.Type().IsRegular():
			return nil
		}
		content, err := os.ReadFile(name)
		files[filepath.ToSlash(name)] = string(content)
		return err
	}))
	return files
}

// under returns the text of a file, or of all files directly in a directory, and whether there is any.
func (f tree) under(name string) (text string, found bool) {
	if text, found = f[name]; found {
		return text, true
	}
	for file, content := range f {
		if path.Dir(file) == strings.TrimSuffix(name, "/") {
			text, found = text+content+"\n", true
		}
	}
	return text, found
}

// tests returns the directories of the test functions, by the functions' names: by themselves, and behind the name of their directory.
func (f tree) tests() map[string][]string {
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example|Benchmark)\w*)\(`)
	names := map[string][]string{}
	for file, text := range f {
		if !strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, m := range function.FindAllStringSubmatch(text, -1) {
			dir := path.Dir(file)
			for _, name := range []string{m[1], path.Base(dir) + "." + m[1]} {
				names[name] = append(names[name], dir)
			}
		}
	}
	return names
}

var (
	written   = regexp.MustCompile(`\.(go|sql|lua|sh|md|yml|yaml|json|html|js)$`)
	span      = regexp.MustCompile("`([^`]+)`")
	filePath  = regexp.MustCompile(`^[\w.-]+(/[\w.-]+)*(/|\.(go|sql|lua|sh|md|yml|yaml|json|html|js))$|^(bench|claim|checkpoint|fairdraw|idempotency|lock|multidraw|saga|internal|examples)(/[\w.-]+)*$`)
	plainPath = regexp.MustCompile(`^\w[\w.-]*(/[\w.-]+)+/?$`)
	testName  = regexp.MustCompile(`^(\w+\.)?((?:Test|Fuzz|Example|Benchmark)[A-Z]\w*)(/(.+))?$`)
)

// TestRequirements checks the rows of the page on the requirements: the third column names files, and what stands in one of them, the
// fourth tests, which TestPages looks for. A row without a test has to say why.
func TestRequirements(t *testing.T) {
	t.Parallel()
	files := readTree(t)
	rows := 0
	for line := range strings.Lines(files[requirementsPage]) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| § ") {
			continue
		}
		rows++
		if len(cells) != 4 {
			t.Errorf("%d columns: %s", len(cells), line)
			continue
		}
		where, shown := cells[2], strings.TrimSuffix(cells[3], " |")
		text, named := "", span.FindAllStringSubmatch(where, -1)
		for _, m := range named {
			if filePath.MatchString(m[1]) {
				content, found := files.under(m[1])
				if text += content; !found {
					t.Errorf("there is no %s: %s", m[1], line)
				}
			}
		}
		for _, m := range named {
			if !filePath.MatchString(m[1]) && !strings.Contains(text, m[1]) {
				t.Errorf("no file of the row has %s: %s", m[1], line)
			}
		}
		proofs := span.FindAllStringSubmatch(shown, -1)
		for _, m := range proofs {
			name := testName.FindStringSubmatch(m[1])
			if name == nil {
				t.Errorf("%s is no test: %s", m[1], line)
			}
		}
		if reason := regexp.MustCompile(`^\*\*(Differs|Not yet|Page|Figure)`); len(proofs) == 0 && !reason.MatchString(where) {
			t.Errorf("neither a test nor a reason: %s", line)
		}
	}
	if rows < 145 {
		t.Errorf("only %d rows", rows)
	}
}

// TestPages checks what all pages name: tests, and files, also by their links. See links_test.go for the links.
func TestPages(t *testing.T) {
	t.Parallel()
	files := readTree(t)
	tests := files.tests()
	pages := 0
	for page, content := range files {
		if !linked.MatchString(page) {
			continue
		}
		pages++
		for _, dead := range files.deadLinks(page) {
			t.Errorf("%s: %s", page, dead)
		}
		if !strings.HasSuffix(page, ".md") {
			continue
		}
		for _, line := range brokenTables(content) {
			t.Errorf("%s: a table became text: %s", page, line)
		}
		if page == "CHANGELOG.md" {
			continue // It also speaks of what was.
		}
		for _, m := range span.FindAllStringSubmatch(content, -1) {
			whole, _, nested := strings.Cut(m[1], "/")
			if _, err := os.Stat(whole); err == nil && nested && plainPath.MatchString(m[1]) {
				if _, err := os.Stat(m[1]); err != nil {
					t.Errorf("%s: there is no %s", page, m[1])
				}
			}
			name := testName.FindStringSubmatch(m[1])
			if name == nil {
				continue
			}
			if len(tests[whole]) == 0 {
				t.Errorf("%s: there is no %s", page, whole)
			}
			// A subtest of a subtest is named by the last part.
			if part := name[4]; part != "" && !slices.ContainsFunc(tests[whole], func(dir string) bool { return files.names(dir, part) || files.names(dir, path.Base(part)) }) {
				t.Errorf("%s: neither the package of %s nor its suite names %q", page, whole, part)
			}
		}
	}
	if pages < 80 {
		t.Errorf("only %d pages", pages)
	}
}

// names reports whether the tests of a package, or a suite that they run, have a text of that name.
func (f tree) names(dir, part string) bool {
	suite := regexp.MustCompile(`"github\.com/fairlead-dev/fairlead/((?:\w+/)*(?:\w+test|test\w+))"`)
	quoted := `"` + part + `"`
	for file, text := range f {
		if path.Dir(file) != dir || !strings.HasSuffix(file, "_test.go") {
			continue
		}
		if strings.Contains(text, quoted) {
			return true
		}
		for _, m := range suite.FindAllStringSubmatch(text, -1) {
			if shared, _ := f.under(m[1]); strings.Contains(shared, quoted) {
				return true
			}
		}
	}
	return false
}

// TestNamesOfSubtests looks for the names of subtests in their own package, and in the suites that it runs.
func TestNamesOfSubtests(t *testing.T) {
	t.Parallel()
	files := tree{
		"lock/a/a_test.go":     `import "github.com/fairlead-dev/fairlead/lock/locktest"; func TestIt(t *testing.T) { t.Run("own", nil) }`,
		"lock/a/a.go":          `const word = "word"`,
		"lock/locktest/l.go":   `func Run(t *testing.T) { t.Run("shared", nil) }`,
		"lock/other/o_test.go": `func TestOther(t *testing.T) { t.Run("another's", nil) }`,
	}
	for part, want := range map[string]bool{"own": true, "shared": true, "another's": false, "word": false, "absent": false} {
		if got := files.names("lock/a", part); got != want {
			t.Errorf("%s: %v, want %v", part, got, want)
		}
	}
}
