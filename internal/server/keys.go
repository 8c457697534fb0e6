package server

import (
	"encoding/hex"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/auth"
)

// createKeyRequest carries the SHA-256 of a secret that its owner made: the server never sees the secret, so neither a
// stored answer nor a log can give it away.
type createKeyRequest struct {
	Role string `json:"role" enum:"admin,service"`
	Name string `json:"name" minLength:"1" maxLength:"200"`
	Hash string `json:"hash" doc:"lower-case hex SHA-256 of the secret" pattern:"^[0-9a-f]{64}$"`
}

type keyView struct {
	ID        string     `json:"id"`
	Role      auth.Role  `json:"role"`
	Name      string     `json:"name"`
	CreatedAt timestamp  `json:"created_at"`
	RevokedAt *timestamp `json:"revoked_at"`
}

func (q *createKeyRequest) op() (auth.KeyOp, error) {
	var c checks
	role := auth.Role(q.Role)
	if role != auth.RoleAdmin && role != auth.RoleService {
		c.fail("role must be admin or service")
	}
	c.name("name", q.Name)
	hash, err := hex.DecodeString(q.Hash)
	if err != nil || len(hash) != 32 || hex.EncodeToString(hash) != q.Hash {
		c.fail("hash must be the SHA-256 of a secret that you made, as 64 lower-case hexadecimal digits")
	}
	if c.err != nil {
		return auth.KeyOp{}, c.err
	}
	return auth.KeyOp{Create: &auth.Key{
		ID: uuid.Must(uuid.NewV7()).String(), Role: role, Name: q.Name, Hash: [32]byte(hash), CreatedAt: time.Now().UTC(),
	}}, nil
}

func (s *Server) keyRoutes() []route {
	return []route{
		listRoute("/v1/keys", accessAdmin, "List API keys, oldest first", oldestFirst(), s.listKeys,
			as[keyView], func(k keyAt) int64 { return k.place }),
		commandRoute("/v1/keys", accessAdmin, http.StatusCreated, "Register an API key by the hash of its secret", as[keyView, auth.Key],
			mutation[createKeyRequest, auth.KeyOp]{execute: s.Keys.Execute, op: plain((*createKeyRequest).op)}),
		deleted(commandRoute("/v1/keys/{id}", accessAdmin, http.StatusOK, "Revoke an API key; in force everywhere within 5 s", as[keyView, auth.Key],
			mutation[noFields, auth.KeyOp]{
				execute: s.Keys.Execute,
				op: func(from sender, _ *noFields) (auth.KeyOp, error) {
					id, err := pathUUID(from.id, "key")
					return auth.KeyOp{Revoke: id.String()}, err
				},
			})),
	}
}

// keyAt is a key and its place in the list, from 1.
type keyAt struct {
	auth.Key

	place int64
}

func (s *Server) listKeys(r *http.Request, after int64, _ int) ([]keyAt, error) {
	keys, err := s.Keys.Keys(r.Context())
	rows := make([]keyAt, len(keys))
	for i, k := range keys {
		rows[i] = keyAt{Key: k, place: int64(i) + 1}
	}
	// Keys are never deleted and come in the order of their making, so a place in the list stays what it is.
	return rows[min(after, int64(len(rows))):], err
}
