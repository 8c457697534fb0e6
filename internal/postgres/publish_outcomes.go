package postgres

import (
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/services/publish"
)

const (
	// targetHealth reads targets with what their last attempts came to.
	targetHealth = `SELECT ` + targetFields + `, good.at, coalesce(good.publication, t.id), coalesce(good.status_code, 0),
			bad.at, coalesce(bad.publication, t.id), coalesce(bad.status_code, 0), coalesce(bad.cause, ''), coalesce(bad.message, '')
		FROM targets AS t LEFT JOIN target_outcomes AS good ON good.target = t.id AND good.delivered
			LEFT JOIN target_outcomes AS bad ON bad.target = t.id AND NOT bad.delivered`
	// upsertOutcomes notes what attempts came to. It waits for nobody: a row that was written within the last second, or is being
	// written, is left alone. Only the first two rows of a target may wait for another transaction that inserts the same.
	upsertOutcomes = `WITH told AS (
			SELECT * FROM unnest($1::uuid[], $2::boolean[], $3::uuid[], $4::text[], $5::integer[], $6::text[])
				AS v (target, delivered, publication, cause, status_code, message)
		), old AS (
			SELECT v.* FROM told AS v CROSS JOIN LATERAL (
				SELECT FROM target_outcomes WHERE target = v.target AND delivered = v.delivered
					AND at < clock_timestamp() - interval '1 second' OFFSET 0 FOR NO KEY UPDATE SKIP LOCKED) AS o
		), renewed AS (
			UPDATE target_outcomes AS o SET at = clock_timestamp(), publication = v.publication, cause = v.cause, status_code = v.status_code, message = v.message
			FROM old AS v WHERE o.target = ANY (ARRAY[v.target]) AND o.delivered = v.delivered
		)
		INSERT INTO target_outcomes (target, delivered, at, publication, cause, status_code, message)
		SELECT v.target, v.delivered, clock_timestamp(), v.publication, v.cause, v.status_code, v.message FROM told AS v
		WHERE NOT EXISTS (SELECT FROM target_outcomes AS o WHERE o.target = v.target AND o.delivered = v.delivered OFFSET 0)
		ORDER BY v.target, v.delivered ON CONFLICT DO NOTHING`
)

// noteOutcomes notes for each target the last delivery and the last failure of a batch. They count whether or not the claim was still
// in force: the target did answer, or did not.
func noteOutcomes(b *pgx.Batch, batch []publish.Conclusion) {
	type key struct {
		target    uuid.UUID
		delivered bool
	}
	last := map[key]*publish.Conclusion{}
	for i := range batch {
		c := &batch[i]
		if delivered := c.Class == publish.Delivered; delivered || c.FailedFor() != "" {
			last[key{c.Target, delivered}] = c
		}
	}
	if len(last) == 0 {
		return
	}
	var (
		targets, publications [][16]byte
		delivered             []bool
		causes, messages      []string
		codes                 []int
	)
	for k, c := range last {
		targets, delivered, publications = append(targets, k.target), append(delivered, k.delivered), append(publications, c.ID)
		causes, codes, messages = append(causes, string(c.FailedFor())), append(codes, c.StatusCode), append(messages, c.Error)
	}
	b.Queue(upsertOutcomes, targets, delivered, publications, causes, codes, messages)
}

func scanTargetHealth(row pgx.CollectableRow) (t publish.Target, err error) {
	var (
		good, bad     publish.TargetOutcome
		goodAt, badAt *time.Time
	)
	if err = row.Scan(append(targetInto(&t), &goodAt, &good.Publication, &good.StatusCode, &badAt, &bad.Publication, &bad.StatusCode, &bad.Cause, &bad.Error)...); err != nil {
		return t, err
	}
	if goodAt != nil {
		good.At = *goodAt
		t.LastDelivery = &good
	}
	if badAt != nil {
		bad.At = *badAt
		t.LastFailure = &bad
	}
	return t, nil
}
