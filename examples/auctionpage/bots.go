package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fairlead-dev/fairlead/client"
)

// runBots lets n programs bid against each other until the auction or ctx has ended.
func runBots(ctx context.Context, c *client.Client, auction string, n int) {
	for i := range n {
		go bid(ctx, c, auction, fmt.Sprintf("bot-%d", i+1))
	}
}

// bid offers a little more than what would win now, every few seconds.
func bid(ctx context.Context, c *client.Client, auction, name string) {
	for {
		least, err := c.MinWinningBid(ctx, auction)
		if client.CodeOf(err) == "not_active" {
			return // It is over.
		}
		if err == nil {
			_, err = placeBid(ctx, c, auction, name, least+rand.Int64N(500), "") //nolint:gosec // Nothing depends on a bot's taste.
		}
		// To be outbid, too late or out of money is a bidder's life; that the server is away is not.
		if _, refused := errors.AsType[*client.Problem](err); err != nil && !refused {
			return
		}
		select {
		case <-time.After(time.Second + rand.N(2*time.Second)): //nolint:gosec // As above.
		case <-ctx.Done():
			return
		}
	}
}
