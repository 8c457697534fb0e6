package server

import (
	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/services/publish"
)

type publicationView struct {
	ID                uuid.UUID      `json:"id" doc:"also the webhook-id of its deliveries"`
	Target            string         `json:"target" from:"TargetName" doc:"the target's name"`
	Status            publish.Status `json:"status" enum:"draft,scheduled,publishing,published,failed,cancelled"`
	PublishAt         *timestamp     `json:"publish_at" doc:"the time that was asked for; null in a draft"`
	Jitter            duration       `json:"jitter"`
	ActualPublishAt   *timestamp     `json:"actual_publish_at" doc:"with the jitter"`
	NextAttemptAt     *timestamp     `json:"next_attempt_at" from:"-" doc:"while scheduled"`
	ExecutionLockID   *uuid.UUID     `json:"execution_lock_id" from:"LockID" doc:"of the claim in force"`
	ExecutionLockedAt *timestamp     `json:"execution_locked_at" from:"LockedAt" doc:"of the claim in force: its last sign of life"`
	ExecutionVersion  int64          `json:"execution_version" from:"Version" doc:"grows with each claim"`
	Attempts          int            `json:"attempts"`
	LastError         *string        `json:"last_error"`
	ExternalID        *string        `json:"external_id" doc:"what the target calls it"`
	PublishedAt       *timestamp     `json:"published_at"`
	CreatedAt         timestamp      `json:"created_at"`
	// A payload may be large; lists and answers to commands are without.
	Payload storedJSON `json:"payload,omitzero" from:"-"`
}

func viewPublication(p *publish.Publication) publicationView {
	v := as[publicationView](p)
	if p.Status == publish.StatusScheduled {
		v.NextAttemptAt = (*timestamp)(p.DueAt)
	}
	return v
}

// viewPublicationDetail shows the payload too.
func viewPublicationDetail(p *publish.Publication) publicationView {
	v := viewPublication(p)
	v.Payload = storedJSON(p.Payload)
	return v
}

type attemptView struct {
	Version    int64                  `json:"version" doc:"the execution version of its claim"`
	LockID     uuid.UUID              `json:"lock_id"`
	StartedAt  timestamp              `json:"started_at"`
	EndedAt    *timestamp             `json:"ended_at"`
	Result     *publish.AttemptResult `json:"result" enum:"published,failed,refused,lost" doc:"null while it runs; lost: its claim went stale; refused: its result came after that"`
	StatusCode *int                   `json:"status_code" doc:"of the target's answer"`
	Error      *string                `json:"error"`
}
