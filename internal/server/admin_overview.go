package server

import (
	"net/http"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/internal/top"
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

// overviewView is the whole system at a glance: two of them, a while apart, give rates.
type overviewView struct {
	At       timestamp       `json:"at" doc:"when it was measured"`
	Version  string          `json:"version"`
	Requests float64         `json:"requests" doc:"answered by this process"`
	Failures float64         `json:"failures" doc:"of them, with a status of 500 or more"`
	Latency  histogramView   `json:"latency" doc:"seconds from a request's header to the end of its answer"`
	Lanes    []laneStatsView `json:"lanes" doc:"of this process"`
	Streams  float64         `json:"streams" doc:"live subscribers of this process"`
	Backlog  backlogView     `json:"backlog" doc:"of the whole system; counts end at 1,000"`
}

func (s *Server) overview(r *http.Request) (v overviewView, err error) {
	backlog, err := bounded(r.Context(), s.scans, s.Operator.Backlog)
	if err != nil {
		return v, err
	}
	families, err := s.Registry.Gather()
	const requests, lane = "fairlead_http_requests_total", "fairlead_lane_"
	m := top.Read(slices.Values(families))
	v = overviewView{
		At: timestamp(time.Now()), Version: s.Version, Backlog: as[backlogView](backlog), Requests: m.Sum(requests), Failures: m.Sum(requests + " 5xx"),
		Latency: viewHistogram(m.Spread("fairlead_http_request_duration_seconds")), Streams: m.Sum("fairlead_live_subscribers"),
	}
	for _, service := range m.Services() {
		v.Lanes = append(v.Lanes, laneStatsView{
			Service: service, Batch: viewHistogram(m.Spread(lane + "batch_size " + service)), Commit: viewHistogram(m.Spread(lane + "flush_duration_seconds " + service)),
			Wait: viewHistogram(m.Spread(lane + "wait_duration_seconds " + service)), Queue: m.Sum(lane + "queue_depth " + service), Refused: m.Sum(lane + "refused_total " + service),
		})
	}
	return v, err
}

func viewHistogram(h top.Histogram) histogramView {
	v := histogramView{Count: uint64(h.Count), Sum: h.Sum}
	for _, b := range h.Buckets {
		v.Buckets = append(v.Buckets, bucketView{Le: b.Bound, Count: uint64(b.Count)})
	}
	return v
}
