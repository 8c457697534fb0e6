package deviantart

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"sync/atomic"

	"github.com/fairlead-dev/fairlead/internal/services/publish"
	"github.com/fairlead-dev/fairlead/internal/services/publish/outbound"
)

// submission is the request that uploads the post's file. The file passes through while it is sent, so that its length costs no
// memory. The API gets no whole form when the file breaks off.
func (x *session) submission(ctx context.Context, post *Post) (*http.Request, *source, error) {
	file, err := x.openFile(ctx, post)
	if err != nil {
		return nil, nil, err
	}
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	for name, values := range post.submission(stack(x.d)) {
		for _, value := range values {
			_ = form.WriteField(name, value) // Nothing fails that is written to memory.
		}
	}
	_, _ = form.CreateFormFile("file", post.File.Name)
	before := body.Len()
	_ = form.Close()
	head, tail := body.Bytes()[:before], body.Bytes()[before:]
	r, err := x.request(ctx, http.MethodPost, api+"stash/submit", form.FormDataContentType(), nil)
	if err != nil {
		_ = file.Close()
		return nil, nil, err
	}
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(head), file, bytes.NewReader(tail)), file}
	r.GetBody, r.ContentLength = nil, -1
	if file.length > 0 {
		r.ContentLength = int64(body.Len()) + file.length
	}
	x.d.Meter.Begin(publish.StageUploading, max(0, file.length))
	return r, file, nil
}

// source is a file on its way from where it is to the API.
type source struct {
	io.Reader
	io.Closer

	length  int64 // -1: not known
	left    int64 // how many bytes it may still have
	meter   *publish.Meter
	failure atomic.Pointer[problem] // why it broke off
}

// Read implements [io.Reader].
func (s *source) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	s.meter.Sent(n)
	switch s.left -= int64(n); {
	case s.left < 0:
		err = s.breakOff(tooLarge())
	case err != nil && !errors.Is(err, io.EOF):
		err = s.breakOff(fail(publish.Transient, "the file could not be fetched whole"))
	}
	return n, err
}

func (s *source) breakOff(why *problem) error {
	s.failure.Store(why)
	return why
}

func tooLarge() *problem {
	return fail(publish.Permanent, "the file must have 1 to %d bytes", MaxFile)
}

// openFile opens the post's file: what is in the payload, or what its URL leads to.
func (x *session) openFile(ctx context.Context, post *Post) (*source, error) {
	s := &source{length: int64(len(post.File.Data)), left: MaxFile, meter: x.d.Meter}
	if post.File.URL == "" {
		s.Reader, s.Closer = bytes.NewReader(post.File.Data), io.NopCloser(nil)
		return s, nil
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, post.File.URL, http.NoBody)
	if err != nil || (r.URL.Scheme != "http" && r.URL.Scheme != "https") {
		return nil, fail(publish.Permanent, "the file's url is malformed")
	}
	response, err := x.client.Do(r)
	if err != nil {
		result := outbound.Failure(ctx, err)
		return nil, fail(result.Class, "the file could not be fetched: %s", result.Error)
	}
	reader := bufio.NewReader(response.Body)
	s.Reader, s.Closer, s.length = reader, response.Body, response.ContentLength
	if class := outbound.Judge(response).Class; class != publish.Delivered {
		_ = response.Body.Close()
		return nil, fail(class, "the file could not be fetched: its server answered %d", response.StatusCode)
	}
	if _, err := reader.Peek(1); errors.Is(err, io.EOF) || s.length > MaxFile {
		_ = response.Body.Close()
		return nil, tooLarge()
	}
	return s, nil
}
