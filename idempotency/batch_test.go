package idempotency

import (
	"errors"
	"testing"

	"github.com/google/uuid"
)

func request(key, content string) Request {
	return Request{ID: NewID("p", "POST", "/a", key), Fingerprint: NewFingerprint([]byte(content)), Execution: uuid.New()}
}

func TestBatchAnswersARepeat(t *testing.T) {
	t.Parallel()
	b := NewBatch(nil)
	first := request("k", "1")
	if _, ok, err := b.Lookup(first); ok || err != nil {
		t.Fatalf("an unknown key: %v, %v", ok, err)
	}
	b.Store(first, 201, []byte("made"))
	again := first
	again.Execution = uuid.New()
	for _, c := range []struct {
		r        Request
		replayed bool
	}{{first, false}, {again, true}} {
		a, ok, err := b.Lookup(c.r)
		if err != nil || !ok || a.Status != 201 || string(a.Body) != "made" || a.Replayed != c.replayed {
			t.Errorf("Lookup = %+v, %v, %v; want the answer with Replayed %v", a, ok, err, c.replayed)
		}
	}
	if _, ok, err := b.Lookup(request("k", "2")); ok || !errors.Is(err, ErrKeyReused) {
		t.Errorf("another request under the key: %v, %v", ok, err)
	}
	if _, ok, err := b.Lookup(request("l", "1")); ok || err != nil {
		t.Errorf("the request under another key: %v, %v", ok, err)
	}
}

func TestBatchKeepsWhatIsFreshApart(t *testing.T) {
	t.Parallel()
	old := Record{Request: request("old", "1"), Status: 402, Body: []byte("refused")}
	b := NewBatch([]Record{old})
	if len(b.Fresh()) != 0 {
		t.Fatal("a loaded record is fresh")
	}
	one, two := request("one", "1"), request("two", "2")
	b.Store(two, 200, nil)
	b.Store(one, 409, []byte("no"))
	fresh := b.Fresh()
	if len(fresh) != 2 || fresh[0].ID != two.ID || fresh[1].ID != one.ID || fresh[1].Status != 409 || string(fresh[1].Body) != "no" {
		t.Fatalf("fresh: %+v", fresh)
	}
	if a, ok, err := b.Lookup(old.Request); err != nil || !ok || a.Status != 402 || a.Replayed {
		t.Errorf("the loaded record: %+v, %v, %v", a, ok, err)
	}
}

func TestBatchPanicsOnASecondDecision(t *testing.T) {
	t.Parallel()
	for name, known := range map[string][]Record{"loaded": {{Request: request("k", "1")}}, "stored": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := NewBatch(known)
			if known == nil {
				b.Store(request("k", "1"), 200, nil)
			}
			defer func() {
				if recover() == nil {
					t.Error("a second decision was taken under one key")
				}
			}()
			b.Store(request("k", "1"), 200, nil)
		})
	}
}
