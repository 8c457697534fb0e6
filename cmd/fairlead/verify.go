package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
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
	Beacon *beaconVerdict `json:"beacon,omitempty"`
	// Seal is there when the proof has its seal in a public log.
	Seal *sealVerdict `json:"seal,omitempty"`
	// Compared names the published values that were given, such as "commitment".
	Compared   []string `json:"compared"`
	Difference string   `json:"difference,omitempty"`
}

func newVerify() *cobra.Command {
	var (
		published published
		sealed    sealKeys
		asJSON    bool
	)
	cmd := &cobra.Command{
		Use:   "verify PROOF.json",
		Short: "Recompute a draw from its proof, offline",
		Long: "Recompute a draw from its proof, offline, and compare. The proof is the answer of GET /v1/campaigns/{id}/proof\n" +
			"or GET /v1/multidraws/{id}/proof; - reads it from standard input. Exit status 0: valid; 1: not valid, or no proof\n" +
			"at all, with the first difference; 2: the input could not be read, or a flag is wrong.\n\n" +
			"A proof alone shows that the draw follows from its own seed. Give --commitment, as it was published with the\n" +
			"campaign, to check that this seed was chosen before the sale. Take it from where it was published, not from the\n" +
			"proof.\n\n" +
			"If a public beacon decided, its signature is verified too, offline, for drand's public chains and for the chain\n" +
			"named by --chain. Give --root and --round, as they were published at sell-out, to check that list and round were\n" +
			"fixed before the round was known. A proof may carry that itself: the seal in the server's public log, as witnesses have\n" +
			"seen it. Give --log-key and --witness, from where you trust them, and it says how long before the round that was and\n" +
			"how many of these witnesses have seen it.",
		Example: "  fairlead verify proof.json --commitment 01d0fabd251fcbbe2b93b4b927b26ad2a1a99077152e45ded1e678afa45dbec5\n" +
			"  curl -s -H \"Authorization: Bearer $KEY\" http://127.0.0.1:8080/v1/campaigns/ID/proof | fairlead verify -",
		Args: one("the file of a proof, or -"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := errors.Join(published.check(cmd), sealed.check(cmd)); err != nil {
				return err
			}
			data, err := readProof(cmd, args[0])
			if foreign, ok := errors.AsType[notProofError](err); ok {
				v := verdict{Compared: []string{}, Difference: foreign.Error()}
				return conclude(cmd, asJSON, v, false, v.print)
			}
			if err != nil {
				return err
			}
			if multidraw.IsProof(data) {
				if sealed.given() {
					return errors.New("--log-key is for the proof of a campaign, and this is one of a multi-draw")
				}
				return verifyMultidraw(cmd, data, published, asJSON)
			}
			v := verify(data, published, sealed)
			return conclude(cmd, asJSON, v, v.Valid, v.print)
		},
	}
	published.bind(cmd.Flags())
	sealed.bind(cmd.Flags())
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

// notProofError says of an input that was read why it is no proof, not even an altered one.
type notProofError string

func (e notProofError) Error() string { return string(e) }

// readProof reads the input. It returns [notProofError] where that is something else than a proof.
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
		err = notProofError(name + " is too large for a proof")
	}
	if err == nil {
		err = judgeable(name, data)
	}
	return data, err
}

// judgeable returns [notProofError] if the input can't be a proof, not even an altered one: it is not JSON, or has nothing of a proof.
func judgeable(name string, data []byte) error {
	var members struct {
		Seed    jsontext.Value `json:"server_seed"`
		Winners jsontext.Value `json:"winners"`
		Title   string         `json:"title"`
		Detail  string         `json:"detail"`
		Code    string         `json:"code"`
	}
	// An altered proof may have a member twice: it is readable, and not valid.
	err := json.Unmarshal(data, &members, jsontext.AllowDuplicateNames(true))
	switch {
	case len(bytes.TrimSpace(data)) == 0:
		return notProofError(name + " is empty")
	case !jsontext.Value(data).IsValid(jsontext.AllowDuplicateNames(true)):
		return notProofError(name + " is not a proof: it is not JSON")
	case members.Seed != nil || members.Winners != nil:
		return nil
	case err == nil && members.Code != "":
		return notProofError(fmt.Sprintf("%s is not a proof, but a server's refusal: %s: %s", name, members.Code, cmp.Or(members.Detail, members.Title)))
	}
	return notProofError(name + " is not a proof: it has no server_seed and no winners")
}

func verify(data []byte, published published, sealed sealKeys) verdict {
	proof, err := fairdraw.ParseProof(data)
	if err != nil {
		return verdict{Compared: []string{}, Difference: err.Error()}
	}
	v := verdict{Compared: published.given(), Campaign: proof.Campaign, Commitment: proof.Commitment, Positions: len(proof.Positions), Winners: len(proof.Winners)}
	v.Beacon = describeBeacon(proof)
	if err = proof.VerifyBeacon(beacon.Trust(published.chains...)); err == nil {
		err = published.verify(proof)
	}
	if err == nil {
		v.Seal, err = sealed.verify(proof)
	}
	if err != nil {
		v.Difference = err.Error()
	}
	v.Valid = err == nil
	return v
}

func (v *verdict) print(out io.Writer) {
	if v.Campaign != "" {
		_, _ = fmt.Fprintf(out, "campaign    %s\ncommitment  %s\npositions   %d\nwinners     %d\n", plain(v.Campaign), plain(v.Commitment), v.Positions, v.Winners)
	}
	if b := v.Beacon; b != nil {
		_, _ = fmt.Fprintf(out, "beacon      round %d of %s, due at %s\nchain       %s\n", b.Round, plain(b.Chain), b.DueAt.Format(time.RFC3339), plain(b.ChainHash))
	}
	if v.Seal != nil {
		v.Seal.print(out)
	}
	printVerdict(out, "the winners", "the campaign", v.Compared, v.Difference)
}

// plain is a text of somebody else's, quoted where it is not one line of printed characters: it must not look like what verify says.
func plain(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}

// printVerdict prints what a proof shows, and what it does not show.
func printVerdict(out io.Writer, drawn, committed string, compared []string, difference string) {
	switch {
	case difference != "":
		_, _ = fmt.Fprintln(out, "NOT VALID:", difference)
		return
	case len(compared) > 0:
		_, _ = fmt.Fprintf(out, "compared    %s, as published\nvalid: %s follow from the published data\n", strings.Join(compared, ", "), drawn)
	default:
		_, _ = fmt.Fprintf(out, "valid: %s follow from the seed in this proof; nothing published was compared\n", drawn)
	}
	if !slices.Contains(compared, "commitment") {
		_, _ = fmt.Fprintf(out, "note: this does not show that the seed was chosen beforehand: compare with --commitment HEX, as published with %s\n", committed)
	}
}

// multidrawVerdict is what verify found of a multi-draw.
type multidrawVerdict struct {
	Valid      bool   `json:"valid"`
	Operation  string `json:"operation"`
	Commitment string `json:"commitment"`
	Draws      int64  `json:"draws"`
	// Compared names the published values that were given.
	Compared   []string `json:"compared"`
	Difference string   `json:"difference,omitempty"`
}

// verifyMultidraw draws a multi-draw again.
func verifyMultidraw(cmd *cobra.Command, data []byte, published published, asJSON bool) error {
	if published.root != "" || published.round != 0 {
		return errors.New("--root and --round are for the proof of a campaign, and this is one of a multi-draw")
	}
	v := multidrawVerdict{Compared: published.given()}
	proof, err := multidraw.ParseProof(data)
	if err == nil {
		v.Operation, v.Commitment, v.Draws = proof.Operation, proof.Commitment, proof.Count
		err = proof.Verify(cmd.Context())
	}
	if err == nil && published.commitment != "" {
		err = proof.VerifyCommitment(published.commitment)
	}
	if cmd.Context().Err() != nil {
		return cmd.Context().Err()
	}
	v.Valid = err == nil
	if err != nil {
		v.Difference = err.Error()
	}
	return conclude(cmd, asJSON, v, v.Valid, func(out io.Writer) {
		if v.Operation != "" {
			_, _ = fmt.Fprintf(out, "operation   %s\ncommitment  %s\ndraws       %d\n", plain(v.Operation), plain(v.Commitment), v.Draws)
		}
		printVerdict(out, "the draws", "the operation", v.Compared, v.Difference)
	})
}
