package server

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/groupcommit"
	"github.com/fairlead-dev/fairlead/postgres"
	"github.com/fairlead-dev/fairlead/publish"
	"github.com/fairlead-dev/fairlead/publish/webhook"
)

// startPublishing makes the service of publications, and a worker that rests until a test calls publishing.
func (e *env) startPublishing(db *postgres.DB, lanes groupcommit.Options) {
	e.t.Helper()
	vault, err := publish.NewVault(bytes.Repeat([]byte{7}, publish.VaultKeySize))
	must(e.t, err)
	store := postgres.NewPublications(db)
	sender := webhook.New(webhook.Options{AllowPrivate: true})
	worker := publish.NewWorker(publish.WorkerOptions{
		Queue: store, Vault: vault, Senders: map[publish.Kind]publish.Sender{publish.KindWebhook: sender},
		Policy: publish.Policy{Backoff: 20 * time.Millisecond}, StaleAfter: time.Hour, SweepEvery: time.Hour, Drain: 10 * time.Second,
	})
	e.publish = publish.NewService(store, publish.Options{Lanes: lanes, Vault: vault, Scheduled: worker.Scheduled})
	e.publishing = sync.OnceFunc(func() {
		ctx, stop := context.WithCancel(context.WithoutCancel(e.t.Context()))
		var done sync.WaitGroup
		done.Go(func() { worker.Run(ctx) })
		e.t.Cleanup(func() { stop(); done.Wait(); sender.Close() })
	})
}

// failedPublication makes a publication for a target whose one attempt has failed, without a worker.
func (e *env) failedPublication(target string) (path string) {
	e.t.Helper()
	path = e.publication(target, `,"payload":1,"publish_at":"2020-01-01T00:00:00Z"`)
	id := path[len("/v1/publications/"):]
	conn := e.connect()
	defer func() { _ = conn.Close(context.Background()) }()
	for _, sql := range []string{
		`UPDATE publications SET status = 'failed', attempts = 1, execution_version = 1, last_error = 'the target answered 400' WHERE id = $1`,
		`INSERT INTO publication_attempts VALUES ($1, 1, gen_random_uuid(), clock_timestamp(), clock_timestamp(), 'failed', 400, 'the target answered 400')`,
	} {
		_, err := conn.Exec(e.t.Context(), sql, id)
		must(e.t, err)
	}
	return path
}
