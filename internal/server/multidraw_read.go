package server

import (
	"context"
	"net/http"

	"github.com/fairlead-dev/fairlead/multidraw"
)

// maxResultsLimit is the most draws of a page: some 200 KB of integers.
const maxResultsLimit = 10_000

func (s *Server) multidrawOf(r *http.Request) (*multidraw.Operation, error) {
	id, err := pathID(r, "multi-draw")
	if err != nil {
		return nil, err
	}
	return s.Multidraw.Operation(r.Context(), id)
}

// getMultidrawResults lists what is drawn so far. The cursor is how many draws came before, so it stays good while more are
// drawn; a page that reaches the end of what is drawn so far is the last for now.
func (s *Server) getMultidrawResults(w http.ResponseWriter, r *http.Request) error {
	p, err := parsePage(r, r.URL.Path, maxResultsLimit, oldestFirst())
	if err != nil {
		return err
	}
	o, err := s.multidrawOf(r)
	if err != nil {
		return err
	}
	end := min(p.after+int64(p.limit), o.Completed)
	saved, err := bounded(r.Context(), s.scans, func(ctx context.Context) ([]byte, error) { return s.Multidraw.Saved(ctx, o, p.after, end) })
	if err != nil {
		return err
	}
	ints, prizes, err := o.Spec.Results(saved)
	if err != nil {
		return err
	}
	var next *string
	if end < o.Completed {
		next = new(cursor(r.URL.Path, end))
	}
	if o.Spec.Range != nil {
		return writeView(w, list[int64]{Items: ints, Next: next})
	}
	return writeView(w, list[string]{Items: prizes, Next: next})
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
