package fairlead

import (
	"context"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/fairlead-dev/fairlead/internal/logkeeper"
	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/internal/telemetry"
	"github.com/fairlead-dev/fairlead/lock"
	"github.com/fairlead-dev/fairlead/translog"
	"github.com/fairlead-dev/fairlead/translog/witness"
)

// logLease is what the process is elected for that keeps the public log.
const logLease = "log"

// LogSignedFile is where a server keeps the last checkpoint that it has signed, in its data directory.
func LogSignedFile(data string) string { return filepath.Join(data, "log.signed") }

// LogKeyFile is where a server keeps the key of its public log, in its data directory.
func LogKeyFile(data string) string { return filepath.Join(data, "log.key") }

// startLog makes the keeper of the public log and the election of the process that keeps it.
func (s *Server) startLog(registry *prometheus.Registry, locker *lock.Locker) error {
	key, guard, err := s.openLogKey()
	if err != nil {
		return fmt.Errorf("the log's key: %w", err)
	}
	store, err := postgres.NewLog(s.db)
	if err != nil {
		return err
	}
	s.onClose(store.Shutdown)
	observer := telemetry.NewLog(registry)
	o := logkeeper.PublisherOptions{
		Store: store, Tiles: store.Tile, Key: key, Guard: guard, Lost: s.db.HistoryLost, Quorum: s.o.WitnessQuorum, Observer: observer, Logger: s.logger,
	}
	if len(s.o.Witnesses) > 0 {
		asked, err := s.o.witnesses()
		if err != nil {
			return err
		}
		collector, err := witness.NewCollector(witness.CollectorOptions{Log: key.Verifier(), Witnesses: asked})
		if err != nil {
			return wrong("Witnesses", "%w", err)
		}
		s.onClose(func(context.Context) error { collector.Close(); return nil })
		o.Witnesses = logWitnesses{collector, len(asked)}
	}
	publisher := logkeeper.NewPublisher(o)
	s.keeper = logkeeper.New(logkeeper.Options{Store: store, Publisher: publisher, Observer: observer, Logger: s.logger, CloseEvery: s.o.CloseBooksEvery})
	observer.Observe(func() telemetry.LogState {
		if !s.keeper.Leads() {
			return telemetry.LogState{} // What the publisher knows is of its last term.
		}
		return telemetry.LogState{Leading: true, Refused: publisher.Refused() != "", MissingWitnesses: publisher.Missing()}
	})
	s.books = newBookkeeper(&s.o, s.db, registry, s.barrier)
	s.keeping, err = lock.NewElection(locker, logLease, lock.ElectionOptions{TTL: s.o.LeaderTTL, Logger: s.logger})
	return err
}

// keepLog keeps the public log, and closes and recounts the books, until ctx ends or the keeper resigns.
func (s *Server) keepLog(ctx context.Context, term int64) {
	ctx, resign := context.WithCancel(ctx)
	var books sync.WaitGroup
	defer books.Wait()
	defer resign()
	books.Go(func() { s.books.keep(ctx) })
	s.keeper.Lead(ctx, term)
}

// witnesses reads the options.
func (o Options) witnesses() (asked []witness.Remote, err error) {
	for _, text := range o.Witnesses {
		w, err := witness.ParseRemote(text)
		if err != nil {
			return nil, wrong("Witnesses", "%w", err)
		}
		asked = append(asked, w)
	}
	if o.WitnessQuorum > len(asked) {
		return nil, wrong("WitnessQuorum", "%d are required, and %d are asked", o.WitnessQuorum, len(asked))
	}
	return asked, nil
}

// logWitnesses asks the witnesses for the keeper of the log.
type logWitnesses struct {
	*witness.Collector

	count int
}

// Count implements [logkeeper.Witnesses].
func (w logWitnesses) Count() int { return w.count }

// Latest implements [logkeeper.Witnesses].
func (w logWitnesses) Latest(ctx context.Context) (seen []logkeeper.Witnessed) {
	for key, c := range w.Collector.Latest(ctx) {
		seen = append(seen, logkeeper.Witnessed{Who: "the witness " + witness.Remote{Key: key}.Name(), Tree: c.Tree})
	}
	return seen
}

// Cosign implements [logkeeper.Witnesses]. A witness that claims to have seen more is believed where it shows what the log's own key has
// signed; otherwise it is one that is missing.
func (w logWitnesses) Cosign(ctx context.Context, checkpoint string, hashes tlog.HashReader) (cosigned string, by []translog.Cosignature, err error) {
	cosigned, answers, err := w.Ask(ctx, checkpoint, hashes)
	if err != nil {
		return checkpoint, nil, err
	}
	var missing []error
	for _, a := range answers {
		if a.Cosignature != nil {
			by = append(by, *a.Cosignature)
			continue
		}
		if ahead, ok := errors.AsType[*witness.AheadError](a.Err); ok && ahead.Latest != nil {
			return cosigned, by, &logkeeper.AheadError{Who: "the witness " + a.Witness.Name(), Size: ahead.Latest.Tree.N}
		}
		if forked, ok := errors.AsType[*witness.ForkError](a.Err); ok && forked.Latest != nil {
			return cosigned, by, &logkeeper.AheadError{Who: "the witness " + a.Witness.Name(), Size: forked.Latest.Tree.N, Forked: true}
		}
		missing = append(missing, fmt.Errorf("%s: %w", a.Witness.Name(), a.Err))
	}
	return cosigned, by, errors.Join(missing...)
}

// openLogKey finds the key that signs the log's checkpoints, and where the last of them is kept: the key in the data directory, else a new
// one, which is kept there. The new one is random, but where an admin key is given it is derived from that and from the log, because several
// servers on one database are started with the same admin key, and each must be able to sign the log that another one has begun.
//
// A data directory that has signed the log of another database begins anew with a log that nobody has signed yet: what it has is set aside.
func (s *Server) openLogKey() (*translog.Key, *logkeeper.Guard, error) {
	ctx, cancel := context.WithTimeout(s.working, s.o.UnavailableAfter)
	defer cancel()
	log, err := postgres.NewLogReader(s.db).Published(ctx)
	if err != nil {
		return nil, nil, err
	}
	file, guard := LogKeyFile(s.o.Data), logkeeper.NewGuard(LogSignedFile(s.o.Data))
	key, err := translog.ReadKey(file)
	if err == nil && log.Verifier == "" {
		if _, absent := os.Stat(LogSignedFile(s.o.Data)); absent == nil {
			s.logger.WarnContext(ctx, "the data directory has signed the log of another database: its key is set aside, and this log gets a new one", "origin", key.Origin())
			key, err = nil, errors.Join(SetLogAside(s.o.Data), os.ErrNotExist)
		}
	}
	if !errors.Is(err, os.ErrNotExist) {
		return key, guard, err
	}
	if key, err = newLogKey(s.o.LogOrigin, s.o.AdminKey, log.Began); err != nil {
		return nil, nil, wrong("LogOrigin", "%w", err)
	}
	if err = os.MkdirAll(s.o.Data, 0o700); err == nil {
		err = key.WriteFile(file)
	}
	if err != nil && s.o.AdminKey != "" {
		// The key can be had again, and a container may have no place of its own.
		s.logger.WarnContext(ctx, "the log's key and the last checkpoint that was signed can't be kept: witnesses alone will notice a restore of the database from an older copy",
			"data", s.o.Data, "error", err)
		return key, logkeeper.NewGuard(""), nil
	}
	return key, guard, err
}

// newLogKey makes a key, of the admin key and the log's beginning where there is an admin key.
func newLogKey(origin, admin string, began time.Time) (*translog.Key, error) {
	if admin == "" {
		return logkeeper.NewKey(origin)
	}
	info := "fairlead key of the log of " + began.UTC().Format(time.RFC3339Nano)
	seed, err := hkdf.Key(sha256.New, []byte(admin), nil, info, ed25519.SeedSize)
	if err != nil {
		return nil, err
	}
	return logkeeper.KeyOf(origin, ed25519.NewKeyFromSeed(seed))
}

// SetLogAside renames the key of the public log, and the last checkpoint that was signed, in a data directory: they stay beside the next ones,
// because what was signed may have to be explained.
func SetLogAside(data string) error {
	suffix := ".until-" + time.Now().UTC().Format("20060102T150405.000Z")
	for _, file := range []string{LogKeyFile(data), LogSignedFile(data)} {
		if err := os.Rename(file, file+suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}
