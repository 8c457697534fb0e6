// Package deviantarttest is a double of the parts of DeviantArt's HTTP API that package deviantart uses, for tests: as its
// documentation describes them, on a loopback address. It rotates refresh tokens, refuses clients without a User-Agent or
// compression, takes items out of Sta.sh when they are published, and knows no idempotency.
package deviantarttest

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
)

// The client that the account has authorized.
const (
	ClientID     = "4711"
	ClientSecret = "the client's secret"
)

// Fault is what goes wrong with a request.
type Fault struct {
	// Status and Body are answered in place of the request's effect; 0: the request has its effect.
	Status     int
	Body       string
	RetryAfter string
	// Cut has the connection cut after the effect, before the answer.
	Cut bool
	// Hold, where it is not nil, is waited for before all that.
	Hold <-chan struct{}
}

// Item is a file in Sta.sh.
type Item struct {
	ID    int64
	Stack string
	Title string
	File  string // its bytes, or [Digest] of them where there are many
}

// Deviation is what has been published.
type Deviation struct {
	ID        string
	Title     string
	File      string
	Published time.Time
}

// Server is an account at the double. It is safe for concurrent use.
type Server struct {
	*httptest.Server

	mu       sync.Mutex
	fault    func(path string) Fault
	refresh  string // the one that is good
	access   string
	renewals int
	calls    map[string]int
	last     int64
	stash    []Item
	gallery  []Deviation
	scopes   bool
}

// New starts a double. Close it after use.
func New() *Server {
	s := &Server{refresh: "refresh-0", calls: map[string]int{}, scopes: true}
	s.Faults(nil)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /oauth2/token", s.token)
	for pattern, handler := range map[string]http.HandlerFunc{
		"POST stash/publish": s.publish,
		"POST stash/delete":  s.remove,
		"GET stash/delta":    s.delta,
		// stash/item/{itemid} and stash/{stackid}/contents
		"GET stash/{first}/{second}": func(w http.ResponseWriter, r *http.Request) {
			if r.PathValue("first") == "item" {
				s.item(w, r, r.PathValue("second"))
				return
			}
			s.contents(w, r, r.PathValue("first"))
		},
		"GET gallery/all": s.all,
	} {
		method, path, _ := strings.Cut(pattern, " ")
		mux.HandleFunc(method+" /api/v1/oauth2/"+path, s.authorized(handler))
	}
	mux.HandleFunc("POST /api/v1/oauth2/stash/submit", s.submit)
	s.Server = httptest.NewServer(s.faulty(mux))
	return s
}

// locked calls f under the server's lock.
func locked[T any](s *Server, f func() T) T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return f()
}

// Refresh is the refresh token that is good now.
func (s *Server) Refresh() string { return locked(s, func() string { return s.refresh }) }

// Calls is how often a path was called, such as "stash/submit", whatever became of it.
func (s *Server) Calls(path string) int { return locked(s, func() int { return s.calls[path] }) }

// Renewals is how many renewals of the token succeeded.
func (s *Server) Renewals() int { return locked(s, func() int { return s.renewals }) }

// Stash is what is in Sta.sh.
func (s *Server) Stash() []Item { return locked(s, func() []Item { return slices.Clone(s.stash) }) }

// Gallery is what has been published, the newest first.
func (s *Server) Gallery() []Deviation {
	return locked(s, func() []Deviation { return slices.Clone(s.gallery) })
}

// set changes the server under its lock.
func (s *Server) set(change func()) { locked(s, func() any { change(); return nil }) }

// Faults sets the function that decides what goes wrong with each request, before its effect; nil: nothing goes wrong.
func (s *Server) Faults(fault func(path string) Fault) {
	if fault == nil {
		fault = func(string) Fault { return Fault{} }
	}
	s.set(func() { s.fault = fault })
}

// ExpireAccess ends the access token before its time.
func (s *Server) ExpireAccess() { s.set(func() { s.access = "" }) }

// TakeScopes leaves the authorization in force, without what publishing needs.
func (s *Server) TakeScopes() { s.set(func() { s.scopes = false }) }

// EmptyStash deletes what is in Sta.sh, as the account's owner may.
func (s *Server) EmptyStash() { s.set(func() { s.stash = nil }) }

// Withdraw ends the authorization: no token is good any more. It returns the refresh token of a new one.
func (s *Server) Withdraw() string {
	s.set(func() { s.access, s.refresh = "", "refresh-"+uuid.NewString() })
	return s.Refresh()
}

func (s *Server) faulty(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/api/v1/oauth2/"), "/")
		f := locked(s, func() Fault {
			s.calls[path]++
			return s.fault(path)
		})
		if f.Hold != nil {
			_, _ = io.Copy(io.Discard, r.Body) // Only then does a server notice that its client has gone.
			select {
			case <-f.Hold:
			case <-r.Context().Done():
				panic(http.ErrAbortHandler)
			}
		}
		if r.Header.Get("User-Agent") == "" || !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			refuse(w, http.StatusForbidden, "forbidden", "clients must send a User-Agent and accept compression")
			return
		}
		if f.Status != 0 {
			if f.RetryAfter != "" {
				w.Header().Set("Retry-After", f.RetryAfter)
			}
			w.WriteHeader(f.Status)
			_, _ = io.WriteString(w, f.Body)
			return
		}
		if f.Cut {
			next.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}
		next.ServeHTTP(w, r)
	})
}

// notFound is the answer about an item that is not in Sta.sh.
func notFound(w http.ResponseWriter, status int) {
	refuse(w, status, "invalid_request", "Stash item not found.")
}

func refuse(w http.ResponseWriter, status int, code, description string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"status": "error", "error": code, "error_description": description})
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Encoding", "gzip")
	z := gzip.NewWriter(w)
	_ = json.NewEncoder(z).Encode(v)
	_ = z.Close()
}

// authorized calls next under the server's lock, if the token is good.
func (s *Server) authorized(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.allows(w, r) {
			next(w, r)
		}
	}
}

// allows refuses a request whose token is not good. It wants the lock.
func (s *Server) allows(w http.ResponseWriter, r *http.Request) bool {
	switch {
	case s.access == "" || r.Header.Get("Authorization") != "Bearer "+s.access:
		refuse(w, http.StatusUnauthorized, "invalid_token", "Expired oAuth2 user token. The client should request a new one with an access code or a refresh token.")
	case !s.scopes:
		refuse(w, http.StatusForbidden, "insufficient_scope", "The token does not have the scope that this needs.")
	default:
		return true
	}
	return false
}

func (s *Server) token(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case r.PostFormValue("grant_type") != "refresh_token":
		refuse(w, http.StatusBadRequest, "unsupported_grant_type", "")
	case r.PostFormValue("client_id") != ClientID || r.PostFormValue("client_secret") != ClientSecret:
		refuse(w, http.StatusUnauthorized, "invalid_client", "The client could not be authenticated.")
	case r.PostFormValue("refresh_token") != s.refresh:
		refuse(w, http.StatusBadRequest, "invalid_request", "The refresh_token is invalid.")
	default:
		s.renewals++
		s.access, s.refresh = fmt.Sprint("access-", s.renewals), fmt.Sprint("refresh-", s.renewals)
		reply(w, map[string]any{
			"status": "success", "token_type": "Bearer", "expires_in": 3600, "scope": "stash publish browse user",
			"access_token": s.access, "refresh_token": s.refresh,
		})
	}
}

// maxKept is up to which length the double keeps a file.
const maxKept = 1 << 20

// Digest is what the double keeps of a file that is longer than a mebibyte.
func Digest(length int64, sum []byte) string { return fmt.Sprintf("%d bytes, %x", length, sum) }

// submit reads the upload as it comes, without the lock, and does nothing unless all of it came.
func (s *Server) submit(w http.ResponseWriter, r *http.Request) {
	if !locked(s, func() bool { return s.allows(w, r) }) {
		return
	}
	item, err := readUpload(r)
	if err != nil || item.File == "" {
		refuse(w, http.StatusBadRequest, "invalid_request", "A file must be sent.")
		return
	}
	s.set(func() {
		s.last++
		item.ID = s.last
		s.stash = append(s.stash, item)
	})
	reply(w, map[string]any{"status": "success", "itemid": item.ID, "stack": item.Stack, "stackid": stackID(item.ID)})
}

func readUpload(r *http.Request) (item Item, err error) {
	form, err := r.MultipartReader()
	for err == nil {
		var part *multipart.Part
		if part, err = form.NextPart(); err != nil {
			break
		}
		var (
			kept bytes.Buffer
			n    int64
			sum  = sha256.New()
		)
		if n, err = io.Copy(sum, io.TeeReader(io.LimitReader(part, maxKept), &kept)); err == nil {
			var more int64
			more, err = io.Copy(sum, part)
			n += more
		}
		switch text := kept.String(); part.FormName() {
		case "title":
			item.Title = text
		case "stack":
			item.Stack = text
		case "file":
			if item.File = text; n > maxKept {
				item.File = Digest(n, sum.Sum(nil))
			}
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return item, err
}

// stackID numbers stacks apart from items.
func stackID(item int64) int64 { return item + 1_000_000 }

func (s *Server) take(text string) (Item, bool) {
	id, err := strconv.ParseInt(text, 10, 64)
	at := slices.IndexFunc(s.stash, func(i Item) bool { return err == nil && i.ID == id })
	if at < 0 {
		return Item{}, false
	}
	item := s.stash[at]
	s.stash = slices.Delete(s.stash, at, at+1)
	return item, true
}

func (s *Server) publish(w http.ResponseWriter, r *http.Request) {
	if r.PostFormValue("agree_submission") != "true" || r.PostFormValue("agree_tos") != "true" || r.PostFormValue("is_mature") == "" {
		refuse(w, http.StatusBadRequest, "invalid_request", "Request field validation failed.")
		return
	}
	item, ok := s.take(r.PostFormValue("itemid"))
	if !ok {
		notFound(w, http.StatusBadRequest)
		return
	}
	d := Deviation{ID: strings.ToUpper(uuid.NewString()), Title: item.Title, File: item.File, Published: time.Now()}
	s.gallery = slices.Insert(s.gallery, 0, d)
	reply(w, map[string]any{"status": "success", "url": s.URL + "/art/" + d.ID, "deviationid": d.ID})
}

func (s *Server) remove(w http.ResponseWriter, r *http.Request) {
	if _, ok := s.take(r.PostFormValue("itemid")); !ok {
		notFound(w, http.StatusBadRequest)
		return
	}
	reply(w, map[string]any{"status": "success"})
}

func (s *Server) item(w http.ResponseWriter, _ *http.Request, id string) {
	for _, i := range s.stash {
		if strconv.FormatInt(i.ID, 10) == id {
			reply(w, map[string]any{"itemid": i.ID, "stackid": stackID(i.ID), "title": i.Title})
			return
		}
	}
	notFound(w, http.StatusNotFound)
}

// page cuts a list as the query asks.
func page(r *http.Request, n, most int) (from, to int) {
	limit, err := strconv.Atoi(r.URL.Query().Get("limit"))
	if err != nil || limit < 1 || limit > most {
		limit = 10
	}
	offset, _ := strconv.Atoi(r.URL.Query().Get("offset"))
	from = min(max(offset, 0), n)
	return from, min(from+limit, n)
}

func (s *Server) delta(w http.ResponseWriter, r *http.Request) {
	var entries []any
	for position, i := range s.stash {
		entries = append(entries,
			map[string]any{"itemid": nil, "stackid": stackID(i.ID), "position": position, "metadata": map[string]any{"title": i.Stack, "stackid": stackID(i.ID)}},
			map[string]any{"itemid": i.ID, "stackid": stackID(i.ID), "position": 0, "metadata": map[string]any{"title": i.Title, "itemid": i.ID}})
	}
	from, to := page(r, len(entries), 120)
	reply(w, map[string]any{"cursor": "c", "reset": true, "has_more": to < len(entries), "next_offset": to, "entries": entries[from:to]})
}

func (s *Server) contents(w http.ResponseWriter, _ *http.Request, id string) {
	results := []any{}
	for _, i := range s.stash {
		if strconv.FormatInt(stackID(i.ID), 10) == id {
			results = append(results, map[string]any{"itemid": i.ID, "stackid": stackID(i.ID), "title": i.Title})
		}
	}
	reply(w, map[string]any{"has_more": false, "next_offset": nil, "results": results})
}

func (s *Server) all(w http.ResponseWriter, r *http.Request) {
	from, to := page(r, len(s.gallery), 24)
	results := []any{}
	for _, d := range s.gallery[from:to] {
		results = append(results, map[string]any{
			"deviationid": d.ID, "url": s.URL + "/art/" + d.ID, "title": d.Title, "published_time": strconv.FormatInt(d.Published.Unix(), 10),
		})
	}
	answer := map[string]any{"has_more": to < len(s.gallery), "next_offset": nil, "results": results}
	if to < len(s.gallery) {
		answer["next_offset"] = to
	}
	reply(w, answer)
}
