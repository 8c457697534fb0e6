package mcp

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// command is what commit sends: a POST.
type command struct {
	Path string         `json:"path" jsonschema:"the route to which it is posted"`
	Body jsontext.Value `json:"body" jsonschema:"its JSON document"`
}

// An id is the prefix and, in base 32, the parts of these lengths: Unix milliseconds of the expiry, a random number that makes two equal
// commands two ids, and the MAC.
const (
	idPrefix  = "mcp-"
	timeBytes = 6
	saltBytes = 8
	macBytes  = 16
)

// idEncoding has digits that are hard to confuse, and no capital letters.
func idEncoding() *base32.Encoding {
	return base32.NewEncoding("abcdefghijkmnpqrstuvwxyz23456789").WithPadding(base32.NoPadding)
}

// sealer makes ids that belong to one command. It is safe for concurrent use.
type sealer struct {
	key    []byte
	server string
}

// id seals a command whose body is canonical.
func (s *sealer) id(c command, expires time.Time) string {
	raw := make([]byte, timeBytes+saltBytes, timeBytes+saltBytes+macBytes)
	var at [8]byte
	binary.BigEndian.PutUint64(at[:], uint64(expires.UnixMilli()))
	copy(raw, at[8-timeBytes:])
	_, _ = rand.Read(raw[timeBytes:]) // It never fails.
	return idPrefix + idEncoding().EncodeToString(append(raw, s.mac(raw, c)...))
}

// mac covers everything that must not change between prepare and commit.
func (s *sealer) mac(head []byte, c command) []byte {
	h := hmac.New(sha256.New, s.key)
	for _, part := range [][]byte{head, []byte(s.server), []byte(c.Path), c.Body} {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(part)))
		h.Write(size[:])
		h.Write(part)
	}
	return h.Sum(nil)[:macBytes]
}

// expiry reads an id; ok is false when it can't be one.
func expiry(id string) (at time.Time, raw []byte, ok bool) {
	digits, found := strings.CutPrefix(id, idPrefix)
	raw, err := idEncoding().DecodeString(digits)
	if !found || err != nil || len(raw) != timeBytes+saltBytes+macBytes || idEncoding().EncodeToString(raw) != digits {
		return time.Time{}, nil, false
	}
	var padded [8]byte
	copy(padded[8-timeBytes:], raw)
	return time.UnixMilli(int64(binary.BigEndian.Uint64(padded[:]))), raw, true //nolint:gosec // It has 48 bits.
}

// fits reports whether the id was made for this command.
func (s *sealer) fits(raw []byte, c command) bool {
	head := raw[:timeBytes+saltBytes]
	return hmac.Equal(raw[timeBytes+saltBytes:], s.mac(head, c))
}

// canonical writes a document in the one way that is sealed and sent: members in order, no spaces, numbers as they were written.
func canonical(document any) (jsontext.Value, error) {
	text, err := json.Marshal(document)
	if err != nil {
		return nil, err
	}
	v := jsontext.Value(text)
	err = v.Compact(jsontext.ReorderRawObjects(true), jsontext.PreserveRawStrings(false), jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false))
	return v, err
}
