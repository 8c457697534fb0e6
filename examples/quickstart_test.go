//go:build unix

package examples_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// quickstarts has a page a service. The front page is run as they are.
const (
	quickstarts = "../docs/quickstart"
	frontPage   = "../README.md"
)

func nameOf(page string) string {
	if page == frontPage {
		return "front-page"
	}
	return strings.TrimSuffix(filepath.Base(page), ".md")
}

// programOf names a page's program.
func programOf(page string) string { return "quickstart-" + nameOf(page) }

// anything stands in a page for a string that differs from run to run.
const anything = "…"

// block is what stands between two fences.
type block struct {
	language string
	line     int
	text     string
}

// isPart reports whether a block of Go is the inside of a function, which is compiled and not run.
func (b block) isPart() bool { return b.language == "go" && !strings.HasPrefix(b.text, "package ") }

// around is the program that a part of one is compiled in. The part makes an account.
const around = `package main

import (
	"context"

	"github.com/fairlead-dev/fairlead"
	"github.com/fairlead-dev/fairlead/client"
)

func part(ctx context.Context, url string) error {
	%s
	_ = account
	return err
}

func main() { _ = part(context.Background(), "") }
`

// pages lists what is run.
func pages() ([]string, error) {
	found, err := filepath.Glob(quickstarts + "/*.md")
	if err == nil && len(found) < 8 {
		err = fmt.Errorf("only %d quick starts are there", len(found))
	}
	return append(found, frontPage), err
}

// blocksOf reads the fenced blocks of a page.
func blocksOf(page string) (blocks []block, err error) {
	text, err := os.ReadFile(page)
	if err != nil {
		return nil, err
	}
	open := false
	for i, line := range strings.Split(string(text), "\n") {
		language, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && open:
			open = false
		case fence:
			open = true
			blocks = append(blocks, block{language: language, line: i + 1})
		case open:
			blocks[len(blocks)-1].text += line + "\n"
		}
	}
	return blocks, nil
}

// pagePrograms writes the pages' programs into dir. They are built as if they were directories beside the quick starts: the
// overlay says so to the compiler.
func pagePrograms(dir string) (overlay string, programs []string, err error) {
	all, err := pages()
	if err != nil {
		return "", nil, err
	}
	here, err := filepath.Abs(quickstarts)
	if err != nil {
		return "", nil, err
	}
	replace := make(map[string]string)
	for _, page := range all {
		blocks, err := blocksOf(page)
		if err != nil {
			return "", nil, err
		}
		for _, b := range blocks {
			if b.language != "go" {
				continue
			}
			name, text := programOf(page), b.text
			if b.isPart() {
				name, text = fmt.Sprintf("%s-%d", name, b.line), fmt.Sprintf(around, b.text)
			}
			source := filepath.Join(dir, name+".go")
			if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
				return "", nil, err
			}
			replace[filepath.Join(here, name, "main.go")] = source
			programs = append(programs, quickstarts+"/"+name)
		}
	}
	document, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", nil, err
	}
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, programs, os.WriteFile(overlay, document, 0o600)
}

// TestQuickStarts runs what the pages tell their readers to, and compares what comes with what they show. Blocks in sh are
// run one after the other, in one shell a page, and blocks in go are built and run, those that are the inside of a function only built; what follows as json or text is the end
// of their output. Blocks in shell start servers, which the tests do themselves; blocks in js are run by the test of the console, in a browser.
func TestQuickStarts(t *testing.T) {
	t.Parallel()
	all, err := pages()
	testwait.Must(t, err)
	if _, err := exec.LookPath("curl"); err != nil && os.Getenv("CI") != "true" {
		t.Skip("curl is not installed: the quick starts were NOT tested")
	}
	functions := ""
	preface, err := blocksOf(quickstarts + "/README.md")
	testwait.Must(t, err)
	for _, b := range preface {
		if b.language == "sh" {
			functions += b.text
		}
	}
	for _, page := range all {
		t.Run(nameOf(page), func(t *testing.T) {
			t.Parallel()
			runPage(t, page, functions)
		})
	}
}

// runPage runs a page from its beginning to its end.
func runPage(t *testing.T, page, functions string) {
	t.Helper()
	blocks, err := blocksOf(page)
	testwait.Must(t, err)
	script := functions
	for i, b := range blocks {
		switch b.language {
		case "sh":
			script += fmt.Sprintf("exec > %s\n%s\n", output(i), b.text)
		case "go", "json", "text", "shell", "js", "":
		default:
			t.Errorf("%s:%d: a block in %q is neither run nor compared", page, b.line, b.language)
		}
	}
	dir := t.TempDir()
	// The reader is in the repository, and the server's data directory, too.
	err = errors.Join(os.Symlink(shared.bin, filepath.Join(dir, "bin")),
		os.Symlink(shared.server.DataDir(), filepath.Join(dir, "fairlead-data")))
	testwait.Must(t, err)
	runShell(t, page, dir, script)
	var got []byte // of the last block that was run
	for i, b := range blocks {
		var err error
		switch b.language {
		case "sh":
			got, err = os.ReadFile(filepath.Join(dir, output(i)))
		case "go":
			if b.isPart() {
				continue
			}
			got, err = program(testwait.Context(t, patience), programOf(page)).CombinedOutput()
		case "json", "text":
			err = compare(b, string(got))
		}
		if err != nil {
			t.Errorf("%s:%d: %v\nthe output was:\n%s", page, b.line, err, got)
		}
	}
}

// runShell runs a script to its end, and ends what it has left in the background.
func runShell(t *testing.T, page, dir, script string) {
	t.Helper()
	complaints, err := os.Create(filepath.Join(dir, "complaints")) // A pipe would be kept open by what is left.
	testwait.Must(t, err)
	defer complaints.Close()
	shell := program(testwait.Context(t, patience), "", "-euc", script)
	shell.Path, shell.Dir = "/bin/sh", dir
	shell.Stdout, shell.Stderr = complaints, complaints
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = shell.Run()
	_ = syscall.Kill(-shell.Process.Pid, syscall.SIGKILL) // Usually nobody is left.
	if err != nil {
		text, _ := os.ReadFile(complaints.Name())
		t.Fatalf("%s: %v\n%s", page, err, text)
	}
}

func output(i int) string { return fmt.Sprintf("output-%d", i) }

// compare tells whether the last lines of an output are what a page shows. Of JSON a page shows the members that matter.
func compare(want block, got string) error {
	shown, lines := strings.Split(strings.TrimSpace(want.text), "\n"), strings.Split(strings.TrimSpace(got), "\n")
	if len(lines) < len(shown) {
		return fmt.Errorf("%d lines are shown, %d came", len(shown), len(lines))
	}
	for i, line := range lines[len(lines)-len(shown):] {
		if want.language == "text" {
			if line != shown[i] {
				return fmt.Errorf("%q is shown, %q came", shown[i], line)
			}
			continue
		}
		var w, g any
		if err := errors.Join(json.Unmarshal([]byte(shown[i]), &w), json.Unmarshal([]byte(line), &g)); err != nil {
			return fmt.Errorf("%s: %w", line, err)
		}
		if err := contained(w, g, "$"); err != nil {
			return fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	return nil
}

// contained tells whether all that is shown is there.
func contained(shown, there any, path string) error {
	switch s := shown.(type) {
	case map[string]any:
		object, ok := there.(map[string]any)
		if !ok {
			return fmt.Errorf("%s is no object but %v", path, there)
		}
		for name, value := range s {
			member, ok := object[name]
			if !ok {
				return fmt.Errorf("%s.%s is not there", path, name)
			}
			if err := contained(value, member, path+"."+name); err != nil {
				return err
			}
		}
	case []any:
		list, ok := there.([]any)
		if !ok || len(list) != len(s) {
			return fmt.Errorf("%s is no list of %d but %v", path, len(s), there)
		}
		for i := range s {
			if err := contained(s[i], list[i], fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return err
			}
		}
	default:
		if text, ok := there.(string); ok && text != "" && shown == anything {
			return nil
		}
		if shown != there {
			return fmt.Errorf("%s is %v, and %v is shown", path, there, shown)
		}
	}
	return nil
}
