package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/services/publish"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// art makes a target with a token, and returns its id.
func (p *press) art(name, token string) uuid.UUID {
	p.Helper()
	op := publish.CreateTarget{Name: name, Kind: publish.KindDeviantArt, URL: "https://example.com", Timeout: time.Second, Secret: []byte("secret"), Token: []byte(token)}
	a, err := p.service.Create(p.Context(), own[publish.Op](op))
	if err != nil || a.Err != nil {
		p.Fatal(err, a.Err)
	}
	made, ok := a.Result.(*publish.MadeTarget)
	if !ok {
		p.Fatalf("%T", a.Result)
	}
	return made.ID
}

// tokens are those of another process.
func (p *press) tokens() *publish.Tokens {
	p.Helper()
	return publish.NewTokens(NewPublications(open(p.T, Options{URL: p.db.pool.Config().ConnString(), MaxConns: 4})), p.vault)
}

// TestOneProcessRenewsAToken has several processes find the same token expired: one of them renews it, for all.
func TestOneProcessRenewsAToken(t *testing.T) {
	t.Parallel()
	p := newPress(t)
	id := p.art("a", "token 1")
	const processes, each = 4, 5
	var renewals, running atomic.Int32
	for round := range 5 {
		seen, err := p.tokens().Token(t.Context(), id)
		if err != nil || string(seen.Bytes) != fmt.Sprint("token ", round+1) {
			t.Fatalf("%+v, %v", seen, err)
		}
		var wg sync.WaitGroup
		for range processes {
			tokens := p.tokens()
			for range each {
				wg.Go(func() {
					got, err := tokens.Renew(t.Context(), id, seen.Generation, func(_ context.Context, old publish.Token) ([]byte, error) {
						defer running.Add(-1)
						if running.Add(1) != 1 || string(old.Bytes) != string(seen.Bytes) {
							t.Errorf("renewed at once, or again: %s", old.Bytes)
						}
						renewals.Add(1)
						return []byte(fmt.Sprint("token ", round+2)), nil
					})
					if err != nil || string(got.Bytes) != fmt.Sprint("token ", round+2) {
						t.Errorf("got %q, %v", got.Bytes, err)
					}
				})
			}
		}
		wg.Wait()
		if n := renewals.Load(); n != int32(round+1) {
			t.Fatalf("%d renewals after round %d", n, round)
		}
	}
}

// TestTokenClaims has the holder of a renewal fail, die, and come back too late.
func TestTokenClaims(t *testing.T) {
	t.Parallel()
	p := newPress(t)
	id := p.art("a", "old")
	refused := errors.New("refused")
	if _, err := p.tokens().Renew(t.Context(), id, 1, func(context.Context, publish.Token) ([]byte, error) { return nil, refused }); !errors.Is(err, refused) {
		t.Error(err)
	}
	dead, sealed, err := p.store.ClaimToken(t.Context(), id)
	if err != nil || sealed.Generation != 1 {
		t.Fatal(sealed, err)
	}
	if _, _, err := p.store.ClaimToken(t.Context(), id); !errors.Is(err, publish.ErrTokenBusy) {
		t.Errorf("claimed twice: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.tokens().Renew(ended, id, 1, nil); err == nil {
		t.Error("waits without its caller")
	}
	exec(t, p.db, `UPDATE target_tokens SET execution_locked_at = execution_locked_at - interval '31 seconds'`)
	if got, err := p.tokens().Renew(t.Context(), id, 1, func(context.Context, publish.Token) ([]byte, error) { return []byte("new"), nil }); err != nil || got.Generation != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	if err := p.store.SaveToken(t.Context(), dead, p.vault.Seal([]byte("late"), nil)); !errors.Is(err, publish.ErrClaimLost) {
		t.Errorf("a late token is kept: %v", err)
	}
	testwait.Check(t, p.store.ReleaseToken(t.Context(), dead))
	// A token that is given by hand ends a renewal that is under way.
	alive, _, err := p.store.ClaimToken(t.Context(), id)
	testwait.Must(t, err)
	testwait.Must(t, p.do(id, publish.ReplaceCredentials{Token: []byte("by hand")}))
	if err := p.store.SaveToken(t.Context(), alive, p.vault.Seal([]byte("late"), nil)); !errors.Is(err, publish.ErrClaimLost) {
		t.Errorf("a token takes the place of one that was given by hand: %v", err)
	}
	if got, err := p.tokens().Token(t.Context(), id); err != nil || string(got.Bytes) != "by hand" || got.Generation != 3 {
		t.Errorf("%+v, %v", got, err)
	}
	// What was committed without an answer is saved.
	again, _, err := p.store.ClaimToken(t.Context(), id)
	testwait.Must(t, err)
	kept := p.vault.Seal([]byte("kept"), nil)
	for range 2 {
		testwait.Check(t, p.store.SaveToken(t.Context(), again, kept))
	}
	if _, err := p.store.Token(t.Context(), uuid.New()); err == nil {
		t.Error("a token of nobody")
	}
}

// TestExpiredAuthorizationPauses has attempts fail because the authorization is over: the target is paused, no attempt is used
// up, and news of the old authorization does not pause the target again once it has a new one.
func TestExpiredAuthorizationPauses(t *testing.T) {
	t.Parallel()
	p := newPress(t)
	p.target("t")
	p.target("other")
	expired := publish.Result{Class: publish.AuthExpired, StatusCode: 401, Error: "expired"}
	ids := []uuid.UUID{p.add("t", 0), p.add("t", 0)}
	work := p.claim(p.slots())
	if len(work) != 2 {
		t.Fatal(len(work))
	}
	target := work[0].Target.ID
	paused := func() string {
		return ask[string](t, p.db, `SELECT paused_reason FROM targets WHERE id = $1`, target)
	}
	if got := p.conclude(work[0], expired); got != publish.ResultFailed || paused() != "auth_expired" {
		t.Errorf("%q, paused for %q", got, paused())
	}
	if again := p.claim(p.slots()); len(again) != 0 {
		t.Error("claimed for a paused target")
	}
	if next, err := p.store.NextDue(t.Context(), p.slots()); next.In != nil || err != nil {
		t.Error("waits for a paused target", err)
	}
	if n := ask[int](t, p.db, `SELECT attempts - spent FROM publications WHERE id = $1`, work[0].ID); n != 0 {
		t.Errorf("%d attempts are used up", n)
	}
	testwait.Must(t, p.do(target, publish.ResumeTarget{}))
	if got := p.conclude(work[1], expired); got != publish.ResultFailed || paused() != "" {
		t.Errorf("%q, paused for %q by an attempt from before", got, paused())
	}
	for range 10 { // More often than there are attempts.
		work := p.claim(p.slots())
		if len(work) == 0 || work[0].Try != 1 {
			t.Fatalf("%+v", work)
		}
		for _, w := range work {
			p.conclude(w, expired)
		}
		testwait.Must(t, p.do(target, publish.ResumeTarget{}))
	}
	for _, w := range p.claim(p.slots()) {
		p.conclude(w, publish.Result{Class: publish.Delivered, StatusCode: 200})
	}
	for _, id := range ids {
		if p.status(id) != "published 12" {
			t.Error(p.status(id))
		}
	}
}

// TestProgress is kept under the claim alone, and given to the next attempt.
func TestProgress(t *testing.T) {
	t.Parallel()
	p := newPress(t)
	p.target("t")
	id := p.add("t", 0)
	first := p.claim(p.slots())[0]
	if first.Progress != nil {
		t.Errorf("%q", first.Progress)
	}
	testwait.Must(t, p.store.SaveProgress(t.Context(), first.Claim, []byte(`{"a":1}`)))
	exec(t, p.db, `UPDATE publications SET execution_locked_at = execution_locked_at - interval '2 hours'`)
	if n, err := p.store.ReleaseStale(t.Context(), time.Hour); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if err := p.store.SaveProgress(t.Context(), first.Claim, []byte(`late`)); !errors.Is(err, publish.ErrClaimLost) {
		t.Error(err)
	}
	second := p.claim(p.slots())[0]
	if string(second.Progress) != `{"a":1}` {
		t.Errorf("%q", second.Progress)
	}
	for _, c := range []publish.Claim{
		first.Claim, {ID: id, LockID: second.LockID, Version: 1}, {ID: id, LockID: uuid.New(), Version: 2}, {ID: uuid.New(), LockID: second.LockID, Version: 2},
	} {
		if err := p.store.SaveProgress(t.Context(), c, []byte(`late`)); !errors.Is(err, publish.ErrClaimLost) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	p.conclude(second, publish.Result{Class: publish.Delivered})
	if err := p.store.SaveProgress(t.Context(), second.Claim, []byte(`late`)); !errors.Is(err, publish.ErrClaimLost) {
		t.Error(err)
	}
}

// TestReseal replaces the vault's key: after it, the new one alone opens everything.
func TestReseal(t *testing.T) {
	t.Parallel()
	p := newPress(t)
	p.target("t")
	id := p.art("a", "token")
	hook := ask[uuid.UUID](t, p.db, `SELECT id FROM targets WHERE name = 't'`)
	testwait.Must(t, p.do(hook, publish.RotateSecret{Overlap: time.Hour}))
	fresh := bytes.Repeat([]byte{2}, publish.VaultKeySize)
	both, err := publish.NewVault(fresh, bytes.Repeat([]byte{1}, publish.VaultKeySize))
	testwait.Must(t, err)
	alone, err := publish.NewVault(fresh)
	testwait.Must(t, err)
	if n, err := p.store.Reseal(t.Context(), p.vault); n != 0 || err != nil {
		t.Error(n, err)
	}
	for _, want := range []int{4, 0} {
		if n, err := p.store.Reseal(t.Context(), both); n != want || err != nil {
			t.Errorf("%d secrets, want %d: %v", n, want, err)
		}
	}
	for _, target := range []uuid.UUID{hook, id} {
		read, err := p.store.Target(t.Context(), target)
		testwait.Must(t, err)
		testwait.Check(t, testwait.Err(alone.Open(read.Secret, target[:])))
		if read.Previous.Bytes != nil {
			testwait.Check(t, testwait.Err(alone.Open(read.Previous, target[:])))
		}
	}
	if got, err := publish.NewTokens(p.store, alone).Token(t.Context(), id); err != nil || string(got.Bytes) != "token" || got.Generation != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}
