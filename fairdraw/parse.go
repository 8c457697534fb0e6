package fairdraw

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// MaxProofBytes is the longest document that ParseProof reads: the largest draw with the longest texts stays below it in
// practice.
const MaxProofBytes = 1 << 30

// MaxInclusionProofBytes is the longest document that ParseInclusionProof reads. A true one takes some 2 kB.
const MaxInclusionProofBytes = 1 << 16

// maxSiblings is the height of the tallest tree, of MaxPositions leaves.
const maxSiblings = 20

// ParseProof reads a proof document and nothing but one: it returns a [*FormatError] that says where on unknown, missing
// and duplicate fields, names in another case, null, numbers not written as plain integers, hexadecimal not in lower case
// or of another length, invalid UTF-8, lone surrogates, and trailing data. White space, the order of fields and escapes in
// texts are free. It does not recompute: that is [Proof.Verify].
func ParseProof(data []byte) (*Proof, error) { return parse(data, MaxProofBytes, "1 GiB", readProof) }

// ParseInclusionProof reads an inclusion proof as strictly as ParseProof reads a proof. It returns a [*FormatError].
func ParseInclusionProof(data []byte) (*InclusionProof, error) {
	return parse(data, MaxInclusionProofBytes, "64 KiB", readInclusion)
}

func parse[T any](data []byte, most int, spelt string, read func(*T) value) (*T, error) {
	if len(data) > most {
		return nil, &FormatError{Offset: most, Reason: "document longer than " + spelt}
	}
	into := new(T)
	if err := readDocument(data, read(into)); err != nil {
		return nil, err
	}
	return into, nil
}

// version refuses a version that this package does not know, before the rest of the document is given a meaning that it may
// not have.
func version(into *int, known ...int) value {
	const most = 1_000_000
	read := integer(into, 0, most)
	return func(r *reader) error {
		start := r.pos
		err := read(r)
		if err == nil && !slices.Contains(known, *into) {
			r.pos = start
			return r.fail("version %d is not known, only %s", *into, strings.Trim(fmt.Sprint(known), "[]"))
		}
		return err
	}
}

func versions(v *Versions, documents ...int) value {
	return object(field{"document", version(&v.Document, documents...)}, field{"algorithm", version(&v.Algorithm, AlgorithmVersion)})
}

func readProof(p *Proof) value {
	beaconAt, sealAt := -1, -1
	fields := []field{
		{"versions", versions(&p.Versions, DocumentVersion, BeaconDocumentVersion, SealedDocumentVersion)},
		{"campaign", text(&p.Campaign)},
		{"commitment", digest(&p.Commitment)},
		{"server_seed", digest(&p.ServerSeed)},
		{"root", digest(&p.Root)},
		{"draw_seed", digest(&p.DrawSeed)},
		{"positions", list(&p.Positions, MaxPositions, readPosition)},
		{"prizes", list(&p.Prizes, MaxPrizes, readPrize)},
		{"winners", list(&p.Winners, MaxWinners, readWinner)},
		{"beacon", func(r *reader) error {
			beaconAt = r.pos
			return readBeacon(r, p)
		}},
		{"seal", func(r *reader) error {
			sealAt, p.Seal = r.pos, new(Seal)
			return readSeal(p.Seal)(r)
		}},
	}
	return func(r *reader) error {
		const optional = 2
		if _, err := r.object(optional, fields); err != nil {
			return err
		}
		// Fields have no order, so that only now all are known.
		switch round, sealed := p.Versions.Document >= BeaconDocumentVersion, p.Versions.Document == SealedDocumentVersion; {
		case round && beaconAt < 0:
			return &FormatError{Path: "beacon", Offset: r.pos, Reason: "missing"}
		case round != (p.Source != nil):
			return &FormatError{Path: "beacon", Offset: beaconAt, Reason: "not that of the document's version"}
		case sealed && sealAt < 0:
			return &FormatError{Path: "seal", Offset: r.pos, Reason: "missing"}
		case !sealed && sealAt >= 0:
			return &FormatError{Path: "seal", Offset: sealAt, Reason: "not in a document of this version"}
		}
		return nil
	}
}

// Limits of a seal in a public log.
const (
	maxLeafBytes       = 65_535
	maxCheckpointBytes = 128 << 10
	maxLogIndex        = 1<<53 - 2 // a log that has it has up to 2^53−1 leaves
	maxLogSiblings     = 53
)

func readSeal(s *Seal) value {
	return object(
		field{"leaf", base64Text(&s.Leaf, maxLeafBytes)},
		field{"index", integer(&s.Index, 0, maxLogIndex)},
		field{"inclusion", list(&s.Inclusion, maxLogSiblings, digest)},
		field{"checkpoint", bounded(&s.Checkpoint, maxCheckpointBytes)},
	)
}

// readBeacon reads a bare signature, as version 1 has it, or a round with its chain.
func readBeacon(r *reader, p *Proof) error {
	var s BeaconSource
	const bare, full = 1, 9
	start := r.pos
	n, err := r.object(full, []field{
		{"signature", hexa(&p.Beacon, 1, MaxBeaconBytes)},
		{"scheme", text(&s.Chain.Scheme)},
		{"chain_hash", digest(&s.ChainHash)},
		{"public_key", hexa(&s.Chain.PublicKey, 1, maxKeyBytes)},
		{"period", integer(&s.Chain.PeriodSeconds, 1, int64(MaxBeaconPeriod/time.Second))},
		{"genesis_time", integer(&s.Chain.GenesisTime, 1, maxGenesisTime-1)},
		{"genesis_seed", hexa(&s.Chain.GenesisSeed, 1, maxKeyBytes)},
		{"beacon_id", text(&s.Chain.BeaconID)},
		{"round", integer(&s.Round, 1, MaxBeaconRound)},
		{"previous_signature", hexa(&s.PreviousSignature, 1, MaxBeaconBytes)},
	})
	if err != nil || n == bare {
		return err
	}
	if s.PreviousSignature != "" {
		n--
	}
	if n != full {
		return &FormatError{Offset: start, Reason: "neither a signature alone nor a round with all of its chain"}
	}
	p.Source = &s
	return nil
}

func readInclusion(ip *InclusionProof) value {
	return object(
		field{"versions", versions(&ip.Versions, DocumentVersion)},
		field{"campaign", text(&ip.Campaign)},
		field{"root", digest(&ip.Root)},
		field{"position", readPosition(&ip.Position)},
		field{"index", integer(&ip.Index, 0, MaxPositions-1)},
		field{"size", integer(&ip.Size, 1, MaxPositions)},
		field{"siblings", list(&ip.Siblings, maxSiblings, digest)},
	)
}

// place is what a position has in every form.
func place(p *Position) []field {
	return []field{
		{"id", text(&p.ID)}, {"layer", integer(&p.Layer, 1, MaxLayer)}, {"number", integer(&p.Number, 1, MaxNumber)},
	}
}

func readPosition(p *Position) value {
	return object(append(place(p), field{"account", text(&p.Account)})...)
}

func readPrize(p *Prize) value {
	return object(
		field{"name", text(&p.Name)}, field{"layer", integer(&p.Layer, 0, MaxLayer)}, field{"quantity", integer(&p.Quantity, 1, MaxWinners)},
	)
}

func readWinner(w *Winner) value {
	var layer int
	read := object(
		field{"prize", text(&w.Prize)}, field{"layer", integer(&layer, 1, MaxLayer)},
		field{"position", object(place(&w.Position)...)}, field{"account", text(&w.Position.Account)},
	)
	return func(r *reader) error {
		start := r.pos
		if err := read(r); err != nil {
			return err
		}
		// The layer stands twice in the document and once in a Winner.
		if layer != w.Position.Layer {
			return &FormatError{Path: "layer", Offset: start, Reason: "not the layer of the position"}
		}
		return nil
	}
}
