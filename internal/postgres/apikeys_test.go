package postgres

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

func newKey(id string, role auth.Role) auth.Key {
	return auth.Key{ID: id, Role: role, Name: "of " + id, Hash: sha256.Sum256([]byte(id)), CreatedAt: time.Now().UTC().Truncate(time.Microsecond)}
}

// renderKey names the key in the way in which the audit looks for objects.
func renderKey(result any, err error) command.Rendered {
	if err != nil {
		return render(nil, err)
	}
	key, ok := result.(auth.Key)
	if !ok {
		panic("not a key")
	}
	body, err := json.Marshal(map[string]string{"id": key.ID})
	if err != nil {
		panic(err)
	}
	return command.Rendered{Status: 201, Body: body, Decided: true}
}

func TestAPIKeys(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	store := NewAPIKeys(db)
	ctx := t.Context()
	root, worker := newKey("k-root", auth.RoleAdmin), newKey("k-worker", auth.RoleService)
	for _, k := range []auth.Key{root, worker} {
		testwait.Must(t, store.InsertKey(ctx, k))
		if got, err := store.KeyByHash(ctx, k.Hash); err != nil || got != k {
			t.Errorf("found %+v, want %+v, %v", got, k, err)
		}
		if err := store.InsertKey(ctx, k); !errors.Is(err, auth.ErrKeyExists) {
			t.Errorf("inserted twice: %v", err)
		}
	}
	if _, err := store.KeyByHash(ctx, sha256.Sum256(nil)); !errors.Is(err, auth.ErrUnknownKey) {
		t.Errorf("an unknown hash: %v", err)
	}
	if err := store.RevokeKey(ctx, "k-nobody"); !errors.Is(err, auth.ErrUnknownKey) {
		t.Errorf("revoked nobody: %v", err)
	}
	if err := store.RevokeKey(ctx, root.ID); !errors.Is(err, auth.ErrLastAdmin) {
		t.Errorf("revoked the last admin: %v", err)
	}
	testwait.Must(t, store.RevokeKey(ctx, worker.ID))
	revoked, err := store.KeyByHash(ctx, worker.Hash)
	if err != nil || revoked.RevokedAt == nil {
		t.Fatalf("revoked %+v, %v", revoked, err)
	}
	testwait.Check(t, store.RevokeKey(ctx, worker.ID))
	if again, err := store.KeyByHash(ctx, worker.Hash); err != nil || !again.RevokedAt.Equal(*revoked.RevokedAt) {
		t.Errorf("revoked again %+v, %v", again, err)
	}
	if all, err := store.Keys(ctx); err != nil || len(all) != 2 || all[0].ID != root.ID || all[1].ID != worker.ID {
		t.Errorf("keys %+v, %v", all, err)
	}
	// The log has no column for an outcome: what stands there was done. What was refused was not.
	if n := ask[int](t, db, `SELECT count(*) FROM audit_log WHERE object <> $1`, worker.ID); n != 0 {
		t.Errorf("%d refused revocations are in the audit log as if they had happened", n)
	}
}

// TestKeysAreMadeOncePerIdempotencyKey repeats the making of a key, with another secret each time, as a server does.
func TestKeysAreMadeOncePerIdempotencyKey(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	store := NewAPIKeys(db)
	var (
		group    sync.WaitGroup
		executed atomic.Int64
	)
	for _, id := range []string{"k-1", "k-2", "k-3", "k-4"} {
		group.Go(func() {
			key := newKey(id, auth.RoleAdmin)
			c := keyed(auth.KeyOp{Create: &key}, "make", "")
			c.Render = renderKey
			a, err := store.Execute(t.Context(), c)
			if err != nil || a.Status != 201 {
				t.Errorf("%+v, %v", a, err)
			}
			if !a.Replayed {
				executed.Add(1)
			}
		})
	}
	group.Wait()
	all, err := store.Keys(t.Context())
	if err != nil || len(all) != 1 || executed.Load() != 1 {
		t.Errorf("keys %+v of %d executions, %v", all, executed.Load(), err)
	}
	log := ask[string](t, db, `SELECT string_agg(concat_ws(' ', principal, action, object), '; ') FROM audit_log`)
	if want := "tester key.create " + all[0].ID; log != want {
		t.Errorf("audit log %q, want %q", log, want)
	}
}

// TestTwoAdminsCannotRevokeEachOther has both try at once: one of them stays.
func TestTwoAdminsCannotRevokeEachOther(t *testing.T) {
	t.Parallel()
	url := database(t)
	stores := []*APIKeys{NewAPIKeys(open(t, Options{URL: url})), NewAPIKeys(open(t, Options{URL: url}))}
	ids := []string{"k-a", "k-b"}
	for _, id := range ids {
		testwait.Must(t, stores[0].InsertKey(t.Context(), newKey(id, auth.RoleAdmin)))
	}
	var (
		group   sync.WaitGroup
		revoked atomic.Int64
	)
	for i, id := range ids {
		group.Go(func() {
			switch err := stores[i].RevokeKey(t.Context(), id); {
			case err == nil:
				revoked.Add(1)
			case !errors.Is(err, auth.ErrLastAdmin):
				t.Error(err)
			}
		})
	}
	group.Wait()
	if n := revoked.Load(); n != 1 {
		t.Errorf("%d admins were revoked of two", n)
	}
}
