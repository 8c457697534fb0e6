package scenario

import (
	"bytes"
	"cmp"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

const (
	typeScript = "../typescript" // the client's folder
	oldestNode = 20
)

// TestTypeScript runs the client's own tests, and the example of its README on a real server.
func TestTypeScript(t *testing.T) {
	buildTypeScript(t)
	t.Run("npm test", func(t *testing.T) { inTypeScript(t, nil, "npm", "test") })
	t.Run("README", func(t *testing.T) {
		readme, err := os.ReadFile(filepath.Join(typeScript, "README.md"))
		testwait.Must(t, err)
		example := regexp.MustCompile("(?s)```js\n(.*?)```\n.*?```text\n(.*?)```").FindSubmatch(readme)
		if example == nil {
			t.Fatal("README.md has no example with its output")
		}
		// It imports the package by its name, which Node.js finds from within the package.
		file := filepath.Join(typeScript, "dist", "readme.mjs")
		testwait.Must(t, os.WriteFile(file, example[1], 0o600))
		t.Cleanup(func() { testwait.Must(t, os.Remove(file)) })
		out := inTypeScript(t, []string{"FAIRLEAD_URL=" + shared.URL, "FAIRLEAD_KEY=" + shared.Key}, "node", "dist/readme.mjs")
		if !bytes.Equal(out, example[2]) {
			t.Errorf("the example of README.md prints\n%s", out)
		}
	})
}

// buildTypeScript builds the client once. It skips the test where there is no Node.js, or not what the client is built with; in CI it fails then,
// but if npm's registry can't be reached.
func buildTypeScript(t *testing.T) {
	t.Helper()
	needProgram(t, "npm")
	needProgram(t, "node")
	const missing = "*** NOT TESTED: the TypeScript client needs "
	version := inTypeScript(t, nil, "node", "--version")
	major, _, _ := strings.Cut(strings.TrimPrefix(string(version), "v"), ".")
	if n, err := strconv.Atoi(major); err != nil || n < oldestNode {
		skipOrFail(t, true, missing+"Node.js "+strconv.Itoa(oldestNode)+" or newer, not "+string(version))
	}
	// scripts/setup.sh copies the list of what it has installed.
	wanted, err := os.ReadFile(filepath.Join(typeScript, "package-lock.json"))
	testwait.Must(t, err)
	if installed, err := os.ReadFile(filepath.Join(typeScript, "node_modules", ".installed")); err != nil || !bytes.Equal(installed, wanted) {
		skipOrFail(t, npmAnswers(), missing+"its packages: run scripts/setup.sh test")
	}
	builtTypeScript.Do(func() { inTypeScript(t, nil, "npm", "run", "build") })
}

var builtTypeScript sync.Once

func skipOrFail(t *testing.T, avoidable bool, why string) {
	t.Helper()
	if avoidable && os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// npmAnswers reports whether npm's registry can be reached, so that the packages should be here.
func npmAnswers() bool {
	client := http.Client{Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	resp, err := client.Get(cmp.Or(os.Getenv("FAIRLEAD_NPM_REGISTRY"), "https://registry.npmjs.org") + "/typescript/latest")
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// inTypeScript runs a program in the client's folder, and returns what it prints.
func inTypeScript(t *testing.T, env []string, name string, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(testwait.Context(t, patience), name, args...)
	cmd.Dir = typeScript
	cmd.Env = append(os.Environ(), env...)
	var stdout, both bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &both
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%s\n%s", name, strings.Join(args, " "), err, stdout.Bytes(), both.Bytes())
	}
	return stdout.Bytes()
}
