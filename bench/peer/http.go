package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// maxBodyBytes bounds a request's body, as the product does.
const maxBodyBytes = 1 << 20

type server struct {
	purchases *pgxpool.Pool
	bids      *pgxpool.Pool
	transfers *pgxpool.Pool // And everything else.
	adminKey  string
	pipelined bool
}

// answer is what a command ends with: the bytes that are stored under its key and sent to the client.
type answer struct {
	status   int
	body     []byte
	replayed bool
}

// command is a mutating request after it was authenticated and read.
type command struct {
	keyID       [sha256.Size]byte
	fingerprint [sha256.Size]byte
	body        []byte
	entity      string // The id in the path, if there is one.
	now         time.Time
}

type handler func(ctx context.Context, c *command) (answer, error)

func (s *server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	mux.HandleFunc("POST /v1/accounts", s.mutating(s.createAccount))
	mux.HandleFunc("POST /v1/deposits", s.mutating(s.deposit))
	mux.HandleFunc("POST /v1/transfers", s.mutating(s.transfer))
	mux.HandleFunc("POST /v1/campaigns", s.mutating(s.createCampaign))
	mux.HandleFunc("POST /v1/campaigns/{id}/publish", s.mutating(s.publish))
	mux.HandleFunc("POST /v1/campaigns/{id}/purchases", s.mutating(s.purchase))
	mux.HandleFunc("GET /v1/campaigns/{id}", s.getCampaign)
	mux.HandleFunc("GET /v1/campaigns/{id}/draw", s.getDraw)
	mux.HandleFunc("POST /v1/auctions", s.mutating(s.createAuction))
	mux.HandleFunc("POST /v1/auctions/{id}/start", s.mutating(s.startAuction))
	mux.HandleFunc("POST /v1/auctions/{id}/bids", s.mutating(s.bid))
	mux.HandleFunc("GET /v1/auctions/{id}", s.getAuction)
	mux.HandleFunc("GET /v1/integrity", s.getIntegrity)
	return mux
}

func authenticated(r *http.Request, adminKey string) bool {
	key, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return ok && subtle.ConstantTimeCompare([]byte(key), []byte(adminKey)) == 1
}

// receive authenticates a mutating request and reads its key and body. A non-zero answer is a refusal.
func receive(w http.ResponseWriter, r *http.Request, adminKey string) (key string, body []byte, refusal answer) {
	if !authenticated(r, adminKey) {
		return "", nil, problem(http.StatusUnauthorized, "unauthorized")
	}
	key = r.Header.Get("Idempotency-Key")
	if key == "" || len(key) > 255 {
		return "", nil, problem(http.StatusBadRequest, "idempotency_key_required")
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBodyBytes))
	if err != nil {
		return "", nil, problem(http.StatusRequestEntityTooLarge, "payload_too_large")
	}
	return key, body, answer{}
}

func (s *server) mutating(h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		key, body, refusal := receive(w, r, s.adminKey)
		if refusal.status != 0 {
			send(w, refusal)
			return
		}
		c := &command{body: body, entity: r.PathValue("id"), now: time.Now()}
		c.keyID = sha256.Sum256([]byte("admin\x00" + r.Method + "\x00" + r.URL.Path + "\x00" + key))
		c.fingerprint = sha256.Sum256(body)
		result, err := h(r.Context(), c)
		if err != nil {
			slog.Error("command failed", "path", r.URL.Path, "error", err)
			result = problem(http.StatusInternalServerError, "internal")
		}
		send(w, result)
	}
}

func send(w http.ResponseWriter, a answer) {
	if a.status < http.StatusBadRequest {
		w.Header().Set("Content-Type", "application/json")
	} else {
		w.Header().Set("Content-Type", "application/problem+json")
	}
	if a.replayed {
		w.Header().Set("Idempotent-Replayed", "true")
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body)
}

func problem(status int, code string) answer {
	return jsonAnswer(status, struct {
		Type      string `json:"type"`
		Title     string `json:"title"`
		Status    int    `json:"status"`
		Code      string `json:"code"`
		Retryable bool   `json:"retryable"`
		Outcome   string `json:"outcome"`
	}{"about:blank", http.StatusText(status), status, code, false, "not_applied"})
}

func jsonAnswer(status int, v any) answer {
	body, err := json.Marshal(v)
	if err != nil {
		panic("an answer that can't be marshalled: " + err.Error())
	}
	return answer{status: status, body: body}
}

// decode reads one JSON value and refuses unknown fields and whatever follows it.
func decode(body []byte, v any) (ok bool) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return false
	}
	_, err := d.Token()
	return errors.Is(err, io.EOF)
}

// keyRow is what the key's row holds, if it is there.
type keyRow struct {
	found       bool
	fingerprint []byte
	status      int16
	body        []byte
}

// lookUpKey queues the query for the command's key.
func (s *session) lookUpKey(c *command, k *keyRow) {
	s.row(&k.found, `SELECT fingerprint, status, body FROM idempotency_keys WHERE id = $1`,
		[]any{c.keyID[:]}, &k.fingerprint, &k.status, &k.body)
}

// answer gives the stored answer, or the refusal of a key that came with another body before.
func (k *keyRow) answer(c *command) answer {
	if !bytes.Equal(k.fingerprint, c.fingerprint[:]) {
		return problem(http.StatusUnprocessableEntity, "idempotency_key_reused")
	}
	return answer{status: int(k.status), body: k.body, replayed: true}
}

// finish stores the answer under the command's key, together with all that is queued, and commits.
func (s *session) finish(ctx context.Context, c *command, a answer) error {
	s.exec(`INSERT INTO idempotency_keys (id, fingerprint, status, body, created_at) VALUES ($1, $2, $3, $4, $5)`,
		c.keyID[:], c.fingerprint[:], a.status, a.body, c.now)
	s.exec("commit")
	return s.run(ctx)
}

// abandon ends a transaction that changed nothing.
func (s *session) abandon(ctx context.Context) error {
	s.exec("rollback")
	return s.run(ctx)
}
