package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/fairdraw/beacon"
	"github.com/fairlead-dev/fairlead/multidraw"
)

// verdict is what verify found.
type verdict struct {
	Valid      bool   `json:"valid"`
	Campaign   string `json:"campaign"`
	Commitment string `json:"commitment"`
	Positions  int    `json:"positions"`
	Winners    int    `json:"winners"`
	// Beacon is there when public randomness decided.
	Beacon     *beaconVerdict `json:"beacon,omitempty"`
	Difference string         `json:"difference,omitempty"`
}

func newVerify() *cobra.Command {
	var (
		published published
		asJSON    bool
	)
	cmd := &cobra.Command{
		Use:   "verify PROOF.json",
		Short: "Recompute a draw from its proof, offline",
		Long: "Recompute a draw from its proof, offline, and compare. The proof is the answer of\n" +
			"GET /v1/campaigns/{id}/proof or GET /v1/multidraws/{id}/proof; - reads it from standard input. Exit status 0: valid; 1: not valid, with the\n" +
			"first difference; 2: the proof could not be read.\n\n" +
			"A proof alone shows that the draw follows from its own seed. Give --commitment, as it was published with the\n" +
			"campaign, to see that this seed was chosen before the sale.\n\n" +
			"Where a public beacon decided, its signature is verified too, offline, for drand's public chains and for that of\n" +
			"--chain. Give --root and --round, as they were published at sell-out, to see that list and round were fixed\n" +
			"before the round was known.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			data, err := readProof(cmd, args[0])
			if err != nil {
				return err
			}
			if err := published.check(cmd); err != nil {
				return err
			}
			if multidraw.IsProof(data) {
				return verifyMultidraw(cmd, data, published.commitment, asJSON)
			}
			v := verify(data, published)
			return conclude(cmd, asJSON, v, v.Valid, v.print)
		},
	}
	published.bind(cmd.Flags())
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

func readProof(cmd *cobra.Command, name string) ([]byte, error) {
	in := cmd.InOrStdin()
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	// Files that have no size of their own, such as pipes and devices, end here too.
	data, err := io.ReadAll(io.LimitReader(in, fairdraw.MaxProofBytes+1))
	if err == nil && len(data) > fairdraw.MaxProofBytes {
		err = errors.New(name + " is too large for a proof")
	}
	return data, err
}

func verify(data []byte, published published) verdict {
	proof, err := fairdraw.ParseProof(data)
	if err != nil {
		return verdict{Difference: err.Error()}
	}
	v := verdict{Campaign: proof.Campaign, Commitment: proof.Commitment, Positions: len(proof.Positions), Winners: len(proof.Winners)}
	v.Beacon = describeBeacon(proof)
	if err = proof.VerifyBeacon(beacon.Trust(published.chains...)); err == nil {
		err = published.verify(proof)
	}
	if err != nil {
		v.Difference = err.Error()
	}
	v.Valid = err == nil
	return v
}

func (v *verdict) print(out io.Writer) {
	if v.Campaign != "" {
		_, _ = fmt.Fprintf(out, "campaign    %s\ncommitment  %s\npositions   %d\nwinners     %d\n", v.Campaign, v.Commitment, v.Positions, v.Winners)
	}
	if b := v.Beacon; b != nil {
		_, _ = fmt.Fprintf(out, "beacon      round %d of %s, due at %s\nchain       %s\n", b.Round, b.Chain, b.DueAt.Format(time.RFC3339), b.ChainHash)
	}
	if v.Valid {
		_, _ = fmt.Fprintln(out, "valid: the winners follow from the published data")
	} else {
		_, _ = fmt.Fprintln(out, "NOT VALID:", v.Difference)
	}
}

// multidrawVerdict is what verify found of a multi-draw.
type multidrawVerdict struct {
	Valid      bool   `json:"valid"`
	Operation  string `json:"operation"`
	Commitment string `json:"commitment"`
	Draws      int64  `json:"draws"`
	Difference string `json:"difference,omitempty"`
}

// verifyMultidraw draws a multi-draw again.
func verifyMultidraw(cmd *cobra.Command, data []byte, commitment string, asJSON bool) error {
	var v multidrawVerdict
	proof, err := multidraw.ParseProof(data)
	if err == nil {
		v.Operation, v.Commitment, v.Draws = proof.Operation, proof.Commitment, proof.Count
		err = proof.Verify(cmd.Context())
	}
	if err == nil && commitment != "" {
		err = proof.VerifyCommitment(commitment)
	}
	if cmd.Context().Err() != nil {
		return cmd.Context().Err()
	}
	v.Valid = err == nil
	if err != nil {
		v.Difference = err.Error()
	}
	return conclude(cmd, asJSON, v, v.Valid, func(out io.Writer) {
		if v.Valid {
			_, _ = fmt.Fprintf(out, "operation   %s\ncommitment  %s\ndraws       %d\nvalid: the draws follow from the published data\n", v.Operation, v.Commitment, v.Draws)
		} else {
			_, _ = fmt.Fprintln(out, "NOT VALID:", v.Difference)
		}
	})
}
