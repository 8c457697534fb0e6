package witness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/fairlead-dev/fairlead/translog"
)

const (
	// maxAnswerBytes bounds a witness's answer: some signatures, or the checkpoint that it serves.
	maxAnswerBytes = translog.MaxNoteBytes
	// maxHeaderBytes bounds the head of an answer.
	maxHeaderBytes = 64 << 10
	// maxReasonBytes is how much of a refusal's text is kept.
	maxReasonBytes = 300
)

// Errors of a [Client].
var (
	// ErrUnreachable is wrapped where a witness gave no answer: it can't be reached, or the context ended before.
	ErrUnreachable = errors.New("the witness gives no answer")
	// ErrBadAnswer is wrapped where an answer is not what tlog-witness says, or has no cosignature that verifies.
	ErrBadAnswer = errors.New("the witness's answer makes no sense")
)

// A ConflictError says that the old size is not that of the witness's latest cosigned checkpoint.
type ConflictError struct {
	// Size is that of the witness's latest cosigned checkpoint, as it claims; 0 where there is none.
	Size int64
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("the witness has cosigned a tree of %d leaves", e.Size)
}

// A StatusError is a refusal that is not a conflict.
type StatusError struct {
	// Status is that of HTTP: 403 the witness doesn't know the log's key, 404 it doesn't know the log, 422 the checkpoint is not
	// consistent with what it has cosigned.
	Status int
	// Text is the beginning of what the witness says.
	Text string
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("the witness refuses with status %d: %s", e.Status, e.Text)
}

// A Remote is a witness to ask.
type Remote struct {
	Key string // verifier key
	URL string // http or https; add-checkpoint is beneath it
}

// ParseRemote reads VKEY=URL. Errors wrap [translog.ErrBadKey] or [translog.ErrWrongKind], or say what is wrong with the URL.
func ParseRemote(text string) (Remote, error) {
	at := regexp.MustCompile(`=https?://`).FindStringIndex(text) // Names may have equals signs, and so may URLs.
	if at == nil {
		return Remote{}, fmt.Errorf("%.300q is not VKEY=URL, with a URL of http or https", text)
	}
	r := Remote{Key: text[:at[0]], URL: text[at[0]+1:]}
	return r, r.check()
}

// Name is the name of the witness's key.
func (r Remote) Name() string {
	name, _, _ := strings.Cut(r.Key, "+")
	return name
}

func (r Remote) check() error {
	if _, err := translog.WitnessKeyName(r.Key); err != nil {
		return err
	}
	u, err := url.Parse(r.URL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("%.300q is not a witness's URL of http or https, without a query", r.URL)
	}
	return nil
}

func (r Remote) path(elements ...string) string {
	return strings.TrimRight(r.URL, "/") + "/" + strings.Join(elements, "/")
}

// A Client asks witnesses. It is safe for concurrent use. It sets no limit of time: contexts do.
type Client struct{ http *http.Client }

// NewClient returns a client that sends its requests by h, which should not follow redirects; nil means one of the client's own.
func NewClient(h *http.Client) *Client {
	if h == nil {
		h = &http.Client{
			// A transport of its own, so that Close ends its connections and no others.
			Transport: &http.Transport{
				Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: maxHeaderBytes,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	return &Client{http: h}
}

// Close gives idle connections back. The client can be used afterwards.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Add asks a witness to cosign a checkpoint, with the proof that its tree extends the one of the old size, which is that of the witness's
// latest cosigned checkpoint of the log. The proof of size 0, and of the checkpoint's own size, is empty. The cosignature that it returns
// is verified.
//
// Errors are a [*ConflictError], a [*StatusError], or wrap [ErrUnreachable] or [ErrBadAnswer]. Where the context ended, they wrap its error, too.
func (c *Client) Add(ctx context.Context, w Remote, old int64, proof tlog.TreeProof, checkpoint string) (translog.Cosignature, error) {
	body := strings.NewReader(request{old: old, proof: proof, checkpoint: checkpoint}.String())
	status, kind, answer, err := c.do(ctx, http.MethodPost, w.path("add-checkpoint"), body)
	switch {
	case err != nil:
		return translog.Cosignature{}, err
	case status == http.StatusConflict:
		size, err := parseSize(strings.TrimSuffix(answer, "\n"))
		if media, _, bad := mime.ParseMediaType(kind); err != nil || bad != nil || media != sizeType {
			return translog.Cosignature{}, fmt.Errorf("%w: a conflict without a size", ErrBadAnswer)
		}
		return translog.Cosignature{}, &ConflictError{Size: size}
	case status != http.StatusOK:
		return translog.Cosignature{}, statusError(status, answer)
	}
	found, err := translog.VerifyCosignatures(checkpoint, answer, w.Key)
	if err != nil {
		return translog.Cosignature{}, fmt.Errorf("%w: %w", ErrBadAnswer, err)
	}
	if len(found) == 0 {
		return translog.Cosignature{}, fmt.Errorf("%w: no cosignature of %s", ErrBadAnswer, w.Key)
	}
	return found[0], nil
}

// Latest returns the checkpoint that a witness has cosigned last, of the log with a verifier key. It has the log's signature and the
// witness's, both verified, so it proves what the log has said. Witnesses may serve it elsewhere, or not at all. Errors are those of
// [Client.Add], but no conflict.
func (c *Client) Latest(ctx context.Context, w Remote, log string) (*translog.Checkpoint, error) {
	origin, err := translog.LogKeyName(log)
	if err != nil {
		return nil, err
	}
	status, _, answer, err := c.do(ctx, http.MethodGet, w.path(originHash(origin), "checkpoint"), http.NoBody)
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK {
		return nil, statusError(status, answer)
	}
	latest, err := translog.Open(answer, log, w.Key)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadAnswer, err)
	}
	if len(latest.Cosignatures) == 0 {
		return nil, fmt.Errorf("%w: its own cosignature is missing", ErrBadAnswer)
	}
	return latest, nil
}

// do sends a request, and returns the answer's status, type and body.
func (c *Client) do(ctx context.Context, method, address string, body io.Reader) (status int, kind, answer string, err error) {
	req, err := http.NewRequestWithContext(ctx, method, address, body)
	if err != nil {
		return 0, "", "", fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return 0, "", "", fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	defer func() { _ = res.Body.Close() }() // Only read from.
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswerBytes+1))
	if err != nil {
		return 0, "", "", fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	if len(text) > maxAnswerBytes {
		return 0, "", "", fmt.Errorf("%w: it has more than %d bytes", ErrBadAnswer, maxAnswerBytes)
	}
	return res.StatusCode, res.Header.Get("Content-Type"), string(text), nil
}

func statusError(status int, text string) error {
	text = strings.ToValidUTF8(text[:min(len(text), maxReasonBytes)], "")
	return &StatusError{Status: status, Text: strings.TrimSpace(text)}
}
