package server

import (
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/services/publish"
	"github.com/fairlead-dev/fairlead/internal/services/publish/deviantart"
	"github.com/fairlead-dev/fairlead/internal/services/publish/webhook"
)

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
	State         publish.TargetState `json:"state" enum:"paused,circuit_open,slowed,failing,delivering,idle" doc:"failing: the last attempt failed; idle: no attempt has ended yet"`
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
