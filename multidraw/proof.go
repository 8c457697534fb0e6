package multidraw

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/fairlead-dev/fairlead/fairdraw"
)

// ProofKind is the kind of a multi-draw's proof, which distinguishes it from a campaign's.
const ProofKind = "multidraw"

// proofVersion is the form of the document, and the rules by which it is recomputed.
const proofVersion = 2

// Proof is the document from which anyone draws a completed operation again. Draws are in it up to [InlineResults]; the
// digest binds all of them.
type Proof struct {
	Kind       string  `json:"kind"`
	Version    int     `json:"version"`
	Operation  string  `json:"operation"` // its id, which is the draws' name
	Commitment string  `json:"commitment"`
	ServerSeed string  `json:"server_seed"`
	Count      int64   `json:"count"`
	Every      int     `json:"every"` // draws between two checkpoints
	Range      *Range  `json:"range,omitempty"`
	Prizes     []Prize `json:"prizes,omitempty"`
	Digest     string  `json:"digest"`
	// Results or PrizeResults are the draws themselves, of a small operation.
	Results      []int64  `json:"results,omitempty"`
	PrizeResults []string `json:"prize_results,omitempty"`
}

// NewProof makes the proof of an operation. It returns [ErrNotCompleted] before its end. It discloses the seed.
func NewProof(o *Operation) (*Proof, error) {
	if o.Seed == nil || o.CompletedAt == nil {
		return nil, ErrNotCompleted
	}
	p := &Proof{
		Kind: ProofKind, Version: proofVersion, Operation: o.ID.String(), Commitment: hex.EncodeToString(o.Commitment[:]),
		ServerSeed: o.Seed.Hex(), Count: o.Total, Every: o.Every, Range: o.Spec.Range, Prizes: o.Spec.Prizes,
		Digest: hex.EncodeToString(o.Digest[:]),
	}
	if o.Total > InlineResults {
		return p, nil
	}
	var err error
	p.Results, p.PrizeResults, err = o.Spec.Results(o.Inline)
	return p, err
}

// Results are what saved bytes stand for: integers, or ids of prizes. It returns a [*CorruptError] for a prize that is not
// in the list.
func (s *Spec) Results(saved []byte) (ints []int64, prizes []string, err error) {
	if s.Range != nil {
		ints = make([]int64, 0, s.Len(saved))
	} else {
		prizes = make([]string, 0, s.Len(saved))
	}
	for w := s.Width(); len(saved) >= w; saved = saved[w:] {
		drawn := offset(saved, w)
		switch {
		case s.Range != nil:
			ints = append(ints, int64(uint64(s.Range.Min)+drawn)) //nolint:gosec // Wraps on purpose.
		case drawn < uint64(len(s.Prizes)):
			prizes = append(prizes, s.Prizes[drawn].ID)
		default:
			return nil, prizes, corrupt("prize %d of %d was drawn", drawn, len(s.Prizes))
		}
	}
	return ints, prizes, nil
}

// IsProof reports whether a document claims to be a multi-draw's proof.
func IsProof(data []byte) bool {
	var head struct {
		Kind string `json:"kind"`
	}
	return json.Unmarshal(data, &head) == nil && head.Kind == ProofKind
}

// ParseProof reads a proof, and nothing but one: unknown fields and trailing data are refused. It does not recompute: that
// is [Proof.Verify]. Errors are [*CorruptError].
func ParseProof(data []byte) (*Proof, error) {
	var p Proof
	if err := decodeStrictly(data, "proof", &p); err != nil {
		return nil, err
	}
	if p.Kind != ProofKind || p.Version != proofVersion {
		return nil, corrupt("kind %q, version %d", p.Kind, p.Version)
	}
	return &p, nil
}

// Difference names the first field of a proof that is not what recomputation gives. [Proof.Verify] returns it.
type Difference struct{ Field, Want, Got string }

func (e *Difference) Error() string {
	return fmt.Sprintf("%s is %s, and should be %s", e.Field, e.Got, e.Want)
}

func differ(field string, got, want any) error {
	return &Difference{Field: field, Want: fmt.Sprint(want), Got: fmt.Sprint(got)}
}

// Verify draws the operation again, and returns nil when the proof's digest and draws are those, a [*Difference] that names
// the first that is not, a [*ParameterError] or fairdraw's error where the parameters break a rule, or the context's error.
// The largest operation takes a second.
func (p *Proof) Verify(ctx context.Context) error {
	digest, err := p.redraw(ctx, p.Count <= InlineResults, p.Results, p.PrizeResults)
	if err != nil {
		return err
	}
	if want := hex.EncodeToString(digest[:]); want != p.Digest {
		return differ("digest", p.Digest, want)
	}
	return nil
}

// redraw draws again and returns the digest. The draws are compared with ints or prizes, or where all are not there, these
// must be empty.
func (p *Proof) redraw(ctx context.Context, all bool, ints []int64, prizes []string) (digest [sha256.Size]byte, err error) {
	seed, err := fairdraw.ParseSeed(p.ServerSeed)
	if err != nil {
		return digest, err
	}
	if c := seed.Commitment(); c != p.Commitment {
		return digest, differ("commitment", p.Commitment, c)
	}
	d, err := New(seed, p.Operation, Spec{Range: p.Range, Prizes: p.Prizes})
	if err != nil {
		return digest, err
	}
	if p.Every == 0 {
		return digest, bad("every", "must be an integer from 1 to %d", MaxEvery)
	}
	s, err := NewState(d, p.Count, p.Every)
	if err != nil {
		return digest, err
	}
	if err := rightNumber(p, all, len(ints), len(prizes)); err != nil {
		return digest, err
	}
	s, err = Run(ctx, d, s, func(_ context.Context, c Chunk) error {
		if !all {
			return nil
		}
		i, ids, err := d.spec.Results(c.Saved)
		if err != nil {
			return err
		}
		if p.Range != nil {
			return firstOther("results", c.First, ints, i)
		}
		return firstOther("prize_results", c.First, prizes, ids)
	})
	return s.Digest, err
}

func rightNumber(p *Proof, all bool, ints, prizes int) error {
	var wantInts, wantPrizes int
	if all && p.Range != nil {
		wantInts = int(p.Count)
	} else if all {
		wantPrizes = int(p.Count)
	}
	if ints != wantInts {
		return differ("the number of results", ints, wantInts)
	}
	if prizes != wantPrizes {
		return differ("the number of prize_results", prizes, wantPrizes)
	}
	return nil
}

// firstOther compares draws from the first on with what they should be.
func firstOther[T comparable](field string, first int64, got, want []T) error {
	for i, w := range want {
		if g := got[int(first)+i]; g != w {
			return differ(fmt.Sprintf("%s[%d]", field, int(first)+i), g, w)
		}
	}
	return nil
}

// VerifyCommitment checks whether the proof opens the commitment that was published at the start. It does not replace
// [Proof.Verify].
func (p *Proof) VerifyCommitment(published string) error {
	if new(Hash).UnmarshalText([]byte(published)) != nil {
		return bad("commitment", "must be 64 lower-case hexadecimal digits")
	}
	if published != p.Commitment {
		return differ("commitment", p.Commitment, published)
	}
	return nil
}
