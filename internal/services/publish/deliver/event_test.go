package deliver

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/live"
	"github.com/fairlead-dev/fairlead/internal/services/publish"
)

// TestEventID holds the ids to what receivers have seen: an event that comes again has the one it had.
func TestEventID(t *testing.T) {
	t.Parallel()
	of := uuid.MustParse("0198c9f0-0000-7000-8000-000000000001")
	id := EventID(of, "auction:a", 12)
	if id.String() != "1c96b3eb-87cd-55c1-a13b-83adc9def2e0" {
		t.Errorf("%s", id)
	}
	for _, other := range []uuid.UUID{EventID(uuid.New(), "auction:a", 12), EventID(of, "auction:b", 12), EventID(of, "auction:a", 1), EventID(of, "auction:a1", 2)} {
		if other == id {
			t.Errorf("two events are %s", id)
		}
	}
}

func TestEnvelopes(t *testing.T) {
	t.Parallel()
	e := live.Event{Seq: 7, Type: "bid.placed", At: time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC), Data: json.RawMessage(`{"amount":5}`)}
	id := uuid.MustParse("0198c9f0-0000-7000-8000-000000000001")
	for envelope, want := range map[publish.Envelope][2]string{
		publish.EnvelopePlain: {`{"topic":"auction:a","seq":7,"type":"bid.placed","at":"2026-01-02T03:04:05.000006Z","data":{"amount":5}}`, ""},
		publish.EnvelopeCloudEvents: {
			`{"specversion":"1.0","id":"0198c9f0-0000-7000-8000-000000000001","source":"/v1/auctions/a","type":"bid.placed","subject":"auction:a",` +
				`"time":"2026-01-02T03:04:05.000006Z","sequence":"0000000000000000007","datacontenttype":"application/json","data":{"amount":5}}`,
			"application/cloudevents+json; charset=utf-8",
		},
	} {
		body, contentType, err := wrap(envelope, id, "auction:a", e)
		if err != nil || string(body) != want[0] || contentType != want[1] {
			t.Errorf("%s: %s %q, %v", envelope, body, contentType, err)
		}
	}
}
