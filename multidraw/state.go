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
	// DefaultEvery is how many draws there are between two checkpoints of an operation of up to a million draws.
	DefaultEvery = 1_000
	// MaxEvery is the most draws between two checkpoints: what a crash costs at most, some milliseconds of work.
	MaxEvery = 20_000
	// usualCheckpoints is how many checkpoints a longer operation has.
	usualCheckpoints = 1_000
)

// EveryFor is how many draws there are between two checkpoints of an operation, unless its caller knows better: a thousand,
// and more for operations of more than a million draws, which are then saved about a thousand times.
func EveryFor(count int64) int {
	return int(min(max(DefaultEvery, (count+usualCheckpoints-1)/usualCheckpoints), MaxEvery))
}

// stateVersion is the form of a state's JSON.
const stateVersion = 1

// State is where a run stands. It is bound to its draws: to their seed, name and parameters. What was drawn is not in it;
// the function that saves gets both.
type State struct {
	Name       string            // of the draws
	Parameters [sha256.Size]byte // Spec.Hash
	Commitment string            // of the seed, in hex
	Total      int64             // draws to be made
	Completed  int64             // draws made: a multiple of Every, or Total
	Every      int               // draws between two checkpoints
	Digest     [sha256.Size]byte // of all saved bytes, checkpoint by checkpoint
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
		Name: d.name, Parameters: parameters, Commitment: d.commitment, Total: total, Every: every,
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

// Done says whether nothing is left to draw.
func (s *State) Done() bool { return s.Completed == s.Total }

// stateJSON is a state as it is written.
type stateJSON struct {
	Version    int    `json:"version"`
	Name       string `json:"name"`
	Parameters string `json:"parameters"`
	Commitment string `json:"seed_commitment"`
	Total      int64  `json:"total_count"`
	Completed  int64  `json:"completed_count"`
	Every      int    `json:"every"`
	Digest     string `json:"digest"`
}

// MarshalJSON writes what [ParseState] reads.
func (s State) MarshalJSON() ([]byte, error) {
	return json.Marshal(stateJSON{
		Version: stateVersion, Name: s.Name, Parameters: hex.EncodeToString(s.Parameters[:]), Commitment: s.Commitment,
		Total: s.Total, Completed: s.Completed, Every: s.Every, Digest: hex.EncodeToString(s.Digest[:]),
	})
}

// UnmarshalJSON is [ParseState].
func (s *State) UnmarshalJSON(data []byte) (err error) {
	*s, err = ParseState(data)
	return err
}

// ParseState reads a saved state. It returns a [*CorruptError] for whatever is not one, such as a state of another version
// or of another program.
func ParseState(data []byte) (State, error) {
	var j stateJSON
	if err := decodeStrictly(data, "state", &j); err != nil {
		return State{}, err
	}
	if j.Version != stateVersion {
		return State{}, corrupt("version %d", j.Version)
	}
	s := State{Name: j.Name, Commitment: j.Commitment, Total: j.Total, Completed: j.Completed, Every: j.Every}
	if !decodeHash(&s.Parameters, j.Parameters) || !decodeHash(&s.Digest, j.Digest) || !decodeHash(new([sha256.Size]byte), j.Commitment) {
		return State{}, corrupt("a hash is not 64 hexadecimal digits")
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

func decodeHash(into *[sha256.Size]byte, text string) bool {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(into) || hex.EncodeToString(b) != text {
		return false
	}
	*into = [sha256.Size]byte(b)
	return true
}

// Chunk is what is saved at once. Its bytes are the run's, and are overwritten after the call.
type Chunk struct {
	First int64  // index of the first draw in it
	Saved []byte // the draws, see Spec.Width
	Next  State  // of the run, once the chunk is saved
}

// Run walks over draws from a state and saves each chunk, until all are drawn, ctx ends, or save returns an error, which it
// returns. While one chunk is being saved, the next is drawn. It returns the last state that was saved: a run that goes on
// from it saves what this one would have. It returns the errors of [State.Check] before anything is drawn.
func Run(ctx context.Context, d *Draws, from State, save func(context.Context, Chunk) error) (State, error) {
	if err := from.Check(d); err != nil {
		return from, err
	}
	ctx, cancel := context.WithCancel(ctx)
	chunks, free := make(chan Chunk), make(chan []byte, chunksAhead)
	for range chunksAhead {
		free <- nil
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer close(chunks)
		produce(ctx, d, from, free, chunks)
	}()
	defer func() {
		cancel()
		<-ended
	}()
	at := from
	for c := range chunks {
		if err := ctx.Err(); err != nil {
			return at, err
		}
		if err := save(ctx, c); err != nil {
			return at, err
		}
		at = c.Next
		free <- c.Saved
	}
	if at.Done() {
		return at, nil
	}
	return at, ctx.Err()
}

// chunksAhead is how many chunks a run has in memory: the one that is being saved, and the one that is being drawn.
const chunksAhead = 2

func produce(ctx context.Context, d *Draws, at State, free <-chan []byte, chunks chan<- Chunk) {
	for !at.Done() {
		var buf []byte
		select {
		case buf = <-free:
		case <-ctx.Done():
			return
		}
		c := Chunk{First: at.Completed}
		c.Saved = at.draw(d, buf[:0])
		c.Next = at
		select {
		case chunks <- c:
		case <-ctx.Done():
			return
		}
	}
}
