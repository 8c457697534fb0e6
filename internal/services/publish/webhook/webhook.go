package webhook

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/fairlead-dev/fairlead/internal/services/publish"
	"github.com/fairlead-dev/fairlead/internal/services/publish/outbound"
)

// VersionHeader carries the attempt's version.
const VersionHeader = "fairlead-execution-version"

// Sender posts publications. It is safe for concurrent use.
type Sender struct{ client *outbound.Client }

var _ publish.Sender = (*Sender)(nil)

// New returns a sender. Close it after use.
func New(o outbound.Options) *Sender { return &Sender{client: outbound.New(o)} }

// Close closes idle connections. Attempts under way are not disturbed.
func (s *Sender) Close() { s.client.Close() }

// CheckURL returns why a URL can't be a target's, or nil: it must be absolute, http or https, with a host, without user
// information and fragment. Whether its host may be dialled is not looked at: [outbound.CheckURL] says what can be known of that
// beforehand.
func CheckURL(raw string) error {
	u, err := url.Parse(raw)
	switch {
	case len(raw) > publish.MaxURL:
		return fmt.Errorf("it must have at most %d bytes", publish.MaxURL)
	case err != nil:
		return errors.New("it is malformed")
	case u.Scheme != "http" && u.Scheme != "https":
		return errors.New("it must begin with http:// or https://")
	case u.Hostname() == "" || u.Opaque != "":
		return errors.New("it must have a host")
	case u.User != nil:
		return errors.New("it must not have user information")
	case u.Fragment != "" || strings.Contains(raw, "#"):
		return errors.New("it must not have a fragment")
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return errors.New("its port must be from 1 to 65535")
		}
	}
	return nil
}

// Send implements [publish.Sender].
func (s *Sender) Send(ctx context.Context, d *publish.Delivery) publish.Result {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	d.Meter.Begin(publish.StagePublishing, 0)
	request, err := s.request(ctx, d)
	if err != nil {
		return publish.Result{Class: publish.Permanent, Error: err.Error()}
	}
	response, err := s.client.Do(request) //nolint:bodyclose // Drain closes it.
	if err != nil {
		return outbound.Failure(ctx, err)
	}
	defer outbound.Drain(response.Body, cancel)
	return outbound.Judge(response)
}

func (*Sender) request(ctx context.Context, d *publish.Delivery) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, d.Target.URL, bytes.NewReader(d.Payload))
	if err != nil {
		return nil, errors.New("the target's URL is malformed")
	}
	id := d.Publication.String()
	signature, err := sign(d, id)
	if err != nil {
		return nil, err
	}
	for name, value := range map[string]string{
		standardwebhooks.HeaderWebhookID:        id,
		standardwebhooks.HeaderWebhookTimestamp: strconv.FormatInt(d.At.Unix(), 10),
		standardwebhooks.HeaderWebhookSignature: signature,
		VersionHeader:                           strconv.FormatInt(d.Version, 10),
		"Content-Type":                          cmp.Or(d.ContentType, "application/json"),
	} {
		request.Header.Set(name, value)
	}
	// It bears no idempotency key of the transport's: that would be a repeat under the same version.
	return request, nil
}

// sign signs with the target's secret and, while it lasts, with the one before it: a receiver takes either.
func sign(d *publish.Delivery, id string) (string, error) {
	var signatures []string
	for _, secret := range [][]byte{d.Secret, d.Previous} {
		if secret == nil {
			continue
		}
		signer, err := standardwebhooks.NewWebhookRaw(secret)
		if err != nil {
			return "", errors.New("the target's secret is malformed")
		}
		signature, err := signer.Sign(id, d.At, d.Payload)
		if err != nil {
			return "", errors.New("the payload could not be signed")
		}
		signatures = append(signatures, signature)
	}
	return strings.Join(signatures, " "), nil
}
