package server

import (
	"context"
	"encoding/hex"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/alias"
	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/console"
	"github.com/fairlead-dev/fairlead/internal/live"
	"github.com/fairlead-dev/fairlead/internal/operator"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
)

// Limits of the public pages.
const (
	// publicEntries and publicBytes bound what is remembered, so that ten thousand visitors cost the database what one does.
	publicEntries = 1024
	publicBytes   = 32 << 20
	// publicPlaces is how much of a leaderboard is public.
	publicPlaces = 100
)

// publicRoutes are the pages that anybody may look at, and what they show. Accounts appear there by alias alone.
func (s *Server) publicRoutes() []route {
	return []route{
		get("/p/check", accessPublic, doc[none, none]("How a draw can be checked, in plain words"), func(w http.ResponseWriter, r *http.Request) error {
			if !s.PublicPages {
				return noSuchPath(w, r)
			}
			return writeConsolePage(w, r, console.CheckPage, publicPolicy, http.StatusOK)
		}),
		get("/p/campaigns/{id}", accessPublic, doc[none, none]("A campaign's public page"), publicPage(console.CampaignPage, s.publicCampaign)),
		get("/p/campaigns/{id}/state", accessPublic, doc[none, publicCampaignView]("Read what a campaign's public page shows"), s.snapshot(s.publicCampaignState)),
		readRoute("/p/campaigns/{id}/positions/{position}", accessPublic, "Read that a position was sealed, and by which alias it was bought",
			s.publicPosition, same[publicPositionView]),
		get("/p/auctions/{id}", accessPublic, doc[none, none]("An auction's public page"), publicPage(console.AuctionPage, s.publicAuction)),
		get("/p/auctions/{id}/state", accessPublic, doc[none, publicAuctionView]("Read what an auction's public page shows"), s.snapshot(s.publicAuctionState)),
	}
}

// snapshot answers with what is remembered under the request's path, for the rest of a second. fill does not depend on who asks,
// so the first one's going away does not fail the others.
func (s *Server) snapshot(fill func(*http.Request) (any, error)) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		second := strconv.FormatInt(time.Now().Unix(), 10)
		body, err := s.pages.read(r.Context(), r.URL.Path+" "+second, func(ctx context.Context) ([]byte, int64, error) {
			v, err := fill(r.WithContext(ctx))
			if err != nil {
				return nil, 0, err
			}
			body := mustMarshal(v)
			return body, int64(len(body)), nil
		})
		if err != nil {
			return err
		}
		w.Header().Set("X-Robots-Tag", "noindex")
		writeBody(w, http.StatusOK, body)
		return nil
	}
}

// publicCampaign reads the campaign of the path if the public may see it: not before it is published.
func (s *Server) publicCampaign(r *http.Request) (*lottery.Campaign, error) {
	c, err := s.campaignOf(r)
	if err == nil && !s.PublicPages {
		return nil, &lottery.CampaignNotFoundError{ID: c.ID}
	}
	return c, err
}

// publicPage answers with a page; where there is nothing to show, the page says so, with the status that says so.
func publicPage[R any](name string, find func(*http.Request) (R, error)) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		status := http.StatusOK
		if _, err := find(r); err != nil {
			if status = problemOf(err, "").Status; status != http.StatusNotFound {
				return err
			}
		}
		return writeConsolePage(w, r, name, publicPolicy, status)
	}
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
	Map         saleMapView        `json:"map" from:"-"`
	Root        *string            `json:"root" from:"-" doc:"hex root of the sealed positions; null before the draw"`
	Winners     []publicWinnerView `json:"winners" from:"-" doc:"empty before the draw"`
	Seal        *publicSealView    `json:"seal" from:"-" doc:"null before everything is sold, and where the draw is instant"`
	Now         timestamp          `json:"now" from:"-" doc:"the server's time"`
}

// publicSealView says who has seen the seal before the round that decides was due.
type publicSealView struct {
	Round     int64      `json:"round" doc:"of the beacon, which decides"`
	DueAt     timestamp  `json:"due_at" doc:"when the round is due"`
	Due       bool       `json:"due" doc:"whether that is over, or the draw is made"`
	Required  int        `json:"required" doc:"how many witnesses of the public log must have seen the seal before"`
	Witnesses int        `json:"witnesses" doc:"how many have"`
	SeenAt    *timestamp `json:"seen_at" doc:"when the last of them had; null while none has"`
	Before    *int64     `json:"seconds_before" doc:"whole seconds from seen_at to due_at"`
}

// publicSeal is what a campaign's public page says of its seal.
func (s *Server) publicSeal(ctx context.Context, c *lottery.Campaign) (*publicSealView, error) {
	if c.Beacon == nil || c.Beacon.Seal == nil {
		return nil, nil
	}
	sealed := c.Beacon.Seal
	v := &publicSealView{Round: int64(sealed.Round), DueAt: timestamp(sealed.DueAt), Due: c.Beacon.Due || c.Status == lottery.StatusCompleted, Required: c.Witnesses} //nolint:gosec // Below 2^53.
	seen, err := s.Log.Seal(ctx, c.ID)
	if err == nil && seen != nil {
		v.Witnesses, v.SeenAt, v.Before = seen.Witnesses, new(timestamp(seen.SeenAt)), new(seen.SecondsBefore())
	}
	return v, err
}

type publicWinnerView struct {
	Prize    string     `json:"prize"`
	Position winnerSpot `json:"position"`
	Alias    string     `json:"alias" doc:"of the winner's account, who finds it at /v1/accounts/{id}/aliases"`
}

func (s *Server) publicCampaignState(r *http.Request) (any, error) {
	c, err := s.publicCampaign(r)
	if err != nil {
		return nil, err
	}
	m, err := s.saleMap(r.Context(), c)
	if err != nil {
		return nil, err
	}
	v := as[publicCampaignView](c)
	v.Map, v.Now = m, timestamp(time.Now())
	if v.Seal, err = s.publicSeal(r.Context(), c); err != nil {
		return nil, err
	}
	if c.Status != lottery.StatusCompleted {
		return v, nil
	}
	draw, err := bounded(r.Context(), s.scans, func(ctx context.Context) (*lottery.Draw, error) {
		draw, _, err := s.Lottery.Result(ctx, c.ID)
		return draw, err
	})
	if err != nil {
		return nil, err
	}
	name, err := s.aliasesIn(r.Context(), lottery.Topic(c.ID))
	if err != nil {
		return nil, err
	}
	drawn := viewDraw(draw)
	v.Root = &drawn.Root
	for _, winner := range drawn.Winners {
		v.Winners = append(v.Winners, publicWinnerView{Prize: winner.Prize, Position: winner.Position, Alias: name(winner.Account).Alias})
	}
	return v, nil
}

// publicPositionView is a sealed position as anybody may see it. The hashes that prove its place are not there: they are of
// accounts, and a guess could be compared with them. Entrants have the proof from the API.
type publicPositionView struct {
	Campaign uuid.UUID       `json:"campaign"`
	Root     string          `json:"root" doc:"of the sealed positions, 32 bytes in hex"`
	Position publicPlaceView `json:"position"`
	Index    int             `json:"index" doc:"place of the position in canonical order, from 0"`
	Size     int             `json:"size" doc:"number of positions"`
}

type publicPlaceView struct {
	ID     uuid.UUID `json:"id"`
	Layer  int       `json:"layer"`
	Number int       `json:"number"`
	Alias  string    `json:"alias" doc:"of the account that bought it"`
}

func (s *Server) publicPosition(r *http.Request) (v publicPositionView, err error) {
	c, err := s.sealedCampaign(r) // One that was sealed has been published.
	if err != nil {
		return v, err
	}
	if !s.PublicPages {
		return v, &lottery.CampaignNotFoundError{ID: c.ID}
	}
	position, err := sealedPosition(r, c)
	if err != nil {
		return v, err
	}
	owners, err := bounded(r.Context(), s.archive.public, func(ctx context.Context) ([]string, error) {
		return s.Lottery.Owners(ctx, c.ID, position.Ordinal, position.Ordinal+1)
	})
	if err != nil {
		return v, err
	}
	name, err := s.aliasesIn(r.Context(), lottery.Topic(c.ID))
	if err != nil {
		return v, err
	}
	root, err := s.sealedRoot(r.Context(), c)
	return publicPositionView{
		Campaign: c.ID, Root: hex.EncodeToString(root[:]), Index: position.Ordinal, Size: c.TotalPositions,
		Position: publicPlaceView{ID: position.ID, Layer: position.Layer, Number: position.Number, Alias: name(owners[0]).Alias},
	}, err
}

// publicAuction reads the auction of the path if the public may see it: not before it has begun.
func (s *Server) publicAuction(r *http.Request) (*auction.Auction, error) {
	a, err := s.auctionOf(r)
	if err == nil && !s.PublicPages {
		return nil, &auction.NotFoundError{ID: a.ID}
	}
	return a, err
}

// publicAuctionView is an auction as anybody may see it.
type publicAuctionView struct {
	ID            uuid.UUID        `json:"id"`
	Title         string           `json:"title"`
	Status        auction.Status   `json:"status" enum:"active,completed,cancelled"`
	Currency      string           `json:"currency"`
	CurrentRound  int              `json:"current_round"`
	Rounds        []roundView      `json:"rounds" from:"-"`
	AntiSnipe     antiSnipeView    `json:"anti_snipe"`
	MinIncrement  int64            `json:"min_increment"`
	TotalBids     int64            `json:"total_bids"`
	Seq           int64            `json:"seq" doc:"of the last event"`
	Leaderboard   []publicRankView `json:"leaderboard" from:"-" doc:"the best 100 standing bids"`
	Winners       []publicWonView  `json:"winners" from:"-" doc:"of rounds that ended, the first 200"`
	MinWinningBid *int64           `json:"min_winning_bid" from:"-" doc:"the least new bid that would now win; null when no round is open"`
	Chart         bidChartView     `json:"chart" from:"-"`
	Now           timestamp        `json:"now" from:"-" doc:"the server's time"`
}

type publicRankView struct {
	Rank    int    `json:"rank"`
	Alias   string `json:"alias" doc:"of the bidder's account, who finds it at /v1/accounts/{id}/aliases"`
	Amount  int64  `json:"amount"`
	Winning bool   `json:"winning"`
}

type publicWonView struct {
	Round  int    `json:"round"`
	Rank   int    `json:"rank"`
	Alias  string `json:"alias"`
	Amount int64  `json:"amount"`
}

func (s *Server) publicAuctionState(r *http.Request) (any, error) {
	a, err := s.publicAuction(r)
	if err != nil {
		return nil, err
	}
	v := as[publicAuctionView](a)
	v.Rounds, v.Now = viewRounds(a), timestamp(time.Now())
	name, err := s.aliasesIn(r.Context(), a.Topic())
	if err != nil {
		return nil, err
	}
	places, _, err := s.Auction.Leaderboard(r.Context(), a.ID, 0, publicPlaces)
	if err != nil {
		return nil, err
	}
	for _, p := range places {
		v.Leaderboard = append(v.Leaderboard, publicRankView{Rank: p.Rank, Alias: name(p.Account).Alias, Amount: p.Amount, Winning: p.Winning})
	}
	winners, err := s.Auction.Winners(r.Context(), a.ID, 0, 0, maxLimit)
	if err != nil {
		return nil, err
	}
	for _, won := range winners {
		v.Winners = append(v.Winners, publicWonView{Round: won.Round, Rank: won.Rank, Alias: name(won.Account).Alias, Amount: won.Amount})
	}
	if a.Status == auction.StatusActive {
		if floor, err := s.Auction.Floor(r.Context(), a.ID); err == nil {
			v.MinWinningBid = &floor.Least
		}
	}
	v.Chart, err = s.bidChart(r.Context(), a)
	return v, err
}

// aliasView is an account's alias, with what proves it.
type aliasView struct {
	Alias string `json:"alias" doc:"first 32 digits of the SHA-256 of 'fairlead alias', the topic, the account and the salt, a line each"`
	Salt  string `json:"salt" doc:"16 bytes in hex; it is shown to nobody else"`
}

// aliasesIn returns what names the accounts of a topic where anybody may look: the same name within a campaign or auction,
// another in the next. It is for one goroutine.
func (s *Server) aliasesIn(ctx context.Context, topic string) (func(account string) aliasView, error) {
	secret := s.aliasSecret.Load()
	if secret == nil {
		read, err := s.Operator.Secret(ctx, operator.SecretOfAliases)
		if err != nil {
			return nil, err
		}
		secret = &read // It never changes.
		s.aliasSecret.Store(secret)
	}
	names := alias.In(topic, *secret)
	return func(account string) aliasView {
		a := names.Of(account)
		return aliasView{Alias: a.Name, Salt: a.Salt}
	}, nil
}

// alias tells an account's owner what public pages call it.
func (s *Server) alias(r *http.Request) (v aliasView, err error) {
	account, err := s.ownAccount(r)
	if err != nil {
		return v, err
	}
	topic, err := one(r, "topic")
	if err == nil {
		err = s.checkTopic(r.Context(), infoOf(r).principal, topic)
	}
	if errors.Is(err, live.ErrNoTopic) {
		err = refuse("topic must be campaign:ID or auction:ID")
	}
	if err == nil {
		_, err = s.Ledger.Account(r.Context(), account)
	}
	if err != nil {
		return v, err
	}
	name, err := s.aliasesIn(r.Context(), topic)
	if err != nil {
		return v, err
	}
	return name(account), nil
}

// checkTopic refuses the topic of a campaign or auction that somebody may not see. It returns [live.ErrNoTopic] for what is the
// topic of neither.
func (s *Server) checkTopic(ctx context.Context, p auth.Principal, topic string) error {
	kind, rest, _ := strings.Cut(topic, ":")
	id, err := uuid.Parse(rest)
	switch {
	case err != nil || id.String() != rest:
		return live.ErrNoTopic
	case kind == "campaign":
		_, err = s.campaign(ctx, p, id)
	case kind == "auction":
		_, err = s.auctionFor(ctx, p, id)
	default:
		return live.ErrNoTopic
	}
	return err
}
