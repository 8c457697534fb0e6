package deviantart_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/services/publish"
	"github.com/fairlead-dev/fairlead/internal/services/publish/deviantart/deviantarttest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestLargeFilesAreNotHeld publishes a file of 100 MB. All that the sender, the file's server and the double allocate meanwhile is a
// small part of that. It is not parallel, so that other tests' allocations do not count.
func TestLargeFilesAreNotHeld(t *testing.T) { //nolint:paralleltest // As above.
	const length, bound = 100_000_000, 16 << 20
	block := bytes.Repeat([]byte("0123456789abcdef"), 1<<12)
	sum := sha256.New()
	for left := length; left > 0; left -= len(block) {
		sum.Write(block[:min(left, len(block))])
	}
	for _, said := range []bool{true, false} { // Whether the file's server says the length beforehand.
		a := newAccount(t)
		files := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if said {
				w.Header().Set("Content-Length", strconv.Itoa(length))
			}
			for left := length; left > 0; left -= len(block) {
				_, _ = w.Write(block[:min(left, len(block))])
			}
		}))
		t.Cleanup(files.Close)
		d := a.delivery(t, "large")
		d.Target = &publish.Target{ID: a.target.ID, Kind: a.target.Kind, URL: a.target.URL, Timeout: publish.MaxTimeout}
		d.Payload = []byte(`{"title":"large","file":{"name":"a.mp4","url":"` + files.URL + `"}}`)
		d.Meter = &publish.Meter{}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		began := time.Now()
		if r := publish.Deliver(t.Context(), a.sender, d); r.Class != publish.Delivered {
			t.Fatalf("%+v", r)
		}
		took := time.Since(began)
		runtime.ReadMemStats(&after)
		if got := a.Gallery(); len(got) != 1 || got[0].File != deviantarttest.Digest(length, sum.Sum(nil)) {
			t.Fatalf("published %+v", got)
		}
		allocated := after.TotalAlloc - before.TotalAlloc
		t.Logf("length said: %v; %d bytes allocated for %d, in %v", said, allocated, length, took)
		if allocated > bound {
			t.Errorf("%d bytes were allocated, want at most %d", allocated, bound)
		}
	}
}

// TestUploadsAreMeasured looks at an upload that stands still in the middle, and ends the attempt.
func TestUploadsAreMeasured(t *testing.T) {
	t.Parallel()
	a := newAccount(t)
	part, whole := 100_000, 1_000_000
	stuck := make(chan struct{})
	files := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(whole))
		_, _ = w.Write(make([]byte, part))
		_ = http.NewResponseController(w).Flush()
		select {
		case <-r.Context().Done():
		case <-stuck:
		}
	}))
	t.Cleanup(files.Close)
	t.Cleanup(func() { close(stuck) })
	d := a.delivery(t, "slow")
	d.Target = &publish.Target{ID: a.target.ID, Kind: a.target.Kind, URL: a.target.URL, Timeout: publish.MaxTimeout}
	d.Payload = []byte(`{"title":"slow","file":{"name":"a.mp4","url":"` + files.URL + `"}}`)
	d.Meter = &publish.Meter{}
	ctx, cancel := context.WithCancelCause(t.Context())
	result := make(chan publish.Result, 1)
	go func() { result <- publish.Deliver(ctx, a.sender, d) }()
	want := publish.Activity{Stage: publish.StageUploading, Sent: int64(part), Total: int64(whole)}
	testwait.Eventually(t, testwait.Patience, "the upload stands still", func() bool { return d.Meter.Read() == want })
	cancel(errors.New("enough"))
	if r := <-result; r.Class != publish.Transient || r.Error != "enough" {
		t.Errorf("%+v", r)
	}
	if len(a.Stash()) != 0 {
		t.Errorf("half a file was uploaded: %+v", a.Stash())
	}
}

// TestUploadIsRefused has the API refuse an upload without looking at the file: a refused token is renewed, and the file fetched once
// more; otherwise, what the API says of the upload counts. The file is so short that the server reads the rest of it before it answers.
// It would cut the connection under a longer one, and the answer could be lost.
func TestUploadIsRefused(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]publish.Class{
		http.StatusUnauthorized: publish.Delivered, http.StatusRequestEntityTooLarge: publish.Permanent, http.StatusServiceUnavailable: publish.Transient,
	} {
		a := newAccount(t)
		var fetched atomic.Int32
		files := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fetched.Add(1)
			_, _ = w.Write(make([]byte, 200_000))
		}))
		t.Cleanup(files.Close)
		a.Faults(func(path string) deviantarttest.Fault {
			if path == "stash/submit" && (status != http.StatusUnauthorized || fetched.Load() == 1) {
				return deviantarttest.Fault{Status: status}
			}
			return deviantarttest.Fault{}
		})
		d := a.delivery(t, "refused")
		d.Target = &publish.Target{ID: a.target.ID, Kind: a.target.Kind, URL: a.target.URL, Timeout: publish.MaxTimeout}
		d.Payload = []byte(`{"title":"refused","file":{"name":"a.mp4","url":"` + files.URL + `"}}`)
		r := publish.Deliver(t.Context(), a.sender, d)
		if r.Class != want || want != publish.Delivered && r.StatusCode != status {
			t.Errorf("%d: %+v", status, r)
		}
		if want == publish.Delivered && (len(a.Gallery()) != 1 || fetched.Load() != 2 || a.Renewals() != 2) {
			t.Errorf("published %d, fetched %d times, %d renewals", len(a.Gallery()), fetched.Load(), a.Renewals())
		}
	}
}
