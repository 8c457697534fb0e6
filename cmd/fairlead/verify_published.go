package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fairlead-dev/fairlead/fairdraw"
)

// published is what was public before a draw, against which its proof is held.
type published struct {
	commitment string
	root       string
	round      uint64
	chains     []string
}

func (p *published) bind(f *pflag.FlagSet) {
	f.StringVar(&p.commitment, "commitment", "", "the published commitment that the proof must reveal, in hex")
	f.StringVar(&p.root, "root", "", "the root that was published at sell-out, in hex")
	f.Uint64Var(&p.round, "round", 0, "the beacon's round that was named at sell-out: demands a proof that it decided")
	f.StringSliceVar(&p.chains, "chain", nil, "hash of a beacon's chain to trust beside drand's public ones, in hex")
}

// check refuses a value that was given and is empty: a script whose variable is not set would verify less than it means to. It
// refuses a hash that can't be one, too, and lets hashes have capital letters.
func (p *published) check(cmd *cobra.Command) error {
	for _, name := range []string{"commitment", "root", "round"} {
		flag := cmd.Flags().Lookup(name)
		if flag.Changed && (flag.Value.String() == "" || flag.Value.String() == "0") {
			return fmt.Errorf("--%s is empty: give the published one, or leave the flag out", name)
		}
	}
	for name, value := range map[string]*string{"commitment": &p.commitment, "root": &p.root} {
		*value = strings.ToLower(*value)
		if b, err := hex.DecodeString(*value); err != nil || *value != "" && len(b) != sha256.Size {
			return fmt.Errorf("--%s must be a SHA-256: %d hexadecimal digits", name, hex.EncodedLen(sha256.Size))
		}
	}
	return nil
}

// given names the published values to compare with.
func (p *published) given() []string {
	names := []string{}
	for _, v := range []struct {
		name  string
		given bool
	}{{"commitment", p.commitment != ""}, {"root", p.root != ""}, {"round", p.round != 0}} {
		if v.given {
			names = append(names, v.name)
		}
	}
	return names
}

// verify holds a proof that is valid in itself against what was published.
func (p *published) verify(proof *fairdraw.Proof) error {
	if p.commitment != "" {
		if err := proof.VerifyCommitment(p.commitment); err != nil {
			return err
		}
	}
	if p.root != "" && proof.Root != p.root {
		return &fairdraw.Difference{Field: "root", Want: p.root, Got: proof.Root}
	}
	if p.round != 0 {
		got := "no beacon"
		if proof.Source != nil {
			got = strconv.FormatUint(proof.Source.Round, 10)
		}
		if want := strconv.FormatUint(p.round, 10); got != want {
			return &fairdraw.Difference{Field: "beacon.round", Want: want, Got: got}
		}
	}
	return nil
}

// beaconVerdict says which round decided.
type beaconVerdict struct {
	Chain     string    `json:"chain"`
	ChainHash string    `json:"chain_hash"`
	Round     uint64    `json:"round"`
	DueAt     time.Time `json:"due_at"`
}

func describeBeacon(p *fairdraw.Proof) *beaconVerdict {
	if p.Source == nil {
		return nil
	}
	return &beaconVerdict{
		Chain: p.Source.Chain.BeaconID, ChainHash: p.Source.ChainHash, Round: p.Source.Round, DueAt: p.Source.Chain.TimeOf(p.Source.Round),
	}
}
