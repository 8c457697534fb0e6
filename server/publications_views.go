package server

import (
	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/publish"
)

type paceView struct {
	Interval   duration   `json:"interval" doc:"least time between two claims; 0s: none"`
	Refusals   int        `json:"refusals" doc:"answers 429 in a row, those to the same publication in a row counted once"`
	NextSendAt *timestamp `json:"next_send_at" doc:"nothing is claimed before"`
	OpenUntil  *timestamp `json:"open_until" doc:"the circuit breaker was opened until then"`
}

type targetView struct {
	ID        uuid.UUID    `json:"id"`
	Name      string       `json:"name"`
	Kind      publish.Kind `json:"kind" enum:"webhook,deviantart"`
	URL       string       `json:"url"`
	Timeout   duration     `json:"timeout"`
	Pace      paceView     `json:"pace" doc:"how the target is slowed down after it answered 429"`
	CreatedAt timestamp    `json:"created_at"`
}

func viewTarget(t *publish.Target) targetView {
	return targetView{
		ID: t.ID, Name: t.Name, Kind: t.Kind, URL: t.URL, Timeout: duration(t.Timeout), CreatedAt: timestamp(t.CreatedAt),
		Pace: paceView{
			Interval: duration(t.Pace.Interval), Refusals: t.Pace.Refusals,
			NextSendAt: optionalTime(t.Pace.NextAt), OpenUntil: optionalTime(t.Pace.OpenUntil),
		},
	}
}

// madeTargetView is a target with its secret.
type madeTargetView struct {
	ID        uuid.UUID    `json:"id"`
	Name      string       `json:"name"`
	Kind      publish.Kind `json:"kind" enum:"webhook,deviantart"`
	URL       string       `json:"url"`
	Timeout   duration     `json:"timeout"`
	Secret    string       `json:"secret" doc:"signs deliveries as Standard Webhooks has it; shown this once" example:"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"`
	CreatedAt timestamp    `json:"created_at"`
}

func viewMadeTarget(t *publish.MadeTarget) madeTargetView {
	return madeTargetView{
		ID: t.ID, Name: t.Name, Kind: t.Kind, URL: t.URL, Timeout: duration(t.Timeout), Secret: t.SigningSecret, CreatedAt: timestamp(t.CreatedAt),
	}
}

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
