package server

import (
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
)

// appender is a document of a hot route, which says itself how it is spelt: exactly as the encoder would spell it, at a
// fifth of the cost. Answers are spelt inside the transaction, one after the other, so this is time that all of a batch
// wait for.
type appender interface {
	// appendJSON appends the document to b. Its strings are valid UTF-8, as all that was decoded is.
	appendJSON(b []byte) []byte
}

func (q *transferRequest) appendJSON(b []byte) []byte {
	b = appendString(append(b, `{"from":`...), q.From)
	b = appendString(append(b, `,"to":`...), q.To)
	b = strconv.AppendInt(append(b, `,"amount":`...), q.Amount, 10)
	if q.Memo != "" {
		b = appendString(append(b, `,"memo":`...), q.Memo)
	}
	return append(b, '}')
}

func (v transferView) appendJSON(b []byte) []byte {
	b = appendUUID(append(b, `{"id":`...), v.ID)
	b = appendString(append(b, `,"kind":`...), string(v.Kind))
	b = appendString(append(b, `,"from":`...), v.From)
	b = appendString(append(b, `,"to":`...), v.To)
	b = strconv.AppendInt(append(b, `,"amount":`...), v.Amount, 10)
	b = appendString(append(b, `,"currency":`...), v.Currency)
	b = appendString(append(b, `,"status":`...), string(v.Status))
	b = appendString(append(b, `,"reason":`...), v.Reason)
	b = appendString(append(b, `,"memo":`...), v.Memo)
	b = appendTime(append(b, `,"created_at":`...), v.CreatedAt)
	return append(b, '}')
}

func (q *bidRequest) appendJSON(b []byte) []byte {
	b = appendString(append(b, `{"account":`...), q.Account)
	b = strconv.AppendInt(append(b, `,"amount":`...), q.Amount, 10)
	return append(b, '}')
}

func (v bidView) appendJSON(b []byte) []byte {
	b = appendUUID(append(b, `{"auction":`...), v.Auction)
	b = appendString(append(b, `,"account":`...), v.Account)
	b = strconv.AppendInt(append(b, `,"amount":`...), v.Amount, 10)
	b = strconv.AppendInt(append(b, `,"previous_amount":`...), v.PreviousAmount, 10)
	b = strconv.AppendInt(append(b, `,"round":`...), int64(v.Round), 10)
	b = appendTime(append(b, `,"round_ends_at":`...), v.RoundEndsAt)
	b = strconv.AppendInt(append(b, `,"rank":`...), int64(v.Rank), 10)
	b = strconv.AppendInt(append(b, `,"seq":`...), v.Seq, 10)
	return append(b, '}')
}

func appendString(b []byte, s string) []byte {
	b, err := jsontext.AppendQuote(b, s)
	if err != nil {
		panic("server: a string could not be encoded: " + err.Error())
	}
	return b
}

func appendUUID(b []byte, id uuid.UUID) []byte {
	const digits = "0123456789abcdef"
	b = append(b, '"')
	for i, x := range id {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			b = append(b, '-')
		}
		b = append(b, digits[x>>4], digits[x&15])
	}
	return append(b, '"')
}

func appendTime(b []byte, t timestamp) []byte {
	b = time.Time(t).UTC().AppendFormat(append(b, '"'), timestampLayout)
	return append(b, '"')
}
