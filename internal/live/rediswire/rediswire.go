// Package rediswire carries the live stream's hints between processes by Redis' publish and subscribe.
//
// Redis keeps nothing of what it passes on, which is enough: a hint that is lost is found by polling. Use it in place of
// PostgreSQL's NOTIFY where many processes make many commits, since NOTIFY makes all of them take turns.
package rediswire

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"

	"github.com/redis/rueidis"

	"github.com/fairlead-dev/fairlead/internal/live"
)

// channel is the one of all processes on one database, and of no others.
const channel = "fairlead:live"

// Wire is a [live.Wire] over one channel. It is safe for concurrent use.
type Wire struct {
	client rueidis.Client
	logger *slog.Logger
}

var _ live.Wire = (*Wire)(nil)

// New returns a wire. The client stays the caller's to close. The logger may be nil.
func New(client rueidis.Client, logger *slog.Logger) *Wire {
	return &Wire{client: client, logger: cmp.Or(logger, slog.New(slog.DiscardHandler))}
}

// ErrURL is returned for a URL that is none of a Redis.
var ErrURL = errors.New("this is no URL of a Redis")

// ParseURL reads the URL of a Redis. Its errors do not show a password.
func ParseURL(address string) (o rueidis.ClientOption, err error) {
	u, err := url.Parse(address)
	if err != nil {
		return o, ErrURL // The reason would show it.
	}
	if !slices.Contains([]string{"redis", "rediss", "valkey", "valkeys", "unix"}, u.Scheme) {
		return o, fmt.Errorf("%w: it must begin with redis://, or rediss:// for TLS", ErrURL)
	}
	if o, err = rueidis.ParseURL(address); err != nil {
		return o, fmt.Errorf("%w: %s", ErrURL, strings.TrimPrefix(err.Error(), "redis: "))
	}
	return o, nil
}

// Publish implements [live.Wire].
func (w *Wire) Publish(ctx context.Context, hints []live.Hint) error {
	payload, err := json.Marshal(hints)
	if err != nil {
		return fmt.Errorf("rediswire: encode: %w", err)
	}
	if err := w.client.Do(ctx, w.client.B().Publish().Channel(channel).Message(rueidis.BinaryString(payload)).Build()).Error(); err != nil {
		return fmt.Errorf("rediswire: publish: %w", err)
	}
	return nil
}

// Receive implements [live.Wire]. It holds a connection of its own, so that its end is noticed.
func (w *Wire) Receive(ctx context.Context, f func(live.Hint)) error {
	conn, release := w.client.Dedicate()
	defer release()
	err := conn.Receive(ctx, conn.B().Subscribe().Channel(channel).Build(), func(m rueidis.PubSubMessage) {
		var hints []live.Hint
		if err := json.Unmarshal([]byte(m.Message), &hints); err != nil {
			w.logger.WarnContext(ctx, "a live message that is not understood", "channel", channel, "error", err)
			return
		}
		for _, h := range hints {
			f(h)
		}
	})
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("rediswire: subscribe: %w", err)
}
