package deviantart

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/fairlead-dev/fairlead/internal/services/publish"
	"github.com/fairlead-dev/fairlead/internal/services/publish/outbound"
)

// DefaultURL is where the API is.
const DefaultURL = "https://www.deviantart.com"

const (
	api = "/api/v1/oauth2/"
	// Pages of lists, as large as the API gives them, and how many are looked through for one thing.
	deltaPage   = 120
	galleryPage = 24
	maxPages    = 20
	// clockMargin is how far the API's clock may be behind the database's.
	clockMargin = 10 * time.Minute
)

// Sender publishes to accounts. It is safe for concurrent use.
type Sender struct {
	client *outbound.Client
	tokens *publish.Tokens
}

var (
	_ publish.Sender = (*Sender)(nil)
	_ publish.Finder = (*Sender)(nil)
)

// New returns a sender. Close it after use.
func New(o outbound.Options, tokens *publish.Tokens) *Sender {
	return &Sender{client: outbound.New(o), tokens: tokens}
}

// Close closes idle connections. Attempts under way are not disturbed.
func (s *Sender) Close() { s.client.Close() }

// progress is what is saved with a publication once its file is in Sta.sh.
type progress struct {
	Item     int64     `json:"itemid"`
	Uploaded time.Time `json:"uploaded_at"` // by the database's clock; at the latest
}

// open reads what an attempt starts from.
func (s *Sender) open(ctx context.Context, d *publish.Delivery) (x *session, post *Post, p progress, err error) {
	if post, err = ParsePost(d.Payload); err != nil {
		return nil, nil, p, fail(publish.Permanent, "%s", err.Error())
	}
	if d.Progress != nil && json.Unmarshal(d.Progress, &p) != nil {
		return nil, nil, p, fail(publish.Permanent, "what an earlier attempt has saved is malformed")
	}
	x, err = s.session(ctx, d)
	return x, post, p, err
}

// stack is the name of a publication's stack in Sta.sh.
func stack(d *publish.Delivery) string { return "fairlead " + d.Publication.String() }

// Find implements [publish.Finder].
func (s *Sender) Find(ctx context.Context, d *publish.Delivery) (publish.Result, bool) {
	if d.Progress == nil {
		return publish.Result{}, false // No attempt came as far as to publish.
	}
	d.Meter.Begin(publish.StageLooking, 0)
	x, post, p, err := s.open(ctx, d)
	if err != nil {
		return resultOf(err), true
	}
	if p.Item == 0 {
		return publish.Result{}, false
	}
	there, err := x.inStash(ctx, p.Item)
	if err != nil {
		return resultOf(err), true
	}
	if there {
		return publish.Result{}, false
	}
	return x.fromGallery(ctx, post, p), true
}

// Send implements [publish.Sender].
func (s *Sender) Send(ctx context.Context, d *publish.Delivery) publish.Result {
	x, post, p, err := s.open(ctx, d)
	if err != nil {
		return resultOf(err)
	}
	uploaded := false
	if p.Item == 0 {
		if p.Item, uploaded, err = x.upload(ctx, post); err != nil {
			return resultOf(err)
		}
		p.Uploaded = x.now().UTC()
	}
	if r, ok := x.save(ctx, p, uploaded); !ok {
		return r
	}
	d.Meter.Begin(publish.StagePublishing, 0)
	var made struct {
		Deviation string `json:"deviationid"`
	}
	err = x.post(ctx, api+"stash/publish", post.publication(p.Item), &made)
	if err == nil {
		return publish.Result{Class: publish.Delivered, StatusCode: http.StatusOK, ExternalID: made.Deviation}
	}
	r := resultOf(err)
	if r.Class != publish.Permanent {
		return r
	}
	// It is refused too when it has been published already, by an attempt that overtook this one.
	if there, err := x.inStash(ctx, p.Item); err == nil && !there {
		return x.fromGallery(ctx, post, p)
	}
	return r
}

// save keeps the item's id under the claim, which is also the last look at the claim before what cannot be taken back. An
// item that this attempt has uploaded for nothing is deleted.
func (x *session) save(ctx context.Context, p progress, uploaded bool) (publish.Result, bool) {
	raw, err := json.Marshal(p)
	if err == nil {
		err = x.d.Save(ctx, raw)
	}
	if err == nil {
		return publish.Result{}, true
	}
	if errors.Is(err, publish.ErrClaimLost) && uploaded {
		var ignored struct{}
		// If it fails, a file stays in Sta.sh, visible to the account's owner alone.
		_ = x.post(ctx, api+"stash/delete", url.Values{"itemid": {strconv.FormatInt(p.Item, 10)}}, &ignored)
	}
	return publish.Result{Class: publish.Transient, Error: "the upload could not be noted"}, false
}

// number is an id as the API gives it: some of its versions have a string.
type number int64

// UnmarshalJSON reads both.
func (n *number) UnmarshalJSON(b []byte) error {
	text := string(bytes.Trim(b, `"`))
	if text == "null" || text == "" {
		return nil
	}
	v, err := strconv.ParseInt(text, 10, 64)
	*n = number(v)
	return err
}

// upload brings the file to Sta.sh, unless an earlier attempt has. made says that this one did.
func (x *session) upload(ctx context.Context, post *Post) (item int64, made bool, err error) {
	if x.d.Version > 1 {
		if item, err = x.findUpload(ctx); item != 0 || err != nil {
			return item, false, err
		}
	}
	var (
		file *source
		got  struct {
			Item number `json:"itemid"`
		}
	)
	err = x.call(ctx, func() (r *http.Request, err error) {
		r, file, err = x.submission(ctx, post)
		return r, err
	}, &got)
	// An answer that comes before the file has been sent ends the sending, and says more.
	if p, ok := errors.AsType[*problem](err); ok && p.result.StatusCode == 0 && file != nil && file.failure.Load() != nil {
		return 0, false, file.failure.Load()
	}
	if err == nil && got.Item == 0 {
		err = fail(publish.Transient, "the target's answer to the upload was not understood")
	}
	return int64(got.Item), true, err
}
