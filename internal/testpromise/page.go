package testpromise

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// Page is the file whose table lists the promises, seen from the module's directory.
const Page = "docs/operations/promises.md"

// Promise is a row of the table.
type Promise struct {
	Name, Text string
	Limit      time.Duration
	Said       []Quote
	Tests      []Test
}

// Quote is where words stand: those that promise something.
type Quote struct{ File, Words string }

// Test is one that measures a promise: the name of its package's directory, and its own for -run, with that of a subtest.
type Test struct{ Package, Name string }

func (t Test) String() string { return t.Package + "." + t.Name }

var (
	row   = regexp.MustCompile("(?m)^\\| `([a-z0-9-]+)` \\| (.+) \\| (\\S+ \\S+) \\| (.+) \\| (.+) \\|$")
	quote = regexp.MustCompile(`\[[^\]]*\]\(([^)#]+)(?:#[^)]*)?\) “([^”]+)”`)
	test  = regexp.MustCompile("`([a-z0-9]+)\\.(Test\\w+(?:/\\w+)*)`")
)

// Read reads the table, from the directory of the module in which the process runs.
func Read() ([]Promise, error) {
	root, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(Page)))
	if err != nil {
		return nil, err
	}
	return parse(string(text))
}

// moduleRoot is the nearest directory above that has a go.mod.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		_, err := os.Stat(filepath.Join(dir, "go.mod"))
		if err == nil || !errors.Is(err, fs.ErrNotExist) {
			return dir, err
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("testpromise: no go.mod in any directory above")
		}
		dir = filepath.Dir(dir)
	}
}

// parse reads the table: its rows are the lines that begin with a name in backquotes.
func parse(page string) (all []Promise, err error) {
	for line := range strings.Lines(page) {
		line = strings.TrimRight(line, "\n")
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		m := row.FindStringSubmatch(line)
		if m == nil {
			return nil, fmt.Errorf("%s: not a row of the table: %s", Page, line)
		}
		p := Promise{Name: m[1], Text: m[2]}
		if p.Limit, err = time.ParseDuration(strings.ReplaceAll(m[3], " ", "")); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", Page, p.Name, err)
		}
		p.Said = quotes(m[4])
		for _, t := range test.FindAllStringSubmatch(m[5], -1) {
			p.Tests = append(p.Tests, Test{t[1], t[2]})
		}
		if len(p.Said) == 0 || len(p.Tests) == 0 {
			return nil, fmt.Errorf("%s: %s: nothing promises it, or nothing tests it", Page, p.Name)
		}
		all = append(all, p)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no table of promises", Page)
	}
	return all, nil
}

// quotes reads links that are followed by words in quotation marks.
func quotes(text string) (all []Quote) {
	for _, m := range quote.FindAllStringSubmatch(text, -1) {
		all = append(all, Quote{path.Join(path.Dir(Page), m[1]), m[2]})
	}
	return all
}
