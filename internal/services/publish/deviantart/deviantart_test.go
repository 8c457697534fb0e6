package deviantart_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/fairlead-dev/fairlead/internal/services/publish"
	"github.com/fairlead-dev/fairlead/internal/services/publish/deviantart"
	"github.com/fairlead-dev/fairlead/internal/services/publish/deviantart/deviantarttest"
	"github.com/fairlead-dev/fairlead/internal/services/publish/outbound"
	"github.com/fairlead-dev/fairlead/internal/services/publish/targettest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory keeps one token, as a database would: package postgres tests the real one.
type memory struct {
	mu    sync.Mutex
	token publish.SealedToken
	claim *publish.Claim
}

func (m *memory) Token(context.Context, uuid.UUID) (publish.SealedToken, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.token, nil
}

func (m *memory) ClaimToken(_ context.Context, target uuid.UUID) (publish.Claim, publish.SealedToken, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.claim != nil {
		return publish.Claim{}, m.token, publish.ErrTokenBusy
	}
	m.claim = &publish.Claim{ID: target, LockID: uuid.New()}
	return *m.claim, m.token, nil
}

func (m *memory) SaveToken(_ context.Context, c publish.Claim, s publish.Sealed) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.claim == nil || *m.claim != c {
		return publish.ErrClaimLost
	}
	m.token, m.claim = publish.SealedToken{Sealed: s, Generation: m.token.Generation + 1}, nil
	return nil
}

func (m *memory) ReleaseToken(context.Context, publish.Claim) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.claim = nil
	return nil
}

// account is an account at the double, with a sender for it.
type account struct {
	*deviantarttest.Server

	sender *deviantart.Sender
	target *publish.Target
	vault  *publish.Vault
	store  *memory
}

func newAccount(t *testing.T) *account {
	t.Helper()
	vault, err := publish.NewVault(make([]byte, publish.VaultKeySize))
	testwait.Must(t, err)
	a := &account{Server: deviantarttest.New(), vault: vault, store: &memory{}}
	t.Cleanup(a.Close)
	a.target = &publish.Target{ID: uuid.New(), Kind: publish.KindDeviantArt, URL: a.URL, Timeout: targettest.MaxTimeout}
	a.sender = deviantart.New(outbound.Options{AllowPrivate: true}, publish.NewTokens(a.store, vault))
	t.Cleanup(a.sender.Close)
	a.authorize(t, a.Refresh())
	return a
}

// authorize gives the target a refresh token.
func (a *account) authorize(t *testing.T, refresh string) {
	t.Helper()
	raw, err := json.Marshal(deviantart.Token{Refresh: refresh})
	testwait.Must(t, err)
	a.store.mu.Lock()
	defer a.store.mu.Unlock()
	a.store.token = publish.SealedToken{Sealed: a.vault.Seal(raw, publish.TokenPurpose(a.target.ID)), Generation: a.store.token.Generation + 1}
}

// conforming is an account that the suite controls.
type conforming struct{ *account }

func (c conforming) Sender() publish.Sender { return c.sender }

func (c conforming) Delivery(t *testing.T) *publish.Delivery {
	t.Helper()
	return c.delivery(t, "a title "+uuid.NewString()[:8])
}

func (a *account) delivery(t *testing.T, title string) *publish.Delivery {
	t.Helper()
	secret, err := json.Marshal(deviantart.Credentials{ClientID: deviantarttest.ClientID, ClientSecret: deviantarttest.ClientSecret})
	testwait.Must(t, err)
	payload, err := json.Marshal(deviantart.Post{Title: title, Tags: []string{"one", "two"}, File: deviantart.File{Name: "a.png", Data: []byte("bytes of " + title)}})
	testwait.Must(t, err)
	d := &publish.Delivery{Publication: uuid.New(), Version: 1, At: time.Now(), Target: a.target, Secret: secret, Payload: payload}
	d.Save = func(_ context.Context, progress []byte) error { d.Progress = progress; return nil }
	return d
}

func (c conforming) Answers(answer targettest.Answer) {
	stall := make(chan struct{})
	c.Faults(func(path string) deviantarttest.Fault {
		if path != "stash/publish" {
			return deviantarttest.Fault{}
		}
		f := deviantarttest.Fault{Status: answer.Status, Cut: answer.Cut}
		if answer.RetryAfter > 0 {
			f.RetryAfter = strconv.Itoa(int(answer.RetryAfter / time.Second))
		}
		if answer.Stall {
			f.Hold = stall
		}
		return f
	})
}

func (c conforming) Published(d *publish.Delivery) (n int) {
	post, err := deviantart.ParsePost(d.Payload)
	if err != nil {
		panic(err)
	}
	for _, g := range c.Gallery() {
		if g.Title == post.Title && g.File == "bytes of "+post.Title {
			n++
		}
	}
	return n
}

func (c conforming) Secrets() []string {
	return []string{deviantarttest.ClientSecret, c.Refresh(), "access-1", "127.0.0.1"}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	targettest.Run(t, func(t *testing.T) targettest.Target { t.Helper(); return conforming{newAccount(t)} })
}

// TestLostUploadIsFound loses the answer to the upload: the next attempt finds the file by its stack, and uploads nothing.
func TestLostUploadIsFound(t *testing.T) {
	t.Parallel()
	a := newAccount(t)
	for i := range 70 { // Of other publications, more than a page of them.
		if r := a.sender.Send(t.Context(), a.delivery(t, "other")); i == 0 && r.Class != publish.Delivered {
			t.Fatalf("%+v", r)
		}
	}
	a.Faults(func(path string) deviantarttest.Fault {
		return deviantarttest.Fault{Cut: path == "stash/submit"}
	})
	for range 70 {
		_ = a.sender.Send(t.Context(), a.delivery(t, "another's upload"))
	}
	d := a.delivery(t, "mine")
	if r := a.sender.Send(t.Context(), d); r.Class != publish.Transient || d.Progress != nil {
		t.Fatalf("%+v, saved %s", r, d.Progress)
	}
	uploads := a.Calls("stash/submit")
	a.Faults(nil)
	d.Version++
	if r, settled := a.sender.Find(t.Context(), d); settled {
		t.Fatalf("%+v", r)
	}
	if r := a.sender.Send(t.Context(), d); r.Class != publish.Delivered {
		t.Fatalf("%+v", r)
	}
	if n := a.Calls("stash/submit"); n != uploads {
		t.Errorf("%d uploads", n-uploads)
	}
	if g := a.Gallery()[0]; g.Title != "mine" || len(a.Stash()) != 70 {
		t.Errorf("published %+v, %d in Sta.sh", g, len(a.Stash()))
	}
}

// TestRenewals goes through the lives of tokens: they are renewed when they end or are refused, once for all who wait.
func TestRenewals(t *testing.T) {
	t.Parallel()
	a := newAccount(t)
	send := func(d *publish.Delivery) publish.Result { return a.sender.Send(t.Context(), d) }
	if r := send(a.delivery(t, "first")); r.Class != publish.Delivered || a.Renewals() != 1 {
		t.Fatalf("%+v, %d renewals", r, a.Renewals())
	}
	if r := send(a.delivery(t, "second")); r.Class != publish.Delivered || a.Renewals() != 1 {
		t.Fatalf("%+v, %d renewals", r, a.Renewals())
	}
	late := a.delivery(t, "an hour later")
	late.At = late.At.Add(59*time.Minute + time.Second)
	if r := send(late); r.Class != publish.Delivered || a.Renewals() != 2 {
		t.Errorf("%+v, %d renewals", r, a.Renewals())
	}
	a.ExpireAccess()
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if r := send(a.delivery(t, "all at once")); r.Class != publish.Delivered {
				t.Errorf("%+v", r)
			}
		})
	}
	wg.Wait()
	if n := a.Renewals(); n != 3 {
		t.Errorf("%d renewals", n)
	}
	// A renewal that fails for a while costs nothing.
	a.ExpireAccess()
	a.Faults(func(path string) deviantarttest.Fault {
		if path == "oauth2/token" {
			return deviantarttest.Fault{Status: http.StatusServiceUnavailable}
		}
		return deviantarttest.Fault{}
	})
	if r := send(a.delivery(t, "away")); r.Class != publish.Transient {
		t.Errorf("%+v", r)
	}
	a.Faults(nil)
	if r := send(a.delivery(t, "back")); r.Class != publish.Delivered {
		t.Errorf("%+v", r)
	}
}

// TestAuthorizationEnds has the owner withdraw it, give too little of it, and give it anew.
func TestAuthorizationEnds(t *testing.T) {
	t.Parallel()
	a := newAccount(t)
	again := a.Withdraw()
	d := a.delivery(t, "t")
	for range 2 {
		if r := a.sender.Send(t.Context(), d); r.Class != publish.AuthExpired || !strings.Contains(r.Error, "expired") {
			t.Errorf("%+v", r)
		}
	}
	a.authorize(t, again)
	if r := a.sender.Send(t.Context(), d); r.Class != publish.Delivered {
		t.Errorf("%+v", r)
	}
	a.Withdraw()
	d.Version++
	if r, settled := a.sender.Find(t.Context(), d); !settled || r.Class != publish.AuthExpired {
		t.Errorf("%+v, %v", r, settled)
	}
	few := newAccount(t)
	few.TakeScopes()
	if r := few.sender.Send(t.Context(), few.delivery(t, "t")); r.Class != publish.AuthExpired || r.StatusCode != http.StatusForbidden {
		t.Errorf("%+v", r)
	}
}

// TestWhatIsGoneIsNotMadeAgain has the owner delete an upload manually.
func TestWhatIsGoneIsNotMadeAgain(t *testing.T) {
	t.Parallel()
	a := newAccount(t)
	a.Faults(func(path string) deviantarttest.Fault {
		if path == "stash/publish" {
			return deviantarttest.Fault{Status: http.StatusBadGateway}
		}
		return deviantarttest.Fault{}
	})
	d := a.delivery(t, "t")
	_ = a.sender.Send(t.Context(), d)
	a.EmptyStash()
	a.Faults(nil)
	d.Version++
	if r, settled := a.sender.Find(t.Context(), d); !settled || r.Class != publish.Transient || !strings.Contains(r.Error, "not made again") {
		t.Errorf("%+v, %v", r, settled)
	}
	if r := a.sender.Send(t.Context(), d); r.Class != publish.Transient || a.Calls("stash/submit") != 1 {
		t.Errorf("%+v, %d uploads", r, a.Calls("stash/submit"))
	}
}

// TestLostClaimLeavesNothing loses the claim while the file is uploaded: the file is deleted, and not published.
func TestLostClaimLeavesNothing(t *testing.T) {
	t.Parallel()
	a := newAccount(t)
	d := a.delivery(t, "t")
	d.Save = func(context.Context, []byte) error { return errors.Join(publish.ErrClaimLost) }
	if r := a.sender.Send(t.Context(), d); r.Class != publish.Transient || len(a.Stash()) != 0 || len(a.Gallery()) != 0 {
		t.Errorf("%+v, %v, %v", r, a.Stash(), a.Gallery())
	}
}

// TestFileIsFetched has the payload link to its file.
func TestFileIsFetched(t *testing.T) {
	t.Parallel()
	a := newAccount(t)
	files := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/good":
			_, _ = w.Write([]byte("a picture"))
		case "/large":
			w.Header().Set("Content-Length", strconv.Itoa(deviantart.MaxFile+1))
		case "/away":
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/elsewhere":
			http.Redirect(w, r, "/good", http.StatusFound)
		case "/empty":
		case "/chunks":
			for _, part := range []string{"a ", "picture"} {
				_, _ = w.Write([]byte(part))
				_ = http.NewResponseController(w).Flush()
			}
		case "/cut":
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte("a pic"))
			panic(http.ErrAbortHandler)
		case "/cut-chunks":
			_, _ = w.Write([]byte("a pic"))
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(files.Close)
	for path, want := range map[string]publish.Class{
		"/good": publish.Delivered, "/large": publish.Permanent, "/away": publish.Transient, "/elsewhere": publish.Permanent, "/empty": publish.Permanent,
		"/none": publish.Permanent, "/chunks": publish.Delivered, "/cut": publish.Transient, "/cut-chunks": publish.Transient,
	} {
		d := a.delivery(t, "t")
		d.Target = &publish.Target{ID: a.target.ID, Kind: a.target.Kind, URL: a.target.URL, Timeout: 20 * time.Second}
		d.Payload = []byte(`{"title":"t","file":{"name":"a.png","url":"` + files.URL + path + `"}}`)
		if r := a.sender.Send(t.Context(), d); r.Class != want {
			t.Errorf("%s: %+v", path, r)
		}
	}
	if g := a.Gallery(); len(g) != 2 || g[0].File != "a picture" || g[1].File != "a picture" || len(a.Stash()) != 0 {
		t.Errorf("%+v, and in Sta.sh %+v", g, a.Stash())
	}
	// The way to the file is guarded as every other is.
	guarded := deviantart.New(outbound.Options{}, publish.NewTokens(a.store, a.vault))
	t.Cleanup(guarded.Close)
	if r := guarded.Send(t.Context(), a.delivery(t, "t")); r.Class != publish.Permanent || !strings.Contains(r.Error, "refused") {
		t.Errorf("%+v", r)
	}
}

func TestPosts(t *testing.T) {
	t.Parallel()
	good := `{"title":"t","file":{"name":"a","data":"YQ=="}}`
	if p, err := deviantart.ParsePost([]byte(good)); err != nil || p.Title != "t" || string(p.File.Data) != "a" {
		t.Errorf("%+v, %v", p, err)
	}
	for _, bad := range []string{
		``, `1`, `{}`, `{"title":"","file":{"name":"a","data":"YQ=="}}`, `{"title":"` + strings.Repeat("x", 51) + `","file":{"name":"a","data":"YQ=="}}`,
		`{"title":"t"}`, `{"title":"t","file":{"name":"a"}}`, `{"title":"t","file":{"data":"YQ=="}}`, `{"title":"t","file":{"name":"a","data":"YQ==","url":"http://a"}}`,
		`{"title":"t","file":{"name":"a","data":"!"}}`, `{"title":"t","x":1,"file":{"name":"a","data":"YQ=="}}`,
		`{"title":"t","is_mature":true,"file":{"name":"a","data":"YQ=="}}`, `{"title":"t","display_resolution":9,"file":{"name":"a","data":"YQ=="}}`,
	} {
		if _, err := deviantart.ParsePost([]byte(bad)); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
	a := newAccount(t)
	d := a.delivery(t, "t")
	d.Payload = []byte(`{"title":"t"}`)
	if r := a.sender.Send(t.Context(), d); r.Class != publish.Permanent || a.Calls("oauth2/token") != 0 {
		t.Errorf("%+v", r)
	}
}

func FuzzParsePost(f *testing.F) {
	f.Add([]byte(`{"title":"t","tags":["a"],"file":{"name":"a","data":"YQ=="}}`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		p, err := deviantart.ParsePost(payload)
		if err == nil && (p.Title == "" || p.File.Name == "") {
			t.Errorf("%q is taken as %+v", payload, p)
		}
	})
}
