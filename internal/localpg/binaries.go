package localpg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// minMajor is the oldest PostgreSQL that has every setting we pass (client_connection_check_interval came with 14).
const minMajor = 14

// BinVariable names the directory of the server programs in the environment, and overrides the search for them.
const BinVariable = "FAIRLEAD_PG_BIN"

// binaries is one installation of the server programs.
type binaries struct {
	dir   string
	major int
}

func (b binaries) postgres() string { return filepath.Join(b.dir, "postgres") }
func (b binaries) initdb() string   { return filepath.Join(b.dir, "initdb") }

// usualPlaces are the directories where packagers put the server programs: Debian and Ubuntu, Red Hat, SUSE, Alpine, Homebrew
// on both kinds of Mac, MacPorts, Postgres.app, and the source's own default.
func usualPlaces() []string {
	return []string{
		"/usr/lib/postgresql/*/bin",
		"/usr/pgsql-*/bin",
		"/usr/lib/postgresql*/bin",
		"/usr/libexec/postgresql*",
		"/opt/homebrew/opt/postgresql@*/bin",
		"/usr/local/opt/postgresql@*/bin",
		"/opt/homebrew/bin",
		"/opt/local/lib/postgresql*/bin",
		"/Applications/Postgres.app/Contents/Versions/*/bin",
		"/usr/local/pgsql/bin",
		"/usr/local/bin",
		"/usr/bin",
	}
}

// candidateDirs lists the directories that hold both programs, without
// doubles. An explicit directory, or the environment's, is the only one then.
func candidateDirs(explicit string) ([]string, error) {
	if explicit == "" {
		explicit = os.Getenv(BinVariable)
	}
	if explicit != "" {
		dir, err := filepath.Abs(explicit)
		if err != nil {
			return nil, err
		}
		if !holdsPrograms(dir) {
			return nil, fmt.Errorf("%w: %s has no postgres and initdb programs (check %s)", ErrNoBinaries, dir, BinVariable)
		}
		return []string{dir}, nil
	}

	var found []string
	add := func(dir string) {
		if filepath.IsAbs(dir) && holdsPrograms(dir) && !slices.Contains(found, dir) {
			found = append(found, dir)
		}
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		add(dir)
	}
	for _, pattern := range usualPlaces() {
		// The patterns are constants, so that the only error, a malformed pattern, can't happen.
		dirs, _ := filepath.Glob(pattern)
		for _, dir := range dirs {
			add(dir)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%w: %s", ErrNoBinaries, installHint(runtime.GOOS))
	}
	return found, nil
}

func holdsPrograms(dir string) bool {
	for _, name := range []string{"postgres", "initdb"} {
		st, err := os.Stat(filepath.Join(dir, name))
		if err != nil || st.IsDir() || st.Mode()&0o111 == 0 {
			return false
		}
	}
	return true
}

// installHint is the sentence that tells how to get PostgreSQL.
func installHint(goos string) string {
	const otherwise = "; or set " + BinVariable + " to the directory of an installed one, " +
		"or give the URL of a running server with --database-url"
	if goos == "darwin" {
		return "install them with `brew install postgresql@17`" + otherwise
	}
	return "install them with `sudo apt-get install postgresql` (Debian, Ubuntu), " +
		"`sudo dnf install postgresql-server` (Fedora, Red Hat), " +
		"`sudo apk add postgresql` (Alpine) or " +
		"`sudo pacman -S postgresql` (Arch)" + otherwise
}

// findBinaries picks the installation to use. A cluster of version dataMajor needs its own version, whatever else is installed;
// a new cluster (dataMajor 0) gets the first of PATH, else the highest version.
func findBinaries(ctx context.Context, explicit, dataDir string, dataMajor int) (binaries, error) {
	dirs, err := candidateDirs(explicit)
	if err != nil {
		return binaries{}, err
	}
	var (
		best     binaries
		failures []error
		onPath   = filepath.SplitList(os.Getenv("PATH"))
	)
	for _, dir := range dirs {
		major, err := majorOf(ctx, filepath.Join(dir, "postgres"))
		if err != nil {
			failures = append(failures, err)
			continue
		}
		b := binaries{dir: dir, major: major}
		switch {
		case dataMajor != 0 && major == dataMajor:
			return b, nil
		case dataMajor == 0 && major >= minMajor && slices.Contains(onPath, dir):
			return b, nil
		case major > best.major:
			best = b
		}
	}
	switch {
	case best.major == 0:
		return binaries{}, fmt.Errorf("%w that run: %w", ErrNoBinaries, errors.Join(failures...))
	case dataMajor != 0:
		return binaries{}, fmt.Errorf("%s was made by PostgreSQL %d, but PostgreSQL %d is installed: "+
			"install PostgreSQL %[2]d beside it, or move the data with pg_upgrade or pg_dump", dataDir, dataMajor, best.major)
	case best.major < minMajor:
		return binaries{}, fmt.Errorf("%w of version %d or newer: the newest installed is %d in %s",
			ErrNoBinaries, minMajor, best.major, best.dir)
	}
	return best, nil
}

// versionPattern finds the major version in "postgres (PostgreSQL) 17.2 (…)",
// and in that of development versions such as "18beta1".
var versionPattern = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// majorOf asks a postgres program for its version. PostgreSQL answers this question even to root.
func majorOf(ctx context.Context, program string) (int, error) {
	out, err := exec.CommandContext(ctx, program, "-V").Output()
	if ctx.Err() != nil {
		err = ctx.Err() // Which killed it.
	}
	if err != nil {
		return 0, fmt.Errorf("%s -V: %w", program, err)
	}
	m := versionPattern.FindSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("%s -V: no version in %q", program, bytes.TrimSpace(out))
	}
	return strconv.Atoi(string(m[1]))
}

// clusterMajor reads the major version that made a cluster; 0 means that there is no cluster.
func clusterMajor(dataDir string) (int, error) {
	raw, err := os.ReadFile(filepath.Join(dataDir, "PG_VERSION"))
	if errors.Is(err, os.ErrNotExist) {
		entries, err := os.ReadDir(dataDir)
		switch {
		case len(entries) > 0:
			return 0, fmt.Errorf("%s is not empty, but isn't a PostgreSQL cluster: it has no PG_VERSION", dataDir)
		case errors.Is(err, os.ErrNotExist):
			return 0, nil
		}
		return 0, err
	}
	if err != nil {
		return 0, err
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil {
		return 0, fmt.Errorf("%s: PG_VERSION: %w", dataDir, err)
	}
	return major, nil
}
