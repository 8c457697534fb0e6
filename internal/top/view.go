package top

import (
	"maps"
	"slices"
	"time"
)

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

// Between returns what happened from one snapshot to the next, which was taken so much later, at now. elapsed must be positive.
func Between(before, after *Snapshot, elapsed time.Duration, now time.Time) View {
	v := View{
		IntervalSeconds: elapsed.Seconds(), Memory: after.Memory, Goroutines: after.Goroutines, Streams: after.Streams,
		Leading: after.Leading, Term: after.Term, Running: after.Running, Lanes: []LaneView{},
	}
	if !after.Started.IsZero() {
		v.UptimeSeconds = max(0, now.Sub(after.Started).Seconds())
	}
	if !after.Started.Equal(before.Started) || after.Requests < before.Requests {
		v.Restarted, before = true, &Snapshot{}
	}
	rate := func(after, before float64) float64 { return max(0, after-before) / elapsed.Seconds() }
	v.Requests, v.Failures = rate(after.Requests, before.Requests), rate(after.Failures, before.Failures)
	v.Failed, v.Retries = rate(after.Failed, before.Failed), rate(after.Retries, before.Retries)
	v.Bids, v.Draws, v.Drawn = rate(after.Bids, before.Bids), rate(after.Draws, before.Draws), rate(after.Drawn, before.Drawn)
	v.Attempts, v.Sagas = rate(after.Attempts, before.Attempts), rate(after.Sagas, before.Sagas)
	v.Granted, v.Victims = rate(after.Granted, before.Granted), rate(after.Victims, before.Victims)
	v.Dropped, v.CPU = rate(after.Dropped, before.Dropped), rate(after.CPU, before.CPU)
	v.Latency = after.Latency.Since(before.Latency).Quantiles()
	transactions := after.Transactions.Since(before.Transactions)
	v.Transactions, v.Transaction = transactions.Count/elapsed.Seconds(), transactions.Quantiles()
	for _, service := range slices.Sorted(maps.Keys(after.Lanes)) {
		a, b := after.Lanes[service], before.Lanes[service]
		if b == nil {
			b = &Lane{}
		}
		batch := a.Batch.Since(b.Batch)
		v.Lanes = append(v.Lanes, LaneView{
			Service: service, Commands: batch.Sum / elapsed.Seconds(), Batches: batch.Count / elapsed.Seconds(),
			BatchMean: batch.Mean(), Batch: batch.Quantiles(),
			Commit: a.Commit.Since(b.Commit).Quantiles(), Wait: a.Wait.Since(b.Wait).Quantiles(),
			Queue: a.Queue, Refused: rate(a.Refused, b.Refused), Failures: rate(a.Failures, b.Failures),
		})
	}
	return v
}
