package publish_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead-dev/fairlead/internal/services/publish"
)

// A rule of half past two in the morning, over the night in which clocks are set forward from two to three.
func ExampleRule_Next() {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		fmt.Println(err)
		return
	}
	rule := publish.Rule{Weekdays: []time.Weekday{time.Saturday, time.Sunday}, Times: []time.Duration{150 * time.Minute}, Zone: berlin}
	at := time.Date(2026, time.March, 27, 12, 0, 0, 0, berlin)
	for range 3 {
		at = rule.Next(at)
		fmt.Println(at.In(berlin).Format(time.RFC1123Z))
	}
	// Output:
	// Sat, 28 Mar 2026 02:30:00 +0100
	// Sun, 29 Mar 2026 03:30:00 +0200
	// Sat, 04 Apr 2026 02:30:00 +0200
}

// shelf is somewhere that publications are put, and that can be asked what it has.
type shelf struct{ books map[string]string }

var _ publish.Finder = (*shelf)(nil)

// Send implements [publish.Sender].
func (s *shelf) Send(ctx context.Context, d *publish.Delivery) publish.Result {
	if len(d.Payload) == 0 {
		return publish.Result{Class: publish.Permanent, Error: "nothing to put there"}
	}
	// The last look at the claim before what cannot be taken back.
	if err := d.Save(ctx, []byte("putting")); errors.Is(err, publish.ErrClaimLost) {
		return publish.Result{Class: publish.Transient, Error: "another is at it"}
	}
	s.books[d.Publication.String()] = string(d.Payload)
	return publish.Result{Class: publish.Delivered, ExternalID: "shelf 1"}
}

// Find implements [publish.Finder].
func (s *shelf) Find(_ context.Context, d *publish.Delivery) (publish.Result, bool) {
	if _, there := s.books[d.Publication.String()]; there {
		return publish.Result{Class: publish.Delivered, ExternalID: "shelf 1"}, true
	}
	return publish.Result{}, false
}

// A target of one's own kind. The worker asks it before every repeat.
func ExampleSender() {
	s := &shelf{books: map[string]string{}}
	d := &publish.Delivery{Version: 1, Payload: []byte(`"a book"`), Save: func(context.Context, []byte) error { return nil }}
	fmt.Println(s.Send(context.Background(), d).ExternalID)
	d.Version++
	result, settled := s.Find(context.Background(), d)
	fmt.Println(settled, result.ExternalID)
	// Output:
	// shelf 1
	// true shelf 1
}
