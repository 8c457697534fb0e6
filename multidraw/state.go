package multidraw

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
)

// Limits of how often a run is saved, in draws.
const (
	DefaultEvery     = 1_000  // how many draws there are between two checkpoints of an operation of up to a million draws
	MaxEvery         = 20_000 // the most draws between two checkpoints: what a crash costs at most, some milliseconds of work
	usualCheckpoints = 1_000  // how many checkpoints a longer operation has
)

// EveryFor is how many draws there are between two checkpoints of an operation, unless its caller knows better: a thousand,
// and more for operations of more than a million draws, which are then saved about a thousand times.
func EveryFor(count int64) int {
	return int(min(max(DefaultEvery, (count+usualCheckpoints-1)/usualCheckpoints), MaxEvery))
}

// stateVersion is the form of a state's JSON.
const stateVersion = 1

// State is where a run stands. It is bound to its draws: to their seed, name and parameters. What was drawn is not in it;
// the function that saves gets both. Its JSON is what [ParseState] reads.
type State struct {
	Version    int    `json:"version"`         // of this form
	Name       string `json:"name"`            // of the draws
	Parameters Hash   `json:"parameters"`      // Spec.Hash
	Commitment string `json:"seed_commitment"` // of the seed, in hex
	Total      int64  `json:"total_count"`     // draws to be made
	Completed  int64  `json:"completed_count"` // draws made: a multiple of Every, or Total
	Every      int    `json:"every"`           // draws between two checkpoints
	Digest     Hash   `json:"digest"`          // of all saved bytes, checkpoint by checkpoint
}

// Hash is a SHA-256. Its text is 64 lower-case hexadecimal digits.
type Hash [sha256.Size]byte

// MarshalText implements [encoding.TextMarshaler].
func (h Hash) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, h[:]), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (h *Hash) UnmarshalText(text []byte) error {
	b, err := hex.DecodeString(string(text))
	if err != nil || len(b) != len(h) || hex.EncodeToString(b) != string(text) {
		return bad("a hash", "must be 64 lower-case hexadecimal digits")
	}
	*h = Hash(b)
	return nil
}

// NewState is the state of a run of which nothing is drawn yet; every 0 means [EveryFor]. It returns a [*ParameterError].
func NewState(d *Draws, total int64, every int) (State, error) {
	if total < 1 || total > MaxCount {
		return State{}, bad("count", "must be an integer from 1 to %d", MaxCount)
	}
	if every == 0 {
		every = EveryFor(total)
	}
	if every < 1 || every > MaxEvery {
		return State{}, bad("every", "must be an integer from 1 to %d", MaxEvery)
	}
	parameters := d.spec.Hash(total)
	return State{
		Version: stateVersion, Name: d.name, Parameters: parameters, Commitment: d.commitment, Total: total, Every: every,
		Digest: firstDigest(parameters, d.name),
	}, nil
}

// Check returns [ErrOtherParameters] unless the state belongs to these draws, and a [*CorruptError] when it contradicts
// itself.
func (s *State) Check(d *Draws) error {
	if err := s.validate(); err != nil {
		return err
	}
	if s.Name != d.name || s.Commitment != d.commitment || s.Parameters != d.spec.Hash(s.Total) {
		return ErrOtherParameters
	}
	if s.Completed == 0 && s.Digest != firstDigest(s.Parameters, s.Name) {
		return corrupt("the digest of no draws is another one")
	}
	return nil
}

func (s *State) validate() error {
	switch {
	case s.Version != stateVersion:
		return corrupt("version %d", s.Version)
	case s.Parameters == Hash{} || s.Digest == Hash{} || new(Hash).UnmarshalText([]byte(s.Commitment)) != nil:
		return corrupt("a hash is missing or malformed")
	case s.Total < 1 || s.Total > MaxCount:
		return corrupt("%d draws in all", s.Total)
	case s.Every < 1 || s.Every > MaxEvery:
		return corrupt("saved each %d draws", s.Every)
	case s.Completed < 0 || s.Completed > s.Total || (s.Completed%int64(s.Every) != 0 && s.Completed != s.Total):
		return corrupt("%d of %d draws, saved each %d", s.Completed, s.Total, s.Every)
	}
	return nil
}

// Checkpoints is how often a run in this state was saved.
func (s *State) Checkpoints() int64 { return (s.Completed + int64(s.Every) - 1) / int64(s.Every) }

// draw makes the draws of the next checkpoint, moves the state on, and returns the draws in buf as they are saved.
func (s *State) draw(d *Draws, buf []byte) []byte {
	n := int(min(int64(s.Every), s.Total-s.Completed))
	saved := d.Append(buf, s.Completed, n)
	s.Completed += int64(n)
	s.Digest = nextDigest(s.Digest, saved)
	return saved
}

// Done reports whether nothing is left to draw.
func (s *State) Done() bool { return s.Completed == s.Total }

// ParseState reads a saved state. It returns a [*CorruptError] for whatever is not one, such as a state of another version
// or of another program.
func ParseState(data []byte) (s State, err error) {
	if err := decodeStrictly(data, "state", &s); err != nil {
		return State{}, err
	}
	return s, s.validate()
}

// decodeStrictly reads one JSON value without unknown fields and without trailing data. Errors are [*CorruptError].
func decodeStrictly(data []byte, what string, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return corrupt("no %s: %v", what, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return corrupt("something follows the %s", what)
	}
	return nil
}

// Chunk is what is saved at once. Its bytes are the run's, and are overwritten after the call.
type Chunk struct {
	First int64  // index of the first draw in it
	Saved []byte // the draws, see Spec.Width
	Next  State  // of the run, once the chunk is saved
}

// Run walks over draws from a state and saves each chunk, until all are drawn, ctx ends, or save returns an error, which it
// returns. It returns the last state that was saved: a run that goes on from it saves what this one would have. It returns the
// errors of [State.Check] before anything is drawn.
func Run(ctx context.Context, d *Draws, from State, save func(context.Context, Chunk) error) (State, error) {
	if err := from.Check(d); err != nil {
		return from, err
	}
	var buf []byte
	at := from
	for !at.Done() {
		if err := ctx.Err(); err != nil {
			return at, err
		}
		next := at
		buf = next.draw(d, buf[:0])
		if err := save(ctx, Chunk{First: at.Completed, Saved: buf, Next: next}); err != nil {
			return at, err
		}
		at = next
	}
	return at, nil
}
