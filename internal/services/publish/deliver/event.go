package deliver

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/live"
	"github.com/fairlead-dev/fairlead/internal/services/publish"
)

// EventID is the id of an event's deliveries, a UUID of version 5 in the namespace that is the subscription's id, so that repeats have
// the same.
func EventID(subscription uuid.UUID, topic string, seq int64) uuid.UUID {
	return uuid.NewSHA1(subscription, []byte(topic+"\n"+strconv.FormatInt(seq, 10)))
}

// contentTypeCloudEvents is that of CloudEvents in structured JSON.
const contentTypeCloudEvents = "application/cloudevents+json; charset=utf-8"

// cloudEvent is an event as CloudEvents 1.0 has it, with the extension sequence.
type cloudEvent struct {
	SpecVersion     string          `json:"specversion"`
	ID              uuid.UUID       `json:"id"`
	Source          string          `json:"source"`
	Type            string          `json:"type"`
	Subject         string          `json:"subject"`
	Time            string          `json:"time"`
	Sequence        string          `json:"sequence"`
	DataContentType string          `json:"datacontenttype"`
	Data            json.RawMessage `json:"data"`
}

// wrap makes the body of an event's deliveries, and its content type, which is empty for plain JSON. It depends on nothing but the
// event, so that repeats are the same.
func wrap(envelope publish.Envelope, id uuid.UUID, topic string, e live.Event) (body []byte, contentType string, err error) {
	if envelope != publish.EnvelopeCloudEvents {
		return live.JSON(topic, e), "", nil
	}
	kind, thing, _ := strings.Cut(topic, ":")
	body, err = json.Marshal(cloudEvent{
		SpecVersion: "1.0", ID: id, Source: "/v1/" + kind + "s/" + thing, Type: e.Type, Subject: topic, Time: live.FormatTime(e.At),
		// The extension's order is that of text.
		Sequence: fmt.Sprintf("%019d", e.Seq), DataContentType: "application/json", Data: e.Data,
	})
	return body, contentTypeCloudEvents, err
}
