package fairlead

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/durable"
	"github.com/fairlead-dev/fairlead/internal/postgres"
)

// AdminKeyFile names the file in a data directory that keeps an admin key which was made.
func AdminKeyFile(data string) string { return filepath.Join(data, "admin.key") }

// ensureAdminKey makes sure that there is an admin key: the one that was given, the one kept in the data
// directory, any that the database knows, or a new one. A new one is kept before it is registered, so that a crash in
// between leaves a file that the next start registers, and never a key that nobody knows.
func (s *Server) ensureAdminKey(ctx context.Context, store *postgres.APIKeys) error {
	now := time.Now().UTC()
	register := func(secret string) error {
		_, err := auth.EnsureAdminKey(ctx, store, secret, uuid.Must(uuid.NewV7()).String(), now)
		return err
	}
	if s.o.AdminKey != "" {
		err := register(s.o.AdminKey)
		if errors.Is(err, auth.ErrKeyRevoked) {
			return wrong("AdminKey", "this key was revoked, which stays so: set another one, or none")
		}
		if err != nil {
			return wrong("AdminKey", "%w", err)
		}
		return nil
	}
	file := AdminKeyFile(s.o.Data)
	kept, err := os.ReadFile(file)
	if err == nil {
		if err := register(string(kept)); err != nil && !errors.Is(err, auth.ErrKeyRevoked) {
			return fmt.Errorf("%s: %w", file, err)
		}
		return nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return wrong("Data", "%w", err)
	}
	known, err := store.Keys(ctx)
	if err != nil {
		return err
	}
	for _, k := range known {
		if k.Role == auth.RoleAdmin && k.RevokedAt == nil {
			return nil
		}
	}
	secret, _, err := auth.GenerateKey(auth.RoleAdmin)
	if err != nil {
		return err
	}
	if err := keepSecret(file, secret); err != nil {
		return wrong("Data", "%w", err)
	}
	s.o.AdminKeyMade(secret)
	return register(secret)
}

// keepSecret writes a secret to disk before it is used. The file appears whole or not at all.
func keepSecret(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return durable.Replace(path, []byte(text), 0o600)
}
