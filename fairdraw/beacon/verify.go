package beacon

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/cloudflare/circl/ecc/bls12381"
	"github.com/cloudflare/circl/sign/bls"

	"github.com/fairlead-dev/fairlead/fairdraw"
)

// The schemes that Verify knows, by drand's names.
const (
	// SchemeUnchained signs SHA-256 of the round's number: keys on G2, signatures on G1, hashed to the curve as RFC 9380
	// has it. Quicknet's.
	SchemeUnchained = "bls-unchained-g1-rfc9380"
	// SchemeChained signs SHA-256 of the previous signature and the round's number: keys on G1, signatures on G2. That of
	// drand's first chain.
	SchemeChained = "pedersen-bls-chained"
)

// Sizes of compressed points, in bytes.
const (
	g1Bytes = bls12381.G1SizeCompressed
	g2Bytes = bls12381.G2SizeCompressed
)

// Check tells whether Verify can verify rounds of the chain: its description is valid, its scheme known, and its key a
// point of the right group. It returns a [*fairdraw.InputError], or [ErrUnknownScheme].
func Check(c fairdraw.Chain) error {
	if err := c.Validate(); err != nil {
		return err
	}
	switch c.Scheme {
	case SchemeUnchained:
		_, err := publicKey[bls.KeyG2SigG1](c, g2Bytes)
		return err
	case SchemeChained:
		_, err := publicKey[bls.KeyG1SigG2](c, g1Bytes)
		return err
	}
	return fmt.Errorf("%w: %q", ErrUnknownScheme, c.Scheme)
}

// Verify tells whether r is a genuine round of the chain. It returns nil, [ErrBadSignature], or an error of [Check].
// Whether the chain deserves trust is for [Trust] to tell. It takes about three milliseconds.
func Verify(c fairdraw.Chain, r fairdraw.Round) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if r.Number < 1 || r.Number > fairdraw.MaxBeaconRound {
		return fmt.Errorf("%w: round %d does not exist", ErrBadSignature, r.Number)
	}
	var message []byte
	switch chained := c.Scheme == SchemeChained; {
	case !chained && len(r.Previous) > 0:
		// It would be bound by nothing.
		return fmt.Errorf("%w: the chain has no previous signatures", ErrBadSignature)
	case chained && len(r.Previous) != g2Bytes && r.Number > 1:
		return fmt.Errorf("%w: the previous signature has %d bytes", ErrBadSignature, len(r.Previous))
	case chained:
		message = slices.Clone(r.Previous)
	}
	digest := sha256.Sum256(binary.BigEndian.AppendUint64(message, r.Number))
	switch c.Scheme {
	case SchemeUnchained:
		return verify[bls.KeyG2SigG1](c, g2Bytes, digest[:], r.Signature, new(bls12381.G1))
	case SchemeChained:
		return verify[bls.KeyG1SigG2](c, g1Bytes, digest[:], r.Signature, new(bls12381.G2))
	}
	return fmt.Errorf("%w: %q", ErrUnknownScheme, c.Scheme)
}

// verify accepts only the canonical encoding of the signature as a point.
func verify[K bls.KeyGroup](c fairdraw.Chain, keySize int, message, signature []byte, point interface {
	SetBytes([]byte) error
	BytesCompressed() []byte
},
) error {
	key, err := publicKey[K](c, keySize)
	if err != nil {
		return err
	}
	if point.SetBytes(signature) != nil || !bytes.Equal(point.BytesCompressed(), signature) || !bls.Verify(key, message, signature) {
		return ErrBadSignature
	}
	return nil
}

// publicKey reads a chain's key. Both groups have a subgroup, in which the point must be; the library checks that.
func publicKey[K bls.KeyGroup](c fairdraw.Chain, size int) (*bls.PublicKey[K], error) {
	raw, err := hex.DecodeString(c.PublicKey)
	key := new(bls.PublicKey[K])
	if err != nil || len(raw) != size || key.UnmarshalBinary(raw) != nil || !key.Validate() {
		return nil, &fairdraw.InputError{
			Field: "public_key", Reason: "not a key of the scheme " + c.Scheme, Err: fairdraw.ErrBadInput,
		}
	}
	return key, nil
}

// Trust makes what [fairdraw.Proof.VerifyBeacon] asks for: Verify, for the chains that are [Known] and for those with the
// given hashes. For all others it returns [ErrUntrusted]: a signature proves nothing when its key may be the operator's.
func Trust(hashes ...string) func(fairdraw.Chain, fairdraw.Round) error {
	return func(c fairdraw.Chain, r fairdraw.Round) error {
		if err := c.Validate(); err != nil {
			return err
		}
		hash := c.Hash()
		if known, ok := Known(hash); ok && known != c {
			// The hash leaves out the scheme alone.
			return &fairdraw.Difference{Field: "beacon.scheme", Want: known.Scheme, Got: c.Scheme}
		} else if !ok && !slices.Contains(hashes, hash) {
			return fmt.Errorf("%w: %s", ErrUntrusted, hash)
		}
		if err := Verify(c, r); err != nil {
			return fmt.Errorf("beacon: %w", err)
		}
		return nil
	}
}
