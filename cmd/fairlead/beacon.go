package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/fairdraw/beacon"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
)

// beaconSweep is how often sealed campaigns are looked after. What is not due costs a look at an index.
const beaconSweep = time.Second

// noBeacon is the value of --beacon-chain that turns the beacon off.
const noBeacon = "none"

// beaconOptions are the flags of the public randomness.
type beaconOptions struct {
	chain  string
	relays []string
	lead   time.Duration
}

// Limits of the flags.
const (
	maxBeaconLead = 24 * time.Hour
	// maxChainFile is the longest description of a chain. A true one takes some 500 bytes.
	maxChainFile = 64 << 10
)

func (o *beaconOptions) bind(f *pflag.FlagSet) {
	f.StringVar(&o.chain, "beacon-chain", "quicknet",
		"public randomness of campaigns in beacon mode: quicknet or default (drand's mainnet), a file with a chain's description as drand relays serve it, or none")
	f.StringSliceVar(&o.relays, "beacon-relays", nil, "base URLs of drand relays, asked in turn; drand's public ones when absent. They need not be trusted")
	f.DurationVar(&o.lead, "beacon-lead", 15*time.Second,
		"least time from a campaign's seal to the round that decides it: longer than the database's clock may be slow; a period of the chain at least")
}

func (o *beaconOptions) check() error {
	if o.lead < 0 || o.lead > maxBeaconLead {
		return fmt.Errorf("--beacon-lead must be between 0s and %s", maxBeaconLead)
	}
	_, _, err := o.build()
	return err
}

// build makes what the lottery asks for rounds; nil when there is to be no beacon.
func (o *beaconOptions) build() (*lottery.BeaconOptions, *beacon.Client, error) {
	if o.chain == noBeacon {
		return nil, nil, nil
	}
	chain, pinned := beacon.Named(o.chain)
	relays := o.relays
	if !pinned {
		var err error
		if chain, err = readChain(o.chain); err != nil {
			return nil, nil, fmt.Errorf("--beacon-chain: %w", err)
		}
		if len(relays) == 0 {
			return nil, nil, errors.New("--beacon-relays is needed with a chain of your own")
		}
	}
	if len(relays) == 0 {
		relays = beacon.PublicRelays()
	}
	client, err := beacon.NewClient(beacon.ClientOptions{Relays: relays})
	if err != nil {
		return nil, nil, fmt.Errorf("--beacon-relays: %w", err)
	}
	return &lottery.BeaconOptions{Chain: chain, Source: client, Lead: o.lead}, client, nil
}

func readChain(name string) (fairdraw.Chain, error) {
	f, err := os.Open(name)
	if err != nil {
		return fairdraw.Chain{}, err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, maxChainFile))
	if err != nil {
		return fairdraw.Chain{}, err
	}
	return beacon.ParseChain(data)
}

// startBeacon makes the source of rounds, and says so where it is not a chain that everybody can know.
func (n *node) startBeacon() (*lottery.BeaconOptions, error) {
	options, client, err := n.o.beacon.build()
	if err != nil || options == nil {
		return nil, err
	}
	n.onClose(func(context.Context) error { client.Close(); return nil })
	if _, public := beacon.Known(options.Chain.Hash()); !public {
		n.logger.Warn("the beacon is not a public one: whoever has its key knows draws in advance",
			"chain", options.Chain.BeaconID, "chain_hash", options.Chain.Hash())
	}
	return options, nil
}
