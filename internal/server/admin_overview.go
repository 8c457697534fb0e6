package server

import (
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
)

// bucketView is a bucket of a histogram.
type bucketView struct {
	Le    float64 `json:"le" doc:"its upper bound; the last bucket has none, and is the count"`
	Count uint64  `json:"count" doc:"of observations up to the bound"`
}

// histogramView is a histogram since the process began.
type histogramView struct {
	Count   uint64       `json:"count"`
	Sum     float64      `json:"sum"`
	Buckets []bucketView `json:"buckets"`
}

// laneStatsView is what a service's lanes have done since the process began.
type laneStatsView struct {
	Service string        `json:"service" example:"ledger"`
	Batch   histogramView `json:"batch" doc:"commands a commit; their sum is the commands"`
	Commit  histogramView `json:"commit" doc:"seconds from a batch's start to its commit"`
	Wait    histogramView `json:"wait" doc:"seconds that the oldest command of a batch had waited"`
	Queue   float64       `json:"queue" doc:"commands that waited when a batch was last taken"`
	Refused float64       `json:"refused" doc:"commands refused because their lane was full"`
}

type backlogView struct {
	CampaignsActive     int        `json:"campaigns_active"`
	CampaignsDrawing    int        `json:"campaigns_drawing"`
	OldestDrawing       *timestamp `json:"oldest_drawing" doc:"since when the oldest of them is drawing"`
	AuctionsActive      int        `json:"auctions_active"`
	PublicationsDue     int        `json:"publications_due"`
	OldestDue           *timestamp `json:"oldest_due"`
	PublicationsRunning int        `json:"publications_running"`
	OldestClaim         *timestamp `json:"oldest_claim" doc:"the last sign of life of the oldest claim"`
	PublicationsFailed  int        `json:"publications_failed"`
	LocksHeld           int        `json:"locks_held"`
	LocksWaited         int        `json:"locks_waited" doc:"requests that wait"`
	TransfersPending    int        `json:"transfers_pending"`
	SagasPending        int        `json:"sagas_pending"`
	MultidrawsRunning   int        `json:"multidraws_running"`
	MultidrawsStopped   int        `json:"multidraws_interrupted"`
}

// overviewView is the house at a glance: two of them, a while apart, give rates.
type overviewView struct {
	At       timestamp       `json:"at" doc:"when it was measured"`
	Version  string          `json:"version"`
	Requests float64         `json:"requests" doc:"answered by this process"`
	Failures float64         `json:"failures" doc:"of them, with a status of 500 or more"`
	Latency  histogramView   `json:"latency" doc:"seconds from a request's header to the end of its answer"`
	Lanes    []laneStatsView `json:"lanes" doc:"of this process"`
	Streams  float64         `json:"streams" doc:"live subscribers of this process"`
	Backlog  backlogView     `json:"backlog" doc:"of the whole house; counts end at 1,000"`
}

func (s *Server) overview(r *http.Request) (v overviewView, err error) {
	backlog, err := bounded(r.Context(), s.scans, s.Operator.Backlog)
	if err != nil {
		return v, err
	}
	families, err := s.Registry.Gather()
	v = overviewView{At: timestamp(time.Now()), Version: s.Version, Backlog: as[backlogView](backlog)}
	v.measure(families)
	return v, err
}

// measure reads what is shown from the process's metrics.
func (v *overviewView) measure(families []*dto.MetricFamily) {
	lanes := map[string]*laneStatsView{}
	lane := func(m *dto.Metric) *laneStatsView {
		name := labelOf(m, "service")
		if lanes[name] == nil {
			lanes[name] = &laneStatsView{Service: name}
		}
		return lanes[name]
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			switch f.GetName() {
			case "fairlead_http_requests_total":
				v.Requests += m.GetCounter().GetValue()
				if strings.HasPrefix(labelOf(m, "status"), "5") {
					v.Failures += m.GetCounter().GetValue()
				}
			case "fairlead_http_request_duration_seconds":
				v.Latency.add(m.GetHistogram())
			case "fairlead_lane_batch_size":
				lane(m).Batch.add(m.GetHistogram())
			case "fairlead_lane_flush_duration_seconds":
				lane(m).Commit.add(m.GetHistogram())
			case "fairlead_lane_wait_duration_seconds":
				lane(m).Wait.add(m.GetHistogram())
			case "fairlead_lane_queue_depth":
				lane(m).Queue = m.GetGauge().GetValue()
			case "fairlead_lane_refused_total":
				lane(m).Refused += m.GetCounter().GetValue()
			case "fairlead_live_subscribers":
				v.Streams += m.GetGauge().GetValue()
			}
		}
	}
	v.Lanes = make([]laneStatsView, 0, len(lanes))
	for _, l := range lanes {
		v.Lanes = append(v.Lanes, *l)
	}
	slices.SortFunc(v.Lanes, func(a, b laneStatsView) int { return strings.Compare(a.Service, b.Service) })
}

// add sums up histograms of the same buckets.
func (h *histogramView) add(m *dto.Histogram) {
	h.Count += m.GetSampleCount()
	h.Sum += m.GetSampleSum()
	i := 0
	for _, b := range m.GetBucket() {
		if math.IsInf(b.GetUpperBound(), 1) {
			continue // It is the count.
		}
		if i == len(h.Buckets) {
			h.Buckets = append(h.Buckets, bucketView{Le: b.GetUpperBound()})
		}
		h.Buckets[i].Count += b.GetCumulativeCount()
		i++
	}
}

func labelOf(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}
