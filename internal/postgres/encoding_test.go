package postgres

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/postgres/speculation"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestEveryParameterIsEncoded queues all writes of speculative transactions, and has every statement's parameters
// encoded as the database wants them.
func TestEveryParameterIsEncoded(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	conn, err := db.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	missing := db.speculativeStatements()
	for _, unique := range []bool{true, false} {
		for _, q := range everyWrite(t, db.engine, unique) {
			statement, err := conn.Conn().Prepare(t.Context(), q.SQL, q.SQL)
			if err != nil {
				t.Fatalf("%s: %v", q.SQL, err)
			}
			missing = slices.DeleteFunc(missing, func(sql string) bool { return sql == q.SQL })
			if len(statement.ParamOIDs) != len(q.Arguments) {
				t.Errorf("%s: %d arguments for %d parameters", q.SQL, len(q.Arguments), len(statement.ParamOIDs))
				continue
			}
			// Those of several transactions are put one behind the other: columns must be equally long.
			for i, arg := range q.Arguments {
				if rows := reflect.ValueOf(q.Arguments[0]).Len(); reflect.TypeOf(arg).Kind() == reflect.Slice && reflect.ValueOf(arg).Len() != rows {
					t.Errorf("%s: $%d has %d rows, $1 has %d", q.SQL, i+1, reflect.ValueOf(arg).Len(), rows)
				}
				var p speculation.Params
				if err := p.Append(arg); err != nil {
					t.Errorf("%s: $%d: %v", q.SQL, i+1, err)
					continue
				}
				var got, want any
				kind, _ := conn.Conn().TypeMap().TypeForOID(statement.ParamOIDs[i])
				raw, err := conn.Conn().TypeMap().Encode(statement.ParamOIDs[i], pgx.BinaryFormatCode, arg, nil)
				if err == nil {
					want, err = kind.Codec.DecodeValue(conn.Conn().TypeMap(), kind.OID, pgx.BinaryFormatCode, raw)
				}
				if err == nil {
					got, err = kind.Codec.DecodeValue(conn.Conn().TypeMap(), kind.OID, pgx.BinaryFormatCode, p.Next(1)[0])
				}
				if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("%s: $%d, %T: decoded as %v, want %v (%v)", q.SQL, i+1, arg, got, want, err)
				}
			}
		}
	}
	if len(missing) > 0 {
		t.Errorf("never queued: %q", missing)
	}
}

// everyWrite returns the queries of transactions that do all that is done on the fast path of an engine.
func everyWrite(t *testing.T, engine pgkit.Capabilities, unique bool) []*pgx.QueuedQuery {
	t.Helper()
	now := time.Date(2026, 2, 3, 4, 5, 6, 7000, time.UTC)
	end := now.Add(time.Hour)
	a := &auction.Auction{
		ID: uuid.New(), Status: auction.StatusActive, Currency: "EUR", Seller: "seller", CurrentRound: 1, MinBid: 1, MinIncrement: 1,
		UniqueAmounts: unique, Seq: 1, CreatedAt: now, Rounds: []auction.Round{{Number: 1, Winners: 1, Status: auction.RoundActive, StartedAt: &now, EndsAt: &end}},
	}
	known := &speculation.Known{State: auction.NewState(a, []auction.Bid{{Account: "ann", Amount: 5, Round: 1, Seq: 1, At: now, Hold: uuid.New()}})}
	book := ledger.NewBook(now.Add(time.Minute), newID)
	for _, id := range []string{"ann", "ben", "cid"} {
		book.LoadAccount(ledger.Account{ID: id, Currency: "EUR", Available: 1000, Held: 5, Version: 2})
	}
	var b pgx.Batch
	s := NewAuctions(&DB{spec: speculation.New(speculation.Options{}), engine: engine})
	want := auction.Want{Bidders: []string{"ann", "ben", "cid"}}
	if err := s.bidSpeculatively(&b, known, want, speculation.Scene{Book: book, Absent: []string{"absent"}}, func(u *auction.Unit) {
		for _, key := range []string{"missed", "stored"} {
			if _, _, err := u.Keys.Lookup(*keyed[ledger.Op](nil, key, "").Key); err != nil {
				t.Error(err)
			}
		}
		u.Keys.Store(*keyed[ledger.Op](nil, "stored", "").Key, 201, []byte("{}"))
		for _, op := range []auction.PlaceBid{{Account: "ann", Amount: 6}, {Account: "ben", Amount: 7}} {
			if _, err := auction.Decide(u.State, op); err != nil {
				t.Error(err)
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	b.Queue(guardAuction, [][16]byte{a.ID}, []int64{1}, [][16]byte{uuid.New()}, 1)

	book = ledger.NewBook(now, newID)
	for _, id := range []string{"ann", "ben"} {
		book.LoadAccount(ledger.Account{ID: id, Currency: "EUR", Available: 1000, Version: 2})
	}
	for _, op := range []ledger.Op{
		ledger.CreateAccount{ID: "new", Currency: "EUR"},
		ledger.Deposit{Account: "new", Amount: 5},
		ledger.Withdraw{Account: "ann", Amount: 5},
		ledger.MakeTransfer{From: "ann", To: "ben", Amount: 5, Memo: "é", Reference: "rent"},
		ledger.TransferLegs{Legs: []ledger.Leg{{From: "ann", To: "ben", Amount: 5}, {From: "ben", To: "ann", Amount: 5}}},
		ledger.PlaceHold{Account: "ann", Amount: 5, ExpiresIn: new(time.Hour)},
	} {
		if _, err := ledger.Decide(book, op); err != nil {
			t.Error(err)
		}
	}
	saveBook(&b, book.Changes(), guardedWrites)
	return append(b.QueuedQueries, everySale(t)...)
}

// everySale returns the queries of transactions on a campaign: of its first sale, of a refusal, and of further sales.
func everySale(t *testing.T) []*pgx.QueuedQuery {
	t.Helper()
	c := &lottery.Campaign{
		ID: uuid.New(), Status: lottery.StatusActive, Currency: "EUR", Escrow: "escrow", TotalPositions: 9, Version: 3, PublishedAt: new(time.Now()),
		Layers: []lottery.Layer{{Positions: 4, Price: 5}, {Positions: 5, Price: 6, First: 4}},
	}
	known := &knownInventory{Inventory: lottery.NewInventory(c.Layers), campaign: c}
	random, err := newRandom()
	testwait.Must(t, err)
	var b pgx.Batch
	l := NewLottery(&DB{spec: speculation.New(speculation.Options{})})
	for _, layers := range [][]int{{1}, {9}, {1, 2}} {
		book := ledger.NewBook(time.Now(), newID)
		for _, id := range []string{"ann", "escrow"} {
			book.LoadAccount(ledger.Account{ID: id, Currency: "EUR", Available: 1000, Version: 2})
		}
		l.sellSpeculatively(&b, known, random, speculation.Scene{Book: book}, func(u *lottery.Unit) {
			for _, layer := range layers {
				_, err := lottery.Decide(u.State, lottery.Buy{Account: "ann", Layer: layer})
				if (err == nil) != (layer <= len(c.Layers)) {
					t.Error(err)
				}
			}
		})
	}
	return b.QueuedQueries
}
