package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/live"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
)

const (
	// liveChannel is what the processes on one database listen on.
	liveChannel = "fairlead_live"
	// maxPayload is below PostgreSQL's limit of 8,000 bytes a notification.
	maxPayload = 7900
)

// errLargeHint is returned when a message is too large for a notification; the others were sent.
var errLargeHint = errors.New("a message is too large for a notification")

// Notifications carry hints between the processes on one database by LISTEN and NOTIFY. What is received comes over a
// connection of its own, outside of the pool; what is published goes through the pool, in transactions that wait for no
// disk: NOTIFY makes all commits with it take turns. It is safe for concurrent use.
type Notifications struct {
	db     *DB
	config *pgx.ConnConfig
}

var _ live.Wire = (*Notifications)(nil)

// NewNotifications returns the notifications of db's database.
func NewNotifications(db *DB) *Notifications {
	config := db.pool.Config().ConnConfig // A copy.
	config.RuntimeParams["application_name"] = "fairlead live"
	return &Notifications{db: db, config: config}
}

// Publish implements [live.Wire].
func (n *Notifications) Publish(ctx context.Context, hints []live.Hint) error {
	payloads, err := pack(hints)
	if len(payloads) == 0 {
		return err
	}
	// One statement, so that it is one round trip; its transaction ends with it.
	const notify = `SELECT pg_notify('` + liveChannel + `', payload)
		FROM (SELECT set_config('synchronous_commit', 'off', true)) AS s (v), unnest($1::text[]) AS payload WHERE s.v = 'off'`
	_, sendErr := n.db.pool.Exec(ctx, notify, payloads)
	if sendErr != nil {
		sendErr = fmt.Errorf("postgres: notify: %w", sendErr)
	}
	return errors.Join(err, sendErr)
}

// pack makes as few payloads as there have to be, each a JSON list of hints.
func pack(hints []live.Hint) (payloads []string, err error) {
	list := []byte{'['}
	flush := func() {
		if len(list) > 1 {
			payloads = append(payloads, string(append(list, ']')))
			list = append(list[:0], '[')
		}
	}
	for _, h := range hints {
		raw, failure := json.Marshal(h)
		if failure != nil {
			err = errors.Join(err, failure)
			continue
		}
		if len(raw)+2 > maxPayload {
			err = errors.Join(err, fmt.Errorf("%w: %d bytes for %s", errLargeHint, len(raw), h.Topic))
			continue
		}
		if len(list)+len(raw)+2 > maxPayload {
			flush()
		}
		if len(list) > 1 {
			list = append(list, ',')
		}
		list = append(list, raw...)
	}
	flush()
	return payloads, err
}

// Receive implements [live.Wire].
func (n *Notifications) Receive(ctx context.Context, f func(live.Hint)) error {
	l := pgkit.Listener{Config: n.config, Channel: liveChannel, Heard: func(payload string) {
		var hints []live.Hint
		if err := json.Unmarshal([]byte(payload), &hints); err != nil {
			// Anybody who may use the database may notify. A payload of somebody else is no reason to stop.
			n.db.logger.WarnContext(ctx, "a live notification that is not understood", "error", err)
			return
		}
		for _, h := range hints {
			f(h)
		}
	}}
	err := l.Listen(ctx)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // The caller has ended it.
	}
	return fmt.Errorf("postgres: listen: %w", err)
}
