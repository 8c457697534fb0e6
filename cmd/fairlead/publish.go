package main

import (
	"context"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
	_ "time/tzdata" // Automations have time zones, which not every machine knows.

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/fairlead-dev/fairlead/internal/groupcommit"
	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/internal/services/publish"
	"github.com/fairlead-dev/fairlead/internal/services/publish/deviantart"
	"github.com/fairlead-dev/fairlead/internal/services/publish/outbound"
	"github.com/fairlead-dev/fairlead/internal/services/publish/webhook"
	"github.com/fairlead-dev/fairlead/internal/telemetry"
)

// publishOptions are the flags of publishing.
type publishOptions struct {
	allowPrivate bool
	staleAfter   time.Duration
	sweepEvery   time.Duration
	policy       publish.Policy
	concurrency  int
	perTarget    int
	secretsKey   string
}

// Limits of the flags.
const (
	minClaimAge  = time.Second
	minBackoff   = time.Millisecond
	maxBackoff   = time.Hour
	maxPace      = 24 * time.Hour
	maxAtOnce    = 10_000
	secretsUsage = "key that seals the signing secrets of targets, 32 bytes in hex; more, after commas, only open; better given in the environment"
)

func (o *publishOptions) bind(f *pflag.FlagSet) {
	f.BoolVar(&o.allowPrivate, "allow-private-targets", false, "let webhooks go to loopback, private and link-local addresses; for development")
	f.DurationVar(&o.staleAfter, "claim-stale-after", time.Hour, "how long a publication stays claimed by a worker that gives no sign of life; 1s or more")
	f.DurationVar(&o.sweepEvery, "claim-sweep-every", 30*time.Minute, "how often stale claims are released; 1s or more")
	f.DurationVar(&o.policy.Backoff, "retry-backoff", 2*time.Second, "pause after the first failed attempt; it doubles five times")
	f.DurationVar(&o.policy.PaceBase, "pace-base", 0, "least time between two publications to a target that has answered 429; it doubles with each; 0s: 1.5 times --retry-backoff")
	f.DurationVar(&o.policy.PaceMax, "pace-max", 0, "most that this grows to; 0s: 150 times --retry-backoff")
	f.IntVar(&o.policy.BreakerRefusals, "breaker-refusals", 3, "publications in a row answered 429 after which a target is sent nothing for --breaker-open")
	f.DurationVar(&o.policy.BreakerOpen, "breaker-open", 0, "for how long that is; 0s: 150 times --retry-backoff")
	f.IntVar(&o.concurrency, "publish-concurrency", publish.DefaultConcurrency, "attempts that this server makes at once")
	f.IntVar(&o.perTarget, "publish-per-target", publish.DefaultPerTarget, "how many of them go to one target")
	f.StringVar(&o.secretsKey, "secrets-key", "", secretsUsage)
}

func (o *publishOptions) check() error {
	switch {
	case o.staleAfter < minClaimAge:
		return fmt.Errorf("--claim-stale-after must be %s or more", minClaimAge)
	case o.sweepEvery < minClaimAge:
		return fmt.Errorf("--claim-sweep-every must be %s or more", minClaimAge)
	case o.policy.Backoff < minBackoff || o.policy.Backoff > maxBackoff:
		return fmt.Errorf("--retry-backoff must be between %s and %s", minBackoff, maxBackoff)
	case min(o.policy.PaceBase, o.policy.PaceMax, o.policy.BreakerOpen) < 0 || max(o.policy.PaceBase, o.policy.PaceMax, o.policy.BreakerOpen) > maxPace:
		return fmt.Errorf("--pace-base, --pace-max and --breaker-open must be between 0s and %s", maxPace)
	case o.policy.BreakerRefusals < 1:
		return errors.New("--breaker-refusals must be 1 or more")
	case o.concurrency < 1 || o.perTarget < 1 || o.perTarget > o.concurrency || o.concurrency > maxAtOnce:
		return fmt.Errorf("--publish-per-target must be 1 or more, and --publish-concurrency between that and %d", maxAtOnce)
	}
	_, err := parseSecretsKeys(o.secretsKey)
	return err
}

// parseSecretsKeys reads keys in hex, separated by commas.
func parseSecretsKeys(text string) (keys [][]byte, err error) {
	if text == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		key, err := hex.DecodeString(strings.TrimSpace(part))
		if err != nil || len(key) != publish.VaultKeySize {
			return nil, fmt.Errorf("--secrets-key must be %d bytes in hex, or several of them separated by commas", publish.VaultKeySize)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

func secretsKeyFile(data string) string { return filepath.Join(data, "secrets.key") }

// openVault finds the keys that seal secrets: the given ones, else those kept in the data directory, else a new one, which is
// kept there. The new one is random, but where FAIRLEAD_ADMIN_KEY is set it is derived from that: several servers on one
// database are started with the same admin key, and each must be able to sign for the targets that another one made.
func openVault(given, data string) (*publish.Vault, error) {
	keys, err := parseSecretsKeys(given)
	if err != nil {
		return nil, err
	}
	if len(keys) > 0 {
		return publish.NewVault(keys...)
	}
	var derived []byte
	if admin := os.Getenv(adminKeyVariable); admin != "" {
		if derived, err = hkdf.Key(sha256.New, []byte(admin), nil, "fairlead secrets of targets", publish.VaultKeySize); err != nil {
			return nil, err
		}
	}
	path := secretsKeyFile(data)
	kept, err := os.ReadFile(path)
	switch {
	case err == nil:
		if keys, err = parseSecretsKeys(strings.TrimSpace(string(kept))); err != nil || len(keys) == 0 {
			return nil, fmt.Errorf("%s does not hold a key", path)
		}
		if derived != nil {
			keys = append(keys, derived)
		}
		return publish.NewVault(keys...)
	case !errors.Is(err, os.ErrNotExist):
		return nil, err
	}
	key := derived
	if key == nil {
		key = make([]byte, publish.VaultKeySize)
		_, _ = rand.Read(key) // It never fails; it crashes the program instead.
	}
	if err := keepSecretsKey(path, key); err != nil {
		return nil, err
	}
	return publish.NewVault(key)
}

// keepSecretsKey writes the key before anything is sealed under it. The file appears whole or not at all.
func keepSecretsKey(path string, key []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	tmp := path + ".tmp"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(hex.EncodeToString(key) + "\n")
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// startPublishing makes the service of publications and the worker that sends them.
func (n *node) startPublishing(registry *prometheus.Registry, lanes *telemetry.LaneMetrics) error {
	vault, err := openVault(n.o.publish.secretsKey, n.o.data)
	if err != nil {
		return err
	}
	store := postgres.NewPublications(n.db)
	observer := telemetry.NewPublications[publish.AttemptResult, publish.Outcome](registry)
	n.publisher = publish.NewWorker(publish.WorkerOptions{
		Queue: store, Senders: n.senders(store, vault), Vault: vault, Policy: n.o.publish.policy,
		StaleAfter: n.o.publish.staleAfter, SweepEvery: n.o.publish.sweepEvery, Drain: n.o.drainTimeout,
		Concurrency: n.o.publish.concurrency, PerTarget: n.o.publish.perTarget, Observer: observer, Trace: n.traces.Deliveries(), Logger: n.logger, Resealer: store,
		// It wakes the worker that it runs beside.
		Automator: publish.NewAutomator(publish.AutomatorOptions{
			Firer: store, Observer: observer, Logger: n.logger, Scheduled: func(in time.Duration) { n.publisher.Scheduled(in) },
		}),
	})
	checkURL := outbound.CheckURL
	if n.o.publish.allowPrivate {
		checkURL = nil
	}
	n.publish = publish.NewService(store, publish.Options{
		Lanes: groupcommit.Options{Observer: n.traces.Lanes("publish", lanes.For("publish"))}, Vault: vault, CheckURL: checkURL,
		Scheduled: n.publisher.Scheduled, Logger: n.logger,
	})
	n.onClose(n.publish.Close)
	return nil
}

// senders make the way to each kind of target.
func (n *node) senders(store *postgres.Publications, vault *publish.Vault) map[publish.Kind]publish.Sender {
	out := outbound.Options{AllowPrivate: n.o.publish.allowPrivate, UserAgent: "Fairlead/" + version()}
	hooks := webhook.New(out)
	art := deviantart.New(deviantart.Options{Options: out, Tokens: publish.NewTokens(store, vault)})
	n.onClose(func(context.Context) error { hooks.Close(); art.Close(); return nil })
	return map[publish.Kind]publish.Sender{publish.KindWebhook: hooks, publish.KindDeviantArt: art}
}
