// Command promises measures Fairlead's promises about time, those that docs/operations/promises.md lists, and prints what it saw. Run it in
// the module's directory:
//
//	go run ./scripts/promises          all
//	go run ./scripts/promises NAME…    some of them
//
// It runs the tests without the race detector, one of a package at a time. First those whose limits are long run, package beside package: they
// wait more than they compute. Then the others run, one package after the other, and once more the packages where a promise was missed
// beside others. It fails if a promise is not kept then, if a test fails, and if a test in the list does not report its promise.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testpromise"
)

const (
	// testTimeout ends the tests of a package that hang.
	testTimeout = 10 * time.Minute
	// long is the least limit of a promise that other tests may be beside: what they delay it by is far less.
	long = 500 * time.Millisecond
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "promises:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, names []string) error {
	all, err := testpromise.Read()
	if err != nil {
		return err
	}
	for _, name := range names {
		if !slices.ContainsFunc(all, func(p testpromise.Promise) bool { return p.Name == name }) {
			return fmt.Errorf("%s lists no %q", testpromise.Page, name)
		}
	}
	if len(names) > 0 {
		all = slices.DeleteFunc(all, func(p testpromise.Promise) bool { return !slices.Contains(names, p.Name) })
	}
	began := time.Now()
	binaries, err := build(ctx, packages(all))
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(binaries.at) }()
	var mu sync.Mutex
	seen := map[testpromise.Test][]testpromise.Result{}
	var failures []error
	again := map[string][]string{} // tests of packages
	take := func(pkg string, names []string, last bool) {
		results, err := binaries.measure(ctx, pkg, names)
		mu.Lock()
		defer mu.Unlock()
		if err != nil && !last && slices.ContainsFunc(results, testpromise.Result.Missed) {
			again[pkg] = names
			return
		}
		if err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", pkg, err))
		}
		for _, r := range results {
			test := testpromise.Test{Package: pkg, Name: r.Test}
			seen[test] = append(seen[test], r)
		}
	}
	var beside sync.WaitGroup
	for _, pkg := range packages(all) {
		if names := testsOf(all, pkg, true); len(names) > 0 {
			beside.Go(func() { take(pkg, names, false) })
		}
	}
	beside.Wait()
	for _, pkg := range packages(all) {
		if names := append(testsOf(all, pkg, false), again[pkg]...); len(names) > 0 {
			take(pkg, names, true)
		}
	}
	failures = append(failures, report(os.Stdout, all, seen)...)
	fmt.Printf("promises: %d measured in %v\n", len(all), time.Since(began).Round(time.Second))
	return errors.Join(failures...)
}

// packages are the names of those that have tests, in the order of the list.
func packages(all []testpromise.Promise) (names []string) {
	for _, p := range all {
		for _, test := range p.Tests {
			if !slices.Contains(names, test.Package) {
				names = append(names, test.Package)
			}
		}
	}
	return names
}

// built are the packages' directories and, in one of their own, the programs of their tests.
type built struct {
	at   string
	dirs map[string]string // by the packages' names
}

// build builds the tests before anything is measured.
func build(ctx context.Context, names []string) (b built, err error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", "./...").Output()
	if err != nil {
		return b, fmt.Errorf("go list: %w", err)
	}
	b.dirs = map[string]string{}
	for dir := range strings.Lines(string(out)) {
		dir = strings.TrimSpace(dir)
		name := filepath.Base(dir)
		if !slices.Contains(names, name) {
			continue
		}
		if other := b.dirs[name]; other != "" {
			return b, fmt.Errorf("directories with the name %s: %s and %s", name, other, dir)
		}
		b.dirs[name] = dir
	}
	if len(b.dirs) != len(names) {
		return b, fmt.Errorf("of the directories %q there are only %v", names, b.dirs)
	}
	if b.at, err = os.MkdirTemp("", "fairlead-promises-"); err != nil {
		return b, err
	}
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-c", "-vet=off", "-o", b.at + "/"}, slices.Collect(maps.Values(b.dirs))...)...) //nolint:gosec // Names of our own list.
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return b, errors.Join(fmt.Errorf("go test -c: %w", err), os.RemoveAll(b.at))
	}
	return b, nil
}

// testsOf are the tests in one of the packages whose limits are all long, or the others.
func testsOf(all []testpromise.Promise, pkg string, longs bool) (names []string) {
	short := map[string]bool{}
	for _, p := range all {
		for _, test := range p.Tests {
			if test.Package != pkg {
				continue
			}
			if short[test.Name] = short[test.Name] || p.Limit < long; !slices.Contains(names, test.Name) {
				names = append(names, test.Name)
			}
		}
	}
	return slices.DeleteFunc(names, func(name string) bool { return short[name] == longs })
}

// pattern is what -run takes for these tests alone.
func pattern(names []string) string {
	each := make([]string, len(names))
	for i, name := range names {
		each[i] = "^" + strings.ReplaceAll(name, "/", "$/^") + "$"
	}
	return strings.Join(each, "|")
}

// measure runs tests of one package. It shows their output if they fail.
func (b built) measure(ctx context.Context, pkg string, names []string) (results []testpromise.Result, err error) {
	began := time.Now()
	cmd := exec.CommandContext(ctx, filepath.Join(b.at, pkg+".test"), "-test.parallel=1", "-test.v", "-test.timeout="+testTimeout.String(), //nolint:gosec // Names of our own list.
		"-test.run="+pattern(names))
	cmd.Dir, cmd.Env = b.dirs[pkg], append(os.Environ(), "FAIRLEAD_PROMISES=1")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	out, in := io.Pipe()
	cmd.Stdout, cmd.Stderr = in, in
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		_ = in.Close()
		ended <- err
	}()
	var said []string
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n')
		line = strings.TrimRight(line, "\n")
		if r, ok := testpromise.ParseResult(line); ok {
			results = append(results, r)
		}
		said = append(said, line)
		if err != nil {
			break
		}
	}
	err = <-ended
	fmt.Printf("promises: %s: %d tests, %v\n", pkg, len(names), time.Since(began).Round(time.Second))
	if err != nil {
		fmt.Println(strings.Join(said, "\n"))
	}
	return results, err
}

// report prints the table, and says what is missing or not kept.
func report(w io.Writer, all []testpromise.Promise, seen map[testpromise.Test][]testpromise.Result) (failures []error) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "promise\ttest\tpromised\tseen (median)\tworst\ttries\tmachine late by\tslower\tretries\t")
	for _, p := range all {
		for _, test := range p.Tests {
			i := slices.IndexFunc(seen[test], func(r testpromise.Result) bool { return r.Name == p.Name })
			if i < 0 {
				_, _ = fmt.Fprintf(table, "%s\t%s\t%v\tNOT MEASURED\t\t\t\t\t\t\n", p.Name, test, p.Limit)
				failures = append(failures, fmt.Errorf("%s was not measured by %s", p.Name, test))
				continue
			}
			r, word := seen[test][i], ""
			if r.Missed() {
				word = "MISSED"
				failures = append(failures, fmt.Errorf("%s: %v by the median of %d tries, promised are %v; the machine was delayed: %v",
					p.Name, r.Seen, r.Tries, r.Promised, r.Delayed))
			}
			_, _ = fmt.Fprintf(table, "%s\t%s\t%v\t%v\t%v\t%d\t%v\t%.2f×\t%d\t%s\n", p.Name, test, r.Promised, brief(r.Seen), brief(r.Worst),
				r.Tries, brief(r.Machine.Late), r.Machine.Slow, r.Retries, word)
		}
	}
	_ = table.Flush()
	return failures
}

// brief is a time to three digits or so.
func brief(d time.Duration) time.Duration {
	switch {
	case d > time.Second:
		return d.Round(10 * time.Millisecond)
	case d > 10*time.Millisecond:
		return d.Round(time.Millisecond)
	default:
		return d.Round(10 * time.Microsecond)
	}
}
