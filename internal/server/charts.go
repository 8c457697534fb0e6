package server

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/operator"
	"github.com/fairlead-dev/fairlead/internal/recent"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
)

// What charts are drawn of.
const (
	chartSales    = 300       // sales on the chart of a campaign
	chartBalances = 1000      // entries on the chart of an account
	chartedTime   = time.Hour // that an account's chart goes back
)

// chartRoutes are those of the console's charts over time.
func (s *Server) chartRoutes() []route {
	return []route{
		filtered(readRoute("/v1/admin/measurements", accessAdmin, "Read what this process measured over the last hour", s.measurements, same[measurementsView]),
			"since", "the last of an earlier answer: only the samples after it"),
		readRoute("/v1/admin/deadlocks", accessAdmin, "Read which deadlocks this process has broken, newest first",
			func(*http.Request) ([]operator.Deadlock, error) { return s.Locks.Deadlocks(), nil },
			func(all []operator.Deadlock) deadlocksView { return deadlocksView{Deadlocks: as[[]deadlockView](all)} }),
		readRoute("/v1/admin/accounts/{id}/balances", accessAdmin, "Read an account's balance over the last hour", s.balances, as[balancesView]),
		readRoute("/v1/admin/campaigns/{id}/sales", accessAdmin, "Read a campaign's sales over time: every one, or an even sample of many",
			with(s.campaignOf, s.sales), same[salesView]),
	}
}

// seriesView is one line of a chart.
type seriesView struct {
	Name   string     `json:"name" doc:"what was measured: requests, failures, commands and locks contended a second; p50 and p99 of latency, commit and lock wait in seconds; locks waiting; refused CODE and attempts RESULT TARGET a second, by problem code and target id"`
	Values []*float64 `json:"values" doc:"one for each sample, null where nothing was measured"`
}

// measurementsView is what one process measured over the last hour.
type measurementsView struct {
	Server string       `json:"server" doc:"the name of the machine, and the process's number"`
	Began  timestamp    `json:"began_at" doc:"when the process began"`
	Every  int          `json:"every_seconds" doc:"time between two samples"`
	Last   int          `json:"last" doc:"the number of the last sample, counted from 1 since the process began, to ask for those after it"`
	At     []timestamp  `json:"at" doc:"when the samples were taken, oldest first, those of an hour at most"`
	Series []seriesView `json:"series"`
}

// serverName tells this process from the others on the same database, for people.
//
//nolint:gochecknoglobals // It is the same for all, and never changes.
var serverName = sync.OnceValue(func() string {
	host, err := os.Hostname()
	if err != nil {
		host = "this machine"
	}
	return host + ", process " + strconv.Itoa(os.Getpid())
})

func (s *Server) measurements(r *http.Request) (v measurementsView, err error) {
	since, n := "", 0
	if since, err = one(r, "since"); err != nil {
		return v, err
	}
	if since != "" {
		if n, err = strconv.Atoi(since); err != nil || n < 0 {
			return v, refuse("since must be the last of an earlier answer")
		}
	}
	w := s.Recent.After(n)
	return measurementsView{
		Server: serverName(), Began: timestamp(w.Began), Every: int(recent.Every / time.Second), Last: w.Last, At: as[[]timestamp](w.At), Series: as[[]seriesView](w.Series),
	}, nil
}

type deadlockView struct {
	At    timestamp `json:"at" doc:"when it was found and broken"`
	Cycle []string  `json:"cycle" doc:"the owners, each waiting for the next and the last for the first; the request of the first was refused"`
	Keys  []string  `json:"keys" doc:"what each of them waited for"`
}

// deadlocksView is what this process remembers.
type deadlocksView struct {
	Deadlocks []deadlockView `json:"deadlocks" doc:"newest first, 50 at most, since the process began; other processes break deadlocks too"`
}

type balanceView struct {
	At      timestamp `json:"at"`
	Balance int64     `json:"balance" doc:"available and held, after the entry of that time"`
}

// balancesView is an account's balance over time.
type balancesView struct {
	From     timestamp     `json:"from" doc:"an hour before, or the oldest of the newest 1,000 entries where those are younger"`
	To       timestamp     `json:"to"`
	Opening  int64         `json:"opening" doc:"the balance at the beginning, in minor units"`
	Balances []balanceView `json:"balances" doc:"oldest first"`
}

func (s *Server) balances(r *http.Request) (v operator.Balances, err error) {
	id, err := systemAccount(r)
	if err != nil {
		return v, err
	}
	return bounded(r.Context(), s.scans, func(ctx context.Context) (operator.Balances, error) {
		return s.Operator.Balances(ctx, id, chartedTime, chartBalances)
	})
}

type saleMarkView struct {
	Sold int       `json:"sold" doc:"how many were sold with this one"`
	At   timestamp `json:"at"`
}

// salesView is how a campaign's sale went.
type salesView struct {
	Sold  int            `json:"sold"`
	Total int            `json:"total"`
	Sales []saleMarkView `json:"sales" doc:"oldest first, 300 at most, the first and the last among them; none where they are archived"`
}

func (s *Server) sales(ctx context.Context, c *lottery.Campaign) (salesView, error) {
	numbers := spread(c.SoldPositions, chartSales)
	marks, err := bounded(ctx, s.scans, func(ctx context.Context) ([]operator.SaleMark, error) { return s.Operator.Sales(ctx, c.ID, numbers) })
	if _, archived := errors.AsType[*lottery.SalesNotFoundError](err); archived { // How many were sold is known still.
		err = nil
	}
	return salesView{Sold: c.SoldPositions, Total: c.TotalPositions, Sales: as[[]saleMarkView](marks)}, err
}

// spread is up to most of the numbers from 1 to n, evenly, the first and the last among them.
func spread(n, most int) []int {
	count := min(n, most)
	out := make([]int, count)
	for i := range out {
		out[i] = 1 + i*(n-1)/max(1, count-1)
	}
	return out
}
