package server

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/live"
	"github.com/fairlead-dev/fairlead/internal/operator"
)

const (
	// aliasDigits is the length of an alias: enough that a hundred bidders rarely share one.
	aliasDigits = 8
	// saltBytes is the length of a salt: nobody tries all of them.
	saltBytes = 16
)

// aliasView is an account's alias, with what proves it.
type aliasView struct {
	Alias string `json:"alias" doc:"first 8 digits of the SHA-256 of 'fairlead alias', the topic, the account and the salt, a line each"`
	Salt  string `json:"salt" doc:"16 bytes in hex; it is shown to nobody else"`
}

// aliasesIn returns what names the accounts of a topic where anybody may look: the same name within a campaign or auction,
// another in the next. The salt follows from a secret that all servers share, so that a guessed account cannot be compared with what is
// shown. It is for the account's owner, and tells nothing about another account.
func (s *Server) aliasesIn(ctx context.Context, topic string) (func(account string) aliasView, error) {
	secret := s.aliasSecret.Load()
	if secret == nil {
		read, err := s.Operator.Secret(ctx, operator.SecretOfAliases)
		if err != nil {
			return nil, err
		}
		secret = &read // It never changes.
		s.aliasSecret.Store(secret)
	}
	return func(account string) aliasView {
		mac := hmac.New(sha256.New, *secret)
		_, _ = mac.Write([]byte("fairlead alias salt\n" + topic + "\n" + account)) // A hash takes everything.
		salt := hex.EncodeToString(mac.Sum(nil)[:saltBytes])
		sum := sha256.Sum256([]byte("fairlead alias\n" + topic + "\n" + account + "\n" + salt))
		return aliasView{Alias: hex.EncodeToString(sum[:])[:aliasDigits], Salt: salt}
	}, nil
}

// alias tells an account's owner what public pages call it.
func (s *Server) alias(r *http.Request) (v aliasView, err error) {
	account, err := s.ownAccount(r)
	if err != nil {
		return v, err
	}
	topic, err := one(r, "topic")
	if err == nil {
		err = s.checkTopic(r.Context(), infoOf(r).principal, topic)
	}
	if errors.Is(err, live.ErrNoTopic) {
		err = refuse("topic must be campaign:ID or auction:ID")
	}
	if err == nil {
		_, err = s.Ledger.Account(r.Context(), account)
	}
	if err != nil {
		return v, err
	}
	name, err := s.aliasesIn(r.Context(), topic)
	if err != nil {
		return v, err
	}
	return name(account), nil
}

// checkTopic refuses the topic of a campaign or auction that somebody may not see. It returns [live.ErrNoTopic] for what is the
// topic of neither.
func (s *Server) checkTopic(ctx context.Context, p auth.Principal, topic string) error {
	kind, rest, _ := strings.Cut(topic, ":")
	id, err := uuid.Parse(rest)
	switch {
	case err != nil || id.String() != rest:
		return live.ErrNoTopic
	case kind == "campaign":
		_, err = s.campaign(ctx, p, id)
	case kind == "auction":
		_, err = s.auctionFor(ctx, p, id)
	default:
		return live.ErrNoTopic
	}
	return err
}
