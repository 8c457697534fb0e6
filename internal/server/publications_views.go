package server

import (
	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/services/publish"
)

type publicationView struct {
	ID                uuid.UUID      `json:"id" doc:"also the webhook-id of its deliveries"`
	Target            string         `json:"target" doc:"the target's name"`
	Status            publish.Status `json:"status" enum:"draft,scheduled,publishing,published,failed,cancelled"`
	PublishAt         *timestamp     `json:"publish_at" doc:"the time that was asked for; null in a draft"`
	Jitter            duration       `json:"jitter"`
	ActualPublishAt   *timestamp     `json:"actual_publish_at" doc:"with the jitter"`
	NextAttemptAt     *timestamp     `json:"next_attempt_at" doc:"while scheduled"`
	ExecutionLockID   *uuid.UUID     `json:"execution_lock_id" doc:"of the claim in force"`
	ExecutionLockedAt *timestamp     `json:"execution_locked_at" doc:"of the claim in force: its last sign of life"`
	ExecutionVersion  int64          `json:"execution_version" doc:"grows with each claim"`
	Attempts          int            `json:"attempts"`
	LastError         *string        `json:"last_error"`
	ExternalID        *string        `json:"external_id" doc:"what the target calls it"`
	PublishedAt       *timestamp     `json:"published_at"`
	CreatedAt         timestamp      `json:"created_at"`
	// A payload may be large; lists and answers to commands are without.
	Payload storedJSON `json:"payload,omitzero"`
}

func viewPublication(p *publish.Publication) publicationView {
	v := publicationView{
		ID: p.ID, Target: p.TargetName, Status: p.Status, PublishAt: optionalTime(p.PublishAt), Jitter: duration(p.Jitter),
		ActualPublishAt: optionalTime(p.ActualPublishAt), ExecutionLockID: p.LockID, ExecutionLockedAt: optionalTime(p.LockedAt),
		ExecutionVersion: p.Version, Attempts: p.Attempts, LastError: optionalText(p.LastError), ExternalID: optionalText(p.ExternalID),
		PublishedAt: optionalTime(p.PublishedAt), CreatedAt: timestamp(p.CreatedAt),
	}
	if p.Status == publish.StatusScheduled {
		v.NextAttemptAt = optionalTime(p.DueAt)
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

func viewAttempt(a publish.Attempt) attemptView {
	v := attemptView{
		Version: a.Version, LockID: a.LockID, StartedAt: timestamp(a.StartedAt), EndedAt: optionalTime(a.EndedAt), Error: optionalText(a.Error),
	}
	if a.Result != "" {
		v.Result = &a.Result
	}
	if a.StatusCode != 0 {
		v.StatusCode = &a.StatusCode
	}
	return v
}

// optionalText is nil for an empty text.
func optionalText(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
