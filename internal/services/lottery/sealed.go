package lottery

import (
	"context"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

// sealedPage is how many positions are read at a time to go through all of them: little memory, and no statement that takes
// long.
const sealedPage = 4096

// maxRest bounds the pause after a page: one that was slow because something hung is not waited for again.
const maxRest = 100 * time.Millisecond

// Sealed reports whether a campaign's positions are sealed, and since when: those who bought them will be the same for ever.
// In beacon mode that is so before the draw.
func (c *Campaign) Sealed() (since time.Time, ok bool) {
	switch {
	case c.Beacon != nil && c.Beacon.Seal != nil:
		return c.Beacon.Seal.SealedAt, true
	case c.Status == StatusCompleted && c.CompletedAt != nil:
		return *c.CompletedAt, true
	}
	return time.Time{}, false
}

// sealedPositions gives the positions of a sealed campaign in the draw's order, read page by page. It ends with the first
// error.
func sealedPositions(ctx context.Context, r Reader, c *Campaign) iter.Seq2[fairdraw.Position, error] {
	return func(yield func(fairdraw.Position, error) bool) {
		var began time.Time
		for from := 0; from < c.TotalPositions; from += sealedPage {
			// As long a pause as the work on a page: reading a whole campaign takes half of a processor at most.
			if from > 0 && !wait.For(ctx, min(time.Since(began), maxRest)) {
				yield(fairdraw.Position{}, ctx.Err())
				return
			}
			began = time.Now()
			page, err := sealed(ctx, r, c, from, min(from+sealedPage, c.TotalPositions))
			if err != nil {
				yield(fairdraw.Position{}, err)
				return
			}
			for _, p := range page {
				if !yield(p, nil) {
					return
				}
			}
		}
	}
}

// ReadPositions reads all positions of a sealed campaign in the draw's order, page by page. A position that nobody has bought has no account.
func ReadPositions(ctx context.Context, r Reader, c *Campaign) ([]fairdraw.Position, error) {
	all := make([]fairdraw.Position, 0, c.TotalPositions)
	for p, err := range sealedPositions(ctx, r, c) {
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// sealed reads the positions with ordinals in [from, to). A sealed campaign is sold out, so a position's place among the
// sealed ones is its ordinal.
func sealed(ctx context.Context, r Reader, c *Campaign, from, to int) ([]fairdraw.Position, error) {
	owners, err := r.Owners(ctx, c.ID, from, to)
	if err != nil {
		return nil, err
	}
	positions := make([]fairdraw.Position, len(owners))
	for i, owner := range owners {
		positions[i] = c.sealedPosition(from+i, owner)
	}
	return positions, nil
}

// SealedTree makes the tree of a sealed campaign's positions. It returns [ErrNotDrawn] for one that is not sealed.
func (s *Service) SealedTree(ctx context.Context, c *Campaign) (*fairdraw.Tree, error) {
	if _, ok := c.Sealed(); !ok {
		return nil, ErrNotDrawn
	}
	b, err := fairdraw.NewTreeBuilder(c.ID.String())
	if err != nil {
		return nil, fmt.Errorf("lottery: the tree of %s: %w", c.ID, err)
	}
	for p, err := range sealedPositions(ctx, s, c) {
		if err == nil {
			err = b.Add(p)
		}
		if err != nil {
			return nil, fmt.Errorf("lottery: the tree of %s: %w", c.ID, err)
		}
	}
	return b.Tree()
}

// Include proves that a position was sealed. The tree is that of the campaign; a few of the position's neighbours are read.
func (s *Service) Include(ctx context.Context, c *Campaign, tree *fairdraw.Tree, p Position) (*fairdraw.InclusionProof, error) {
	from, to := tree.Tile(p.Ordinal)
	tile, err := sealed(ctx, s, c, from, to)
	if err != nil {
		return nil, err
	}
	return tree.Include(p.Ordinal, tile)
}

// WriteProof writes the document from which anyone recomputes a campaign's draw, with the seal's place in the public log unless that is nil.
// It returns [ErrNotDrawn] before the draw.
func WriteProof(ctx context.Context, r Reader, c *Campaign, seal *fairdraw.Seal, w io.Writer) error {
	draw, seed, err := r.Result(ctx, c.ID)
	if err != nil {
		return err
	}
	in, result := NewDrawInput(c, seed, nil), &fairdraw.Result{Root: draw.Root, Winners: draw.Winners}
	proof := fairdraw.NewProof(in, result)
	switch {
	case draw.Round != nil && seal != nil:
		proof = fairdraw.NewSealedProof(in, result, c.Beacon.Chain, *draw.Round, *seal)
	case draw.Round != nil:
		proof = fairdraw.NewBeaconProof(in, result, c.Beacon.Chain, *draw.Round)
	}
	return proof.WriteJSON(w, sealedPositions(ctx, r, c))
}
