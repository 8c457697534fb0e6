package top

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// ErrNotFairlead is returned for metrics of something else.
var ErrNotFairlead = errors.New("these metrics are not a Fairlead server's")

// Snapshot is what a server said at one moment. All but the gauges are counted since its process began.
type Snapshot struct {
	Requests, Failures  float64 // failures: answered with 500 or more
	Latency             Histogram
	Lanes               map[string]*Lane // by service
	Transactions        Histogram
	Failed, Retries     float64 // of transactions
	Bids                float64 // accepted
	Draws, Drawn        float64 // of multi-draws; of campaigns
	Attempts, Sagas     float64 // to publish; that have ended
	Granted, Victims    float64 // locks
	Dropped             float64 // subscribers that were too slow
	CPU                 float64 // seconds
	Started             time.Time
	Leading             bool    // gauges, from here on
	Term                float64 // the last in which it led
	Streams, Goroutines float64
	Memory              float64 // bytes, resident
	Running             Running
}

// Running is what the process is at.
type Running struct {
	Publications float64 `json:"publications"`
	Sagas        float64 `json:"sagas"`
	Multidraws   float64 `json:"multidraws"`
}

// Lane is the group commit of one service.
type Lane struct {
	Batch, Commit, Wait Histogram // commands; seconds; seconds
	Failures, Refused   float64
	Queue               float64 // a gauge
}

// Parse reads metrics in Prometheus' text format. It returns [ErrNotFairlead] where nothing in them is Fairlead's, and an
// error for what is not in that format.
func Parse(text io.Reader) (*Snapshot, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(text)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	s := &Snapshot{Lanes: map[string]*Lane{}}
	ours, plain := false, s.plain()
	for name, f := range families {
		ours = ours || strings.HasPrefix(name, "fairlead_")
		for _, m := range f.GetMetric() {
			if to := plain[name]; to != nil {
				*to += value(m)
			} else {
				s.read(name, m)
			}
		}
	}
	if !ours {
		return nil, ErrNotFairlead
	}
	return s, nil
}

func (s *Snapshot) lane(m *dto.Metric) *Lane {
	service := label(m, "service")
	if s.Lanes[service] == nil {
		s.Lanes[service] = &Lane{}
	}
	return s.Lanes[service]
}

// read takes in one sample. It ignores metrics that no view shows, and those of later versions.
func (s *Snapshot) read(name string, m *dto.Metric) {
	switch name {
	case "fairlead_http_requests_total":
		s.Requests += value(m)
		if strings.HasPrefix(label(m, "status"), "5") {
			s.Failures += value(m)
		}
	case "fairlead_http_request_duration_seconds":
		s.Latency.add(m.GetHistogram())
	case "fairlead_lane_batch_size":
		s.lane(m).Batch.add(m.GetHistogram())
	case "fairlead_lane_flush_duration_seconds":
		s.lane(m).Commit.add(m.GetHistogram())
	case "fairlead_lane_wait_duration_seconds":
		s.lane(m).Wait.add(m.GetHistogram())
	case "fairlead_lane_failures_total":
		s.lane(m).Failures += value(m)
	case "fairlead_lane_refused_total":
		s.lane(m).Refused += value(m)
	case "fairlead_lane_queue_depth":
		s.lane(m).Queue = value(m)
	case "fairlead_transaction_duration_seconds":
		s.Transactions.add(m.GetHistogram())
	case "fairlead_transactions_total":
		if label(m, "outcome") != "committed" {
			s.Failed += value(m)
		}
	case "fairlead_auction_bids_total":
		if label(m, "outcome") == "accepted" {
			s.Bids += value(m)
		}
	case "fairlead_lock_requests_total":
		if label(m, "outcome") == "granted" {
			s.Granted += value(m)
		}
	case "process_start_time_seconds":
		s.Started = time.UnixMilli(int64(value(m) * 1000)).UTC()
	case "fairlead_auction_is_leader":
		s.Leading = value(m) != 0
	}
}

// plain says where the samples go that are added up as they are.
func (s *Snapshot) plain() map[string]*float64 {
	return map[string]*float64{
		"fairlead_transaction_retries_total":   &s.Retries,
		"fairlead_multidraw_draws_total":       &s.Draws,
		"fairlead_lottery_draw_success_total":  &s.Drawn,
		"fairlead_publish_attempts_total":      &s.Attempts,
		"fairlead_saga_ended_total":            &s.Sagas,
		"fairlead_lock_deadlock_victims_total": &s.Victims,
		"fairlead_live_dropped_total":          &s.Dropped,
		"process_cpu_seconds_total":            &s.CPU,
		"fairlead_auction_leader_term":         &s.Term,
		"fairlead_live_subscribers":            &s.Streams,
		"go_goroutines":                        &s.Goroutines,
		"process_resident_memory_bytes":        &s.Memory,
		"fairlead_publish_running":             &s.Running.Publications,
		"fairlead_saga_running":                &s.Running.Sagas,
		"fairlead_multidraw_running":           &s.Running.Multidraws,
	}
}

func value(m *dto.Metric) float64 {
	switch {
	case m.GetCounter() != nil:
		return m.GetCounter().GetValue()
	case m.GetGauge() != nil:
		return m.GetGauge().GetValue()
	}
	return m.GetUntyped().GetValue()
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}
