package fairlead

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

const (
	// recountLook is how often is looked whether a recount is due.
	recountLook = time.Minute
	// recountBlocks are read in one snapshot, for a fraction of a second. recountRest and closeRest are how many times as long as it has worked
	// the server leaves the database alone then: it takes a twentieth of one processor.
	recountBlocks = 2048
	recountRest   = 19
	closeRest     = 19
)

// keepBooks keeps the public log, closes the books and recounts them until ctx ends, in the one process that is elected for it. Two that
// believe to be elected do the same work twice, and no harm.
func (s *Server) keepBooks(ctx context.Context, term int64) {
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error { s.keeper.Lead(ctx, term); return context.Canceled }) // When it resigns, so do the others.
	all.Go(func() error { return s.closeBooks(ctx) })
	all.Go(func() error { return s.recountBooks(ctx) })
	_ = all.Wait()
}

// closeBooks closes the books for the integrity check, again and again.
func (s *Server) closeBooks(ctx context.Context) error {
	books := postgres.NewLedger(s.db)
	for {
		began := time.Now()
		closing, err := books.CloseAccounts(ctx)
		took := time.Since(began)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			s.logger.WarnContext(ctx, "the books can't be closed for the integrity check", "error", err)
		case closing != nil && (closing.Bad > 0 || !closing.Balanced):
			s.logger.ErrorContext(ctx, "the books don't add up: run fairlead integrity", "bad_accounts", closing.Bad, "balanced", closing.Balanced)
		case closing != nil:
			s.logger.DebugContext(ctx, "the books are closed for the integrity check", "accounts", closing.Accounts, "new", closing.Closed, "took", took)
		}
		if !wait.For(ctx, max(s.o.CloseBooksEvery-took, closeRest*took)) {
			return ctx.Err()
		}
	}
}

// recountBooks counts everything when that is due.
func (s *Server) recountBooks(ctx context.Context) error {
	books := postgres.NewLedger(s.db)
	o := postgres.RecountOptions{Runner: postgres.RunnerServer, Blocks: recountBlocks, AtOnce: 1, Rest: recountRest}
	for {
		due, err := books.RecountDue(ctx, o.Runner, s.o.RecountEvery)
		if err == nil && due {
			began := time.Now()
			in, failed := books.Recount(ctx, o)
			switch err = failed; {
			case err == nil && !in.Valid:
				s.logger.ErrorContext(ctx, "the books don't add up: run fairlead integrity", "first_bad_account", in.FirstBadAccount, "bad_transfers", in.BadTransfers,
					"difference", in.Difference)
			case err == nil:
				s.logger.InfoContext(ctx, "the books are recounted", "took", time.Since(began))
			}
		}
		if err != nil && ctx.Err() == nil {
			s.logger.WarnContext(ctx, "the books can't be recounted", "error", err)
		}
		if !wait.For(ctx, min(recountLook, s.o.RecountEvery)) {
			return ctx.Err()
		}
	}
}
