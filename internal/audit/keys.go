package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
)

func keyChecks() []check {
	return []check{
		{guarantee: Keys, promise: "every stored answer is an answer", sql: `
			SELECT format('key %s: status %s', encode(id, 'hex'), status) FROM stored_keys WHERE status NOT BETWEEN 200 AND 499`},
		{guarantee: Keys, promise: "every key has one answer", sql: `
			SELECT format('key %s: in both slots', encode(id, 'hex')) FROM idempotency_keys JOIN idempotency_keys_1 USING (id)`},
		{guarantee: Keys, promise: "nothing is stored that a client was told to try again", find: findRetryable},
		{guarantee: Keys, promise: "every stored answer has its effect", find: findKeysWithoutEffect},
	}
}

// keyAnswer is what a stored answer says about its effect.
type keyAnswer struct {
	ID        string `json:"id"`
	Campaign  string `json:"campaign"`
	Transfer  string `json:"transfer"`
	Auction   string `json:"auction"`
	Account   string `json:"account"`
	Amount    int64  `json:"amount"`
	Seq       int64  `json:"seq"`
	Retryable bool   `json:"retryable"`
	Code      string `json:"code"`
	// Tokens are those of a lock, which may have ended.
	Tokens map[string]int64 `json:"tokens"`
}

// eachKey calls visit with every stored answer that has a body.
func eachKey(ctx context.Context, tx pgx.Tx, visit func(id string, status int, answer keyAnswer), report func(string, ...any)) error {
	rows, err := tx.Query(ctx, `SELECT encode(id, 'hex'), status, body FROM stored_keys`)
	if err != nil {
		return err
	}
	var id string
	var status int
	var body []byte
	_, err = pgx.ForEachRow(rows, []any{&id, &status, &body}, func() error {
		if len(body) == 0 {
			return nil
		}
		var answer keyAnswer
		if err := json.Unmarshal(body, &answer); err != nil {
			report("key %s: body %.80q is not JSON: %v", id, body, err)
			return nil
		}
		visit(id, status, answer)
		return nil
	})
	return err
}

func findRetryable(ctx context.Context, tx pgx.Tx, report func(string, ...any)) error {
	return eachKey(ctx, tx, func(id string, status int, answer keyAnswer) {
		if status >= 400 && answer.Retryable {
			report("key %s: stored %d %s is retryable", id, status, answer.Code)
		}
	}, func(string, ...any) {})
}

// findKeysWithoutEffect looks up the object that each stored success names: the one it made or changed, the campaign
// of a draw, the bid that was accepted, the transfer that has a reference, or the failed intent of a
// refused transfer.
func findKeysWithoutEffect(ctx context.Context, tx pgx.Tx, report func(string, ...any)) error {
	var sold string // Purchases of campaigns of before are archived.
	if err := tx.QueryRow(ctx, `SELECT upto::text FROM archived_sales`).Scan(&sold); err != nil {
		return err
	}
	objects := map[string]string{} // the object that must exist, and the key that says so
	failed := map[string]string{}  // the failed transfer that must exist, likewise
	tokens := map[string]int64{}   // the newest token of each lock key that was told
	err := eachKey(ctx, tx, func(id string, status int, answer keyAnswer) {
		switch {
		case answer.Code == "reference_taken":
			objects[answer.Transfer] = id
		case status >= 400 && answer.Transfer != "":
			failed[answer.Transfer] = id
		case status < 300 && answer.Tokens != nil:
			for key, token := range answer.Tokens {
				tokens[key] = max(tokens[key], token)
			}
		case status < 300 && answer.ID != "" && answer.Campaign != "" && answer.Campaign < sold:
			objects[answer.Campaign] = id
		case status < 300 && answer.ID != "":
			objects[answer.ID] = id
		case status < 300 && answer.Auction != "":
			objects[fmt.Sprintf("bid %d of %s over %d in auction %s", answer.Seq, answer.Account, answer.Amount, answer.Auction)] = id
		case status < 300 && answer.Campaign != "":
			objects[answer.Campaign] = id
		case status < 300:
			report("key %s: stored %d names no object", id, status)
		}
	}, report)
	if err != nil {
		return err
	}
	if err := removeExisting(ctx, tx, objects, `
		SELECT a.id FROM accounts a JOIN unnest($1::text[]) AS w (id) ON w.id = a.id
		UNION ALL SELECT w.id FROM transfers t JOIN unnest($1::text[]) AS w (id) ON w.id = t.id::text WHERE t.status = 'completed'
		UNION ALL SELECT w.id FROM holds h JOIN unnest($1::text[]) AS w (id) ON w.id = h.id::text
		UNION ALL SELECT w.id FROM campaigns c JOIN unnest($1::text[]) AS w (id) ON w.id = c.id::text
		UNION ALL SELECT w.id FROM multidraws m JOIN unnest($1::text[]) AS w (id) ON w.id = m.id::text
		UNION ALL SELECT w.id FROM sagas s JOIN unnest($1::text[]) AS w (id) ON w.id = s.id::text
		UNION ALL SELECT w.id FROM publications p JOIN unnest($1::text[]) AS w (id) ON w.id = p.id::text
		UNION ALL SELECT w.id FROM targets t JOIN unnest($1::text[]) AS w (id) ON w.id = t.id::text
		UNION ALL SELECT w.id FROM subscriptions s JOIN unnest($1::text[]) AS w (id) ON w.id = s.id::text
		UNION ALL SELECT w.id FROM auctions a JOIN unnest($1::text[]) AS w (id) ON w.id = a.id::text
		UNION ALL SELECT w.id FROM auction_bids b
			JOIN unnest($1::text[]) AS w (id) ON w.id = format('bid %s of %s over %s in auction %s', b.seq, b.account, b.amount, b.auction)
		UNION ALL SELECT w.id FROM purchases p JOIN unnest($1::text[]) AS w (id) ON w.id = p.id::text
		UNION ALL SELECT w.id FROM api_keys k JOIN unnest($1::text[]) AS w (id) ON w.id = k.id`); err != nil {
		return err
	}
	if err := removeExisting(ctx, tx, failed, `
		SELECT w.id FROM transfers t JOIN unnest($1::text[]) AS w (id) ON w.id = t.id::text WHERE t.status = 'failed'
		UNION ALL SELECT w.id FROM sagas s JOIN unnest($1::text[]) AS w (id) ON w.id = s.id::text WHERE s.status = 'failed'`); err != nil {
		return err
	}
	if err := findTokens(ctx, tx, tokens, report); err != nil {
		return err
	}
	for object, id := range objects {
		report("key %s: %s does not exist", id, object)
	}
	for transfer, id := range failed {
		report("key %s: failed transfer %s does not exist", id, transfer)
	}
	return nil
}

// findTokens reports the lock keys that have not had the token that was told, or have more than one row.
func findTokens(ctx context.Context, tx pgx.Tx, told map[string]int64, report func(string, ...any)) error {
	rows, err := tx.Query(ctx, `SELECT key, max(token), count(*) FROM lock_keys WHERE key = ANY($1) GROUP BY key`, slices.Collect(maps.Keys(told)))
	if err != nil {
		return err
	}
	var key string
	var token, count int64
	if _, err := pgx.ForEachRow(rows, []any{&key, &token, &count}, func() error {
		if count > 1 {
			report("lock key %s has %d rows", key, count)
		}
		if token >= told[key] {
			delete(told, key)
		}
		return nil
	}); err != nil {
		return err
	}
	for key, token := range told {
		report("lock key %s: token %d was granted, and is not recorded", key, token)
	}
	return nil
}

// removeExisting deletes from wanted the keys that the question, asked for all of them, answers with.
func removeExisting(ctx context.Context, tx pgx.Tx, wanted map[string]string, sql string) error {
	rows, err := tx.Query(ctx, sql, slices.Collect(maps.Keys(wanted)))
	if err != nil {
		return err
	}
	var id string
	_, err = pgx.ForEachRow(rows, []any{&id}, func() error {
		delete(wanted, id)
		return nil
	})
	return err
}
