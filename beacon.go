package fairlead

import (
	"context"
	"os"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/fairdraw/beacon"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
)

// noBeacon is the value of Options.BeaconChain that turns the beacon off.
const noBeacon = "none"

// beacon makes what the lottery asks for rounds; nil when there is to be no beacon.
func (o *Options) beacon() (*lottery.BeaconOptions, *beacon.Client, error) {
	if o.BeaconChain == noBeacon {
		return nil, nil, nil
	}
	chain, pinned := beacon.Named(o.BeaconChain)
	relays := o.BeaconRelays
	if !pinned {
		var err error
		if chain, err = readChain(o.BeaconChain); err != nil {
			return nil, nil, wrong("BeaconChain", "%w", err)
		}
		if len(relays) == 0 {
			return nil, nil, wrong("BeaconRelays", "needed with a chain of your own")
		}
	}
	if len(relays) == 0 {
		relays = beacon.PublicRelays()
	}
	client, err := beacon.NewClient(beacon.ClientOptions{Relays: relays})
	if err != nil {
		return nil, nil, wrong("BeaconRelays", "%w", err)
	}
	return &lottery.BeaconOptions{Chain: chain, Source: client, Lead: o.BeaconLead}, client, nil
}

func readChain(name string) (fairdraw.Chain, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return fairdraw.Chain{}, err
	}
	return beacon.ParseChain(data)
}

// startBeacon makes the source of rounds, and warns if its chain is not one of drand's public ones.
func (s *Server) startBeacon() (*lottery.BeaconOptions, error) {
	options, client, err := s.o.beacon()
	if err != nil || options == nil {
		return nil, err
	}
	s.onClose(func(context.Context) error { client.Close(); return nil })
	if _, public := beacon.Known(options.Chain.Hash()); !public {
		s.logger.Warn("the beacon is not a public one: whoever has its key knows draws in advance",
			"chain", options.Chain.BeaconID, "chain_hash", options.Chain.Hash())
	}
	return options, nil
}
