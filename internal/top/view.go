package top

import "time"

// View is what a server did between two snapshots, and what it was like at the second. Rates are per second; times are in
// seconds.
type View struct {
	IntervalSeconds float64    `json:"interval_seconds"`
	Restarted       bool       `json:"restarted"` // between the two; then it counts from the start of the process
	UptimeSeconds   float64    `json:"uptime_seconds"`
	Requests        float64    `json:"requests_per_second"`
	Failures        float64    `json:"failures_per_second"` // answered with 500 or more
	Latency         Quantiles  `json:"latency_seconds"`
	Lanes           []LaneView `json:"lanes"` // by service
	Transactions    float64    `json:"transactions_per_second"`
	Transaction     Quantiles  `json:"transaction_seconds"`
	Failed          float64    `json:"transactions_not_committed_per_second"`
	Retries         float64    `json:"transaction_retries_per_second"`
	Bids            float64    `json:"bids_accepted_per_second"`
	Draws           float64    `json:"multidraw_draws_per_second"`
	Drawn           float64    `json:"campaigns_drawn_per_second"`
	Attempts        float64    `json:"publication_attempts_per_second"`
	Sagas           float64    `json:"sagas_ended_per_second"`
	Granted         float64    `json:"locks_granted_per_second"`
	Victims         float64    `json:"deadlock_victims_per_second"`
	Dropped         float64    `json:"live_dropped_per_second"`
	CPU             float64    `json:"cpu_cores"`
	Memory          float64    `json:"memory_bytes"`
	Goroutines      float64    `json:"goroutines"`
	Streams         float64    `json:"live_subscribers"`
	Leading         bool       `json:"auction_leader"`
	Term            float64    `json:"auction_leader_term"` // the last in which this process led, 0: it never did
	Running         Running    `json:"running"`
	Shared          []Shared   `json:"shared_targets"`
}

// LaneView is a service's group commit between two snapshots.
type LaneView struct {
	Service   string    `json:"service"`
	Commands  float64   `json:"commands_per_second"`
	Batches   float64   `json:"batches_per_second"`
	BatchMean float64   `json:"batch_mean"` // commands a commit
	Batch     Quantiles `json:"batch"`
	Commit    Quantiles `json:"commit_seconds"`
	Wait      Quantiles `json:"wait_seconds"` // of the oldest command of a batch
	Queue     float64   `json:"queue"`        // commands that waited when a batch was last taken
	Refused   float64   `json:"refused_per_second"`
	Failures  float64   `json:"failures_per_second"`
}

// Running is what the process is at.
type Running struct {
	Publications float64 `json:"publications"`
	Sagas        float64 `json:"sagas"`
	Multidraws   float64 `json:"multidraws"`
}

// Between returns what happened from one snapshot to the next, which was taken so much later, at now. elapsed must be positive.
func Between(before, after *Snapshot, elapsed time.Duration, now time.Time) View {
	const requests, started, transactions = "fairlead_http_requests_total", "process_start_time_seconds", "fairlead_transactions_total"
	restarted := after.sums[started] != before.sums[started] || after.sums[requests] < before.sums[requests]
	if restarted {
		before = &Snapshot{}
	}
	rate := func(name string) float64 { return max(0, after.sums[name]-before.sums[name]) / elapsed.Seconds() }
	since := func(name string) Histogram { return after.spread[name].Since(before.spread[name]) }
	gauges := after.sums
	commits := since("fairlead_transaction_duration_seconds")
	v := View{
		IntervalSeconds: elapsed.Seconds(), Restarted: restarted, Lanes: []LaneView{},
		Requests: rate(requests), Failures: rate(requests + " 5xx"), Latency: since("fairlead_http_request_duration_seconds").Quantiles(),
		Transactions: commits.Count / elapsed.Seconds(), Transaction: commits.Quantiles(),
		Failed: rate(transactions) - rate(transactions+" committed"), Retries: rate("fairlead_transaction_retries_total"),
		Bids: rate("fairlead_auction_bids_total" + " accepted"), Draws: rate("fairlead_multidraw_draws_total"),
		Drawn: rate("fairlead_lottery_draw_success_total"), Attempts: rate("fairlead_publish_attempts_total"), Sagas: rate("fairlead_saga_ended_total"),
		Granted: rate("fairlead_lock_requests_total" + " granted"), Victims: rate("fairlead_lock_deadlock_victims_total"),
		Dropped: rate("fairlead_live_dropped_total"), CPU: rate("process_cpu_seconds_total"),
		Memory: gauges["process_resident_memory_bytes"], Goroutines: gauges["go_goroutines"], Streams: gauges["fairlead_live_subscribers"],
		Leading: gauges["fairlead_auction_is_leader"] != 0, Term: gauges["fairlead_auction_leader_term"], Running: Running{
			Publications: gauges["fairlead_publish_running"], Sagas: gauges["fairlead_saga_running"], Multidraws: gauges["fairlead_multidraw_running"],
		},
	}
	v.Shared = after.Shared()
	if at := after.sums[started]; at != 0 {
		v.UptimeSeconds = max(0, now.Sub(time.UnixMilli(int64(at*1000))).Seconds())
	}
	for _, service := range after.Services() {
		of := " " + service
		batch := since("fairlead_lane_batch_size" + of)
		v.Lanes = append(v.Lanes, LaneView{
			Service: service, Commands: batch.Sum / elapsed.Seconds(), Batches: batch.Count / elapsed.Seconds(),
			BatchMean: batch.Mean(), Batch: batch.Quantiles(),
			Commit: since("fairlead_lane_flush_duration_seconds" + of).Quantiles(), Wait: since("fairlead_lane_wait_duration_seconds" + of).Quantiles(),
			Queue: gauges["fairlead_lane_queue_depth"+of], Refused: rate("fairlead_lane_refused_total" + of), Failures: rate("fairlead_lane_failures_total" + of),
		})
	}
	return v
}
