package fairlead

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

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-dev/fairlead/internal/groupcommit"
	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/internal/services/publish"
	"github.com/fairlead-dev/fairlead/internal/services/publish/deliver"
	"github.com/fairlead-dev/fairlead/internal/services/publish/deviantart"
	"github.com/fairlead-dev/fairlead/internal/services/publish/outbound"
	"github.com/fairlead-dev/fairlead/internal/services/publish/webhook"
	"github.com/fairlead-dev/fairlead/internal/telemetry"
)

// parseSecretsKeys reads keys in hex, separated by commas.
func parseSecretsKeys(text string) (keys [][]byte, err error) {
	if text == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		key, err := hex.DecodeString(strings.TrimSpace(part))
		if err != nil || len(key) != publish.VaultKeySize {
			return nil, fmt.Errorf("must be %d bytes in hex, or several of them separated by commas", publish.VaultKeySize)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

func secretsKeyFile(data string) string { return filepath.Join(data, "secrets.key") }

// openVault finds the keys that seal secrets: the given ones, else those kept in the data directory, else a new one, which is
// kept there. The new one is random, but where an admin key is given it is derived from that: several servers on one
// database are started with the same admin key, and each must be able to sign for the targets that another one made.
func openVault(given, admin, data string) (*publish.Vault, error) {
	keys, err := parseSecretsKeys(given)
	if err != nil {
		return nil, err
	}
	if len(keys) > 0 {
		return publish.NewVault(keys...)
	}
	var derived []byte
	if admin != "" {
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
	if err := keepSecret(path, hex.EncodeToString(key)+"\n"); err != nil {
		return nil, err
	}
	return publish.NewVault(key)
}

// startPublishing makes the service of publications and the worker that sends them.
func (s *Server) startPublishing(registry *prometheus.Registry) error {
	vault, err := openVault(s.o.SecretsKey, s.o.AdminKey, s.o.Data)
	if err != nil {
		return err
	}
	store := postgres.NewPublications(s.db)
	observer := telemetry.NewPublications[publish.AttemptResult, publish.Outcome](registry)
	senders := s.senders(store, vault)
	policy := publish.Policy{
		Backoff: s.o.RetryBackoff, PaceBase: s.o.PaceBase, PaceMax: s.o.PaceMax, BreakerRefusals: s.o.BreakerRefusals, BreakerOpen: s.o.BreakerOpen,
	}
	s.publisher = publish.NewWorker(publish.WorkerOptions{
		Queue: store, Senders: senders, Vault: vault, Policy: policy,
		StaleAfter: s.o.ClaimStaleAfter, SweepEvery: s.o.ClaimSweepEvery, Drain: s.o.DrainTimeout,
		Concurrency: s.o.PublishConcurrency, PerTarget: s.o.PublishPerTarget, Observer: observer, Trace: s.traces.Deliveries(), Logger: s.logger,
	})
	deliveries := telemetry.NewSubscriptions(registry, deliver.Outcomes())
	s.deliverer = deliver.New(deliver.Options{
		Store: store, Log: s.events, Sender: senders[publish.KindWebhook], Vault: vault, Policy: policy, Observer: deliveries, Logger: s.logger,
	})
	deliveries.Observe(func() telemetry.SubscriptionState { return telemetry.SubscriptionState(s.deliverer.Stats()) })
	checkURL := outbound.CheckURL
	if s.o.AllowPrivateTargets {
		checkURL = nil
	}
	s.publish = publish.NewService(store, publish.Options{
		Lanes: groupcommit.Options{Observer: s.traces.Lanes("publish", telemetry.NewLanes(registry, "publish"))}, Vault: vault, CheckURL: checkURL,
		Scheduled: s.publisher.Scheduled, Logger: s.logger,
		// Whatever process leads hears of it as of an event.
		Subscribed: func() { s.hub.Committed(deliver.Changes, 1, nil) },
	})
	s.onClose(s.publish.Close)
	return nil
}

// senders make the way to each kind of target.
func (s *Server) senders(store *postgres.Publications, vault *publish.Vault) map[publish.Kind]publish.Sender {
	out := outbound.Options{AllowPrivate: s.o.AllowPrivateTargets, UserAgent: "Fairlead/" + Version()}
	hooks := webhook.New(out)
	art := deviantart.New(out, publish.NewTokens(store, vault))
	s.onClose(func(context.Context) error { hooks.Close(); art.Close(); return nil })
	return map[publish.Kind]publish.Sender{publish.KindWebhook: hooks, publish.KindDeviantArt: art}
}
