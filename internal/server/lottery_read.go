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
	id, err := pathUUID(r.PathValue("id"), "campaign")
	if err != nil {
		return nil, err
	}
	return s.campaign(r.Context(), infoOf(r).principal, id)
}

// campaign reads a campaign for somebody who may see it.
func (s *Server) campaign(ctx context.Context, p auth.Principal, id uuid.UUID) (*lottery.Campaign, error) {
	c, err := s.lottery.Campaign(ctx, id)
	if err == nil && c.Draft() && !seesDrafts(p) {
		return nil, &lottery.CampaignNotFoundError{ID: id}
	}
	return c, err
}

func (s *Server) getCampaigns(w http.ResponseWriter, r *http.Request) {
	p, err := parsePage(r)
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	campaigns, err := s.lottery.Campaigns(r.Context(), p.after, p.limit+1, seesDrafts(infoOf(r).principal))
	answer(s, w, r, func(rows []lottery.Campaign) list[campaignSummaryView] {
		return newList(r, rows, p.limit, viewCampaignSummary, func(c lottery.Campaign) int64 { return c.Number })
	})(campaigns, err)
}

func (s *Server) getCampaign(w http.ResponseWriter, r *http.Request) {
	answer(s, w, r, viewCampaign)(s.campaignOf(r))
}

func (s *Server) getPositions(w http.ResponseWriter, r *http.Request) {
	c, p, err := s.campaignPage(r)
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	// The cursor is the ordinal of the next position, which starts from 1 so that no cursor is 0.
	from := min(int(min(p.after, int64(c.TotalPositions))), c.TotalPositions)
	to := min(from+p.limit+1, c.TotalPositions)
	owners, err := s.lottery.Owners(r.Context(), c.ID, from, to)
	rows := make([]lottery.Purchase, len(owners))
	for i, owner := range owners {
		rows[i] = lottery.Purchase{Account: owner, Position: c.Position(from + i)}
	}
	answer(s, w, r, func(rows []lottery.Purchase) list[positionView] {
		return newList(r, rows, p.limit, viewPosition, func(row lottery.Purchase) int64 { return int64(row.Position.Ordinal) + 1 })
	})(rows, err)
}

func viewPosition(p lottery.Purchase) positionView {
	v := positionView{ID: p.Position.ID, Layer: p.Position.Layer, Number: p.Position.Number, Status: "available"}
	if p.Account != "" {
		v.Status, v.Account = "sold", &p.Account
	}
	return v
}

func (s *Server) getPurchases(w http.ResponseWriter, r *http.Request) {
	c, p, err := s.campaignPage(r)
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	after := int(min(p.after, int64(c.TotalPositions)))
	purchases, err := s.lottery.Purchases(r.Context(), c.ID, after, p.limit+1)
	for i := range purchases {
		purchases[i].Position = c.Position(purchases[i].Position.Ordinal)
	}
	answer(s, w, r, func(rows []lottery.Purchase) list[purchaseView] {
		return newList(r, rows, p.limit, viewPurchase, func(row lottery.Purchase) int64 { return int64(row.Seq) })
	})(purchases, err)
}

// campaignPage reads the campaign of the path and the page that is asked for.
func (s *Server) campaignPage(r *http.Request) (*lottery.Campaign, page, error) {
	p, err := parsePage(r)
	if err != nil {
		return nil, p, err
	}
	c, err := s.campaignOf(r)
	return c, p, err
}

func (s *Server) getDraw(w http.ResponseWriter, r *http.Request) {
	s.serveDocument(w, r, "draw", func(ctx context.Context, c *lottery.Campaign, w io.Writer) error {
		draw, _, err := s.lottery.Result(ctx, c.ID)
		if err == nil {
			_, err = w.Write(mustMarshal(viewDraw(draw)))
		}
		return err
	})
}

func (s *Server) getProof(w http.ResponseWriter, r *http.Request) {
	s.serveDocument(w, r, "proof", s.lottery.WriteProof)
}

func (s *Server) getInclusion(w http.ResponseWriter, r *http.Request) {
	c, err := s.sealedCampaign(r)
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	position, err := sealedPosition(r, c)
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	proof, err := s.inclusion(r.Context(), c, position)
	answer(s, w, r, func(p *fairdraw.InclusionProof) *fairdraw.InclusionProof { return p })(proof, err)
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

func (s *Server) getStatistics(w http.ResponseWriter, r *http.Request) {
	c, err := s.campaignOf(r)
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	stats, err := bounded(r.Context(), s.scans, func(ctx context.Context) (lottery.Statistics, error) { return s.lottery.Statistics(ctx, c.ID) })
	answer(s, w, r, func(st lottery.Statistics) statisticsView { return viewStatistics(c, st) })(stats, err)
}
