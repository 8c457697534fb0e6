package client

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestDoubts holds a client's word to what a server does with up to five attempts at one command, in all orders.
func TestDoubts(t *testing.T) {
	t.Parallel()
	for length := 1; length <= 5; length++ {
		plan := make([]attempt, length)
		for n := range pow(len(attempts), length) {
			for i := range plan {
				plan[i] = attempts[n/pow(len(attempts), i)%len(attempts)]
			}
			testwait.Must(t, try(plan))
		}
	}
}

// attempt is what becomes of one of them.
type attempt struct {
	name string
	// carried says that the server carries the command out, late that it does so when the client has its last answer. Neither happens
	// if a record is stored by then.
	carried, late bool
	// answer is what the client gets where no record is stored, nil for none. A stored record is repeated where the server reads
	// the key.
	answer *Problem
	reads  bool
}

var attempts = []attempt{
	{name: "never arrives"},
	{name: "answer lost", carried: true},
	{name: "on its way", late: true},
	{name: "outcome unknown", late: true, answer: &Problem{Status: http.StatusServiceUnavailable, Retryable: true, Outcome: Unknown}},
	{name: "rate limit", answer: &Problem{Status: http.StatusTooManyRequests, Retryable: true, Outcome: Unknown}},
	{name: "given up", reads: true, answer: &Problem{Status: http.StatusServiceUnavailable, Retryable: true, Outcome: NotApplied}},
	{name: "lock held", reads: true, answer: &Problem{Status: http.StatusConflict, Retryable: true, Outcome: NotApplied}},
	{name: "older server", answer: &Problem{Status: http.StatusNotFound, Outcome: NotApplied}},
	{name: "decided", reads: true, answer: &Problem{Status: http.StatusConflict, Outcome: NotApplied}},
}

func try(plan []attempt) error {
	var d doubts
	applied, refused, late := false, false, false
	last := ""
	for _, a := range plan {
		switch {
		case a.reads && applied:
			return nil // The call succeeds, and is not made again.
		case a.reads && refused:
			last = d.refused("command", &Problem{Status: http.StatusConflict, Outcome: NotApplied})
		case a.answer == nil:
			d.unanswered("command")
			last = Unknown
		default:
			last = d.refused("command", a.answer)
			refused = refused || decided(a.answer)
		}
		applied = applied || a.carried && !refused
		late = late || a.late
	}
	applied = applied || late && !refused
	if last == NotApplied && applied {
		return fmt.Errorf("it says not applied, and it is: %v", names(plan))
	}
	certain := slices.IndexFunc(plan, func(a attempt) bool { return a.answer == nil || a.answer.Outcome == Unknown }) < 0
	if certain && last != NotApplied || refused && plan[len(plan)-1].reads && last != NotApplied {
		return fmt.Errorf("it says %s of what certainly was not applied: %v", last, names(plan))
	}
	return nil
}

func names(plan []attempt) (all []string) {
	for _, a := range plan {
		all = append(all, a.name)
	}
	return all
}

func pow(base, n int) int {
	p := 1
	for range n {
		p *= base
	}
	return p
}

func TestDoubtsAreBounded(t *testing.T) {
	t.Parallel()
	var d doubts
	for n := range maxDoubts + 10 {
		d.unanswered(fmt.Sprint(n))
	}
	if len(d.commands) != maxDoubts {
		t.Errorf("%d are remembered", len(d.commands))
	}
}
