package fairdraw

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"time"
)

// Limits of a public beacon's description.
const (
	MaxBeaconPeriod = 24 * time.Hour // the longest time between two rounds
	// MaxBeaconRound is the last round that a document can name: the largest integer that every JSON reader keeps exactly.
	MaxBeaconRound = 1<<53 - 1
	// maxKeyBytes bounds public keys and genesis seeds. BLS keys take 48 or 96.
	maxKeyBytes    = 256
	maxGenesisTime = 253402300800 // the start of the year 10000, which no timestamp of RFC 3339 passes
)

// defaultBeaconID is the one id that drand leaves out of a chain's hash, because the chain is older than ids are.
const defaultBeaconID = "default"

// Chain describes a public randomness beacon of drand's kind: a key that signs a round every period, for ever. It is
// comparable, and its JSON form has the names of drand's own description of a chain.
//
// This package names rounds and binds them; package fairdraw/beacon verifies their signatures.
type Chain struct {
	Scheme        string `json:"scheme"`       // drand's name of the way in which rounds are signed
	PublicKey     string `json:"public_key"`   // the chain's key in lower-case hexadecimal
	PeriodSeconds int    `json:"period"`       // the time between two rounds
	GenesisTime   int64  `json:"genesis_time"` // when round 1 is due, in seconds of Unix time
	GenesisSeed   string `json:"genesis_seed"` // the hash of the group that began the chain, in lower-case hexadecimal
	BeaconID      string `json:"beacon_id"`    // the chain's name among those who run it
}

// Round is one round of a chain, unknown to everybody before it was due.
type Round struct {
	Number    uint64
	Signature []byte // the chain's signature of the round
	Previous  []byte // the signature of the round before, on chains that sign it too; empty on others
}

// BeaconSource says of which round of which chain a proof's signature is.
type BeaconSource struct {
	Chain             Chain
	ChainHash         string // [Chain.Hash], by which chains are known
	Round             uint64
	PreviousSignature string // in lower-case hexadecimal, and empty where the chain does not sign it
}

// Validate returns the first rule that the description breaks, as an [*InputError] on [ErrBadInput], or nil. Whether key
// and scheme are known, and whether the chain is one to be trusted, is not its business.
func (c Chain) Validate() error {
	for _, f := range [...]struct{ name, value string }{{"scheme", c.Scheme}, {"beacon_id", c.BeaconID}} {
		if reason := textProblem(f.value); reason != "" {
			return badInput(f.name, "%s", reason)
		}
	}
	for _, f := range [...]struct{ name, value string }{{"public_key", c.PublicKey}, {"genesis_seed", c.GenesisSeed}} {
		if n := len(f.value) / 2; n < 1 || n > maxKeyBytes || !isHex(f.value, n) {
			return badInput(f.name, "not 1 to %d bytes in lower-case hexadecimal", maxKeyBytes)
		}
	}
	if c.PeriodSeconds < 1 || c.Period() > MaxBeaconPeriod {
		return badInput("period", "%d is not 1 to %d seconds", c.PeriodSeconds, int(MaxBeaconPeriod/time.Second))
	}
	if c.GenesisTime < 1 || c.GenesisTime >= maxGenesisTime {
		return badInput("genesis_time", "%d is not 1 to %d", c.GenesisTime, int64(maxGenesisTime)-1)
	}
	return nil
}

// Hash is the chain's hash as drand defines it, in lower-case hexadecimal: SHA-256 over period, genesis time, public key,
// genesis seed and, unless it is "default", the id. The chain must be valid.
func (c Chain) Hash() string {
	key, err := hex.DecodeString(c.PublicKey)
	seed, err2 := hex.DecodeString(c.GenesisSeed)
	if err != nil || err2 != nil {
		panic("fairdraw: hash of a chain that is not valid")
	}
	msg := appendUint32(nil, c.PeriodSeconds)
	msg = binary.BigEndian.AppendUint64(msg, uint64(c.GenesisTime)) //nolint:gosec // Two's complement, as drand has it.
	msg = append(msg, key...)
	msg = append(msg, seed...)
	if c.BeaconID != defaultBeaconID {
		msg = append(msg, c.BeaconID...)
	}
	sum := sha256.Sum256(msg)
	return hex.EncodeToString(sum[:])
}

// Period is the time between two rounds.
func (c Chain) Period() time.Duration { return time.Duration(c.PeriodSeconds) * time.Second }

// TimeOf is when a round is due; round 1 at the genesis time. The round is 1 to MaxBeaconRound.
func (c Chain) TimeOf(round uint64) time.Time {
	if round < 1 || round > MaxBeaconRound {
		panic("fairdraw: round " + strconv.FormatUint(round, 10) + " does not exist")
	}
	// A product beyond an int64 would be a time after the sun's: it saturates.
	const end = 1 << 62
	periods, period := int64(round-1), int64(c.PeriodSeconds)
	if periods > (end-c.GenesisTime)/period {
		return time.Unix(end, 0).UTC()
	}
	return time.Unix(c.GenesisTime+periods*period, 0).UTC()
}

// FirstFrom is the first round that is due at t or later.
func (c Chain) FirstFrom(t time.Time) uint64 {
	genesis := time.Unix(c.GenesisTime, 0)
	if !t.After(genesis) {
		return 1
	}
	// The seconds are rounded up before they are divided: times have fractions.
	seconds := t.Unix() - c.GenesisTime
	if t.Nanosecond() > 0 {
		seconds++
	}
	period := int64(c.PeriodSeconds)
	return uint64((seconds+period-1)/period) + 1 //nolint:gosec // Positive.
}

// NameRound names the round that decides a draw which is sealed now: the first that is due a full period and at least lead
// after that, so that nobody can know it yet. A negative lead is none.
func (c Chain) NameRound(now time.Time, lead time.Duration) uint64 {
	return c.FirstFrom(now.Add(max(lead, c.Period())))
}

// check validates a document's beacon, and that the chain's hash is that of its parameters.
func (s *BeaconSource) check() error {
	if err := s.Chain.Validate(); err != nil {
		if bad, ok := err.(*InputError); ok { //nolint:errorlint // Made by Validate, never wrapped.
			bad.Field = "beacon." + bad.Field
		}
		return err
	}
	if want := s.Chain.Hash(); s.ChainHash != want {
		return &Difference{Field: "beacon.chain_hash", Want: want, Got: s.ChainHash}
	}
	if s.Round < 1 || s.Round > MaxBeaconRound {
		return badInput("beacon.round", "%d is not 1 to %d", s.Round, uint64(MaxBeaconRound))
	}
	if n := len(s.PreviousSignature) / 2; n > MaxBeaconBytes || !isHex(s.PreviousSignature, n) {
		return badInput("beacon.previous_signature", "not up to %d bytes in lower-case hexadecimal", MaxBeaconBytes)
	}
	return nil
}
