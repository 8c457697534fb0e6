package main

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/claim"
	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/internal/services/publish"
)

// claimWork claims due rows of a table and finishes them, as a user's program does with package claim.
type claimWork struct {
	o      *options
	pool   *pgxpool.Pool
	claims *claim.Claims[int64]
}

// loops is how many batches are under way: while one is being committed, another's items are executed.
const loops = 2

// items is a table as a user has it, whose status follows the claims.
func itemsTable() claim.Table {
	return claim.Table{
		Name: "items", Ready: "status = 'scheduled'", Due: "due_at", OnClaim: "status = 'running'", OnFinish: "status = 'completed', completed_at = clock_timestamp()",
		OnFail: "status = 'failed'", OnRelease: "status = 'scheduled'",
	}
}

const createItems = `CREATE TABLE items (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	status text NOT NULL DEFAULT 'scheduled',
	payload jsonb NOT NULL,
	due_at timestamptz NOT NULL,
	created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	completed_at timestamptz
)`

func (c *claimWork) prepare(ctx context.Context) (err error) {
	if c.pool, err = open(ctx, c.o); err != nil {
		return err
	}
	if c.claims, err = claim.New[int64](itemsTable()); err != nil {
		return err
	}
	for _, sql := range append([]string{createItems, itemsTable().DDL()}, itemsTable().Indexes()...) {
		if _, err := c.pool.Exec(ctx, sql); err != nil {
			return err
		}
	}
	if _, err := c.pool.Exec(ctx, `INSERT INTO items (payload, due_at) SELECT $1, clock_timestamp() FROM generate_series(1, $2)`, payload, c.o.items); err != nil {
		return err
	}
	return settle(ctx, c.pool)
}

func (c *claimWork) run(ctx context.Context) (Report, error) {
	var (
		m     meter
		wg    sync.WaitGroup
		first atomic.Pointer[error]
	)
	for range loops {
		wg.Go(func() {
			if err := c.loop(ctx, &m); err != nil {
				first.CompareAndSwap(nil, &err)
			}
		})
	}
	wg.Wait()
	report := m.report()
	if err := first.Load(); err != nil {
		return Report{}, *err
	}
	var left int64
	if err := c.pool.QueryRow(ctx, `SELECT count(*) FROM items WHERE status <> 'completed' OR execution_version <> 1`).Scan(&left); err != nil {
		return Report{}, err
	}
	if left != 0 || report.Done != int64(c.o.items) {
		return Report{}, fmt.Errorf("%d items were executed, and %d are not completed once", report.Done, left)
	}
	return report, nil
}

func (c *claimWork) loop(ctx context.Context, m *meter) error {
	for {
		claimed, err := c.claims.ClaimDue(ctx, c.pool, max(1, c.o.workers/loops))
		if err != nil || len(claimed) == 0 {
			return err
		}
		var executing sync.WaitGroup
		for range claimed { // Each in a goroutine of its own, as River does it.
			executing.Go(m.item)
		}
		executing.Wait()
		lost, err := c.claims.FinishAll(ctx, c.pool, claimed...)
		if err != nil {
			return err
		}
		if len(lost) > 0 {
			return fmt.Errorf("%d claims were lost", len(lost))
		}
	}
}

func (c *claimWork) close() {
	if c.pool != nil {
		c.pool.Close()
	}
}

// publishSchedule schedules publications through the service, as the server's route does, each with an idempotency key.
type publishSchedule struct {
	o       *options
	db      *postgres.DB
	service *publish.Service
}

const targetName = "target"

func (p *publishSchedule) prepare(ctx context.Context) (err error) {
	if _, err := postgres.Migrate(ctx, p.o.database); err != nil {
		return err
	}
	if p.db, err = postgres.Open(ctx, postgres.Options{URL: p.o.database, MaxConns: int32(p.o.pool)}); err != nil { //nolint:gosec // A few dozen.
		return err
	}
	vault, err := publish.NewVault(make([]byte, publish.VaultKeySize))
	if err != nil {
		return err
	}
	p.service = publish.NewService(postgres.NewPublications(p.db), publish.Options{Vault: vault})
	target := publish.CreateTarget{Name: targetName, Kind: publish.KindWebhook, URL: "https://example.com/", Timeout: time.Second}
	answer, err := p.service.Create(ctx, command.Command[publish.Op]{Op: target})
	if err != nil || answer.Err != nil {
		return fmt.Errorf("create a target: %w, %w", err, answer.Err)
	}
	_, err = schedule(ctx, p.o, p.o.warmup, p.one)
	return err
}

// one schedules a publication.
func (p *publishSchedule) one(ctx context.Context, at time.Time) error {
	execution := uuid.New()
	key := &idempotency.Request{
		ID: idempotency.NewID("bench", http.MethodPost, "/v1/publications", execution.String()), Fingerprint: idempotency.NewFingerprint([]byte(payload)),
		Execution: execution,
	}
	answer, err := p.service.Create(ctx, command.Command[publish.Op]{
		Op: publish.Create{Target: targetName, PublishAt: &at, Payload: []byte(payload)}, Key: key, Render: render, Principal: "bench",
		RequestID: execution.String(),
	})
	if err == nil && answer.Status != http.StatusCreated {
		return fmt.Errorf("answer %d: %s", answer.Status, answer.Body)
	}
	return err
}

// render speaks an outcome about as long as the server's.
func render(result any, err error) command.Rendered {
	made, ok := result.(*publish.Publication)
	if !ok {
		return command.Rendered{Status: http.StatusConflict, Body: fmt.Append(nil, err)}
	}
	return command.Rendered{Status: http.StatusCreated, Decided: true, Body: fmt.Appendf(nil,
		`{"id":%q,"status":%q,"publish_at":%q,"created_at":%q,"execution_lock_id":null,"execution_version":0,"attempts":0}`,
		made.ID, made.Status, made.PublishAt.Format(time.RFC3339Nano), made.CreatedAt.Format(time.RFC3339Nano))}
}

func (p *publishSchedule) run(ctx context.Context) (Report, error) {
	return schedule(ctx, p.o, p.o.measure, p.one)
}

func (p *publishSchedule) close() {
	if p.service != nil {
		_ = p.service.Close(context.Background()) // Nobody waits for an answer any more.
	}
	if p.db != nil {
		p.db.Close()
	}
}
