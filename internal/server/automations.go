package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/services/publish"
)

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
