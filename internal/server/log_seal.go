package server

import (
	"context"
	"io"
	"net/http"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/internal/logkeeper"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
)

// sealView is a campaign's seal in the log, as witnesses have seen it.
type sealView struct {
	Campaign   uuid.UUID `json:"campaign"`
	Leaf       string    `json:"leaf" doc:"the entry's bytes in base64, a JSON document with the root, the round and when it is due"`
	Index      int64     `json:"index" doc:"number of the entry in the log, from 0"`
	Inclusion  []string  `json:"inclusion" doc:"hashes in hex from the leaf up to the checkpoint's root"`
	Checkpoint string    `json:"checkpoint" doc:"the signed note that witnesses have cosigned before the round was due"`
	Key        string    `json:"key" doc:"verifier key that the log signed it with; /log/key has another one if it was renewed since"`
	Witnesses  int       `json:"witnesses" doc:"how many witnesses have cosigned it in time"`
	SeenAt     timestamp `json:"seen_at" doc:"when the last of them did, by its clock"`
	DueAt      timestamp `json:"due_at" doc:"when the round is due"`
	Before     int64     `json:"seconds_before" doc:"whole seconds from seen_at to due_at"`
}

// seal proves that a campaign was sealed before its round was due. It is nil where no witness has signed that in time.
func (s *Server) seal(ctx context.Context, c *lottery.Campaign) (*sealView, error) {
	seen, err := s.Log.Seal(ctx, c.ID)
	if err != nil || seen == nil {
		return nil, err
	}
	proved, err := seen.Prove(ctx, s.Log.Tile)
	if err != nil {
		return nil, err
	}
	return &sealView{
		Campaign: c.ID, Leaf: proved.Leaf, Index: proved.Index, Inclusion: proved.Inclusion, Checkpoint: proved.Checkpoint,
		Key: seen.Verifier, Witnesses: seen.Witnesses, SeenAt: timestamp(seen.SeenAt), DueAt: timestamp(seen.DueAt), Before: seen.SecondsBefore(),
	}, nil
}

// campaignSeal answers with the seal of the path's campaign, or says why there is none.
func (s *Server) campaignSeal(r *http.Request) (*sealView, error) {
	c, err := s.campaignOf(r)
	if err != nil {
		return nil, err
	}
	switch {
	case c.Beacon == nil:
		return nil, &lottery.NotSealedError{Why: "the draw is instant: it follows its seal at once, and no witness can see that before"}
	case c.Beacon.Seal == nil:
		return nil, &lottery.NotSealedError{Why: "the campaign is sealed when the last position is sold"}
	}
	v, err := s.seal(r.Context(), c)
	switch {
	case err != nil || v != nil:
		return v, err
	case c.Beacon.Due:
		return nil, &lottery.NotSealedError{Why: "no witness of the log has cosigned the seal before its round was due"}
	}
	return nil, &lottery.NotSealedError{Why: "no witness of the log has cosigned the seal yet"}
}

// writeProof writes a campaign's proof, with its seal in the log where witnesses have seen that in time.
func (s *Server) writeProof(ctx context.Context, c *lottery.Campaign, w io.Writer) error {
	var carried *fairdraw.Seal
	if c.Beacon != nil {
		var err error
		if carried, err = logkeeper.CarriedSeal(ctx, s.Log, c.ID); err != nil {
			return err
		}
	}
	return lottery.WriteProof(ctx, s.Lottery, c, carried, w)
}
