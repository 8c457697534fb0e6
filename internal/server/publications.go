package server

import (
	"net/http"
	"regexp"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/services/publish"
)

// lastYear bounds the time of a publication, which must stay one that can be spelt with four digits after its jitter.
const lastYear = 9998

// anyJSON is a member of a request that may be any JSON value. It is kept as it came.
type anyJSON jsontext.Value

// UnmarshalJSON keeps the value; absent, it stays empty.
func (v *anyJSON) UnmarshalJSON(b []byte) error {
	*v = slices.Clone(b)
	return nil
}

// MarshalJSON spells the value in the one way that a fingerprint is made of: white space and the order of members make no
// other request, another spelling of a number does.
func (v anyJSON) MarshalJSON() ([]byte, error) {
	if len(v) == 0 {
		return []byte("null"), nil
	}
	return jsontext.AppendFormat(nil, []byte(v), jsontext.ReorderRawObjects(true))
}

// Schema documents the type.
func (anyJSON) Schema(huma.Registry) *huma.Schema { return &huma.Schema{Description: "any JSON value"} }

// storedJSON is a value that is shown as it came, but for white space.
type storedJSON jsontext.Value

// MarshalJSON gives the value, and null where there is none: an answer 204 has no body.
func (v storedJSON) MarshalJSON() ([]byte, error) {
	if len(v) == 0 {
		return []byte("null"), nil
	}
	return v, nil
}

// Schema documents the type.
func (storedJSON) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Description: "any JSON value"}
}

type publicationRequest struct {
	Target    string  `json:"target" minLength:"1" maxLength:"200" doc:"the target's name"`
	PublishAt *string `json:"publish_at,omitempty" format:"date-time" doc:"RFC 3339; past: at once; absent: a draft"`
	Jitter    *string `json:"jitter,omitempty" doc:"Go duration up to 5m: a random part of it is added to the time" example:"30s"`
	Payload   anyJSON `json:"payload"`
}

func (q *publicationRequest) op() (publish.Op, error) {
	var c checks
	c.name("target", q.Target)
	op := publish.Create{Target: q.Target, Payload: q.Payload, Jitter: c.jitter(or(q.Jitter, "0s"))}
	if q.PublishAt != nil {
		at := c.moment("publish_at", *q.PublishAt)
		op.PublishAt = &at
	}
	if len(q.Payload) == 0 {
		c.fail("payload must be given")
	}
	return op, c.err
}

type scheduleRequest struct {
	PublishAt string  `json:"publish_at" format:"date-time" doc:"RFC 3339; past: at once"`
	Jitter    *string `json:"jitter,omitempty" doc:"Go duration up to 5m; absent: the one that it has" example:"30s"`
}

func (q *scheduleRequest) op() (publish.Op, error) {
	var c checks
	op := publish.Schedule{PublishAt: c.moment("publish_at", q.PublishAt)}
	if q.Jitter != nil {
		d := c.jitter(*q.Jitter)
		op.Jitter = &d
	}
	return op, c.err
}

// rfc3339 is how a time is spelled. [time.Parse] takes more: an hour of one digit, a comma before the fraction, an offset of a day.
var rfc3339 = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

// parseTime reads a time as the contract spells it, or with an offset.
func parseTime(text string) (t time.Time, ok bool) {
	if !rfc3339.MatchString(text) {
		return t, false
	}
	t, err := time.Parse(time.RFC3339, text)
	return t, err == nil
}

// moment reads a time. Times are kept to the microsecond; a finer one is rounded up, because nothing may happen before it.
func (c *checks) moment(field, value string) time.Time {
	t, ok := parseTime(value)
	if !ok || t.UTC().Year() > lastYear {
		c.fail("%s must be a time such as \"2006-01-02T15:04:05Z\", up to the year %d", field, lastYear)
		return t
	}
	if cut := t.Truncate(time.Microsecond); cut.Before(t) {
		t = cut.Add(time.Microsecond)
	}
	return t.UTC()
}

func (c *checks) jitter(value string) time.Duration {
	return c.span("jitter", value, `"30s"`, 0, publish.MaxJitter, time.Microsecond)
}

func (s *Server) publicationRoutes() []route {
	find := with(pathID("publication"), s.Publish.Publication)
	own := []route{
		commandRoute("/v1/publications", accessStaff, http.StatusCreated, "Make a publication: scheduled, or a draft without a time", viewPublication,
			mutation[publicationRequest, publish.Op]{execute: s.Publish.Create, op: plain((*publicationRequest).op)}),
		listRoute("/v1/publications", accessStaff, "List publications, oldest first", oldestFirst(), rowsWith(func(r *http.Request) (publish.Status, error) {
			q := r.URL.Query()
			if q.Has("status") && q.Get("status") == "" {
				return "", refuse("status must be one of %v", publish.Statuses())
			}
			return publish.Status(q.Get("status")), nil
		}, s.Publish.Publications),
			viewed(viewPublication), func(p publish.Publication) int64 { return p.Number }, withStatus(publish.Statuses()...)),
		readRoute("/v1/publications/{id}", accessStaff, "Read a publication with its payload", find, viewPublicationDetail),
		listRoute("/v1/publications/{id}/attempts", accessStaff, "List a publication's attempts in order", oldestFirst(),
			rowsWith(pathID("publication"), s.Publish.Attempts), as[attemptView], func(a publish.Attempt) int64 { return a.Version }),
		publishingRoute(s, "publication", "schedule", "Give a draft its time, or a scheduled publication another one", viewPublication, (*scheduleRequest).op),
		publishingRoute(s, "publication", "publish", "Publish a draft or a scheduled publication now", viewPublication, always(publish.MakeDue{})),
		publishingRoute(s, "publication", "cancel", "Cancel a draft or a scheduled publication", viewPublication, always(publish.Cancel{})),
		publishingRoute(s, "publication", "retry", "Attempt a failed publication anew", viewPublication, always(publish.Retry{})),
	}
	return slices.Concat(s.targetRoutes(), own, s.automationRoutes(), s.subscriptionRoutes())
}

// publishingRoute is an operation on one publication, target, automation or subscription, whose id is in the path.
func publishingRoute[Req, R, V any](s *Server, what, verb, summary string, view func(R) V, op func(*Req) (publish.Op, error)) route {
	return actRoute(what+"s", verb, what, summary, view, s.Publish.Execute, plain(op))
}

// always is the operation of a request without fields.
func always(op publish.Op) func(*noFields) (publish.Op, error) {
	return func(*noFields) (publish.Op, error) { return op, nil }
}

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
	ExternalID        *string        `json:"external_id" doc:"its id at the target"`
	PublishedAt       *timestamp     `json:"published_at"`
	CreatedAt         timestamp      `json:"created_at"`
	// A payload may be large; lists and answers to commands are without.
	Payload        storedJSON   `json:"payload,omitzero" from:"-"`
	CurrentAttempt *attemptView `json:"current_attempt,omitzero" from:"-" doc:"the attempt under way; absent in lists and answers to commands, and while there is none"`
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
	if p.Running != nil {
		v.CurrentAttempt = new(as[attemptView](*p.Running))
	}
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

	HeartbeatAt *timestamp `json:"heartbeat_at" doc:"the worker's last sign of life while it ran; null before the first"`
	Stage       *string    `json:"stage" doc:"what it was doing then: looking (whether the target has the publication), uploading or publishing"`
	SentBytes   *int64     `json:"sent_bytes" doc:"how much of the file had been sent then"`
	TotalBytes  *int64     `json:"total_bytes" doc:"of the file, where its length is known"`
}
