package publish

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/wait"
)

// Rhythms of the renewal of tokens.
const (
	TokenClaimAge = 30 * time.Second // how long the claim on a token's renewal lives: longer than a renewal may take
	// renewTimeout bounds one renewal.
	renewTimeout = 20 * time.Second
	tokenPoll    = 50 * time.Millisecond // how often a process checks whether another has finished its renewal
)

// ErrTokenBusy is returned by a [TokenStore] while another process renews the token.
var ErrTokenBusy = errors.New("publish: the token is being renewed")

// SealedToken is a token as it is kept.
type SealedToken struct {
	Sealed

	Generation int64 // grows with each renewal, from 1
}

// TokenStore keeps the tokens of targets. Errors are those of [Store], [NotFoundError] among them.
type TokenStore interface {
	// Token returns a target's token.
	Token(ctx context.Context, target uuid.UUID) (SealedToken, error)
	// ClaimToken gives the right to renew a token, which lives for [TokenClaimAge], and the token as it is under that
	// claim. It returns [ErrTokenBusy] while another process has it.
	ClaimToken(ctx context.Context, target uuid.UUID) (Claim, SealedToken, error)
	// SaveToken replaces the token under a claim and ends that. It returns [ErrClaimLost] when the claim is not in force.
	SaveToken(ctx context.Context, c Claim, s Sealed) error
	// ReleaseToken ends a claim without a new token. A claim that is lost is none to be ended, and no error.
	ReleaseToken(ctx context.Context, c Claim) error
}

// Token is what a sender authenticates with, in the sender's own format.
type Token struct {
	Bytes      []byte
	Generation int64 // grows with each renewal
}

// Tokens gives senders the tokens of their targets, and has each renewed by one process at a time: the server at the other
// end takes each refresh token once, so two that used the same one would lose both. It is safe for concurrent use.
type Tokens struct {
	store TokenStore
	vault *Vault
}

// NewTokens returns the tokens in store, which vault has sealed.
func NewTokens(store TokenStore, vault *Vault) *Tokens { return &Tokens{store: store, vault: vault} }

// Token returns a target's token.
func (t *Tokens) Token(ctx context.Context, target uuid.UUID) (Token, error) {
	s, err := t.store.Token(ctx, target)
	if err != nil {
		return Token{}, err
	}
	return t.open(target, s)
}

func (t *Tokens) open(target uuid.UUID, s SealedToken) (Token, error) {
	raw, err := t.vault.Open(s.Sealed, TokenPurpose(target))
	return Token{Bytes: raw, Generation: s.Generation}, err
}

// Renew replaces a token whose generation is not above seen, by calling renew with it, and returns the new one; a token
// that another has replaced meanwhile is returned as it is. renew is called by one process at a time; when it fails, its
// error is returned and the token stays.
func (t *Tokens) Renew(ctx context.Context, target uuid.UUID, seen int64, renew func(context.Context, Token) ([]byte, error)) (Token, error) {
	for {
		claim, sealed, err := t.store.ClaimToken(ctx, target)
		if err == nil {
			return t.renewUnder(ctx, claim, sealed, seen, renew)
		}
		if !errors.Is(err, ErrTokenBusy) {
			return Token{}, err
		}
		if !wait.For(ctx, tokenPoll) {
			return Token{}, context.Cause(ctx)
		}
		if got, err := t.Token(ctx, target); err != nil || got.Generation > seen {
			return got, err
		}
	}
}

func (t *Tokens) renewUnder(ctx context.Context, claim Claim, sealed SealedToken, seen int64,
	renew func(context.Context, Token) ([]byte, error),
) (Token, error) {
	target := claim.ID
	// What was begun here is ended here: a new token that is not kept is lost, and the old one is worth nothing any more.
	ctx = context.WithoutCancel(ctx)
	release := func(err error) error {
		ending, cancel := context.WithTimeout(ctx, renewTimeout)
		defer cancel()
		return errors.Join(err, t.store.ReleaseToken(ending, claim))
	}
	token, err := t.open(target, sealed)
	if err != nil || token.Generation > seen {
		return token, release(err)
	}
	renewing, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	raw, err := renew(renewing, token)
	if err != nil {
		return Token{}, release(err)
	}
	if err := t.store.SaveToken(ctx, claim, t.vault.Seal(raw, TokenPurpose(target))); err != nil {
		return Token{}, fmt.Errorf("publish: keep a renewed token: %w", err)
	}
	return Token{Bytes: raw, Generation: sealed.Generation + 1}, nil
}
