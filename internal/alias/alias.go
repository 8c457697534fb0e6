// Package alias names accounts where anybody may look: in the public log and on public pages.
//
// Accounts are often e-mail addresses. Each topic has another alias of an account, so that nobody can tell whether two topics have one in
// common. docs/design/log.md specifies both.
package alias

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"hash"
)

const (
	digits    = 32 // of an alias: no two of a topic are the same
	saltBytes = 16 // of a salt: nobody tries all of them
)

// Alias is an account's name in a topic, with what proves it.
type Alias struct {
	Name string // 32 hexadecimal digits
	Salt string // as many; only the account's owner is told
}

// Topic names the accounts of one topic. It is not safe for concurrent use.
type Topic struct {
	name string
	mac  hash.Hash
	text []byte
}

// In returns the names in a topic. They follow from a secret, so that a guessed account can't be compared with what is shown.
func In(topic string, secret []byte) *Topic {
	return &Topic{name: topic, mac: hmac.New(sha256.New, secret)}
}

// Of names an account.
func (t *Topic) Of(account string) Alias {
	t.text = append(t.text[:0], "fairlead alias salt\n"...)
	t.text = append(append(append(t.text, t.name...), '\n'), account...)
	t.mac.Reset()
	_, _ = t.mac.Write(t.text) // A hash takes everything.
	var sum [sha256.Size]byte
	salt := hex.EncodeToString(t.mac.Sum(sum[:0])[:saltBytes])
	return Alias{Name: name(t, account, salt), Salt: salt}
}

func name(t *Topic, account, salt string) string {
	t.text = append(t.text[:0], "fairlead alias\n"...)
	t.text = append(append(append(t.text, t.name...), '\n'), account...)
	t.text = append(append(t.text, '\n'), salt...)
	sum := sha256.Sum256(t.text)
	return hex.EncodeToString(sum[:digits/2])
}

// Check reports whether a name is that of an account in a topic, as its salt proves.
func Check(topic, account string, a Alias) bool {
	return name(&Topic{name: topic}, account, a.Salt) == a.Name
}
