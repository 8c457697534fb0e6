package witness

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/fairlead-dev/fairlead/internal/durable"
	"github.com/fairlead-dev/fairlead/translog"
)

const (
	// stateVersion is that of the state's format.
	stateVersion = 1
	// maxStateBytes bounds the state: with the most logs, and some 8 KB for each.
	maxStateBytes = 16 << 20
)

// Errors of [New].
var (
	// ErrInUse is wrapped where another process has the state or the key.
	ErrInUse = errors.New("another witness is using it")
	// ErrCorrupt is wrapped where the state's file is not what a witness with this key has written.
	ErrCorrupt = errors.New("the witness's state can't be trusted")
)

// kept is the largest checkpoint of a log that the witness has cosigned.
type kept struct {
	Log  string `json:"log"`  // the verifier key of the log that has signed it
	Note string `json:"note"` // with the log's signature and the witness's
	tree tlog.Tree
}

// state is a file with a checkpoint for each log.
type state struct {
	file string
	logs map[string]kept // by origin
}

// document is the content of the file. Origins, sizes and roots are in the notes, under the witness's signature.
type document struct {
	Version     int    `json:"version"`
	Witness     string `json:"witness"` // the verifier key
	Checkpoints []kept `json:"checkpoints"`
}

// readState reads the file and verifies it by the witness's key. A file that is not there is the state of a new witness.
func readState(file, vkey string) (*state, error) {
	s := &state{file: file, logs: map[string]kept{}}
	f, err := os.Open(file)
	if errors.Is(err, os.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // Only read from.
	raw, err := io.ReadAll(io.LimitReader(f, maxStateBytes+1))
	if err != nil {
		return nil, err
	}
	corrupt := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s: %w", ErrCorrupt, file, fmt.Errorf(format, args...))
	}
	var d document
	if err := json.Unmarshal(raw, &d); err != nil || len(raw) > maxStateBytes {
		return nil, corrupt("it is no JSON document of a witness (%d bytes): %w", len(raw), err)
	}
	if d.Version != stateVersion {
		return nil, corrupt("it has version %d; this program knows version %d", d.Version, stateVersion)
	}
	if d.Witness != vkey {
		return nil, corrupt("it is that of %.300q, and the key is that of %s", d.Witness, vkey)
	}
	for _, k := range d.Checkpoints {
		c, err := translog.Open(k.Note, k.Log, vkey)
		if err != nil {
			return nil, corrupt("%w", err)
		}
		if _, twice := s.logs[c.Origin]; twice || len(c.Cosignatures) != 1 {
			return nil, corrupt("a checkpoint of %s is there twice, or not cosigned", c.Origin)
		}
		k.tree = c.Tree
		s.logs[c.Origin] = k
	}
	return s, nil
}

// with returns the state after a checkpoint was cosigned.
func (s *state) with(origin string, k kept) *state {
	next := &state{file: s.file, logs: maps.Clone(s.logs)}
	next.logs[origin] = k
	return next
}

// lockOf names the file whose lock keeps other processes from a state.
func lockOf(file string) string { return file + ".lock" }

// write puts the state on disk, with the errors of [durable.Replace]. An error wraps [ErrInUse] where the lock that the process holds is no
// longer the state's: somebody has removed it, and another process may have made and taken a new one.
func (s *state) write(vkey string, held *os.File) error {
	ours, err := held.Stat()
	if err != nil {
		return err
	}
	now, err := os.Stat(lockOf(s.file))
	if err != nil {
		return err // Nothing is written as long as it is away.
	}
	if !os.SameFile(ours, now) {
		return fmt.Errorf("%w: %s is not the file that this process has locked", ErrInUse, lockOf(s.file))
	}
	d := document{Version: stateVersion, Witness: vkey}
	for _, origin := range slices.Sorted(maps.Keys(s.logs)) {
		d.Checkpoints = append(d.Checkpoints, s.logs[origin])
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(d); err != nil {
		return err
	}
	if b.Len() > maxStateBytes {
		return fmt.Errorf("the state would have %d bytes, more than %d", b.Len(), maxStateBytes)
	}
	return durable.Replace(s.file, []byte(b.String()), 0o600)
}
