package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/translog"
	"github.com/fairlead-dev/fairlead/translog/seal"
)

// sealKeys are the flags that say whom to believe about the seal of a draw.
type sealKeys struct {
	keys seal.Keys
}

func (k *sealKeys) bind(f *pflag.FlagSet) {
	f.StringVar(&k.keys.Log, "log-key", "", "verifier key of the public log, as /log/key has it: demands a proof whose seal is in that log")
	f.StringArrayVar(&k.keys.Witnesses, "witness", nil, "verifier key of a witness of the log, to be counted if it has seen the seal before the round; may be given several times")
	f.IntVar(&k.keys.Quorum, "witness-quorum", 0, "how many of the given witnesses must have (default 1, where any is given)")
}

// check refuses what can't be meant.
func (k *sealKeys) check(cmd *cobra.Command) error {
	given := cmd.Flags().Changed
	switch n := len(k.keys.Witnesses); {
	case given("log-key") && k.keys.Log == "":
		return errors.New("--log-key is empty: give the log's verifier key, or leave the flag out")
	case n > 0 && k.keys.Log == "":
		return errors.New("--witness needs --log-key: a witness's signature is about one log")
	case given("witness-quorum") && (k.keys.Quorum < 1 || k.keys.Quorum > n):
		return fmt.Errorf("--witness-quorum is %d of %d witnesses that are given", k.keys.Quorum, n)
	case k.keys.Quorum == 0:
		k.keys.Quorum = min(n, 1)
	}
	if k.keys.Log != "" {
		if _, err := translog.LogKeyName(k.keys.Log); err != nil {
			return fmt.Errorf("--log-key: %w", err)
		}
	}
	for _, w := range k.keys.Witnesses {
		if _, err := translog.WitnessKeyName(w); err != nil {
			return fmt.Errorf("--witness: %w", err)
		}
	}
	return nil
}

// given reports whether a seal is demanded.
func (k *sealKeys) given() bool { return k.keys.Log != "" }

// sealVerdict says what a proof's seal in a public log shows.
type sealVerdict struct {
	Log        string    `json:"log"`
	Index      int64     `json:"index"`
	Size       int64     `json:"size"`
	SealedAt   time.Time `json:"sealed_at"`
	Signatures int       `json:"signatures"`
	// LogVerified says that the log's signature was verified, and Witnesses name those that have certainly signed before the round was due.
	LogVerified bool     `json:"log_verified"`
	Witnesses   []string `json:"witnesses"`
	// SecondsBefore is how long before the round the last of those had signed; absent without any.
	SecondsBefore *int64 `json:"seconds_before,omitempty"`
}

// verify verifies the seal of a proof that is valid otherwise. It returns nil where there is none, and none is demanded.
func (k *sealKeys) verify(p *fairdraw.Proof) (*sealVerdict, error) {
	if p.Seal == nil && !k.given() {
		return nil, nil
	}
	s, err := seal.Verify(p, k.keys)
	if s == nil {
		return nil, err
	}
	v := &sealVerdict{Log: s.Origin, Index: s.Index, Size: s.Size, SealedAt: s.SealedAt, Signatures: s.Signatures, LogVerified: s.Signed, Witnesses: []string{}}
	for _, c := range s.By {
		v.Witnesses = append(v.Witnesses, c.Name)
	}
	if len(s.By) > 0 {
		v.SecondsBefore = new(int64(s.Before() / time.Second))
	}
	return v, err
}

func (v *sealVerdict) print(out io.Writer) {
	_, _ = fmt.Fprintf(out, "log         %s, entry %d of %d, sealed at %s\n", plain(v.Log), v.Index, v.Size, v.SealedAt.Format(time.RFC3339))
	switch {
	case v.SecondsBefore != nil:
		_, _ = fmt.Fprintf(out, "seal        sealed %d s before the round, seen by %s\n", *v.SecondsBefore, count(len(v.Witnesses), "witness", "witnesses"))
	case v.LogVerified:
		_, _ = fmt.Fprintf(out, "seal        signed by the log; of %s on the checkpoint no other was verified: give --witness VKEY\n", count(v.Signatures, "signature", "signatures"))
	default:
		_, _ = fmt.Fprintf(out, "seal        %s on the checkpoint, none of which was verified: give --log-key VKEY and --witness VKEY\n", count(v.Signatures, "signature", "signatures"))
	}
}
