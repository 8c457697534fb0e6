package server

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"filippo.io/torchwood"
	"github.com/google/uuid"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/fairlead-dev/fairlead/internal/logkeeper"
	"github.com/fairlead-dev/fairlead/internal/server/edge"
)

// PublicLog reads the log that anybody may read.
type PublicLog interface {
	Published(ctx context.Context) (logkeeper.Published, error)
	Tile(ctx context.Context, level int, number int64) ([]tlog.Hash, error)
	Bundle(ctx context.Context, number int64, width int) ([]byte, error)
	Leaves(ctx context.Context, topic logkeeper.Topic, from, size int64, limit int) ([]logkeeper.Entry, error)
	Seal(ctx context.Context, campaign uuid.UUID) (*logkeeper.SeenSeal, error)
	Balance(ctx context.Context, account string, at time.Time, size int64) (*logkeeper.Balance, error)
}

// How long others may keep what they have read: tiles never change, and a checkpoint soon does.
const (
	forEver       = "public, max-age=31536000, immutable"
	checkpointFor = 100 * time.Millisecond
)

func (s *Server) logRoutes() []route {
	return []route{
		get("/log/checkpoint", accessPublic, doc[none, none]("The public log's newest checkpoint, a signed note"), s.logCheckpoint),
		get("/log/key", accessPublic, doc[none, none]("The public log's verifier key"), s.logKey),
		get("/log/tile/{level}/{tile...}", accessPublic, doc[none, none]("A tile of the public log, or a bundle of its entries"), s.logTile),
		s.logRoute("/v1/campaigns/{id}/log", accessUser, "List a campaign's leaves in the public log", func(r *http.Request) (logkeeper.Topic, error) {
			c, err := s.campaignOf(r)
			if err != nil {
				return logkeeper.Topic{}, err
			}
			return logkeeper.Topic{Kind: logkeeper.KindCampaign, ID: c.ID}, nil
		}),
		readRoute("/v1/campaigns/{id}/seal", accessUser, "Prove that witnesses have seen a campaign's seal before its round", s.campaignSeal, same[*sealView]),
		s.logRoute("/v1/auctions/{id}/log", accessUser, "List an auction's leaves in the public log", func(r *http.Request) (logkeeper.Topic, error) {
			a, err := s.auctionOf(r)
			if err != nil {
				return logkeeper.Topic{}, err
			}
			return logkeeper.Topic{Kind: logkeeper.KindAuction, ID: a.ID}, nil
		}),
		s.logRoute("/v1/multidraws/{id}/log", accessStaff, "List a multi-draw's leaves in the public log", func(r *http.Request) (logkeeper.Topic, error) {
			o, err := s.multidrawOf(r)
			if err != nil {
				return logkeeper.Topic{}, err
			}
			return logkeeper.Topic{Kind: logkeeper.KindMultidraw, ID: o.ID}, nil
		}),
		filtered(readRoute("/v1/accounts/{id}/proof", accessUser, "Prove an account's balance by the public log", s.balanceProof, same[accountProofView]),
			"at", "time of the balance: it is that of the newest closing of the books not after this; now when absent"),
	}
}

// published reads the log's state, remembered for a moment.
func (s *Server) published(ctx context.Context) (p logkeeper.Published, err error) {
	key := "log " + strconv.FormatInt(time.Now().UnixMilli()/checkpointFor.Milliseconds(), 10)
	text, err := s.pages.read(ctx, key, func(ctx context.Context) ([]byte, int64, error) {
		p, err := s.Log.Published(ctx)
		if err != nil {
			return nil, 0, err
		}
		text := mustMarshal(p)
		return text, int64(len(text)), nil
	})
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	return p, err
}

// errNoLog is returned while no checkpoint is published.
var errNoLog error = &refusal{Kind: edge.NotFound, Detail: "no checkpoint of the log is published yet"} //nolint:errname // A constant.

// errBrokenLog is returned where the log's tables lack what is under its checkpoint.
var errBrokenLog = errors.New("the log's tables lack what its checkpoint has")

func (s *Server) logCheckpoint(w http.ResponseWriter, r *http.Request) error {
	p, err := s.published(r.Context())
	if err == nil && p.Checkpoint == "" {
		err = errNoLog
	}
	if err != nil {
		return err
	}
	writeText(w, p.Checkpoint)
	return nil
}

func (s *Server) logKey(w http.ResponseWriter, r *http.Request) error {
	p, err := s.published(r.Context())
	if err == nil && p.Verifier == "" {
		err = errNoLog
	}
	if err != nil {
		return err
	}
	writeText(w, p.Verifier+"\n")
	return nil
}

func writeText(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache") // Whoever keeps it asks whether there is a newer one.
	_, _ = w.Write([]byte(text))                // The client went away.
}

// logTile serves a tile or a bundle, of what is under the published checkpoint.
func (s *Server) logTile(w http.ResponseWriter, r *http.Request) error {
	t, err := torchwood.ParseTilePath("tile/" + r.PathValue("level") + "/" + r.PathValue("tile"))
	if err != nil {
		return noSuchPath(w, r)
	}
	p, err := s.published(r.Context())
	if err != nil {
		return err
	}
	level := max(t.L, 0) // Entries are on level −1, as many as there are hashes on level 0.
	if t.N > p.Size>>(level*torchwood.TileHeight)/torchwood.TileWidth || (t.N*torchwood.TileWidth+int64(t.W)) > p.Size>>(level*torchwood.TileHeight) {
		return &refusal{Kind: edge.NotFound, Detail: "the log's checkpoint has no such tile"}
	}
	// From the tables each time: what somebody has changed there must not stay hidden behind a copy in memory.
	raw, err := bounded(r.Context(), s.tiles, func(ctx context.Context) ([]byte, error) { return s.readTile(ctx, t) })
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", forEver)
	w.Header().Set("Content-Type", "application/octet-stream")
	_, _ = w.Write(raw) // The client went away.
	return nil
}

func (s *Server) readTile(ctx context.Context, t tlog.Tile) (raw []byte, err error) {
	if t.L < 0 {
		if raw, err = s.Log.Bundle(ctx, t.N, t.W); err == nil && raw == nil {
			err = errBrokenLog
		}
		return raw, err
	}
	hashes, err := s.Log.Tile(ctx, t.L, t.N)
	if err != nil {
		return nil, err
	}
	if len(hashes) < t.W {
		return nil, errBrokenLog
	}
	for _, h := range hashes[:t.W] {
		raw = append(raw, h[:]...)
	}
	return raw, nil
}

// logLeafView is a leaf with what proves that it is in the log.
type logLeafView struct {
	Index     int64    `json:"index" doc:"number of the entry in the log, from 0"`
	Type      string   `json:"type" doc:"type of the fact, as campaign.sealed or bid.placed"`
	Leaf      string   `json:"leaf" doc:"the entry's bytes in base64, a JSON document"`
	Inclusion []string `json:"inclusion" doc:"hashes in hex from the leaf up to the checkpoint's root"`
}

type logLeavesView struct {
	Items      []logLeafView `json:"items"`
	Next       *string       `json:"next" doc:"cursor of the next page, null on the last"`
	Checkpoint string        `json:"checkpoint" doc:"the signed note under which all leaves of this page are"`
}

// logRoute is the list of a topic's leaves, all under the same checkpoint.
func (s *Server) logRoute(path string, a access, summary string, of func(*http.Request) (logkeeper.Topic, error)) route {
	o := doc[none, logLeavesView](summary)
	o.query = paged[logLeafView](summary).query
	return get(path, a, o, func(w http.ResponseWriter, r *http.Request) error {
		topic, err := of(r)
		if err != nil {
			return err
		}
		p, err := parsePage(r, r.URL.Path, maxLimit, oldestFirst())
		if err != nil {
			return err
		}
		v, err := s.logLeaves(r.Context(), topic, p)
		if err != nil {
			return err
		}
		return writeView(w, v)
	})
}

func (s *Server) logLeaves(ctx context.Context, topic logkeeper.Topic, p page[int64]) (v logLeavesView, err error) {
	log, err := s.published(ctx)
	if err != nil {
		return v, err
	}
	v.Items, v.Checkpoint = []logLeafView{}, log.Checkpoint
	// A place is the index of the last leaf and one, because places are positive.
	entries, err := s.Log.Leaves(ctx, topic, p.after, log.Size, p.limit+1)
	if err != nil || len(entries) == 0 {
		return v, err
	}
	if len(entries) > p.limit {
		entries = entries[:p.limit]
		v.Next = new(p.order.write(p.path, entries[len(entries)-1].Index+1))
	}
	prove, err := logkeeper.Prover(ctx, log.Checkpoint, log.Verifier, s.Log.Tile)
	if err != nil {
		return v, err
	}
	for _, e := range entries {
		item := logLeafView{Index: e.Index, Type: typeOf(e.Data), Leaf: base64.StdEncoding.EncodeToString(e.Data)}
		if item.Inclusion, err = prove(e); err != nil {
			return v, err
		}
		v.Items = append(v.Items, item)
	}
	return v, nil
}

// typeOf is the type of a leaf, which is the first thing in it.
func typeOf(leaf []byte) string {
	var head struct {
		Type string `json:"type"`
	}
	_ = json.Unmarshal(leaf, &head) // The keeper has made it.
	return head.Type
}

// accountProofView is a balance with all that proves it.
type accountProofView struct {
	Account    string      `json:"account"`
	Alias      string      `json:"alias" doc:"the account's in the books"`
	Salt       string      `json:"salt" doc:"proves the alias; it is shown to nobody else"`
	Currency   string      `json:"currency"`
	Available  int64       `json:"available"`
	Held       int64       `json:"held"`
	Version    int64       `json:"version" doc:"number of the account's last change before the closing; entries have it, too"`
	Closing    int64       `json:"closing" doc:"number of the closing of the books, from 0"`
	At         timestamp   `json:"at" doc:"when the books were closed"`
	Place      int64       `json:"place" doc:"of the account among those of the closing, from 0"`
	Accounts   int64       `json:"accounts" doc:"how many the closing has"`
	Root       string      `json:"root" doc:"of the closing's accounts"`
	Path       []string    `json:"path" doc:"hashes in hex from the account up to that root"`
	Leaf       logLeafView `json:"leaf" doc:"the closing in the log"`
	Checkpoint string      `json:"checkpoint" doc:"the signed note under which the closing is"`
}

func (s *Server) balanceProof(r *http.Request) (v accountProofView, err error) {
	account, err := s.existingAccount(r)
	if err != nil {
		return v, err
	}
	at := time.Now().Add(time.Hour) // Whatever this machine's clock says: the newest.
	if given, err := one(r, "at"); err != nil {
		return v, err
	} else if given != "" {
		var ok bool
		if at, ok = parseTime(given); !ok {
			return v, refuse("at must be a time as 2026-01-02T15:04:05Z")
		}
	}
	log, err := s.published(r.Context())
	if err != nil {
		return v, err
	}
	b, err := s.Log.Balance(r.Context(), account, at, log.Size)
	if err != nil {
		return v, err
	}
	if b == nil {
		return v, &refusal{Kind: edge.NotFound, Detail: "no closing of the books before that time has the account: the account is younger, or the balances of that closing are no longer kept"}
	}
	prove, err := logkeeper.Prover(r.Context(), log.Checkpoint, log.Verifier, s.Log.Tile)
	if err != nil {
		return v, err
	}
	inclusion, err := prove(b.Leaf)
	return accountProofView{
		Account: account, Alias: b.Alias, Salt: b.Salt, Currency: b.Currency, Available: b.Available, Held: b.Held, Version: b.Version,
		Closing: b.Closing, At: timestamp(b.At), Place: b.Index, Accounts: b.Accounts, Root: hex.EncodeToString(b.Root[:]), Path: logkeeper.Hexadecimal(b.Path),
		Leaf:       logLeafView{Index: b.Leaf.Index, Type: logkeeper.TypeBooksClosed, Leaf: base64.StdEncoding.EncodeToString(b.Leaf.Data), Inclusion: inclusion},
		Checkpoint: log.Checkpoint,
	}, err
}
