package server

import (
	"context"
	"io"
	"net/http"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/lottery"
)

// campaignOf reads the campaign of the path.
func (s *Server) campaignOf(r *http.Request) (*lottery.Campaign, error) {
	id, err := pathUUID(r.PathValue("id"), "campaign")
	if err != nil {
		return nil, err
	}
	return s.lottery.Campaign(r.Context(), id)
}

func (s *Server) getCampaigns(w http.ResponseWriter, r *http.Request) {
	p, err := parsePage(r)
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	campaigns, err := s.lottery.Campaigns(r.Context(), p.after, p.limit+1)
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
	s.serveInclusion(w, r, func(*lottery.Campaign) error { return nil })
}

// serveInclusion answers with the proof of the path's position, unless check refuses its campaign.
func (s *Server) serveInclusion(w http.ResponseWriter, r *http.Request, check func(*lottery.Campaign) error) {
	c, err := s.sealedCampaign(r)
	if err == nil {
		err = check(c)
	}
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	id, err := pathUUID(r.PathValue("position"), "position")
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	position, ok := c.FindPosition(id)
	if !ok {
		s.writeProblem(w, r, &lottery.PositionNotFoundError{ID: id})
		return
	}
	proof, err := s.inclusion(r.Context(), c, position)
	answer(s, w, r, func(p *fairdraw.InclusionProof) *fairdraw.InclusionProof { return p })(proof, err)
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
