package checkpoint

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	strictjson "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
)

// Status is where an operation stands.
type Status string

// The statuses.
const (
	StatusRunning     Status = "running" // or interrupted: then nobody has its lock
	StatusCompleted   Status = "completed"
	StatusRollingBack Status = "rolling_back" // or interrupted in it
	StatusRolledBack  Status = "rolled_back"
)

func (s Status) undoes() bool { return s == StatusRollingBack || s == StatusRolledBack }

func (s Status) ended() bool { return s == StatusCompleted || s == StatusRolledBack }

// Limits of a state.
const (
	// MaxSteps is the most steps of an operation.
	MaxSteps = 20_000_000
	// MaxErrors is how many errors a state keeps: the last ones.
	MaxErrors = 100
	// maxMessage bounds the text of an error that is kept, in bytes.
	maxMessage = 1000
)

// stateVersion is the form of a state's JSON. A state without a version is of the legacy form, that of the requirement.
const stateVersion = 1

// Seed is what randomness in the steps of one operation is derived from.
type Seed [32]byte

// NewSeed returns a seed that nobody can guess.
func NewSeed() Seed {
	var s Seed
	_, _ = rand.Read(s[:]) // It never fails.
	return s
}

// String gives a placeholder, so that a seed is not logged by accident.
func (s Seed) String() string { return "[redacted seed]" }

// MarshalText writes 64 hexadecimal digits.
func (s Seed) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, s[:]), nil }

// UnmarshalText reads what MarshalText writes.
func (s *Seed) UnmarshalText(text []byte) error {
	if len(text) != hex.EncodedLen(len(s)) {
		return errors.New("a seed has 64 hexadecimal digits")
	}
	_, err := hex.Decode(s[:], text)
	return err
}

// Failure is an error that a step returned.
type Failure struct {
	Step     int      `json:"step"`
	Undo     bool     `json:"undo,omitempty"`
	Message  string   `json:"message"`
	Severity Severity `json:"severity"`
	Time     int64    `json:"time"` // seconds since 1970
}

// State is an operation as it is saved. Its JSON is that of the requirement, with what makes it safe added: lock_key,
// total_count, completed_count, results, errors, start_time and last_update_time have the meaning that they have there. A store
// finds the head at the beginning, and a person the results at the end.
type State struct {
	Head

	ID             string          `json:"operation_id"`
	LockKey        string          `json:"lock_key"`
	Kind           string          `json:"kind"` // [Definition.Name]
	Status         Status          `json:"status"`
	Parameters     json.RawMessage `json:"parameters"`
	ParametersHash string          `json:"parameters_hash"` // hex SHA-256 of kind, number of steps and parameters
	Seed           Seed            `json:"seed"`
	TotalCount     int             `json:"total_count"`
	CompletedCount int             `json:"completed_count"`
	// ReachedCount is how many steps may have been done: those that are, and those that a run may have begun since it saved.
	ReachedCount   int       `json:"reached_count"`
	UndoneCount    int       `json:"undone_count,omitempty"` // of those reached, from the last
	Errors         []Failure `json:"errors,omitempty"`
	StartTime      int64     `json:"start_time"` // seconds since 1970
	LastUpdateTime int64     `json:"last_update_time"`
	Digest         string    `json:"digest"` // the hex SHA-256 of Results
	// Results is an array of as many results as steps are completed. ResultsName is its name in JSON.
	Results     json.RawMessage `json:"-"`
	ResultsName string          `json:"-"`

	legacy bool
	// replaces is the document that the first save takes the place of; nil where there is none.
	replaces []byte
}

// Key names the operation.
func (s *State) Key() Key { return Key{LockKey: s.LockKey, ID: s.ID} }

func (s *State) progress() Progress {
	return Progress{Key: s.Key(), Status: s.Status, Completed: s.CompletedCount, Total: s.TotalCount, Undone: s.UndoneCount}
}

// Legacy reports that the state has only the fields of the requirement, as another program wrote it, and so is not bound to
// parameters. Its counts, results, errors and times can be read. See [Call.Adopt] and [Definition.Pure].
func (s *State) Legacy() bool { return s.legacy }

// wire is a state with what tells its form, and its results under one of their names.
type wire struct {
	Version int `json:"version"`
	State
	Results      json.RawMessage `json:"results,omitempty"`
	PrizeResults json.RawMessage `json:"prize_results,omitempty"`
}

// The names that results may have in JSON.
const (
	NameResults      = "results"
	NamePrizeResults = "prize_results"
)

// encode writes the state with results, the inside of a JSON array, whose digest it has. It returns a [*SizeError].
func (s *State) encode(results []byte) ([]byte, error) {
	head, err := json.Marshal(wire{Version: stateVersion, State: *s})
	if err != nil {
		return nil, fmt.Errorf("checkpoint: encode a state: %w", err)
	}
	before, after := `,"`+s.ResultsName+`":[`, `]}`
	size := len(head) - 1 + len(before) + len(results) + len(after)
	if size > MaxBytes {
		return nil, &SizeError{Bytes: size}
	}
	body := append(make([]byte, 0, size), head[:len(head)-1]...)
	body = append(body, before...)
	body = append(body, results...)
	return append(body, after...), nil
}

// ParseHead reads the head at the beginning of a state, in time that does not grow with it. It reports false where there is
// none.
func ParseHead(body []byte) (h Head, ok bool) {
	const form = `{"version":%d,"revision":%d,"token":%d,"run":%q,`
	text := string(body[:min(len(body), 512)])
	var version int
	if _, err := fmt.Sscanf(text, form, &version, &h.Revision, &h.Token, &h.Run); err != nil {
		return Head{}, false
	}
	// Scanning is lenient; a store's script is not.
	exact := strings.HasPrefix(text, fmt.Sprintf(form, stateVersion, h.Revision, h.Token, h.Run))
	return h, exact && h.Revision > 0 && h.Token >= 0
}

// Decode reads a saved state. It returns a [*CorruptError] for whatever is not one, whatever it is. A state of the legacy form
// is read as far as it goes, see [State.Legacy].
func Decode(body []byte) (*State, error) {
	if len(body) > MaxBytes {
		return nil, corrupt("it has %d bytes", len(body))
	}
	var form struct {
		Version *int  `json:"version"`
		Seed    *Seed `json:"seed"`
	}
	if err := json.Unmarshal(body, &form); err != nil {
		return nil, corrupt("it is no JSON object: %v", err)
	}
	if form.Version == nil {
		return decodeLegacy(body)
	}
	if *form.Version != stateVersion || form.Seed == nil {
		return nil, corrupt("it is of version %d, or has no seed", *form.Version)
	}
	var w wire
	if err := strict(body, &w); err != nil {
		return nil, err
	}
	s := &w.State
	if s.Results, s.ResultsName = w.Results, NameResults; s.Results == nil {
		s.Results, s.ResultsName = w.PrizeResults, NamePrizeResults
	} else if w.PrizeResults != nil {
		return nil, corrupt("it has results of two kinds")
	}
	if head, ok := ParseHead(body); !ok || head != s.Head {
		return nil, corrupt("its head is not at its beginning")
	}
	return s, s.validate()
}

func strict(body []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return corrupt("it is no state: %v", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return corrupt("something follows it")
	}
	return nil
}

func (s *State) validate() error {
	switch {
	case s.Key().Validate() != nil:
		return corrupt("its key is %q", s.Key().String())
	case s.Status != StatusRunning && s.Status != StatusCompleted && s.Status != StatusRollingBack && s.Status != StatusRolledBack:
		return corrupt("its status is %q", s.Status)
	case s.TotalCount < 0 || s.TotalCount > MaxSteps || s.CompletedCount < 0 || s.CompletedCount > s.ReachedCount || s.ReachedCount > s.TotalCount:
		return corrupt("%d of %d steps are done, and %d begun", s.CompletedCount, s.TotalCount, s.ReachedCount)
	case s.Status == StatusCompleted && s.CompletedCount != s.TotalCount:
		return corrupt("it is completed with %d of %d steps", s.CompletedCount, s.TotalCount)
	case s.UndoneCount < 0 || s.UndoneCount > s.ReachedCount, !s.Status.undoes() && s.UndoneCount != 0,
		s.Status == StatusRolledBack && s.UndoneCount != s.ReachedCount:
		return corrupt("it is %s with %d of %d steps undone", s.Status, s.UndoneCount, s.ReachedCount)
	case s.ParametersHash != hashOf(s.Kind, s.TotalCount, s.Parameters):
		return corrupt("its parameters are not those of their hash")
	case len(s.Results) < 2 || s.Results[0] != '[':
		return corrupt("it has no results")
	case elements(s.results()) != s.CompletedCount:
		return corrupt("it has %d results of %d steps", elements(s.results()), s.CompletedCount)
	}
	if sum := sha256.Sum256(s.results()); s.Digest != hex.EncodeToString(sum[:]) {
		return corrupt("its results are not those of their digest")
	}
	return nil
}

// results is the inside of the array.
func (s *State) results() []byte { return s.Results[1 : len(s.Results)-1] }

// elements counts what is in the inside of an array that is valid JSON.
func elements(array []byte) int {
	n, depth, quoted := 0, 0, false
	for i := 0; i < len(array); i++ {
		switch c := array[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[' || c == '{':
			depth++
		case c == ']' || c == '}':
			depth--
		case c == ',' && depth == 0:
			n++
		}
	}
	if len(bytes.TrimSpace(array)) == 0 {
		return 0
	}
	return n + 1
}

// hashOf binds a state to what it was made for. Each part but the last is preceded by its length or of a fixed one.
func hashOf(kind string, steps int, parameters []byte) string {
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "fairlead/checkpoint/v1\x00%d:%s%020d", len(kind), kind, steps)
	h.Write(parameters)
	return hex.EncodeToString(h.Sum(nil))
}

// The levels of JSON in a state.
const (
	maxLevels        = 10_000 // of a whole state: package json reads no more
	parametersLevels = maxLevels - 1
	resultLevels     = maxLevels - 2 // A result is in an array.
)

// marshal writes parameters or a result. It refuses text that is not UTF-8, which [json.Marshal] would replace, and more than
// so many levels of arrays and objects.
func marshal(v any, levels int) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	// That is how the replacement is written. It is also what JSON of the caller's own may have, so the strict encoder decides.
	// It does not write the text itself, whose every byte is in the hash of states that are saved already.
	if bytes.Contains(text, []byte(`\ufffd`)) || !utf8.Valid(text) {
		err = strictjson.MarshalWrite(io.Discard, v, jsonv1.DefaultOptionsV1(), jsontext.AllowInvalidUTF8(false))
	}
	if err == nil && len(text) > 2*levels { // Each level has two brackets.
		outer := maxLevels - levels
		if !json.Valid(slices.Concat(bytes.Repeat([]byte("["), outer), text, bytes.Repeat([]byte("]"), outer))) {
			err = fmt.Errorf("it has more than %d levels of arrays and objects", levels)
		}
	}
	return text, err
}

// plain reports whether every T is what is read from its JSON, so that reading it can be left out.
func plain[T any]() bool {
	t := reflect.TypeFor[T]()
	return t.PkgPath() == "" && (t.Kind() == reflect.Bool || t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64)
}

// read reads what marshal has written.
func read[T any](text []byte) (v T, err error) {
	err = json.Unmarshal(text, &v)
	return v, err
}

// fail notes an error of a step.
func (s *State) fail(e *StepError, now time.Time) {
	s.Errors = append(s.Errors, Failure{Step: e.Step, Undo: e.Undo, Message: clip(e.Err.Error()), Severity: SeverityOf(e), Time: now.Unix()})
	if over := len(s.Errors) - MaxErrors; over > 0 {
		s.Errors = append([]Failure(nil), s.Errors[over:]...)
	}
}

// clip bounds the text of an error that is kept.
func clip(message string) string {
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage], "")
	}
	return message
}
