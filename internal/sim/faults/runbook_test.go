//go:build unix

package faults_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// section is what the runbook says about one alert, or under another heading.
type section struct{ title, text string }

// sectionOf reads a section.
func sectionOf(t *testing.T, title string) section {
	t.Helper()
	return sectionIn(t, runbookFile, title)
}

// sectionIn reads a section of a page.
func sectionIn(t *testing.T, page, title string) section {
	t.Helper()
	raw, err := os.ReadFile(page)
	testwait.Must(t, err)
	_, rest, found := strings.Cut(string(raw), "\n## "+title+"\n")
	if !found {
		t.Fatalf("%s has no section %s", page, title)
	}
	if end := regexp.MustCompile(`(?m)^#{1,2} `).FindStringIndex(rest); end != nil {
		rest = rest[:end[0]]
	}
	return section{title, rest}
}

// preface reads what stands before all sections.
func preface(t *testing.T) section {
	t.Helper()
	raw, err := os.ReadFile(runbookFile)
	testwait.Must(t, err)
	text, _, _ := strings.Cut(string(raw), "\n## ")
	return section{"beginning", text}
}

// says fails the test unless the section has these words, however its lines are broken.
func (s section) says(t *testing.T, words string) {
	t.Helper()
	if !strings.Contains(strings.Join(strings.Fields(s.text), " "), words) {
		t.Fatalf("the runbook's section %s does not say %q", s.title, words)
	}
}

var codeSpan = regexp.MustCompile("`([^`\n]+)`")

// command finds the command that begins so: a line of a block, or a span of code.
func (s section) command(t *testing.T, prefix string) string {
	t.Helper()
	inBlock := false
	for line := range strings.Lines(s.text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "```") {
			inBlock = !inBlock
			continue
		}
		if inBlock && strings.HasPrefix(line, prefix) {
			return line
		}
		if !inBlock {
			for _, m := range codeSpan.FindAllStringSubmatch(line, -1) {
				if strings.HasPrefix(m[1], prefix) {
					return m[1]
				}
			}
		}
	}
	t.Fatalf("the runbook's section %s has no command that begins with %q", s.title, prefix)
	return ""
}

// operator is somebody at a shell, with the environment that the runbook's beginning names.
type operator struct{ server, database string }

// runs gives a command of the runbook to a shell, with words replaced in pairs, and returns what it printed. The command
// must succeed.
func (o operator) runs(t *testing.T, s section, prefix string, replace ...string) string {
	t.Helper()
	out, err := o.tries(t, strings.NewReplacer(replace...).Replace(s.command(t, prefix)))
	if err != nil {
		t.Fatalf("%s: %v", prefix, err)
	}
	return out
}

// tries gives a command to a shell, which may fail.
func (o operator) tries(t *testing.T, command string) (said string, err error) {
	t.Helper()
	cmd := exec.CommandContext(testwait.Context(t, patience), "sh", "-c", command)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(binary(t))+":"+os.Getenv("PATH"), "PSQLRC=/dev/null", "PAGER=cat",
		"FAIRLEAD_URL="+o.server, "FAIRLEAD_KEY="+sim.AdminKey, "FAIRLEAD_DATABASE_URL="+o.database)
	out, err := cmd.CombinedOutput()
	t.Logf("$ %s\n%s", command, out)
	return string(out), err
}

// TestRunbookHasEveryAlert fails when an alert has no section, or a section that is not its rule's link, and when no
// fault is staged for it.
func TestRunbookHasEveryAlert(t *testing.T) {
	text := rules(t)
	for _, name := range alerts(t) {
		sectionOf(t, name)
		if link := "runbook.md#" + strings.ToLower(name); !strings.Contains(text, link) {
			t.Errorf("no rule links to %s", link)
		}
		if !slices.Contains(staged(), name) {
			t.Errorf("no fault is staged for %s", name)
		}
	}
	for _, name := range staged() {
		if !slices.Contains(alerts(t), name) {
			t.Errorf("a fault is staged for %s, which is no alert", name)
		}
	}
}

// TestShortenedRulesAreRules lets promtool look at the rules as the faults use them.
func TestShortenedRulesAreRules(t *testing.T) {
	promtool := pgtest.Program(t, "promtool")
	file := filepath.Join(t.TempDir(), "alerts.yaml")
	short := shorten(rules(t))
	for _, long := range []string{"[5m]", "[15m]", "for: 1m\n", "_seconds) > 600"} {
		if strings.Contains(short, long) {
			t.Errorf("%q was not shortened", long)
		}
	}
	testwait.Must(t, os.WriteFile(file, []byte(short), 0o600))
	if out, err := exec.CommandContext(testwait.Context(t, patience), promtool, "check", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
