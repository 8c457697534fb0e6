package audit_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/translog/audit"
	"github.com/fairlead-dev/fairlead/translog/audit/audittest"
)

// million is a log of about so many bids, of a hundred thousand bidders in twenty auctions, among closings of the books.
func million(p *audittest.Player, bids int) *audittest.Log {
	bidders := p.Aliases(bids / 10)
	l := audittest.NewLog(origin)
	var all []audittest.Leaf
	const auctions = 20
	for i := range auctions {
		all = append(all, p.Auction(audittest.Zero().Add(time.Duration(i)*time.Second), audittest.AuctionShape{
			Bidders: bidders, Bids: bids / auctions * 3 / 2, Batch: 400, Rounds: 1 + i%3, Winners: 1 + 10*i, Unique: i%2 == 0, Open: i%5 == 0,
		})...)
	}
	all = append(all, p.Books(audittest.Zero(), 1000)...)
	l.Append(audittest.Sort(all)...)
	l.Publish()
	return l
}

// BenchmarkMillion audits more than a million leaves from a server in the same process. Run it with -benchtime 1x. Its memory is that
// of the auditor alone, measured apart, because that takes collections of the log, too.
func BenchmarkMillion(b *testing.B) {
	l := million(fixed(), 1_000_000)
	url := serve(b, l)
	run := func(b *testing.B, progress func(int64, int64)) {
		b.Helper()
		for b.Loop() {
			r, err := auditor(b, l, audit.Options{URL: url, Progress: progress}).Run(b.Context())
			testwait.Must(b, err)
			if r.Finding != nil {
				b.Fatal(r.Finding)
			}
			b.ReportMetric(float64(r.Counts.Leaves), "leaves")
			b.ReportMetric(float64(r.Counts.Bids), "bids")
		}
	}
	b.Run("Time", func(b *testing.B) { run(b, nil) })
	b.Run("Memory", func(b *testing.B) {
		live := func() float64 {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return float64(m.HeapAlloc) / 1e6
		}
		before, most, batches := live(), 0.0, 0
		run(b, func(int64, int64) {
			if batches++; batches%80 == 0 {
				most = max(most, live()-before)
			}
		})
		b.ReportMetric(most, "MB")
	})
}
