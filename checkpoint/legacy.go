package checkpoint

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// legacyWire is a state as the requirement has it.
type legacyWire struct {
	LockKey        *string           `json:"lock_key"`
	TotalCount     int               `json:"total_count"`
	CompletedCount int               `json:"completed_count"`
	Results        json.RawMessage   `json:"results"`
	PrizeResults   json.RawMessage   `json:"prize_results"`
	Errors         []json.RawMessage `json:"errors"`
	StartTime      int64             `json:"start_time"`
	LastUpdateTime int64             `json:"last_update_time"`
}

func decodeLegacy(body []byte) (*State, error) {
	var w legacyWire
	if err := strict(body, &w); err != nil {
		return nil, err
	}
	if w.LockKey == nil || w.TotalCount < 0 || w.CompletedCount < 0 || w.CompletedCount > w.TotalCount {
		return nil, corrupt("it is no state, and none of the legacy form")
	}
	s := &State{
		LockKey: *w.LockKey, TotalCount: w.TotalCount, CompletedCount: w.CompletedCount, StartTime: w.StartTime,
		LastUpdateTime: w.LastUpdateTime, Results: w.Results, ResultsName: NameResults, legacy: true,
	}
	if s.Results == nil || string(s.Results) == "null" {
		s.Results, s.ResultsName = w.PrizeResults, NamePrizeResults
	}
	for _, text := range w.Errors[max(0, len(w.Errors)-MaxErrors):] {
		s.Errors = append(s.Errors, legacyFailure(text))
	}
	return s, nil
}

// legacyFailure keeps an error of a draw as another program wrote it, whatever form it has.
func legacyFailure(text json.RawMessage) Failure {
	var known struct {
		Draw int   `json:"draw_index"`
		Time int64 `json:"timestamp"`
	}
	_ = json.Unmarshal(text, &known) // What it does not say stays zero.
	return Failure{Step: known.Draw, Message: clip(string(text)), Severity: SeverityStep, Time: known.Time}
}

// adopt binds a state that another program saved to parameters with which its results go together.
func (r *Runner[P, R]) adopt(key Key, old *State, parameters P, text []byte, steps int, seed Seed) (*State, error) {
	s, err := r.bind(key, old, text, steps, seed)
	if err != nil {
		return nil, err
	}
	j, err := r.job(s, nil, 0, Call{})
	if err != nil {
		return nil, err
	}
	if err := r.def.Adopt(parameters, j.results); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOtherParameters, err)
	}
	return s, nil
}

// bind turns a state that another program saved into one of this package. That program may have done steps after the last result.
func (r *Runner[P, R]) bind(key Key, old *State, parameters []byte, steps int, seed Seed) (*State, error) {
	s := *old
	s.legacy, s.ID, s.Kind, s.Status = false, key.ID, r.def.Name, StatusRunning
	s.Parameters, s.ParametersHash, s.Seed = parameters, hashOf(r.def.Name, steps, parameters), seed
	if s.ReachedCount = s.CompletedCount; !r.def.Pure {
		s.ReachedCount = min(s.CompletedCount+1, s.TotalCount)
	}
	if s.CompletedCount == s.TotalCount {
		s.Status = StatusCompleted
	}
	if text := s.Results; len(text) == 0 || string(text) == "null" {
		s.Results, s.ResultsName = []byte("[]"), r.def.ResultsName
	} else {
		var results bytes.Buffer
		_ = json.Compact(&results, text) // It was read from JSON.
		s.Results = results.Bytes()
	}
	switch {
	case s.TotalCount > MaxSteps:
		return nil, &CorruptError{Key: key, Reason: fmt.Sprintf("it has %d steps", s.TotalCount)}
	case steps != s.TotalCount || s.ResultsName != r.def.ResultsName:
		return nil, ErrOtherParameters
	case s.Results[0] != '[' || elements(s.results()) != s.CompletedCount:
		return nil, &CorruptError{Key: key, Reason: fmt.Sprintf("it does not have the results of %d draws", s.CompletedCount)}
	}
	return &s, nil
}
