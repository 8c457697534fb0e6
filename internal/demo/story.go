package demo

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
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
	demoHolds     = 30
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

	document []byte
}

// Transfers is what the transfers' callers saw.
type Transfers struct {
	Workers   int     `json:"workers"`
	Accounts  int     `json:"accounts"`
	Completed int     `json:"completed"`
	Refused   int     `json:"refused"`
	Holds     int     `json:"holds"`
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
	p.document, p.Bytes = document, len(document)
	began := time.Now()
	proof, err := verify(document, d.result.Commitment)
	p.Valid, p.VerifyMicroseconds = err == nil, time.Since(began).Microseconds()
	d.screen.Heading("The proof: anyone recomputes the draw, offline")
	positions, winners := 0, 0
	if proof != nil {
		positions, winners = len(proof.Positions), len(proof.Winners)
	}
	d.screen.Fact("Published proof", "%s: %d positions, %d winners, in %.1f ms", verdictWord(p.Valid), positions, winners, float64(p.VerifyMicroseconds)/1000)
	if err != nil {
		d.screen.Note("  %v", err)
	}

	altered, what, err := alterWinner(document, d.result.Winners)
	if err != nil {
		return err
	}
	word := "accepted"
	if _, err := verify(altered, d.result.Commitment); err != nil {
		p.AlteredRefused, p.AlteredDifference, word = true, err.Error(), "refused"
	}
	d.screen.Fact("A copy, "+what, "%s", word)
	d.screen.Note("  %s", d.screen.Paint(screen.Faint, shorten(p.AlteredDifference, 90)))
	return d.showInclusion(ctx)
}

// verify holds a proof against the commitment, offline. The proof is nil where it can't be read.
func verify(document []byte, commitment string) (*fairdraw.Proof, error) {
	proof, err := fairdraw.ParseProof(document)
	if err != nil {
		return nil, err
	}
	return proof, errors.Join(proof.VerifyBeacon(beacon.Trust()), proof.VerifyCommitment(commitment))
}

// alterWinner gives the first prize to another buyer, in a copy of the proof.
func alterWinner(document []byte, winners []Winner) (altered []byte, what string, err error) {
	if len(winners) == 0 {
		return nil, "", errors.New("there are no winners")
	}
	proof, err := fairdraw.ParseProof(document)
	if err != nil {
		return nil, "", err
	}
	for _, p := range proof.Positions {
		if p.Account != winners[0].Account {
			proof.Winners[0].Position = p
			altered, err = proof.MarshalJSON()
			return altered, "one winner exchanged", err
		}
	}
	return nil, "", errors.New("one buyer has all positions")
}

func (d *Demo) showInclusion(ctx context.Context) error {
	proof, err := fairdraw.ParseProof(d.result.Proof.document)
	if err != nil {
		return nil //nolint:nilerr // The table says that the proof is not valid; there is nothing to include in.
	}
	entrant := proof.Positions[len(proof.Positions)/2]
	document, err := d.api.InclusionProof(ctx, d.result.Campaign, entrant.ID)
	if err != nil {
		return err
	}
	inclusion, err := fairdraw.ParseInclusionProof(document)
	if err != nil {
		return err
	}
	root, err := hex.DecodeString(proof.Root)
	if err != nil || len(root) != sha256.Size {
		return fmt.Errorf("the proof's root is %q", proof.Root)
	}
	p := &d.result.Proof
	p.InclusionHashes, p.InclusionValid = len(inclusion.Siblings), inclusion.Verify([32]byte(root)) == nil && inclusion.Position == entrant
	d.screen.Fact("One entrant's own proof", "%s: %s took part, by %d hashes", verdictWord(p.InclusionValid), entrant.Account, p.InclusionHashes)
	return nil
}

func verdictWord(valid bool) string {
	if valid {
		return "valid"
	}
	return "NOT VALID"
}

func shorten(text string, most int) string {
	if r := []rune(text); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return text
}

// moveMoney lets many workers move money between few accounts, in both directions at once, and sets some aside.
func (d *Demo) moveMoney(ctx context.Context, buyers []string) error {
	d.screen.Heading("The money: transfers between the same few accounts")
	step, done := d.screen.Progress(fmt.Sprintf("%d workers on %d accounts", demoWorkers, demoTraders), demoTransferN)
	t := Transfers{Workers: demoWorkers, Accounts: demoTraders}
	var mu sync.Mutex
	count := func(err error) error {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err == nil:
			t.Completed++
		case client.CodeOf(err) == "insufficient_funds":
			t.Refused++
		default:
			return err
		}
		return nil
	}
	began := time.Now()
	group, moving := errgroup.WithContext(ctx)
	for worker := range demoWorkers {
		group.Go(func() error {
			choice := rand.New(rand.NewPCG(uint64(worker), demoTransferN)) //nolint:gosec // Who pays whom in a demo is no secret.
			for range demoTransferN / demoWorkers {
				from := choice.IntN(demoTraders)
				to := (from + 1 + choice.IntN(demoTraders-1)) % demoTraders
				_, err := d.api.Transfer(moving, client.TransferRequest{From: buyers[from], To: buyers[to], Amount: 1 + choice.Int64N(500)})
				step()
				if err := count(err); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := group.Wait()
	t.TotalMS = inMilliseconds(time.Since(began))
	if err == nil {
		t.Holds, err = d.holdMoney(ctx, buyers)
	}
	done()
	if err != nil {
		return err
	}
	d.result.Transfers = t
	d.screen.End("%d done, %d short of funds, in %s", t.Completed, t.Refused, screen.Milliseconds(t.TotalMS))
	d.screen.Fact("Money set aside", "%d holds: captured, released, left open", t.Holds)
	return nil
}

// holdMoney makes holds on buyers who did not trade, and closes two thirds of them.
func (d *Demo) holdMoney(ctx context.Context, buyers []string) (int, error) {
	group, holding := errgroup.WithContext(ctx)
	for i, buyer := range buyers[demoTraders : demoTraders+demoHolds] {
		group.Go(func() error {
			h, err := d.api.Hold(holding, client.HoldRequest{Account: buyer, Amount: 100})
			if err != nil {
				return err
			}
			switch i % 3 {
			case 0:
				_, err = d.api.CaptureHold(holding, h.ID, client.CaptureRequest{To: d.beneficiary(), Amount: new(int64(60))})
			case 1:
				_, err = d.api.ReleaseHold(holding, h.ID)
			}
			return err
		})
	}
	return demoHolds, group.Wait()
}
