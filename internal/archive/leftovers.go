package archive

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
)

// temporary are the names that [create] and [writeManifest] give to files which are not whole yet.
var temporary = regexp.MustCompile(`^([a-z_]+(-[0-9]+)?\.csv\.gz|manifest\.json)\.[0-9]+\.tmp$`)

// sweepAll removes what killed runs have left half written, in the directories of the archives that were begun here.
func (r *runner) sweepAll(ctx context.Context) error {
	if r.DryRun {
		return nil
	}
	all, err := records(ctx, r.pool, `true`)
	for i := range all {
		if a := &all[i]; a.Host == r.host && a.Directory == r.Directory {
			sweep(a.path())
		}
	}
	return err
}

// sweep removes the files that runs which were killed have left half written in an archive's directory. It does nothing while a run writes there, since
// that holds the directory's lock, which ends with its process. What it can't remove stays: that is no reason not to archive.
func sweep(directory string) {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return
	}
	var left []string
	for _, e := range entries {
		if e.Type().IsRegular() && temporary.MatchString(e.Name()) {
			left = append(left, filepath.Join(directory, e.Name()))
		}
	}
	if len(left) == 0 {
		return
	}
	free, alone, err := lock(directory, true)
	defer free()
	if err != nil || !alone {
		return
	}
	for _, path := range left {
		_ = os.Remove(path)
	}
}
