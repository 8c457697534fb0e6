package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/wait"
)

const (
	publicationTargets = 4
	// publicationsAhead is how many a second are filled in: more than a server publishes.
	publicationsAhead = 4000
)

// fillPublications copies one publication of each target, due in turn within the hour before.
const fillPublications = `INSERT INTO publications (id, target, status, payload, jitter, publish_at, actual_publish_at, due_at, execution_version, attempts, spent,
		last_error, external_id, created_at)
	SELECT gen_random_uuid(), target, 'scheduled', payload, 0, now(), now(), now() - interval '1 hour' + i * interval '1 hour' / $1::integer, 0, 0, 0, '', '', now()
	FROM publications, generate_series(1, $1::integer) AS i WHERE status = 'draft'`

// snapshotPublications has a server publish what is overdue, to targets that answer at once.
func (s *side) snapshotPublications(ctx context.Context, o *options, reader bool) (_ *SnapshotTurn, err error) {
	var sent atomic.Int64
	url, stop, err := countingTarget(ctx, &sent)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	for i := range publicationTargets {
		name := "target-" + strconv.Itoa(s.keys)
		if err := s.call(ctx, http.MethodPost, "/v1/targets", map[string]string{"name": name, "kind": "webhook", "url": url}, http.StatusCreated, nil); err != nil {
			return nil, err
		}
		if err := s.call(ctx, http.MethodPost, "/v1/publications", map[string]any{"target": name, "payload": map[string]int{"post": i}}, http.StatusCreated, nil); err != nil {
			return nil, err
		}
	}
	conn, err := pgx.Connect(ctx, s.databaseURL)
	if err != nil {
		return nil, fmt.Errorf("%s: connect to its database: %w", s.name, err)
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	each := int((o.snapshotAfter+o.measure).Seconds()*publicationsAhead) / publicationTargets
	// The drafts are of this turn alone: the last one's are cancelled below.
	if _, err := conn.Exec(ctx, fillPublications, each); err != nil {
		return nil, fmt.Errorf("%s: fill publications: %w", s.name, err)
	}
	if _, err := conn.Exec(ctx, "ANALYZE publications"); err != nil {
		return nil, fmt.Errorf("%s: analyze: %w", s.name, err)
	}
	if reader {
		conn, err := s.beginReading(ctx)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	}
	if !wait.For(ctx, o.snapshotAfter) {
		return nil, ctx.Err()
	}
	before, began := sent.Load(), time.Now()
	if !wait.For(ctx, o.measure) {
		return nil, ctx.Err()
	}
	done, took := sent.Load()-before, time.Since(began)
	tag, err := conn.Exec(ctx, "UPDATE publications SET status = 'cancelled', due_at = NULL WHERE status IN ('draft', 'scheduled')")
	if err != nil {
		return nil, fmt.Errorf("%s: cancel what is left: %w", s.name, err)
	}
	if tag.RowsAffected() <= publicationTargets {
		return nil, fmt.Errorf("%s published all of %d before the end", s.name, each*publicationTargets)
	}
	return &SnapshotTurn{What: snapshotPublications, Reader: reader, PerSecond: float64(done) / took.Seconds()}, nil
}

// countingTarget is a webhook that takes everything.
func countingTarget(ctx context.Context, sent *atomic.Int64) (url string, stop func() error, err error) {
	var l net.ListenConfig
	listener, err := l.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"id":"`+strconv.FormatInt(sent.Add(1), 10)+`"}`)
	})}
	go func() { _ = server.Serve(listener) }()
	return "http://" + listener.Addr().String() + "/", server.Close, nil
}
