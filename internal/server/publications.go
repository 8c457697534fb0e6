package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/services/publish"
	"github.com/fairlead-dev/fairlead/internal/services/publish/deviantart"
	"github.com/fairlead-dev/fairlead/internal/services/publish/webhook"
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

// moment reads a time. Times are kept to the microsecond; a finer one is rounded up, because nothing may happen before it.
func (c *checks) moment(field, value string) time.Time {
	var t time.Time
	// A comma before the fraction is ISO 8601's, not RFC 3339's.
	if err := t.UnmarshalText([]byte(value)); err != nil || t.UTC().Year() > lastYear || strings.Contains(value, ",") {
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
	return slices.Concat(s.targetRoutes(), own, s.automationRoutes())
}

// publishingRoute is an operation on one publication, target or automation, whose id is in the path.
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
	ExternalID        *string        `json:"external_id" doc:"what the target calls it"`
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

type automationRequest struct {
	Name   string `json:"name" minLength:"1" maxLength:"200"`
	Target string `json:"target" minLength:"1" maxLength:"200" doc:"the name of the target whose drafts are taken"`
	// Either weekdays and times, or every.
	Weekdays   []string `json:"weekdays,omitempty" doc:"mon to sun; every day when absent, of a rule with times"`
	Times      []string `json:"times,omitempty" doc:"times of the day, HH:MM or HH:MM:SS, up to 48" example:"[\"09:00\",\"18:30\"]"`
	TimeZone   *string  `json:"time_zone,omitempty" doc:"IANA name, by whose clocks the times and the quota's days are; UTC when absent" example:"Europe/Berlin"`
	Every      *string  `json:"every,omitempty" doc:"Go duration from 1m to 8784h, in place of times" example:"6h"`
	StartsAt   *string  `json:"starts_at,omitempty" format:"date-time" doc:"of a rule with every: when it first fires, and what the interval is counted from; now when absent, and then it first fires an interval later"`
	Pick       *string  `json:"pick,omitempty" enum:"random,first,last" doc:"which draft: a random one, the oldest, the newest; first when absent"`
	DailyQuota *int     `json:"daily_quota,omitempty" doc:"most drafts that it schedules in a day, 1 to 1000; no limit when absent"`
	Jitter     *string  `json:"jitter,omitempty" doc:"Go duration up to 5m: a random part of it is added to the time" example:"30s"`
}

func (q *automationRequest) op() (publish.Op, error) {
	var c checks
	c.name("name", q.Name)
	c.name("target", q.Target)
	op := publish.CreateAutomation{Name: q.Name, Target: q.Target, Pick: publish.Pick(or(q.Pick, string(publish.PickFirst)))}
	var err error
	name := or(q.TimeZone, "UTC")
	if op.Rule.Zone, err = time.LoadLocation(name); err != nil || name == "" || name == "Local" {
		c.fail("time_zone must be the name of a time zone such as \"Europe/Berlin\"")
	}
	switch {
	case (len(q.Times) > 0) == (q.Every != nil):
		c.fail("either times or every must be given")
	case q.Every != nil:
		q.interval(&c, &op.Rule)
	default:
		q.weekly(&c, &op.Rule)
	}
	if !slices.Contains(publish.Picks(), op.Pick) {
		c.fail("pick must be one of %v", publish.Picks())
	}
	if q.DailyQuota != nil {
		c.upTo("daily_quota", *q.DailyQuota, publish.MaxDailyQuota)
		op.DailyQuota = *q.DailyQuota
	}
	op.Jitter = c.jitter(or(q.Jitter, "0s"))
	return op, c.err
}

func (q *automationRequest) interval(c *checks, r *publish.Rule) {
	r.Every = c.span("every", *q.Every, `"6h"`, publish.MinEvery, publish.MaxEvery, time.Second)
	if q.Weekdays != nil {
		c.fail("weekdays are of a rule with times")
	}
	if q.StartsAt != nil {
		r.From = c.moment("starts_at", *q.StartsAt)
	}
}

// weekdays are the days' names, from Sunday on.
func weekdays() []string { return []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"} }

func (q *automationRequest) weekly(c *checks, r *publish.Rule) {
	if q.StartsAt != nil {
		c.fail("starts_at is of a rule with every")
	}
	names := q.Weekdays
	if names == nil {
		names = weekdays()
	}
	for _, name := range names {
		day := time.Weekday(slices.Index(weekdays(), name))
		if day < 0 || slices.Contains(r.Weekdays, day) {
			c.fail("weekdays must be of mon, tue, wed, thu, fri, sat and sun, each once")
			return
		}
		r.Weekdays = append(r.Weekdays, day)
	}
	if len(names) == 0 {
		c.fail("weekdays must not be empty")
	}
	for _, text := range q.Times {
		at, ok := timeOfDay(text)
		if !ok || len(q.Times) > publish.MaxTimes || slices.Contains(r.Times, at) {
			c.fail("times must be up to %d times of the day such as \"09:00\" or \"18:30:15\", each once", publish.MaxTimes)
			return
		}
		r.Times = append(r.Times, at)
	}
	slices.Sort(r.Weekdays)
	slices.Sort(r.Times)
}

// timeOfDay reads HH:MM or HH:MM:SS.
func timeOfDay(text string) (time.Duration, bool) {
	layout := "15:04"
	if strings.Count(text, ":") > 1 {
		layout = "15:04:05"
	}
	t, err := time.Parse(layout, text)
	if err != nil || len(text) != len(layout) { // The parser takes an hour of one digit, and a fraction.
		return 0, false
	}
	return t.Sub(t.Truncate(24 * time.Hour)), true
}

func (s *Server) automationRoutes() []route {
	return []route{
		commandRoute("/v1/automations", accessStaff, http.StatusCreated, "Make an automation: a rule that schedules drafts of a target", viewAutomation,
			mutation[automationRequest, publish.Op]{execute: s.Publish.Create, op: plain((*automationRequest).op)}),
		listRoute("/v1/automations", accessStaff, "List automations, oldest first", oldestFirst(), rowsOf(s.Publish.Automations),
			viewed(viewAutomation), func(a publish.Automation) int64 { return a.Number }),
		readRoute("/v1/automations/{id}", accessStaff, "Read an automation, and when it fires next", with(pathID("automation"), s.Publish.Automation), viewAutomation),
		listRoute("/v1/automations/{id}/firings", accessStaff, "List what an automation has fired, in order", oldestFirst(),
			rowsWith(pathID("automation"), s.Publish.Firings), as[firingView], func(f publish.Firing) int64 { return f.Number }),
		publishingRoute(s, "automation", "pause", "Keep an automation from firing", viewAutomation, always(publish.PauseAutomation{})),
		publishingRoute(s, "automation", "resume", "Let a paused automation fire again, from its next time on", viewAutomation, always(publish.ResumeAutomation{})),
		publishingRoute(s, "automation", "cancel", "End an automation for good", viewAutomation, always(publish.CancelAutomation{})),
	}
}

type automationView struct {
	ID         uuid.UUID                `json:"id"`
	Name       string                   `json:"name"`
	Target     string                   `json:"target" from:"TargetName" doc:"the target's name"`
	Status     publish.AutomationStatus `json:"status" enum:"active,paused,cancelled"`
	Weekdays   []string                 `json:"weekdays" from:"-" doc:"empty for a rule with every"`
	Times      []string                 `json:"times" from:"-" doc:"HH:MM:SS; empty for a rule with every"`
	TimeZone   string                   `json:"time_zone" from:"-"`
	Every      *duration                `json:"every" from:"Rule.Every" doc:"null for a rule with times"`
	StartsAt   timestamp                `json:"starts_at" from:"Rule.From"`
	Pick       publish.Pick             `json:"pick" enum:"random,first,last"`
	DailyQuota *int                     `json:"daily_quota"`
	Jitter     duration                 `json:"jitter"`
	NextAt     *timestamp               `json:"next_at" doc:"when it fires next; null while it is not active"`
	CreatedAt  timestamp                `json:"created_at"`
}

func viewAutomation(a *publish.Automation) automationView {
	v := as[automationView](a)
	v.TimeZone = a.Rule.Zone.String()
	for _, day := range a.Rule.Weekdays {
		v.Weekdays = append(v.Weekdays, weekdays()[day])
	}
	for _, at := range a.Rule.Times {
		v.Times = append(v.Times, fmt.Sprintf("%02d:%02d:%02d", int(at.Hours()), int(at.Minutes())%60, int(at.Seconds())%60))
	}
	return v
}

type firingView struct {
	ScheduledFor timestamp       `json:"scheduled_for" doc:"the time of the rule; an automation fires once for each"`
	FiredAt      timestamp       `json:"fired_at"`
	Outcome      publish.Outcome `json:"outcome" enum:"scheduled,no_draft,quota_reached"`
	Publication  *uuid.UUID      `json:"publication" doc:"the draft that was scheduled"`
	Skipped      int             `json:"skipped" doc:"times of the rule before this one at which no server ran"`
}

// maxCredential bounds each of the texts that another server has given to ours.
const maxCredential = 4096

type createTargetRequest struct {
	Name   string        `json:"name" minLength:"1" maxLength:"200" doc:"what publications call it"`
	Kind   string        `json:"kind" enum:"webhook,deviantart"`
	URL    *string       `json:"url,omitempty" maxLength:"2000" doc:"http or https; where a webhook is posted to; for deviantart, where its API is, https://www.deviantart.com when absent"`
	Config *targetConfig `json:"config,omitempty"`
	// A whole attempt's, so that it is no part of one kind's configuration.
	Timeout *string `json:"timeout,omitempty" doc:"Go duration that a whole attempt may take, uploads included, 1s to 15m; 30s when absent" example:"30s"`
}

// minConfigTimeout is the least timeout where it is given in the configuration, as it was before it had a place of its own.
const minConfigTimeout = 100 * time.Millisecond

type targetConfig struct {
	Timeout *string `json:"timeout,omitempty" doc:"another place for the target's timeout, from 100ms" example:"10s"`
	// What follows is of deviantart alone.
	ClientID     *string `json:"client_id,omitempty" doc:"deviantart: of the client that the account's owner has authorized"`
	ClientSecret *string `json:"client_secret,omitempty" doc:"deviantart"`
	RefreshToken *string `json:"refresh_token,omitempty" doc:"deviantart: of that authorization, for the scopes stash, publish, browse and user"`
}

func (q *createTargetRequest) op() (publish.Op, error) {
	var c checks
	c.name("name", q.Name)
	config := or(q.Config, targetConfig{})
	op := publish.CreateTarget{Name: q.Name, Kind: publish.Kind(q.Kind), Timeout: publish.DefaultTimeout}
	switch op.Kind {
	case publish.KindWebhook:
		if q.URL == nil {
			c.fail("url must be given")
		}
		if config.ClientID != nil || config.ClientSecret != nil || config.RefreshToken != nil {
			c.fail("config's client_id, client_secret and refresh_token are of deviantart alone")
		}
	case publish.KindDeviantArt:
		op.URL = deviantart.DefaultURL
		credentials := credentialsRequest{ClientID: config.ClientID, ClientSecret: config.ClientSecret, RefreshToken: config.RefreshToken}
		if config.ClientID == nil || config.ClientSecret == nil || config.RefreshToken == nil {
			c.fail("config's client_id, client_secret and refresh_token must be given")
			return nil, c.err
		}
		op.Secret, op.Token = credentials.sealed(&c)
	default:
		c.fail("kind must be webhook or deviantart")
	}
	if q.URL != nil {
		op.URL = *q.URL
		c.text("url", op.URL, 1, publish.MaxURL)
		if err := webhook.CheckURL(op.URL); err != nil {
			c.fail("url is not one that can be posted to: %s", err)
		}
	}
	switch {
	case q.Timeout != nil && config.Timeout != nil:
		c.fail("timeout must be given once, not in config too")
	case q.Timeout != nil:
		op.Timeout = c.span("timeout", *q.Timeout, `"30s"`, publish.MinTimeout, publish.MaxTimeout, time.Microsecond)
	case config.Timeout != nil:
		op.Timeout = c.span("config's timeout", *config.Timeout, `"10s"`, minConfigTimeout, publish.MaxTimeout, time.Microsecond)
	}
	return op, c.err
}

type credentialsRequest struct {
	ClientID     *string `json:"client_id,omitempty" doc:"with the client's secret, or as before when both are absent"`
	ClientSecret *string `json:"client_secret,omitempty"`
	RefreshToken *string `json:"refresh_token,omitempty" doc:"of a new authorization; as before when absent"`
}

// sealed are the credentials and the token as their sender reads them; what is absent is nil.
func (q *credentialsRequest) sealed(c *checks) (secret, token []byte) {
	for name, value := range map[string]*string{"client_id": q.ClientID, "client_secret": q.ClientSecret, "refresh_token": q.RefreshToken} {
		if value != nil {
			c.text(name, *value, 1, maxCredential)
		}
	}
	if (q.ClientID == nil) != (q.ClientSecret == nil) {
		c.fail("client_id and client_secret must be given together")
		return nil, nil
	}
	if q.ClientID != nil {
		secret = mustMarshal(deviantart.Credentials{ClientID: *q.ClientID, ClientSecret: *q.ClientSecret})
	}
	if q.RefreshToken != nil {
		token = mustMarshal(deviantart.Token{Refresh: *q.RefreshToken})
	}
	return secret, token
}

func (q *credentialsRequest) op() (publish.Op, error) {
	var c checks
	op := publish.ReplaceCredentials{}
	if op.Secret, op.Token = q.sealed(&c); op.Secret == nil && op.Token == nil {
		c.fail("client_id and client_secret, or refresh_token, must be given")
	}
	return op, c.err
}

type rotateRequest struct {
	Overlap *string `json:"overlap,omitempty" doc:"Go duration up to 720h for which the old secret signs too; 24h when absent" example:"24h"`
}

func (q *rotateRequest) op() (publish.Op, error) {
	var c checks
	overlap := c.span("overlap", or(q.Overlap, "24h"), `"24h"`, 0, publish.MaxOverlap, time.Microsecond)
	return publish.RotateSecret{Overlap: overlap}, c.err
}

func (s *Server) targetRoutes() []route {
	return []route{
		commandRoute("/v1/targets", accessStaff, http.StatusCreated, "Make a target; its signing secret is shown this once", as[madeTargetView, *publish.MadeTarget],
			mutation[createTargetRequest, publish.Op]{execute: s.Publish.Create, op: plain((*createTargetRequest).op)}),
		listRoute("/v1/targets", accessStaff, "List targets, oldest first", oldestFirst(), rowsOf(s.Publish.Targets),
			viewed(viewTarget), func(t publish.Target) int64 { return t.Number }),
		readRoute("/v1/targets/{id}", accessStaff, "Read a target, and how it is slowed down", with(pathID("target"), s.Publish.Target), viewTarget),
		publishingRoute(s, "target", "secret", "Replace a webhook's signing secret; the old one signs too for a while", as[madeTargetView, *publish.MadeTarget], (*rotateRequest).op),
		publishingRoute(s, "target", "credentials", "Give a target new credentials, and resume it", viewChangedTarget, (*credentialsRequest).op),
		publishingRoute(s, "target", "pause", "Keep a target's publications back", viewChangedTarget, always(publish.PauseTarget{})),
		publishingRoute(s, "target", "resume", "Let a paused target's publications go", viewChangedTarget, always(publish.ResumeTarget{})),
	}
}

type paceView struct {
	State      publish.PaceState `json:"state" from:"-" enum:"free,slowed,open,half_open" doc:"open: the circuit breaker is; half_open: one publication will tell"`
	Interval   duration          `json:"interval" doc:"least time between two claims; 0s: none"`
	Refusals   int               `json:"refusals" doc:"answers 429 in a row, those to the same publication in a row counted once"`
	NextSendAt *timestamp        `json:"next_send_at" from:"NextAt" doc:"nothing is claimed before"`
	OpenUntil  *timestamp        `json:"open_until" doc:"the circuit breaker was opened until then"`
}

type targetView struct {
	ID           uuid.UUID            `json:"id"`
	Name         string               `json:"name"`
	Kind         publish.Kind         `json:"kind"`
	URL          string               `json:"url"`
	Timeout      duration             `json:"timeout"`
	Pace         paceView             `json:"pace" doc:"how the target is slowed down after it answered 429"`
	PausedAt     *timestamp           `json:"paused_at" doc:"nothing is claimed while it is not null"`
	PausedReason *publish.PauseReason `json:"paused_reason" enum:"request,auth_expired" doc:"auth_expired: give the target new credentials"`
	Health       *targetHealthView    `json:"health,omitzero" from:"-" doc:"how the target fares; absent in the answers of commands"`
	OverlapUntil *timestamp           `json:"overlap_until" from:"PreviousUntil" doc:"the key before the last rotation signs too until then"`
	CreatedAt    timestamp            `json:"created_at"`
}

type targetHealthView struct {
	State         publish.TargetState `json:"state" enum:"paused,circuit_open,slowed,failing,delivering,idle" doc:"failing: the last attempt failed; idle: nothing was sent yet"`
	LastSuccessAt *timestamp          `json:"last_success_at" doc:"null where there was none; up to a second older than the last"`
	LastError     *targetErrorView    `json:"last_error,omitzero" doc:"absent where there was none; up to a second older than the last"`
}

type targetErrorView struct {
	At          timestamp     `json:"at"`
	Cause       publish.Cause `json:"cause" enum:"dns,refused,network,tls,timeout,status,address,other" doc:"address: the address is not one that this server sends to"`
	StatusCode  *int          `json:"status_code" doc:"of the target's answer; null without one"`
	Message     string        `json:"message" from:"Error"`
	Publication uuid.UUID     `json:"publication"`
}

// viewTarget shows a target with its outcomes.
func viewTarget(t *publish.Target) targetView {
	now := time.Now()
	v := paced(t, now)
	v.Health = &targetHealthView{State: t.State(now)}
	if t.LastDelivery != nil {
		v.Health.LastSuccessAt = new(timestamp(t.LastDelivery.At))
	}
	if t.LastFailure != nil {
		v.Health.LastError = new(as[targetErrorView](t.LastFailure))
	}
	return v
}

func paced(t *publish.Target, now time.Time) targetView {
	v := as[targetView](t)
	v.Pace.State = t.Pace.State(now)
	return v
}

func viewChangedTarget(t *publish.MadeTarget) targetView { return paced(&t.Target, time.Now()) }

// madeTargetView is a target with its secret.
type madeTargetView struct {
	ID        uuid.UUID    `json:"id"`
	Name      string       `json:"name"`
	Kind      publish.Kind `json:"kind"`
	URL       string       `json:"url"`
	Timeout   duration     `json:"timeout"`
	Secret    string       `json:"secret" from:"SigningSecret" doc:"signs deliveries as Standard Webhooks has it; shown this once; empty for a target that is sent nothing signed" example:"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"`
	CreatedAt timestamp    `json:"created_at"`
}
