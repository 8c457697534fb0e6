package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/singleflight"

	"github.com/fairlead-dev/fairlead/console"
	"github.com/fairlead-dev/fairlead/lottery"
)

// Limits of the public pages.
const (
	// publicFresh is the age up to which what a public page shows is shown again, so that ten thousand visitors cost the
	// database what one does.
	publicFresh = time.Second
	// publicEntries and publicBytes bound what is remembered.
	publicEntries = 1024
	publicBytes   = 32 << 20
	// publicPlaces is how much of a leaderboard is public.
	publicPlaces = 100
	// aliasDigits is the length of an alias: enough that a hundred bidders rarely share one.
	aliasDigits = 8
)

// publicRoutes are the pages that anybody may look at, and what they show. Accounts appear there by alias alone.
func (s *Server) publicRoutes() []route {
	return []route{
		get("/p/campaigns/{id}", accessPublic, doc[none, none]("A campaign's public page"), s.getPublicCampaignPage),
		get("/p/campaigns/{id}/state", accessPublic, doc[none, publicCampaignView]("Read what a campaign's public page shows"), s.getPublicCampaign),
		get("/p/campaigns/{id}/positions/{position}", accessPublic, doc[none, inclusionDocument]("Read the proof that a position was sealed, for whoever knows the position's id"), s.getPublicInclusion),
		get("/p/auctions/{id}", accessPublic, doc[none, none]("An auction's public page"), s.getPublicAuctionPage),
		get("/p/auctions/{id}/state", accessPublic, doc[none, publicAuctionView]("Read what an auction's public page shows"), s.getPublicAuction),
	}
}

// alias stands for an account where anybody may look: the same one within a campaign or auction, another in the next. It keeps
// a name out of sight, not a guess from being confirmed: entrants find their own line by it.
func alias(of uuid.UUID, account string) string {
	sum := sha256.Sum256([]byte("fairlead alias\n" + of.String() + "\n" + account))
	return hex.EncodeToString(sum[:])[:aliasDigits]
}

// snapshots remembers for a moment what public pages show. It is safe for concurrent use.
type snapshots struct {
	flights singleflight.Group
	mu      sync.Mutex
	kept    map[string]snapshotEntry
	bytes   int
}

type snapshotEntry struct {
	body []byte
	at   time.Time
}

func newSnapshots() *snapshots { return &snapshots{kept: map[string]snapshotEntry{}} }

// get returns what is remembered under name, or makes it, once for all who ask meanwhile.
func (c *snapshots) get(name string, fill func() ([]byte, error)) ([]byte, error) {
	c.mu.Lock()
	e, ok := c.kept[name]
	c.mu.Unlock()
	if ok && time.Since(e.at) < publicFresh {
		return e.body, nil
	}
	body, err, _ := c.flights.Do(name, func() (any, error) {
		at := time.Now()
		body, err := fill()
		if err != nil {
			return nil, err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.kept) >= publicEntries || c.bytes > publicBytes {
			clear(c.kept)
			c.bytes = 0
		}
		c.bytes += len(body) - len(c.kept[name].body)
		c.kept[name] = snapshotEntry{body: body, at: at}
		return body, nil
	})
	if err != nil {
		return nil, err //nolint:wrapcheck // It is fill's own.
	}
	return body.([]byte), nil //nolint:errcheck,forcetypeassert // The flight has nothing else.
}

// serveSnapshot answers with what is remembered under the request's path. fill does not depend on who asks, so the first one's
// going away does not fail the others.
func (s *Server) serveSnapshot(w http.ResponseWriter, r *http.Request, fill func(*http.Request) (any, error)) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), commandTimeout)
	defer cancel()
	body, err := s.snapshots.get(r.URL.Path, func() ([]byte, error) {
		v, err := fill(r.WithContext(ctx))
		if err != nil {
			return nil, err
		}
		return mustMarshal(v), nil
	})
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	w.Header().Set("X-Robots-Tag", "noindex")
	writeBody(w, http.StatusOK, body)
}

// publicCampaign reads the campaign of the path if the public may see it: not before it is published.
func (s *Server) publicCampaign(r *http.Request) (*lottery.Campaign, error) {
	c, err := s.campaignOf(r)
	if err == nil {
		err = s.publicSees(c)
	}
	return c, err
}

func (s *Server) publicSees(c *lottery.Campaign) error {
	if !s.public || c.Status == lottery.StatusPending || c.PublishedAt == nil {
		return &lottery.CampaignNotFoundError{ID: c.ID}
	}
	return nil
}

func (s *Server) getPublicCampaignPage(w http.ResponseWriter, r *http.Request) {
	_, err := s.publicCampaign(r)
	s.writePublicPage(w, r, console.CampaignPage, err)
}

func (s *Server) getPublicAuctionPage(w http.ResponseWriter, r *http.Request) {
	_, err := s.publicAuction(r)
	s.writePublicPage(w, r, console.AuctionPage, err)
}

// writePublicPage answers with a page; where there is nothing to show, the page says so, with the status that says so.
func (s *Server) writePublicPage(w http.ResponseWriter, r *http.Request, name string, err error) {
	status := http.StatusOK
	if err != nil {
		if status = problemOf(err, "").Status; status != http.StatusNotFound {
			s.writeProblem(w, r, err)
			return
		}
	}
	s.writePage(w, r, name, publicPolicy, status)
}

// publicCampaignView is a campaign as anybody may see it.
type publicCampaignView struct {
	ID          uuid.UUID          `json:"id"`
	Name        string             `json:"name"`
	Status      lottery.Status     `json:"status" enum:"active,drawing,completed,cancelled"`
	Currency    string             `json:"currency"`
	Prizes      []prizeView        `json:"prizes"`
	Commitment  string             `json:"commitment" doc:"hex SHA-256 of the server seed"`
	PublishedAt *timestamp         `json:"published_at"`
	CompletedAt *timestamp         `json:"completed_at"`
	Map         saleMapView        `json:"map"`
	Root        *string            `json:"root" doc:"hex root of the sealed positions; null before the draw"`
	Winners     []publicWinnerView `json:"winners" doc:"empty before the draw"`
	Now         timestamp          `json:"now" doc:"the server's time"`
}

type publicWinnerView struct {
	Prize    string     `json:"prize"`
	Position winnerSpot `json:"position"`
	Alias    string     `json:"alias" doc:"first 8 digits of the SHA-256 of 'fairlead alias', the campaign's id and the account, a line each"`
}

func (s *Server) getPublicCampaign(w http.ResponseWriter, r *http.Request) {
	s.serveSnapshot(w, r, func(r *http.Request) (any, error) {
		c, err := s.publicCampaign(r)
		if err != nil {
			return nil, err
		}
		m, err := s.saleMap(r, c)
		if err != nil {
			return nil, err
		}
		full := viewCampaign(c)
		v := publicCampaignView{
			ID: c.ID, Name: c.Name, Status: c.Status, Currency: c.Currency, Prizes: full.Prizes, Commitment: full.Commitment,
			PublishedAt: full.PublishedAt, CompletedAt: full.CompletedAt, Map: m, Winners: []publicWinnerView{}, Now: timestamp(time.Now()),
		}
		if c.Status != lottery.StatusCompleted {
			return v, nil
		}
		draw, err := bounded(r.Context(), s.scans, func(ctx context.Context) (*lottery.Draw, error) {
			draw, _, err := s.lottery.Result(ctx, c.ID)
			return draw, err
		})
		if err != nil {
			return nil, err
		}
		drawn := viewDraw(draw)
		v.Root = &drawn.Root
		for _, winner := range drawn.Winners {
			v.Winners = append(v.Winners, publicWinnerView{Prize: winner.Prize, Position: winner.Position, Alias: alias(c.ID, winner.Account)})
		}
		return v, nil
	})
}

// getPublicInclusion serves the proof of one position. Its id is known to its buyer alone, from the answer to the purchase;
// winners' ids become public with the draw, as their accounts do in the proof.
func (s *Server) getPublicInclusion(w http.ResponseWriter, r *http.Request) {
	s.serveInclusion(w, r, s.publicSees)
}
