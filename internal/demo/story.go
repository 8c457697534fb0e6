package demo

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/fairdraw/beacon"
	"github.com/fairlead-dev/fairlead/internal/screen"
)

// The opposed transfers: few accounts and many workers, so that the same pairs are wanted from both sides at once.
const (
	demoTraders   = 20
	demoWorkers   = 32
	demoTransferN = demoWorkers * 62
)

// Winner is one line of the draw.
type Winner struct {
	Prize   string `json:"prize"`
	Account string `json:"account"`
	Layer   int64  `json:"layer"`
	Number  int64  `json:"number"`
}

// Proof is what the offline checks said.
type Proof struct {
	Bytes              int    `json:"bytes"`
	Valid              bool   `json:"valid"`
	AlteredRefused     bool   `json:"altered_refused"`
	AlteredDifference  string `json:"altered_difference"`
	InclusionHashes    int    `json:"inclusion_hashes"`
	InclusionValid     bool   `json:"inclusion_valid"`
	VerifyMicroseconds int64  `json:"verify_us"`
}

// Transfers is what the transfers' callers saw.
type Transfers struct {
	Workers   int     `json:"workers"`
	Accounts  int     `json:"accounts"`
	Completed int     `json:"completed"`
	Refused   int     `json:"refused"`
	TotalMS   float64 `json:"total_ms"`
}

func (d *Demo) showDraw(ctx context.Context) error {
	draw, err := d.api.GetDraw(ctx, d.result.Campaign)
	if err != nil {
		return err
	}
	again, err := d.api.Draw(ctx, d.result.Campaign)
	if err != nil {
		return err
	}
	if len(again.Winners) != len(draw.Winners) || !again.CompletedAt.Equal(draw.CompletedAt) {
		return errors.New("asking for the draw again gave another draw")
	}
	d.screen.Heading("The draw: in the last sale's own transaction")
	for _, w := range draw.Winners {
		d.result.Winners = append(d.result.Winners, Winner{Prize: w.Prize, Account: w.Account, Layer: w.Position.Layer, Number: w.Position.Number})
		d.screen.Fact(w.Prize, "%s   layer %d, number %d", w.Account, w.Position.Layer, w.Position.Number)
	}
	return nil
}

// showProof checks the proof as anyone can, with nothing but the document and the commitment published at the start.
func (d *Demo) showProof(ctx context.Context) error {
	document, err := d.api.Proof(ctx, d.result.Campaign)
	if err != nil {
		return err
	}
	p := &d.result.Proof
	d.proof, p.Bytes = document, len(document)
	began := time.Now()
	err = verify(document, d.result.Commitment)
	p.Valid, p.VerifyMicroseconds = err == nil, time.Since(began).Microseconds()
	d.screen.Heading("The proof: anyone recomputes the draw, offline")
	if err != nil {
		d.screen.Fact("Published proof", "NOT VALID: %v", err)
		return nil // The table says so; there is nothing to alter or to include in.
	}
	proof, err := fairdraw.ParseProof(document)
	if err != nil {
		return err
	}
	d.screen.Fact("Published proof", "valid: %d positions, %d winners, in %.1f ms", len(proof.Positions), len(proof.Winners), float64(p.VerifyMicroseconds)/1000)
	entrant := proof.Positions[len(proof.Positions)/2]

	// The first prize goes to another buyer, in a copy of the proof.
	other := slices.IndexFunc(proof.Positions, func(p fairdraw.Position) bool { return p.Account != proof.Winners[0].Position.Account })
	if other < 0 {
		return errors.New("one buyer has all positions")
	}
	proof.Winners[0].Position = proof.Positions[other]
	altered, err := proof.MarshalJSON()
	if err != nil {
		return err
	}
	word := "accepted"
	if err := verify(altered, d.result.Commitment); err != nil {
		p.AlteredRefused, p.AlteredDifference, word = true, err.Error(), "refused"
	}
	d.screen.Fact("A copy, one winner exchanged", "%s", word)
	d.screen.Note("  %s", d.screen.Paint(screen.Faint, p.AlteredDifference))
	return d.showInclusion(ctx, proof.Root, entrant)
}

// verify holds a proof against the commitment, offline.
func verify(document []byte, commitment string) error {
	proof, err := fairdraw.ParseProof(document)
	if err != nil {
		return err
	}
	return errors.Join(proof.VerifyBeacon(beacon.Trust()), proof.VerifyCommitment(commitment))
}

// showInclusion checks the short proof that one entrant took part.
func (d *Demo) showInclusion(ctx context.Context, rootHex string, entrant fairdraw.Position) error {
	document, err := d.api.InclusionProof(ctx, d.result.Campaign, entrant.ID)
	if err != nil {
		return err
	}
	inclusion, err := fairdraw.ParseInclusionProof(document)
	if err != nil {
		return err
	}
	root, err := hex.DecodeString(rootHex)
	if err != nil || len(root) != sha256.Size {
		return fmt.Errorf("the proof's root is %q", rootHex)
	}
	p := &d.result.Proof
	p.InclusionHashes, p.InclusionValid = len(inclusion.Siblings), inclusion.Verify([32]byte(root)) == nil && inclusion.Position == entrant
	word := "valid"
	if !p.InclusionValid {
		word = "NOT VALID"
	}
	d.screen.Fact("One entrant's own proof", "%s: %s took part, by %d hashes", word, entrant.Account, p.InclusionHashes)
	return nil
}

// moveMoney lets many workers move money between few accounts, in both directions at once.
func (d *Demo) moveMoney(ctx context.Context) error {
	d.screen.Heading("The money: transfers between the same few accounts")
	step, done := d.screen.Progress(fmt.Sprintf("%d workers on %d accounts", demoWorkers, demoTraders), demoTransferN)
	var completed, refused atomic.Int64
	began := time.Now()
	group, moving := errgroup.WithContext(ctx)
	for worker := range demoWorkers {
		group.Go(func() error {
			choice := rand.New(rand.NewPCG(uint64(worker), demoTransferN)) //nolint:gosec // Who pays whom in a demo is no secret.
			for range demoTransferN / demoWorkers {
				from := choice.IntN(demoTraders)
				to := (from + 1 + choice.IntN(demoTraders-1)) % demoTraders
				_, err := d.api.Transfer(moving, client.TransferRequest{From: d.buyers[from], To: d.buyers[to], Amount: 1 + choice.Int64N(500)})
				switch {
				case err == nil:
					completed.Add(1)
				case client.CodeOf(err) == "insufficient_funds":
					refused.Add(1)
				default:
					return err
				}
				step()
			}
			return nil
		})
	}
	err := group.Wait()
	done()
	d.result.Transfers = Transfers{
		Workers: demoWorkers, Accounts: demoTraders, Completed: int(completed.Load()), Refused: int(refused.Load()), TotalMS: inMilliseconds(time.Since(began)),
	}
	if t := d.result.Transfers; err == nil {
		d.screen.End("%d done, %d short of funds, in %s", t.Completed, t.Refused, screen.Milliseconds(t.TotalMS))
	}
	return err
}
