package server

import (
	"bytes"
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/groupcommit"
	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/internal/services/publish"
	"github.com/fairlead-dev/fairlead/internal/services/publish/deliver"
	"github.com/fairlead-dev/fairlead/internal/services/publish/deviantart"
	"github.com/fairlead-dev/fairlead/internal/services/publish/outbound"
	"github.com/fairlead-dev/fairlead/internal/services/publish/webhook"
)

// startPublishing makes the service of publications, and a worker and a deliverer that rest until a test calls publishing.
func (e *env) startPublishing(db *postgres.DB, lanes groupcommit.Options) {
	e.t.Helper()
	vault, err := publish.NewVault(bytes.Repeat([]byte{7}, publish.VaultKeySize))
	must(e.t, err)
	store := postgres.NewPublications(db)
	sender := webhook.New(outbound.Options{AllowPrivate: true})
	art := deviantart.New(outbound.Options{AllowPrivate: true}, publish.NewTokens(store, vault))
	worker := publish.NewWorker(publish.WorkerOptions{
		Queue: store, Vault: vault, Senders: map[publish.Kind]publish.Sender{publish.KindWebhook: sender, publish.KindDeviantArt: art},
		Policy: publish.Policy{Backoff: 20 * time.Millisecond}, StaleAfter: time.Hour, SweepEvery: time.Hour, Drain: 10 * time.Second,
	})
	e.publish = publish.NewService(store, publish.Options{Lanes: lanes, Vault: vault, Scheduled: worker.Scheduled, Subscribed: func() { e.deliverer.Grown(deliver.Changes, 1) }})
	e.deliverer = deliver.New(deliver.Options{
		Store: store, Log: postgres.NewEvents(db, postgres.EventViews{Purchase: PurchaseMade, Draw: DrawCompleted}), Sender: sender, Vault: vault,
		Policy: publish.Policy{Backoff: 20 * time.Millisecond},
	})
	e.publishing = sync.OnceFunc(func() {
		ctx, stop := context.WithCancel(context.WithoutCancel(e.t.Context()))
		var done sync.WaitGroup
		done.Go(func() { worker.Run(ctx) })
		done.Go(func() { e.deliverer.Lead(ctx, 1) })
		e.t.Cleanup(func() { stop(); done.Wait(); sender.Close(); art.Close() })
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

// usePublishing calls the routes of targets, automations and subscriptions, each with success.
func (e *env) usePublishing() {
	e.t.Helper()
	ok := http.StatusOK
	id := e.post("/v1/targets", `{"name":"used","kind":"webhook","url":"https://example.com"}`).want(http.StatusCreated).str("id")
	art := e.post("/v1/targets", `{"name":"art","kind":"deviantart","config":{"client_id":"1","client_secret":"s","refresh_token":"r"}}`).want(http.StatusCreated).str("id")
	e.post("/v1/targets/"+id+"/secret", `{"overlap":"1h"}`).want(ok)
	e.post("/v1/targets/"+id+"/pause", ``).want(ok)
	e.get("/v1/targets/" + id).want(ok)
	e.post("/v1/targets/"+id+"/resume", ``).want(ok)
	e.post("/v1/targets/"+art+"/credentials", `{"refresh_token":"r2"}`).want(ok)
	e.post("/v1/automations", `{"name":"weekly","target":"used","times":["09:00"]}`).want(http.StatusCreated)
	rule := "/v1/automations/" + e.post("/v1/automations", `{"name":"hourly","target":"used","every":"1h","starts_at":"2020-01-01T00:00:00Z","daily_quota":3}`).want(http.StatusCreated).str("id")
	conn := e.connect()
	defer func() { _ = conn.Close(context.Background()) }()
	_, err := conn.Exec(e.t.Context(), `INSERT INTO automation_firings (automation, scheduled_for, fired_at, outcome, skipped)
		SELECT id, now(), now(), 'no_draft', 0 FROM automations`)
	must(e.t, err)
	for _, path := range []string{"/v1/automations", "/v1/automations?limit=1", rule, rule + "/firings"} {
		e.get(path).want(ok)
	}
	for _, verb := range []string{"pause", "resume", "cancel"} {
		e.post(rule+"/"+verb, ``).want(ok)
	}
	e.useSubscriptions("used")
}
