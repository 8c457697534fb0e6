package server

import (
	"encoding/hex"

	"github.com/fairlead-dev/fairlead/internal/services/lottery"
)

// beaconView is what is known of the round that decides a campaign: the chain from the campaign's creation on, the seal
// from the last sale on.
type beaconView struct {
	Status      string     `json:"status" from:"-" enum:"unsealed,waiting,delayed,drawn" doc:"delayed: the round is due and cannot be had; it is tried again until it can"`
	ChainHash   string     `json:"chain_hash" from:"-" doc:"hex"`
	Chain       string     `json:"chain" from:"Chain.BeaconID" doc:"the chain's name"`
	Scheme      string     `json:"scheme" from:"Chain.Scheme"`
	PublicKey   string     `json:"public_key" from:"Chain.PublicKey" doc:"the chain's, in hex"`
	Period      int        `json:"period" from:"Chain.PeriodSeconds" doc:"seconds between two rounds"`
	GenesisTime int64      `json:"genesis_time" from:"Chain.GenesisTime" doc:"when round 1 was due, Unix seconds"`
	Round       *int64     `json:"round" from:"-" doc:"the one that decides; null before everything is sold"`
	Root        *string    `json:"root" from:"-" doc:"hex root of the sealed positions; null before everything is sold"`
	SealedAt    *timestamp `json:"sealed_at" from:"-"`
	DueAt       *timestamp `json:"due_at" from:"-" doc:"when the round is to appear"`
	Attempts    int        `json:"attempts" doc:"to get the round in vain since it was due"`
	Failure     *string    `json:"failure" doc:"what the last attempt came to, in one word, such as not_published, timeout or bad_signature"`
	Early       bool       `json:"early" doc:"the round was public before it was due by the database's clock: do not rely on nobody's having known it"`
}

func viewBeacon(c *lottery.Campaign) *beaconView {
	b := c.Beacon
	if b == nil {
		return nil
	}
	v := as[beaconView](b)
	v.Status, v.ChainHash = "unsealed", b.Chain.Hash()
	if b.Seal == nil {
		return &v
	}
	v.Round, v.Root = new(int64(b.Seal.Round)), new(hex.EncodeToString(b.Seal.Root[:])) //nolint:gosec // Below 2^53.
	v.SealedAt, v.DueAt = new(timestamp(b.Seal.SealedAt)), new(timestamp(b.Seal.DueAt))
	switch {
	case c.Status == lottery.StatusCompleted:
		v.Status = "drawn"
	case b.Delayed:
		v.Status = "delayed"
	default:
		v.Status = "waiting"
	}
	return &v
}
