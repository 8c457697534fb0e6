// Command mutants puts known bugs into the source, one at a time, and checks that the tests catch each. Run it in the module's directory:
//
//	go run ./scripts/mutants                     every bug, one after the other
//	go run ./scripts/mutants NAME…               some of them
//	go run ./scripts/mutants --sample 5 --seed 7 some, chosen by a seed
//	go run ./scripts/mutants --table FILE --oldest 10   those whose lines in the table are oldest, or missing
//	go run ./scripts/mutants --check             only whether all patches apply and compile, and their tests exist
//	go run ./scripts/mutants --explored 500      look for those with a scenario in so many explored schedules, without their tests
//	  --again 100                                and run each seed that finds one so many times again
//
// Each bug is a file in scripts/mutants/bugs: three lines that say what it breaks, which guarantee of docs/guarantees.md that belongs to
// (or "none"), and the tests that must catch it, then a patch. A fourth line, "Scenario: late bids", names one of internal/explore; "Unexplored: …"
// says why no schedule can show the bug there.
//
//	Breaks: Releasing a lock doesn't look at whose it is.
//	Guarantee: L3
//	Test: ./lock/redislock ^TestConformance$/^release
//
// The tests named are first run without any bug, and must pass. The source tree isn't changed: the compiler reads patched copies. A bug is
// caught only if a test fails by itself ("--- FAIL"); one that doesn't compile, hangs or ends the process is an error, as is one that
// survives. A table is written after each bug, and keeps the lines of those that are not tried.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

const (
	bugs = "scripts/mutants/bugs"
	// testTimeout ends a test that a bug makes hang, if it has not ended by itself when its patience was at an end.
	testTimeout = testwait.Patience + 3*time.Minute
)

// program is one run of this command.
type program struct {
	root, temp string
	mutants    []*mutant
	types      *checker
}

// options are the command's flags.
type options struct {
	check          bool
	sample, oldest int
	schedules      int
	again          int
	seed           uint64
	table          string
}

func main() {
	var o options
	flag.BoolVar(&o.check, "check", false, "run no tests: check that all patches apply and compile, and that their tests exist")
	flag.IntVar(&o.sample, "sample", 0, "how many bugs to choose at random; 0: all")
	flag.IntVar(&o.oldest, "oldest", 0, "how many bugs to choose whose lines in the table are oldest, or missing; 0: all")
	flag.Uint64Var(&o.seed, "seed", rand.Uint64(), "what the choice depends on") //nolint:gosec // It hides nothing.
	flag.StringVar(&o.table, "table", "", "the Markdown file to write; lines of bugs that are not tried stay")
	flag.IntVar(&o.schedules, "explored", 0, "run no tests but so many schedules of each bug's scenario")
	flag.IntVar(&o.again, "again", 0, "how often a seed that finds a bug is run again, and its history compared")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options, names []string) (err error) {
	all, err := read()
	if err != nil {
		return err
	}
	p := program{mutants: all}
	if p.mutants, err = named(all, names); err != nil {
		return err
	}
	var seen *table
	if o.table != "" && o.schedules == 0 {
		if seen, err = openTable(ctx, o.table); err != nil {
			return err
		}
	}
	if o.oldest > 0 {
		if seen == nil {
			return errors.New("--oldest needs the --table that has the lines")
		}
		p.mutants = seen.oldest(p.mutants, o.oldest)
	}
	if p.root, err = os.Getwd(); err != nil {
		return err
	}
	if p.temp, err = os.MkdirTemp("", "mutants"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(p.temp)) }()
	if o.sample > 0 && o.sample < len(p.mutants) {
		fmt.Printf("mutants: %d of %d, by --seed %d\n", o.sample, len(p.mutants), o.seed)
		r := rand.New(rand.NewPCG(o.seed, 0)) //nolint:gosec // It hides nothing.
		r.Shuffle(len(p.mutants), func(i, j int) { p.mutants[i], p.mutants[j] = p.mutants[j], p.mutants[i] })
		p.mutants = p.mutants[:o.sample]
	}
	begun := time.Now()
	if p.types, err = newChecker(ctx); err != nil {
		return err
	}
	if err := p.each(func(m *mutant) (string, error) { return "compiles", p.prepare(ctx, m) }); err != nil {
		return err
	}
	if o.check {
		fmt.Printf("mutants: all %d apply and compile (%v)\n", len(p.mutants), time.Since(begun).Round(time.Second))
		return nil
	}
	if o.schedules > 0 {
		return p.explored(ctx, o.schedules, o.again, o.table)
	}
	if err := p.control(ctx); err != nil {
		return err
	}
	if err := p.each(func(m *mutant) (string, error) {
		err := p.try(ctx, m)
		if seen != nil && ctx.Err() == nil { // After an interrupt nothing is known.
			seen.tried(m, err == nil, time.Now())
			err = errors.Join(err, seen.write(all))
		}
		return fmt.Sprintf("%v by %s", m.took.Round(time.Second/10), strings.Join(m.failed, ", ")), err
	}); err != nil {
		return err
	}
	fmt.Printf("mutants: all %d were caught (%v)\n", len(p.mutants), time.Since(begun).Round(time.Second))
	return nil
}

// read reads all bugs.
func read() ([]*mutant, error) {
	paths, err := filepath.Glob(filepath.Join(bugs, "*.patch"))
	if err != nil || len(paths) == 0 {
		return nil, errors.Join(err, errors.New("run it in the module's directory"))
	}
	var all []*mutant
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".patch")
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		m, err := parse(name, string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, m)
	}
	return all, nil
}

// named are the bugs of the given names, or all.
func named(all []*mutant, names []string) ([]*mutant, error) {
	for _, name := range names {
		if !slices.ContainsFunc(all, func(m *mutant) bool { return m.name == name }) {
			return nil, fmt.Errorf("no bug is named %s", name)
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(m *mutant) bool { return len(names) > 0 && !slices.Contains(names, m.name) }), nil
}

// each does something with every bug, says what came of it, and goes on after failures.
func (p *program) each(do func(*mutant) (string, error)) error {
	var failed []string
	for i, m := range p.mutants {
		said, err := do(m)
		if err != nil {
			failed = append(failed, m.name)
			said = "FAILED: " + err.Error()
		}
		fmt.Printf("[%d/%d] %s: %s\n", i+1, len(p.mutants), m.name, said)
	}
	if len(failed) > 0 {
		return fmt.Errorf("%d of %d failed: %s", len(failed), len(p.mutants), strings.Join(failed, ", "))
	}
	return nil
}

// prepare makes patched copies of a bug's files, and checks that they compile and that its tests exist.
func (p *program) prepare(ctx context.Context, m *mutant) error {
	dir := filepath.Join(p.temp, m.name)
	replace := map[string]string{}
	packages := map[string]bool{}
	for _, file := range m.files {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		patched := filepath.Join(dir, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(patched), 0o700), os.WriteFile(patched, content, 0o600)); err != nil { //nolint:gosec // Patches are the tree's.
			return err
		}
		replace[filepath.Join(p.root, file)] = patched
		packages[filepath.Join(p.root, packageOf(file))] = true
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	m.overlay = filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(m.overlay, overlay, 0o600); err != nil {
		return err
	}
	apply := exec.CommandContext(ctx, "git", "apply", filepath.Join(p.root, bugs, m.name+".patch")) //nolint:gosec // Constants, and a name of the tree.
	apply.Dir = dir
	apply.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir)) // Within a repository it would patch that.
	if out, err := apply.CombinedOutput(); err != nil {
		return fmt.Errorf("the patch doesn't apply: %w\n%s", err, out)
	}
	for dir := range packages {
		if err := p.types.check(dir, replace); err != nil {
			return fmt.Errorf("it doesn't compile: %w", err)
		}
	}
	return m.findTests()
}

// packageOf is the directory of the package that a file is compiled into or embedded in.
func packageOf(file string) string {
	dir := filepath.Dir(file)
	for dir != "." {
		if source, err := filepath.Glob(filepath.Join(dir, "*.go")); err == nil && len(source) > 0 {
			break
		}
		dir = filepath.Dir(dir)
	}
	return dir
}

// control runs the tests without any bug, each package once.
func (p *program) control(ctx context.Context) error {
	runs := map[string][]string{}
	for _, m := range p.mutants {
		if !slices.Contains(runs[m.pkg], m.run) {
			runs[m.pkg] = append(runs[m.pkg], m.run)
		}
	}
	for _, pkg := range slices.Sorted(maps.Keys(runs)) {
		begun := time.Now()
		if out, err := test(ctx, "-run", strings.Join(runs[pkg], "|"), pkg); err != nil {
			return fmt.Errorf("without a bug, tests of %s fail: %w\n%s", pkg, err, out)
		}
		fmt.Printf("without a bug, %s passes: %v\n", pkg, time.Since(begun).Round(time.Second/10))
	}
	return nil
}

// try runs the tests of a bug with it.
func (p *program) try(ctx context.Context, m *mutant) error {
	begun := time.Now()
	out, err := test(ctx, append([]string{"-failfast", "-overlay", m.overlay, "-run", m.run, m.pkg}, m.quiet...)...)
	m.took = time.Since(begun)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	m.failed = failures(out)
	switch {
	case strings.Contains(out, "no tests to run"):
		return fmt.Errorf("%s has no test %s", m.pkg, m.run)
	case err == nil:
		return fmt.Errorf("it survives %s %s", m.pkg, m.run)
	case len(m.failed) == 0:
		return fmt.Errorf("no test failed by itself: %w\n%s", err, out)
	}
	return nil
}

// test runs tests on real servers: one that is missing is a failure.
func test(ctx context.Context, args ...string) (string, error) { return testWith(ctx, nil, args...) }

// testWith is test with more in its environment.
func testWith(ctx context.Context, env []string, args ...string) (string, error) {
	args = append([]string{"test", "-count=1", "-vet=off", "-timeout", testTimeout.String()}, args...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(append(os.Environ(), "CI=true"), env...)
	// Tests stop the servers that they have started.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	out, err := cmd.CombinedOutput()
	return string(out), err
}
