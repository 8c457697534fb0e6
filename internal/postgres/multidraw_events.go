package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/live"
	"github.com/fairlead-dev/fairlead/internal/services/publish"
)

// progressData is the data of progress.
type progressData struct {
	CompletedCount int64 `json:"completed_count"`
	TotalCount     int64 `json:"total_count"`
}

// progressRow is a checkpoint with what its operation is. Seq and At are null where there is none.
type progressRow struct {
	Total int64
	Every int64
	Seq   *int64
	At    *time.Time
}

// multidrawEvents reads the events of a multi-draw: its checkpoints, whose rows are the events with their numbers.
func (e *Events) multidrawEvents(ctx context.Context, id uuid.UUID, after int64, limit int) ([]live.Event, error) {
	const selectProgress = `SELECT m.total, m.every, c.seq, c.at FROM multidraws AS m LEFT JOIN LATERAL (
			SELECT seq, at FROM multidraw_chunks WHERE multidraw = $1 AND seq > $2 ORDER BY seq LIMIT $3
		) AS c ON true
		WHERE m.id = $1 ORDER BY c.seq`
	rows, err := query(ctx, e.db.reads, pgx.RowToStructByPos[progressRow], selectProgress, id, after, limit)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, live.ErrNoTopic
	}
	if rows[0].Seq == nil {
		return nil, nil
	}
	events := make([]live.Event, len(rows))
	for i, r := range rows {
		if want := after + int64(i) + 1; *r.Seq != want {
			return nil, fmt.Errorf("checkpoint %d is missing", want)
		}
		data, err := json.Marshal(progressData{CompletedCount: min(*r.Seq*r.Every, r.Total), TotalCount: r.Total})
		if err != nil {
			return nil, err
		}
		events[i] = live.Event{Seq: *r.Seq, Type: publish.EventProgress, At: *r.At, Data: data}
	}
	return events, nil
}
