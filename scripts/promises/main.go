// Command promises measures Fairlead's promises about time, those that docs/operations/promises.md lists, and prints what it saw. Run it in
// the module's directory:
//
//	go run ./scripts/promises          all
//	go run ./scripts/promises NAME…    some of them
//
// It runs the tests of one package at a time, one test at a time, without the race detector. It fails if a promise is not kept, if a test
// fails, and if a test in the list does not report its promise.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testpromise"
)

// testTimeout ends the tests of a package that hang.
const testTimeout = 10 * time.Minute

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
	seen := map[testpromise.Test][]testpromise.Result{}
	var failures []error
	for _, pkg := range packages(all) {
		dir, err := directory(ctx, pkg)
		if err != nil {
			return err
		}
		results, err := measure(ctx, dir, testsOf(all, pkg))
		if err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", dir, err))
		}
		for _, r := range results {
			test := testpromise.Test{Package: pkg, Name: r.Test}
			seen[test] = append(seen[test], r)
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

// directory finds the one that has a name.
func directory(ctx context.Context, name string) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", "./...").Output()
	if err != nil {
		return "", fmt.Errorf("go list: %w", err)
	}
	var found []string
	for dir := range strings.Lines(string(out)) {
		if dir = strings.TrimSpace(dir); filepath.Base(dir) == name {
			found = append(found, dir)
		}
	}
	if len(found) != 1 {
		return "", fmt.Errorf("directories with the name %s: %q", name, found)
	}
	return found[0], nil
}

// testsOf are the tests in one of the packages.
func testsOf(all []testpromise.Promise, pkg string) (names []string) {
	for _, p := range all {
		for _, test := range p.Tests {
			if test.Package == pkg && !slices.Contains(names, test.Name) {
				names = append(names, test.Name)
			}
		}
	}
	return names
}

// pattern is what -run takes for these tests alone.
func pattern(names []string) string {
	each := make([]string, len(names))
	for i, name := range names {
		each[i] = "^" + strings.ReplaceAll(name, "/", "$/^") + "$"
	}
	return strings.Join(each, "|")
}

// measure runs the tests of one package. It shows their output if they fail.
func measure(ctx context.Context, dir string, names []string) (results []testpromise.Result, err error) {
	began := time.Now()
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-parallel=1", "-vet=off", "-v", "-timeout", testTimeout.String(), //nolint:gosec // Names of our own list.
		"-run", pattern(names), dir)
	cmd.Env = append(os.Environ(), "FAIRLEAD_PROMISES=1")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // go ends the test, which ends its servers.
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
	fmt.Printf("promises: %s: %d tests, %v\n", filepath.Base(dir), len(names), time.Since(began).Round(time.Second))
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
