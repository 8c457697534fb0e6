package server

import (
	"context"
	"io"
	"net/http"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
)

// campaignOf reads the campaign of the path.
func (s *Server) campaignOf(r *http.Request) (*lottery.Campaign, error) {
	id, err := pathID(r, "campaign")
	if err != nil {
		return nil, err
	}
	return s.campaign(r.Context(), infoOf(r).principal, id)
}

// campaign reads a campaign for somebody who may see it.
func (s *Server) campaign(ctx context.Context, p auth.Principal, id uuid.UUID) (*lottery.Campaign, error) {
	c, err := s.Lottery.Campaign(ctx, id)
	if err == nil {
		err = mayRead(p, c)
	}
	return c, err
}

// mayRead refuses a campaign that does not exist for somebody.
func mayRead(p auth.Principal, c *lottery.Campaign) error {
	if c.Draft() && !seesDrafts(p) {
		return &lottery.CampaignNotFoundError{ID: c.ID}
	}
	return nil
}

func numberOfCampaign(c lottery.Campaign) int64 { return c.Number }

// positions reads positions behind a place, which is the ordinal of the next one: it starts from 1 so that no cursor is 0.
func (s *Server) positions(ctx context.Context, c *lottery.Campaign, after int64, limit int) ([]lottery.Purchase, error) {
	from := int(min(after, int64(c.TotalPositions)))
	owners, err := s.Lottery.Owners(ctx, c.ID, from, min(from+limit, c.TotalPositions))
	rows := make([]lottery.Purchase, len(owners))
	for i, owner := range owners {
		rows[i] = lottery.Purchase{Account: owner, Position: c.Position(from + i)}
	}
	return rows, err
}

func viewPosition(p lottery.Purchase) positionView {
	v := positionView{ID: p.Position.ID, Layer: p.Position.Layer, Number: p.Position.Number, Status: "available"}
	if p.Account != "" {
		v.Status, v.Account = "sold", &p.Account
	}
	return v
}

func (s *Server) purchases(ctx context.Context, c *lottery.Campaign, after int64, limit int) ([]lottery.Purchase, error) {
	rows, err := s.Lottery.Purchases(ctx, c.ID, int(min(after, int64(c.TotalPositions))), limit)
	for i := range rows {
		rows[i].Position = c.Position(rows[i].Position.Ordinal)
	}
	return rows, err
}

func (s *Server) writeDraw(ctx context.Context, c *lottery.Campaign, w io.Writer) error {
	draw, _, err := s.Lottery.Result(ctx, c.ID)
	if err == nil {
		_, err = w.Write(mustMarshal(viewDraw(draw)))
	}
	return err
}

func (s *Server) pathInclusion(r *http.Request) (*fairdraw.InclusionProof, error) {
	c, err := s.sealedCampaign(r)
	if err != nil {
		return nil, err
	}
	position, err := sealedPosition(r, c)
	if err != nil {
		return nil, err
	}
	return s.inclusion(r.Context(), c, position)
}

// sealedPosition finds the position of the path in a campaign whose positions are sealed.
func sealedPosition(r *http.Request, c *lottery.Campaign) (position lottery.Position, err error) {
	id, err := pathUUID(r.PathValue("position"), "position")
	if err != nil {
		return position, err
	}
	position, ok := c.FindPosition(id)
	if !ok {
		return position, &lottery.PositionNotFoundError{ID: id}
	}
	// In beacon mode the list is closed before the draw: every entrant can see then that they are in it.
	if c.Status != lottery.StatusCompleted && (c.Beacon == nil || c.Beacon.Seal == nil) {
		return position, lottery.ErrNotDrawn
	}
	return position, nil
}

func (s *Server) statistics(ctx context.Context, c *lottery.Campaign) (statisticsView, error) {
	stats, err := bounded(ctx, s.scans, func(ctx context.Context) (lottery.Statistics, error) { return s.Lottery.Statistics(ctx, c.ID) })
	if err != nil {
		return statisticsView{}, err
	}
	return viewStatistics(c, stats), nil
}
