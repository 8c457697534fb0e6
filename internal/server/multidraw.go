package server

import (
	"context"
	"net/http"
	"reflect"
	"strconv"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/multidraw"
)

type createMultidrawRequest struct {
	LockKey string              `json:"lock_key" minLength:"1" maxLength:"200" doc:"held until the operation is completed or rolled back"`
	Count   int64               `json:"count" minimum:"1" maximum:"20000000" doc:"draws to be made"`
	Range   *rangeRequest       `json:"range,omitempty" doc:"integers to draw from; instead of prizes"`
	Prizes  []weightedPrizeView `json:"prizes,omitempty" doc:"prizes to draw from; instead of a range. The sum of weights is positive and fits 64 bits"`
	Async   *bool               `json:"async,omitempty" doc:"true: answer at once, with an operation that is running"`
}

type rangeRequest struct {
	Min *int64 `json:"min" nullable:"false" doc:"included"`
	Max *int64 `json:"max" nullable:"false" doc:"included"`
}

type weightedPrizeView struct {
	ID     string `json:"id" pattern:"^[A-Za-z0-9._:@-]{1,64}$" doc:"unique among the prizes"`
	Name   string `json:"name" minLength:"1" maxLength:"200"`
	Weight *int64 `json:"weight" nullable:"false" minimum:"0" doc:"the prize is won with probability weight / sum of weights; with weight 0, never"`
	Value  *int64 `json:"value,omitempty" doc:"the caller's; 0 when absent"`
}

type rangeView struct {
	Min int64 `json:"min"`
	Max int64 `json:"max"`
}

type multidrawView struct {
	ID             uuid.UUID           `json:"id"`
	LockKey        string              `json:"lock_key"`
	Status         multidraw.Status    `json:"status" enum:"running,completed,interrupted,rolled_back"`
	TotalCount     int64               `json:"total_count" from:"Total"`
	CompletedCount int64               `json:"completed_count" from:"Completed"`
	Range          *rangeView          `json:"range,omitempty" from:"Spec.Range" doc:"absent where prizes are drawn"`
	Prizes         []weightedPrizeView `json:"prizes,omitempty" from:"-" doc:"absent where integers are drawn"`
	Results        []int64             `json:"results,omitzero" from:"-" doc:"the integers drawn so far, of operations of up to 1,000 draws of a range"`
	PrizeResults   []drawnPrize        `json:"prize_results,omitzero" from:"-" doc:"the prizes drawn so far, of operations of up to 1,000 draws of prizes: their ids, or where a query asks for objects, the prizes as in the list"`
	SeedCommitment string              `json:"seed_commitment" from:"Commitment" doc:"hex SHA-256 of the seed, from the start"`
	Seed           *string             `json:"seed" from:"-" doc:"hex seed, null until all is drawn"`
	StartTime      timestamp           `json:"start_time" from:"StartedAt"`
	LastUpdateTime timestamp           `json:"last_update_time" from:"UpdatedAt"`
	CompletedAt    *timestamp          `json:"completed_at"`
	RolledBackAt   *timestamp          `json:"rolled_back_at"`
}

// drawnResult is an integer or a drawnPrize, the same for all of an operation.
type drawnResult any

// drawnPrize is the id of a prize, or the prize as an object.
type drawnPrize any

// drawnPrizes shows prizes with these ids.
func drawnPrizes(of []weightedPrizeView, ids []string, objects bool) []drawnPrize {
	if ids == nil {
		return nil // Integers were drawn.
	}
	byID := make(map[string]*weightedPrizeView, len(of))
	for i := range of {
		byID[of[i].ID] = &of[i]
	}
	drawn := make([]drawnPrize, len(ids))
	for i, id := range ids {
		if drawn[i] = id; objects {
			drawn[i] = byID[id]
		}
	}
	return drawn
}

// prizeObjects reads whether drawn prizes are asked for as objects.
func prizeObjects(r *http.Request) (bool, error) {
	value, err := one(r, "prize_results")
	if err == nil && value != "" && value != "ids" && value != "objects" {
		err = refuse("prize_results must be ids or objects")
	}
	return value == "objects", err
}

// op checks a multi-draw and makes the operation of it.
func (q *createMultidrawRequest) op() (multidraw.Op, error) {
	var c checks
	c.name("lock_key", q.LockKey)
	if q.Count < 1 || q.Count > multidraw.MaxCount {
		c.fail("count must be an integer from 1 to %d", multidraw.MaxCount)
	}
	op := multidraw.Create{LockKey: q.LockKey, Count: q.Count, Async: or(q.Async, false)}
	if r := q.Range; r != nil {
		if r.Min == nil || r.Max == nil {
			c.fail("range needs min and max")
		} else {
			op.Spec.Range = &multidraw.Range{Min: *r.Min, Max: *r.Max}
		}
	}
	if q.Prizes != nil {
		op.Spec.Prizes = q.prizes(&c)
	}
	if c.err == nil {
		if err := op.Spec.Validate(); err != nil {
			c.fail("%s", err.Error())
		}
	}
	return op, c.err
}

func (q *createMultidrawRequest) prizes(c *checks) []multidraw.Prize {
	c.upTo("the number of prizes", len(q.Prizes), multidraw.MaxPrizes)
	prizes := make([]multidraw.Prize, 0, len(q.Prizes))
	for i, p := range q.Prizes {
		field := "prizes[" + strconv.Itoa(i) + "]"
		c.id(field+".id", p.ID)
		c.name(field+".name", p.Name)
		if p.Weight == nil {
			c.fail("%s.weight is needed", field)
		}
		if c.err != nil {
			break
		}
		prizes = append(prizes, multidraw.Prize{ID: p.ID, Name: p.Name, Weight: *p.Weight, Value: or(p.Value, 0)})
	}
	return prizes
}

func viewPrizes(spec *multidraw.Spec) (list []weightedPrizeView) {
	for _, p := range spec.Prizes {
		list = append(list, weightedPrizeView{ID: p.ID, Name: p.Name, Weight: &p.Weight, Value: &p.Value})
	}
	return list
}

func viewMultidraw(o *multidraw.Operation) multidrawView { return viewMultidrawWith(o, false) }

func viewMultidrawWith(o *multidraw.Operation, objects bool) multidrawView {
	full := as[multidrawView](o)
	full.Prizes = viewPrizes(&o.Spec)
	if o.Seed != nil {
		full.Seed = new(o.Seed.Hex())
	}
	if o.Total > multidraw.InlineResults {
		return full
	}
	ints, ids, err := o.Spec.Results(o.Inline)
	if err != nil {
		panic("server: " + err.Error()) // The draws were read with their prizes.
	}
	full.Results, full.PrizeResults = ints, drawnPrizes(full.Prizes, ids, objects)
	return full
}

// multidrawSummaryView is a multi-draw in a list.
type multidrawSummaryView struct {
	ID             uuid.UUID        `json:"id"`
	LockKey        string           `json:"lock_key"`
	Status         multidraw.Status `json:"status" enum:"running,completed,interrupted,rolled_back"`
	TotalCount     int64            `json:"total_count" from:"Total"`
	CompletedCount int64            `json:"completed_count" from:"Completed"`
	SeedCommitment string           `json:"seed_commitment" from:"Commitment"`
	StartTime      timestamp        `json:"start_time" from:"StartedAt"`
	LastUpdateTime timestamp        `json:"last_update_time" from:"UpdatedAt"`
}

func (s *Server) multidrawRoutes() []route {
	create := commandRoute("/v1/multidraws", accessStaff, http.StatusCreated, "Draw many times; 202 instead of 201 while the operation is running", viewMultidraw,
		mutation[createMultidrawRequest, multidraw.Op]{
			op: plain((*createMultidrawRequest).op), execute: s.Multidraw.Create,
			answer: func(result any) (int, []byte) {
				o := result.(*multidraw.Operation) //nolint:errcheck,forcetypeassert // The service has no other.
				status := http.StatusCreated
				if o.CompletedAt == nil {
					status = http.StatusAccepted
				}
				return status, mustMarshal(viewMultidraw(o))
			},
		})
	create.doc.accepted = true
	results := paged[drawnResult]("List the draws so far, in order: integers, or prizes")
	results.query[0] = parameter{name: "limit", doc: "most draws to return, 1 to 10,000, 50 when absent", schema: reflect.TypeFor[int]()}
	act := func(verb, summary string, op multidraw.Op) route {
		return actRoute("multidraws", verb, "multi-draw", summary, viewMultidraw, s.Multidraw.Execute, fixed(op))
	}
	return []route{
		create,
		listRoute("/v1/multidraws", accessStaff, "List multi-draws, oldest first", oldestFirst(), func(r *http.Request, after int64, limit int) ([]multidraw.Operation, error) {
			return s.Multidraw.Operations(r.Context(), after, limit)
		}, as[multidrawSummaryView], func(o multidraw.Operation) int64 { return o.Number }),
		withObjects(get("/v1/multidraws/{id}", accessStaff, doc[none, multidrawView]("Read a multi-draw"), s.getMultidraw)),
		withObjects(get("/v1/multidraws/{id}/results", accessStaff, results, s.getMultidrawResults)),
		get("/v1/multidraws/{id}/proof", accessStaff, doc[none, multidrawProofDocument]("Read the document that fairlead verify checks"),
			shown(with(s.multidrawOf, func(_ context.Context, o *multidraw.Operation) (*multidraw.Proof, error) {
				return multidraw.NewProof(o)
			}), same[*multidraw.Proof])),
		act("resume", "Go on with an interrupted multi-draw, in the background", multidraw.Resume{}),
		act("rollback", "End an interrupted or completed multi-draw; its draws stay readable", multidraw.Rollback{}),
	}
}

// withObjects documents a route that shows drawn prizes.
func withObjects(r route) route {
	return filtered(r, "prize_results", "ids, also when absent; or objects: drawn prizes as in the operation's list, with id, name, weight and value")
}

// maxResultsLimit is the most draws of a page: some 200 KB of integers.
const maxResultsLimit = 10_000

func (s *Server) multidrawOf(r *http.Request) (*multidraw.Operation, error) {
	id, err := pathID("multi-draw")(r)
	if err != nil {
		return nil, err
	}
	return s.Multidraw.Operation(r.Context(), id)
}

func (s *Server) getMultidraw(w http.ResponseWriter, r *http.Request) error {
	objects, err := prizeObjects(r)
	if err != nil {
		return err
	}
	o, err := s.multidrawOf(r)
	if err != nil {
		return err
	}
	return writeView(w, viewMultidrawWith(o, objects))
}

// getMultidrawResults lists what is drawn so far. The cursor is how many draws came before, so it stays good while more are
// drawn; a page that reaches the end of what is drawn so far is the last for now.
func (s *Server) getMultidrawResults(w http.ResponseWriter, r *http.Request) error {
	p, err := parsePage(r, r.URL.Path, maxResultsLimit, oldestFirst())
	if err != nil {
		return err
	}
	objects, err := prizeObjects(r)
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
	ints, ids, err := o.Spec.Results(saved)
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
	return writeView(w, list[drawnPrize]{Items: drawnPrizes(viewPrizes(&o.Spec), ids, objects), Next: next})
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
