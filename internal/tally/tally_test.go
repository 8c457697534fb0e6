package tally_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/crashpoint"
	"github.com/fairlead-dev/fairlead/internal/tally"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

func TestRecorder(t *testing.T) {
	t.Parallel()
	at := func(seconds int) time.Time { return time.Unix(int64(seconds), 0) }
	var r tally.Recorder
	r.Answered(at(0), at(9), true) // Before the first fault: it counts in its row, and its wait doesn't.
	r.Fault("a", at(10))
	r.Answered(at(2), at(12), true) // It waited for 2 s of the fault.
	r.Answered(at(11), at(12), false)
	r.Fault("b", at(20))
	r.Also("c", 3, 7*time.Second)
	r.Answered(at(21), at(25), true)
	r.Fault("a", at(30))
	r.Answered(at(30), at(31), true)
	r.Differ(1, 2)
	r.Include(tally.Count{Row: "d", Tries: 5, Acknowledged: 6})
	want := []tally.Count{
		{Row: "a", Tries: 2, Acknowledged: 3, Lost: 1, Doubled: 2, Worst: 2 * time.Second},
		{Row: "b", Tries: 1, Acknowledged: 1, Lost: 1, Doubled: 2, Worst: 4 * time.Second},
		{Row: "c", Tries: 3, Acknowledged: 1, Lost: 1, Doubled: 2, Worst: 7 * time.Second},
		{Row: "d", Tries: 5, Acknowledged: 6},
	}
	if got := r.Counts(); !slices.Equal(got, want) {
		t.Errorf("counted %+v, want %+v", got, want)
	}
}

func TestCountsAddUpOverRuns(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "counts")
	if all, err := tally.Read(path); err != nil || len(all) != 0 {
		t.Errorf("without a file: %v, %v", all, err)
	}
	a := tally.Count{Row: "a", Tries: 1, Acknowledged: 10, Worst: time.Second}
	testwait.Must(t, tally.Append(path, []tally.Count{a, {Row: "b", Tries: 2}}))
	testwait.Must(t, tally.Append(path, []tally.Count{a, {Row: "a", Tries: 1, Lost: 3, Doubled: 4, Worst: time.Minute, Failed: 1}}))
	all, err := tally.Read(path)
	testwait.Must(t, err)
	if want := (tally.Count{Row: "a", Tries: 3, Acknowledged: 20, Lost: 3, Doubled: 4, Worst: time.Minute, Failed: 1}); all["a"] != want || all["b"].Tries != 2 || len(all) != 2 {
		t.Errorf("read %+v", all)
	}
	testwait.Must(t, os.WriteFile(path, []byte("{"), 0o600))
	if _, err := tally.Read(path); err == nil {
		t.Error("half a line was read")
	}
}

func TestReached(t *testing.T) {
	t.Parallel()
	r := tally.Row{Tries: 2, Acknowledged: 3}
	for _, c := range []struct {
		tally.Count

		want bool
	}{
		{tally.Count{Tries: 2, Acknowledged: 3}, true}, {tally.Count{Tries: 1, Acknowledged: 9}, false}, {tally.Count{Tries: 9, Acknowledged: 2}, false},
	} {
		if got := r.Reached(c.Count); got != c.want {
			t.Errorf("%+v: %v", c.Count, got)
		}
	}
}

// TestEveryCrashPointHasARow compares the list of the crash points with the constants, and the rows with the tests that they name.
func TestEveryCrashPointHasARow(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("../crashpoint/doc.go")
	testwait.Must(t, err)
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^\t[A-Z]\w+ += "([a-z]+\.[a-z_]+)"`).FindAllStringSubmatch(string(source), -1) {
		names = append(names, m[1])
	}
	if !slices.Equal(names, crashpoint.Names()) {
		t.Errorf("the constants are %v, the names %v", names, crashpoint.Names())
	}
	seen := map[string]bool{}
	for _, r := range tally.Rows() {
		if seen[r.Name] || r.Fault == "" || r.Tries == 0 {
			t.Errorf("%+v", r)
		}
		seen[r.Name] = true
		test := regexp.MustCompile(`^\^(Test\w+)\$`).FindStringSubmatch(r.Tests)
		files, err := filepath.Glob(filepath.Join("../..", r.Package, "*_test.go"))
		testwait.Must(t, err)
		if len(test) == 0 || !slices.ContainsFunc(files, func(file string) bool {
			text, err := os.ReadFile(file)
			testwait.Must(t, err)
			return regexp.MustCompile(`(?m)^func ` + test[1] + `\(t \*testing\.T\)`).Match(text)
		}) {
			t.Errorf("%s: there is no test %s in %s", r.Name, r.Tests, r.Package)
		}
	}
	for _, name := range names {
		if !seen[tally.Crash(name+":3")] {
			t.Errorf("%s has no row", name)
		}
	}
}
