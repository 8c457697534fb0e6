package server

import (
	"bytes"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestAppendersSpellAsTheEncoderDoes matters beyond looks: a request's spelling is its fingerprint, which records of
// earlier versions hold.
func TestAppendersSpellAsTheEncoderDoes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := func(name string) string { return rapid.String().Draw(t, name) }
		amount := rapid.Int64().Draw(t, "amount")
		micros := rapid.Int64Range(-62_135_596_800_000_000, 253_402_300_799_999_999).Draw(t, "created_at")
		id := uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
		for _, v := range []appender{
			&transferRequest{From: new(s("from")), To: new(s("to")), Amount: &amount, Memo: s("memo")},
			&transferRequest{From: new(s("from")), To: new(s("to")), Amount: &amount, Memo: s("memo"), Reference: new("r" + s("reference"))},
			&transferRequest{Legs: []legRequest{{From: s("from"), To: s("to"), Amount: amount}, {From: s("from"), To: s("to"), Amount: amount}}, Memo: s("memo")},
			transferView{ID: id, Legs: []legView{{From: s("from"), To: s("to"), Amount: amount, Currency: s("currency")}, {From: s("from"), To: s("to"), Amount: amount}}},
			transferView{
				ID: id, Kind: ledger.Kind(s("kind")), From: s("from"), To: s("to"), Amount: amount, Currency: s("currency"),
				Status: ledger.TransferStatus(s("status")), Reason: s("reason"), Memo: s("memo"), CreatedAt: timestamp(time.UnixMicro(micros)),
				CompletedAt: rapid.SampledFrom([]*timestamp{nil, new(timestamp(time.UnixMicro(micros)))}).Draw(t, "completed_at"), Reference: s("reference"),
			},
			&bidRequest{Account: s("account"), Amount: amount},
			bidView{
				Auction: id, Account: s("account"), Amount: amount, PreviousAmount: rapid.Int64().Draw(t, "previous"), Round: rapid.Int().Draw(t, "round"),
				RoundEndsAt: timestamp(time.UnixMicro(micros)), Rank: rapid.Int().Draw(t, "rank"), Seq: rapid.Int64().Draw(t, "seq"),
			},
		} {
			want, err := json.Marshal(v, json.Deterministic(true))
			testwait.Must(t, err)
			if got := v.appendJSON(nil); !bytes.Equal(got, want) {
				t.Errorf("%s\nwant %s", got, want)
			}
		}
	})
}
