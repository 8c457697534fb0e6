package deviantart

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/services/publish"
	"github.com/fairlead-dev/fairlead/internal/services/publish/outbound"
)

// Limits of a session.
const (
	maxAnswer   = 4 << 20     // bytes of a JSON answer, unpacked
	renewBefore = time.Minute // how long before its end an access token is renewed, at least
)

// Credentials are a target's secret: those of the client that the account's owner has authorized.
type Credentials struct {
	ClientID     string `json:"client_id"`
	ClientSecret string `json:"client_secret"`
}

// Token is a target's token.
type Token struct {
	Access  string    `json:"access_token"` // empty at first: it is got by a renewal
	Refresh string    `json:"refresh_token"`
	Expires time.Time `json:"expires_at"` // of Access, by the database's clock
}

// problem is an error that is the attempt's result.
type problem struct{ result publish.Result }

func fail(class publish.Class, format string, args ...any) *problem {
	return &problem{publish.Result{Class: class, Error: fmt.Sprintf(format, args...)}}
}

func (p *problem) Error() string { return p.result.Error }

// expired says that the authorization is over.
func expired() error {
	return fail(publish.AuthExpired, "the account's authorization has expired: give the target new credentials")
}

// resultOf is the attempt's result for an error of a session's.
func resultOf(err error) publish.Result {
	if p, ok := errors.AsType[*problem](err); ok {
		return p.result
	}
	// The words of our own errors are not for publications.
	return publish.Result{Class: publish.Transient, Error: "the target's token could not be had"}
}

// session is one attempt's use of the API.
type session struct {
	*Sender

	d           *publish.Delivery
	base        string
	began       time.Time // when d.At was
	credentials Credentials
	token       Token
	generation  int64
}

func (s *Sender) session(ctx context.Context, d *publish.Delivery) (*session, error) {
	x := &session{Sender: s, d: d, base: strings.TrimSuffix(d.Target.URL, "/"), began: time.Now()}
	if err := json.Unmarshal(d.Secret, &x.credentials); err != nil {
		return nil, fail(publish.AuthExpired, "the target's credentials are malformed")
	}
	token, err := s.tokens.Token(ctx, d.Target.ID)
	if err != nil {
		return nil, err
	}
	if err := x.use(token); err != nil {
		return nil, err
	}
	// A token that ended during a long upload would have the upload refused, and made again.
	if x.token.Access == "" || x.now().After(x.token.Expires.Add(-max(renewBefore, d.Target.Timeout))) {
		return x, x.renew(ctx)
	}
	return x, nil
}

// now is the database's clock: this machine's may be wrong, and then every token would seem to have expired, or none.
func (x *session) now() time.Time { return x.d.At.Add(time.Since(x.began)) }

func (x *session) use(token publish.Token) error {
	x.generation = token.Generation
	if err := json.Unmarshal(token.Bytes, &x.token); err != nil {
		return fail(publish.AuthExpired, "the target's token is malformed")
	}
	return nil
}

// renew gets another access token, or takes the one that another process has got meanwhile.
func (x *session) renew(ctx context.Context) error {
	token, err := x.tokens.Renew(ctx, x.d.Target.ID, x.generation, x.exchange)
	if err != nil {
		return err
	}
	return x.use(token)
}

// exchange gives the refresh token for a new pair.
func (x *session) exchange(ctx context.Context, old publish.Token) ([]byte, error) {
	var token Token
	if err := json.Unmarshal(old.Bytes, &token); err != nil {
		return nil, fmt.Errorf("deviantart: a token: %w", err)
	}
	form := url.Values{
		"grant_type": {"refresh_token"}, "client_id": {x.credentials.ClientID}, "client_secret": {x.credentials.ClientSecret},
		"refresh_token": {token.Refresh},
	}
	var got struct {
		Access  string `json:"access_token"`
		Refresh string `json:"refresh_token"`
		Expires int64  `json:"expires_in"` // seconds
	}
	r, err := x.request(ctx, http.MethodPost, "/oauth2/token", formType, []byte(form.Encode()))
	if err != nil {
		return nil, err
	}
	err = x.answer(ctx, r, &got)
	if p, ok := errors.AsType[*problem](err); ok && p.result.Class != publish.Transient {
		return nil, expired() // It refuses the refresh token, or the client.
	}
	if err != nil {
		return nil, err
	}
	if got.Access == "" {
		return nil, fail(publish.Transient, "the target's answer to the renewal of its token was not understood")
	}
	if got.Refresh == "" {
		got.Refresh = token.Refresh
	}
	//nolint:gosec // It is a secret, and is sealed before it is kept.
	return json.Marshal(Token{Access: got.Access, Refresh: got.Refresh, Expires: x.now().Add(time.Duration(got.Expires) * time.Second).UTC()})
}

const formType = "application/x-www-form-urlencoded"

func (x *session) request(ctx context.Context, method, path, contentType string, body []byte) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, method, x.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, fail(publish.Permanent, "the target's URL is malformed")
	}
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	return r, nil
}

// call makes a request under the token, and another one with a new token when that is refused.
func (x *session) call(ctx context.Context, request func() (*http.Request, error), into any) error {
	for again := false; ; again = true {
		r, err := request()
		if err != nil {
			return err
		}
		r.Header.Set("Authorization", "Bearer "+x.token.Access)
		err = x.answer(ctx, r, into)
		p, ok := errors.AsType[*problem](err)
		if !ok || p.result.StatusCode != http.StatusUnauthorized {
			return err
		}
		if again {
			return expired()
		}
		if err := x.renew(ctx); err != nil {
			return err
		}
	}
}

func (x *session) get(ctx context.Context, path string, into any) error {
	return x.call(ctx, func() (*http.Request, error) { return x.request(ctx, http.MethodGet, path, "", nil) }, into)
}

func (x *session) post(ctx context.Context, path string, form url.Values, into any) error {
	return x.call(ctx, func() (*http.Request, error) {
		return x.request(ctx, http.MethodPost, path, formType, []byte(form.Encode()))
	}, into)
}

// answer sends a request and reads its answer. Its errors are a [problem].
func (x *session) answer(ctx context.Context, r *http.Request, into any) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The API rejects clients that don't offer compression.
	r.Header.Set("Accept-Encoding", "gzip")
	response, err := x.client.Do(r.WithContext(ctx)) //nolint:bodyclose // Drain closes it.
	if err != nil {
		return &problem{outbound.Failure(ctx, err)}
	}
	defer outbound.Drain(response.Body, cancel)
	body, err := unpacked(response)
	if result := judge(response, body); result.Class != publish.Delivered {
		return &problem{result}
	}
	if err == nil {
		err = json.Unmarshal(body, into)
	}
	if ctx.Err() != nil {
		return &problem{outbound.Failure(ctx, ctx.Err())}
	}
	if err != nil {
		return &problem{publish.Result{Class: publish.Transient, StatusCode: response.StatusCode, Error: "the target's answer was not understood"}}
	}
	return nil
}

// unpacked reads a body, no more than [maxAnswer] of it.
func unpacked(response *http.Response) ([]byte, error) {
	var body io.Reader = response.Body
	if response.Header.Get("Content-Encoding") == "gzip" {
		packed, err := gzip.NewReader(io.LimitReader(body, maxAnswer))
		if err != nil {
			return nil, err
		}
		body = packed
	}
	return io.ReadAll(io.LimitReader(body, maxAnswer))
}

// judge says what an answer means, in the API's own words where there are some.
func judge(response *http.Response, body []byte) publish.Result {
	const maxWords = 200
	var said struct {
		Error       string `json:"error"`
		Description string `json:"error_description"`
	}
	_ = json.Unmarshal(body, &said) // Without its words, the status decides.
	result := outbound.Judge(response)
	if words := strings.TrimSpace(said.Error + " " + said.Description); words != "" && result.Class != publish.Delivered {
		result.Error += ": " + strings.ToValidUTF8(words[:min(len(words), maxWords)], "")
	}
	if response.StatusCode == http.StatusForbidden && said.Error == "insufficient_scope" {
		result.Class = publish.AuthExpired
	}
	return result
}
