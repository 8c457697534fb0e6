package telemetry_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-dev/fairlead/internal/telemetry"
)

// TestBooks holds the names to those that alerts are written with.
func TestBooks(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	b := telemetry.NewBooks(r)
	var state map[telemetry.BooksWork]telemetry.BooksState
	b.Observe(func(work telemetry.BooksWork) telemetry.BooksState { return state[work] })
	b.Done(telemetry.BooksClose, 3*time.Second)
	b.Failed(telemetry.BooksRecount)
	want := map[string]sample{
		`fairlead_books_duration_seconds{work="close"}`:   {1, 3},
		`fairlead_books_duration_seconds{work="recount"}`: {},
		`fairlead_books_failures_total{work="close"}`:     {},
		`fairlead_books_failures_total{work="recount"}`:   {value: 1},
		`fairlead_books_late_seconds{work="close"}`:       {},
		`fairlead_books_late_seconds{work="recount"}`:     {},
		`fairlead_books_invalid{work="close"}`:            {},
		`fairlead_books_invalid{work="recount"}`:          {},
	}
	expect(t, r, want)
	state = map[telemetry.BooksWork]telemetry.BooksState{telemetry.BooksClose: {Late: time.Minute}, telemetry.BooksRecount: {Invalid: true}}
	want[`fairlead_books_late_seconds{work="close"}`] = sample{value: 60}
	want[`fairlead_books_invalid{work="recount"}`] = sample{value: 1}
	expect(t, r, want)
}
