package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/fairlead-dev/fairlead/internal/wait"
)

// stepReportEvery is how often a step that takes long is told of.
const stepReportEvery = 5 * time.Second

// selectIndexWait tells what an index that is being built in this database waits for, or how far it is; no row where none is.
const selectIndexWait = `SELECT p.phase || coalesce(': ' || coalesce(nullif(a.backend_type, 'client backend'), 'process') || ' ' || a.pid
			|| coalesce(', ' || nullif(a.application_name, ''), '') || coalesce(', ' || a.state, '')
			|| coalesce(', whose transaction has lasted ' || extract(epoch FROM clock_timestamp() - a.xact_start)::bigint || ' s', ''), '')
	FROM pg_stat_progress_create_index AS p LEFT JOIN pg_stat_activity AS a ON a.pid = nullif(p.current_locker_pid, 0)
	WHERE p.datname = current_database() LIMIT 1`

// reportSlow calls report each stepReportEvery with how long a step has taken so far, and with what it waits for where that is known, until the returned function
// is called, which returns when no call is under way any more.
func reportSlow(ctx context.Context, url, step string, report func(string)) (done func()) {
	if report == nil {
		return func() {}
	}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for began := time.Now(); wait.For(ctx, stepReportEvery); {
			text := fmt.Sprintf("%s: %d s so far", step, int(time.Since(began).Seconds()))
			if why := indexWait(ctx, url); why != "" {
				text += "; " + why
			}
			if ctx.Err() == nil {
				report(text)
			}
		}
	}()
	return func() { stop(); <-ended }
}

// indexWait is what selectIndexWait says, or nothing.
func indexWait(ctx context.Context, url string) (why string) {
	conn, err := connect(ctx, url)
	if err != nil {
		return ""
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if err := conn.QueryRow(ctx, selectIndexWait).Scan(&why); err != nil {
		return "" // Nothing is built, or the engine does not tell.
	}
	return why
}
