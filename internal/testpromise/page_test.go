package testpromise

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

const root = "../.."

var (
	figure = `(?:\d+(?:\.\d+)? ?(?:ms|s|min|h)\b|(?:half )?an? (?:second|minute|hour)\b)`
	span   = regexp.MustCompile(figure)
	// bound is how pages promise something about time, or seem to.
	bound = regexp.MustCompile(`(?i)\bwithin (?:about |TTL \+ |TTL and |some )?` + figure + `|\bat most (?:some )?` + figure + `|` + figure + ` at most\b`)
	// bounded are the pages that may promise something.
	bounded = regexp.MustCompile(`^(README\.md|docs/(guarantees|flags|openapi|problems)\.(md|json)|docs/(design|operations|quickstart)/[a-z-]+\.md)$`)
	// called finds the names that tests hand to Check and CheckEach.
	called  = regexp.MustCompile(`testpromise\.Check(?:Each)?\(.*`)
	literal = regexp.MustCompile(`"([a-z]+(?:-[a-z]+)*)"`)
)

// source reads a file of the module with each run of white space as one space.
func source(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
	testwait.Must(t, err)
	return strings.Join(strings.Fields(string(text)), " ")
}

// promisesOf reads the page: the promises, and the words that its second table excepts.
func promisesOf(t *testing.T) (all []Promise, excepted []Quote) {
	t.Helper()
	all, err := Read()
	testwait.Must(t, err)
	page, err := os.ReadFile(filepath.Join(root, Page))
	testwait.Must(t, err)
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "| [") {
			excepted = append(excepted, quotes(line)...)
		}
	}
	return all, excepted
}

// TestPromisesAreWhatIsPromised looks for the words in the documents, which must have the limit in them, and for the tests.
func TestPromisesAreWhatIsPromised(t *testing.T) {
	t.Parallel()
	all, excepted := promisesOf(t)
	names, tests := map[string]bool{}, map[Test]bool{}
	each(t, ".go", func(file string) {
		if text, err := os.ReadFile(filepath.Join(root, file)); err == nil && strings.HasSuffix(file, "_test.go") {
			for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`).FindAllStringSubmatch(string(text), -1) {
				tests[Test{path.Base(path.Dir(file)), m[1]}] = true
			}
		}
	})
	for _, p := range all {
		if names[p.Name] {
			t.Errorf("%s is there twice", p.Name)
		}
		names[p.Name] = true
		for _, q := range p.Said {
			if !strings.Contains(source(t, q.File), q.Words) {
				t.Errorf("%s: %s does not say %q", p.Name, q.File, q.Words)
			}
			if !slices.Contains(timesIn(t, q.Words), p.Limit) {
				t.Errorf("%s: the limit is %v, and %s says %q", p.Name, p.Limit, q.File, q.Words)
			}
		}
		for _, test := range p.Tests {
			function, _, _ := strings.Cut(test.Name, "/")
			if !tests[Test{test.Package, function}] {
				t.Errorf("%s: there is no test %s", p.Name, test)
			}
		}
	}
	for _, q := range excepted {
		if !strings.Contains(source(t, q.File), q.Words) {
			t.Errorf("excepted: %s does not say %q", q.File, q.Words)
		}
	}
}

// timesIn are the times that words name.
func timesIn(t *testing.T, words string) (all []time.Duration) {
	t.Helper()
	for _, text := range span.FindAllString(words, -1) {
		plain := strings.NewReplacer("half a second", "500ms", "a second", "1s", "a minute", "1m", "an hour", "1h", " min", "m", " ", "").Replace(text)
		d, err := time.ParseDuration(plain)
		testwait.Must(t, err)
		all = append(all, d)
	}
	return all
}

// TestWhatIsPromisedIsListed looks for bounds of time in the documents, and wants each in one of the tables.
func TestWhatIsPromisedIsListed(t *testing.T) {
	t.Parallel()
	all, known := promisesOf(t)
	for _, p := range all {
		known = append(known, p.Said...)
	}
	pages := 0
	each(t, ".md", func(file string) {
		if !bounded.MatchString(file) || file == Page {
			return
		}
		pages++
		text := source(t, file)
		for _, at := range bound.FindAllStringIndex(text, -1) {
			listed := slices.ContainsFunc(known, func(q Quote) bool {
				if q.File != file {
					return false
				}
				for from := 0; ; {
					i := strings.Index(text[from:], q.Words)
					if i < 0 {
						return false
					}
					if begin := from + i; begin <= at[0] && at[1] <= begin+len(q.Words) {
						return true
					}
					from += i + 1
				}
			})
			if !listed {
				t.Errorf("%s says %q, which %s does not list: …%s…", file, text[at[0]:at[1]], Page, text[max(0, at[0]-60):min(len(text), at[1]+20)])
			}
		}
	})
	if pages < 30 {
		t.Errorf("only %d pages were looked at", pages)
	}
}

// TestPromisesAreMeasured: every name in the table is handed to Check somewhere, and every name that is handed to it is in the table.
func TestPromisesAreMeasured(t *testing.T) {
	t.Parallel()
	all, _ := promisesOf(t)
	listed, measured := map[string]bool{}, map[string]bool{}
	for _, p := range all {
		listed[p.Name] = true
	}
	each(t, ".go", func(file string) {
		if strings.HasPrefix(file, "internal/testpromise/") {
			return
		}
		text, err := os.ReadFile(filepath.Join(root, file))
		testwait.Must(t, err)
		for _, call := range called.FindAllString(string(text), -1) {
			for _, m := range literal.FindAllStringSubmatch(call, -1) {
				if measured[m[1]] = true; !listed[m[1]] {
					t.Errorf("%s measures %q, which %s does not list", file, m[1], Page)
				}
			}
		}
		for _, m := range literal.FindAllStringSubmatch(string(text), -1) { // A name may go there by another way.
			measured[m[1]] = true
		}
	})
	for name := range listed {
		if !measured[name] {
			t.Errorf("%s lists %s, which nothing measures", Page, name)
		}
	}
}

// each visits the module's files whose names end so, but for those of modules beside it and of tools.
func each(t *testing.T, ext string, visit func(file string)) {
	t.Helper()
	testwait.Must(t, filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (slices.Contains([]string{"bench", "node_modules", "bin", "dist"}, d.Name()) || strings.HasPrefix(d.Name(), ".") && name != root):
			return fs.SkipDir
		case !d.IsDir() && path.Ext(name) == ext:
			file, err := filepath.Rel(root, name)
			visit(filepath.ToSlash(file))
			return err
		}
		return nil
	}))
}

func TestPageIsParsed(t *testing.T) {
	t.Parallel()
	const head = "| name | what |\n|---|---|\n"
	all, err := parse(head + "| `a-b` | what takes | 1.5 s | [x](../x.md#y) “within 1.5 s”, [y](z.md) “1.5 s” | `b.TestC/D/e`, `f.TestG` |\n")
	want := Promise{
		Name: "a-b", Text: "what takes", Limit: 1500 * time.Millisecond,
		Said:  []Quote{{path.Join("docs", "x.md"), "within 1.5 s"}, {path.Join("docs", "operations", "z.md"), "1.5 s"}},
		Tests: []Test{{"b", "TestC/D/e"}, {"f", "TestG"}},
	}
	if err != nil || len(all) != 1 || all[0].Name != want.Name || all[0].Text != want.Text || all[0].Limit != want.Limit ||
		!slices.Equal(all[0].Said, want.Said) || !slices.Equal(all[0].Tests, want.Tests) {
		t.Errorf("%+v, %v", all, err)
	}
	for _, wrong := range []string{
		head, "| `a` | b |\n", "| `a` | b | soon enough | [x](y) “z” | `f.TestG` |\n", "| `a` | b | 1 s | nowhere | `f.TestG` |\n", "| `a` | b | 1 s | [x](y) “z” | none |\n",
	} {
		if all, err := parse(wrong); err == nil {
			t.Errorf("%q was read as %+v", wrong, all)
		}
	}
}
