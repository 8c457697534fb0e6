package server

import (
	"context"
	"net/http"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/multidraw"
)

// maxResultsLimit is the most draws of a page: some 200 KB of integers.
const maxResultsLimit = 10_000

func (s *Server) multidrawOf(r *http.Request) (*multidraw.Operation, error) {
	id, err := pathUUID(r.PathValue("id"), "multi-draw")
	if err != nil {
		return nil, err
	}
	return s.multidraw.Operation(r.Context(), id)
}

func (s *Server) getMultidraw(w http.ResponseWriter, r *http.Request) {
	answer(s, w, r, viewMultidraw)(s.multidrawOf(r))
}

func (s *Server) getMultidraws(w http.ResponseWriter, r *http.Request) {
	p, err := parsePage(r)
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	rows, err := s.multidraw.Operations(r.Context(), p.after, p.limit+1)
	answer(s, w, r, func(rows []multidraw.Operation) list[multidrawSummaryView] {
		return newList(r, rows, p.limit, viewMultidrawSummary, func(o multidraw.Operation) int64 { return o.Number })
	})(rows, err)
}

// getMultidrawResults lists what is drawn so far. The cursor is how many draws came before, so it stays good while more are
// drawn; a page that reaches the end of what is drawn so far is the last for now.
func (s *Server) getMultidrawResults(w http.ResponseWriter, r *http.Request) {
	p, err := readPageUpTo(r.URL.Path, r.URL.RawQuery, maxResultsLimit)
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	o, err := s.multidrawOf(r)
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	end := min(p.after+int64(p.limit), o.Completed)
	saved, err := bounded(r.Context(), s.scans, func(ctx context.Context) ([]byte, error) { return s.multidraw.Saved(ctx, o, p.after, end) })
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	ints, prizes, err := o.Spec.Results(saved)
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	var next *string
	if end < o.Completed {
		next = new(cursor(r.URL.Path, end))
	}
	if o.Spec.Range != nil {
		writeBody(w, http.StatusOK, mustMarshal(list[int64]{Items: ints, Next: next}))
		return
	}
	writeBody(w, http.StatusOK, mustMarshal(list[string]{Items: prizes, Next: next}))
}

func (s *Server) getMultidrawProof(w http.ResponseWriter, r *http.Request) {
	o, err := s.multidrawOf(r)
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	proof, err := multidraw.NewProof(o)
	answer(s, w, r, func(p *multidraw.Proof) *multidraw.Proof { return p })(proof, err)
}

// multidrawProofDocument is the schema of multidraw.Proof, whose own types have the names of others here.
type multidrawProofDocument struct {
	Kind         string              `json:"kind" enum:"multidraw"`
	Version      int                 `json:"version"`
	Operation    string              `json:"operation" doc:"the multi-draw's id, from which the draws are derived, too"`
	Commitment   string              `json:"commitment" doc:"hex SHA-256 of the seed, as it was published at the start"`
	ServerSeed   string              `json:"server_seed"`
	Count        int64               `json:"count"`
	Every        int                 `json:"every" doc:"draws between two checkpoints, over which the digest is made"`
	Range        *rangeView          `json:"range,omitempty"`
	Prizes       []weightedPrizeView `json:"prizes,omitempty"`
	Digest       string              `json:"digest" doc:"of all draws"`
	Results      []int64             `json:"results,omitempty" doc:"of up to 1,000 draws"`
	PrizeResults []string            `json:"prize_results,omitempty" doc:"of up to 1,000 draws"`
}

// mayFollow refuses users the events of what they may not read.
func mayFollow(p auth.Principal, topic string) error {
	if p.Role == auth.RoleUser && strings.HasPrefix(topic, multidraw.TopicPrefix) {
		return &refusal{kind: forbidden, detail: "this topic is not open to users"}
	}
	return nil
}
