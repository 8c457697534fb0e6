package fairdraw

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"strconv"
)

// The versions that this package writes, and the only ones it reads.
const (
	DocumentVersion = 1 // the form of the JSON documents
	// BeaconDocumentVersion is the form of a proof whose beacon names its chain and round, so that its signature can be
	// verified.
	BeaconDocumentVersion = 2
	// SealedDocumentVersion is that form with the seal's place in a public log, which shows that positions and round were fixed
	// before the round was due.
	SealedDocumentVersion = 3
	AlgorithmVersion      = 1 // the rule by which root and winners are computed
)

// Versions says by which rules a document is read and recomputed.
type Versions struct {
	Document  int `json:"document"`
	Algorithm int `json:"algorithm"`
}

func currentVersions() Versions {
	return Versions{Document: DocumentVersion, Algorithm: AlgorithmVersion}
}

// check refuses every version but those given: of the document, and the one of the algorithm.
func (v Versions) check(document int) error {
	return cmp.Or(differs("versions.document", strconv.Itoa(document), strconv.Itoa(v.Document)),
		differs("versions.algorithm", strconv.Itoa(AlgorithmVersion), strconv.Itoa(v.Algorithm)))
}

// Proof is the document from which anyone recomputes a draw. It discloses the server seed: make one only when the draw is
// final. It holds nothing that can't be recomputed or that is not itself an input of the draw, so a time of completion, for
// one, is not in it.
//
// Its JSON form is written by json.Marshal and read by [ParseProof], to which json.Unmarshal leads as well.
type Proof struct {
	Versions Versions
	Campaign string
	// Commitment, ServerSeed, Root and DrawSeed are 32 bytes each in lower-case hexadecimal. DrawSeed is the key of the
	// streams; it lets a verifier in another language be debugged, and binds every input even where the winners could not
	// be others, as with a single position.
	Commitment string
	ServerSeed string
	Root       string
	DrawSeed   string
	// Beacon is the public beacon's signature in lower-case hexadecimal; empty, and absent from the JSON, in instant mode.
	Beacon string
	// Source says of which round of which chain the signature is; nil in instant mode, and in documents of version 1.
	Source *BeaconSource
	// Seal says where the seal is in a public log; nil in documents of versions 1 and 2.
	Seal      *Seal
	Positions []Position
	Prizes    []Prize
	Winners   []Winner
}

// NewProof makes the proof of a draw from what went in and what came out. It does not draw again: in and res may come from
// storage. [Proof.Verify] finds out whether they belong together.
func NewProof(in Input, res *Result) *Proof {
	seed := drawSeed(&in, res.Root)
	return &Proof{
		Versions:   currentVersions(),
		Campaign:   in.Campaign,
		Commitment: in.Seed.Commitment(),
		ServerSeed: in.Seed.Hex(),
		Root:       hex.EncodeToString(res.Root[:]),
		DrawSeed:   hex.EncodeToString(seed[:]),
		Beacon:     hex.EncodeToString(in.Beacon),
		Positions:  in.Positions,
		Prizes:     in.Prizes,
		Winners:    res.Winners,
	}
}

// NewBeaconProof makes the proof of a draw that a round of a public beacon decided, whatever in.Beacon says. It neither
// draws again nor verifies the round. The chain must be valid.
func NewBeaconProof(in Input, res *Result, chain Chain, round Round) *Proof {
	in.Beacon = round.Signature
	p := NewProof(in, res)
	p.Versions.Document = BeaconDocumentVersion
	p.Source = &BeaconSource{
		Chain: chain, ChainHash: chain.Hash(), Round: round.Number,
		PreviousSignature: hex.EncodeToString(round.Previous),
	}
	return p
}

// NewSealedProof makes the proof of such a draw whose seal is in a public log. It verifies nothing of that.
func NewSealedProof(in Input, res *Result, chain Chain, round Round, seal Seal) *Proof {
	p := NewBeaconProof(in, res, chain, round)
	p.Versions.Document = SealedDocumentVersion
	p.Seal = &seal
	return p
}

// Seal is where the seal of a campaign is in a public log. This package carries it; package translog/seal verifies it.
type Seal struct {
	Leaf       string   `json:"leaf"`       // the log's entry in base64
	Index      int64    `json:"index"`      // the entry's number in the log, from 0
	Inclusion  []string `json:"inclusion"`  // hashes in lower-case hexadecimal from the entry up to the checkpoint's root
	Checkpoint string   `json:"checkpoint"` // a signed note: size and root of the log, and who has signed them
}

// Verify recomputes the draw from the proof alone. It returns nil when every field is what it must be, a [*Difference] that
// names the first one that is not, or an [*InputError] when the inputs in the document break a rule. A valid proof says
// nothing about what was published before the sale: compare that with [Proof.VerifyCommitment].
//
// A document that names a beacon's round is never valid to Verify, since it does not verify signatures: when all else is
// right, it returns [ErrBeaconUnverified]. Use [Proof.VerifyBeacon]. Neither verifies [Proof.Seal], from which no winner follows.
func (p *Proof) Verify() error { return p.verify(nil) }

// VerifyBeacon verifies as Verify does, and lets verify, which is not nil, tell whether the beacon's round is genuine;
// package fairdraw/beacon has one that does. What verify returns is returned. It accepts documents without a beacon, whose
// draw was instant: whether there should be one, only what was published before the sale can tell. A document of version 1
// with a beacon's signature, but without its round, is refused with [ErrBeaconUnverified].
func (p *Proof) VerifyBeacon(verify func(Chain, Round) error) error {
	if p.Beacon != "" && p.Source == nil {
		return fmt.Errorf("beacon: %w: the document does not say of which round the signature is", ErrBeaconUnverified)
	}
	return p.verify(verify)
}

func (p *Proof) verify(verify func(Chain, Round) error) error {
	document := DocumentVersion
	switch {
	case p.Seal != nil && p.Source == nil:
		return badInput("beacon", "missing, where there is a seal")
	case p.Seal != nil:
		document = SealedDocumentVersion
	case p.Source != nil:
		document = BeaconDocumentVersion
	}
	if err := p.Versions.check(document); err != nil {
		return err
	}
	if p.Source != nil {
		if p.Beacon == "" {
			return badInput("beacon.signature", "empty")
		}
		if err := p.Source.check(); err != nil {
			return err
		}
	}
	in, err := p.input()
	if err != nil {
		return err
	}
	if err := cmp.Or(differs("commitment", in.Seed.Commitment(), p.Commitment), in.Validate()); err != nil {
		return err
	}
	root := rootOf(in.Campaign, in.Positions)
	seed := drawSeed(in, root)
	err = cmp.Or(differs("root", hex.EncodeToString(root[:]), p.Root), differs("draw_seed", hex.EncodeToString(seed[:]), p.DrawSeed))
	if err != nil {
		return err
	}
	winners, err := selectWinners(seed, in.Positions, in.Prizes)
	if err != nil {
		return err
	}
	if err := compareWinners(winners, p.Winners); err != nil || p.Source == nil {
		return err
	}
	if verify == nil {
		return fmt.Errorf("beacon: %w", ErrBeaconUnverified)
	}
	previous := make([]byte, len(p.Source.PreviousSignature)/2)
	decodeHex(previous, p.Source.PreviousSignature) // The check of the source has found it well-formed.
	return verify(p.Source.Chain, Round{Number: p.Source.Round, Signature: in.Beacon, Previous: previous})
}

// VerifyCommitment checks whether the proof opens the commitment that was published before the sale. It returns an
// [*InputError] when published is not 64 lower-case hexadecimal digits, and a [*Difference] when the proof's commitment, or
// the hash of the seed that it reveals, is another one. It does not replace Verify.
func (p *Proof) VerifyCommitment(published string) error {
	if !isHex(published, 32) {
		return badInput("published commitment", "not 64 lower-case hexadecimal digits")
	}
	if err := differs("commitment", published, p.Commitment); err != nil {
		return err
	}
	seed, err := ParseSeed(p.ServerSeed)
	if err != nil {
		return badInput("server_seed", "not 64 lower-case hexadecimal digits")
	}
	if got := seed.Commitment(); got != published {
		return &Difference{Field: "server_seed", Want: "a seed with SHA-256 " + published, Got: "one with SHA-256 " + got}
	}
	return nil
}

// input gives back what the draw was made from.
func (p *Proof) input() (*Input, error) {
	seed, err := ParseSeed(p.ServerSeed)
	if err != nil {
		return nil, badInput("server_seed", "not 64 lower-case hexadecimal digits")
	}
	in := &Input{Campaign: p.Campaign, Seed: seed, Positions: p.Positions, Prizes: p.Prizes}
	if p.Beacon != "" {
		if in.Beacon = make([]byte, len(p.Beacon)/2); !decodeHex(in.Beacon, p.Beacon) {
			return nil, badInput("beacon.signature", "not lower-case hexadecimal")
		}
	}
	return in, nil
}

// compareWinners finds the first field in which two lists of winners differ.
func compareWinners(want, got []Winner) error {
	if len(want) != len(got) {
		return &Difference{Field: "winners", Want: strconv.Itoa(len(want)) + " entries", Got: strconv.Itoa(len(got)) + " entries"}
	}
	for i := range want {
		w, g := &want[i], &got[i]
		if *w == *g {
			continue
		}
		at := fmt.Sprintf("winners[%d].", i)
		return cmp.Or(differs(at+"prize", w.Prize, g.Prize),
			differs(at+"layer", strconv.Itoa(w.Position.Layer), strconv.Itoa(g.Position.Layer)),
			differs(at+"position.id", w.Position.ID, g.Position.ID),
			differs(at+"position.number", strconv.Itoa(w.Position.Number), strconv.Itoa(g.Position.Number)),
			differs(at+"account", w.Position.Account, g.Position.Account))
	}
	return nil
}

// winnerJSON is the published form of a Winner.
type winnerJSON struct {
	Prize    string    `json:"prize"`
	Layer    int       `json:"layer"`
	Position placeJSON `json:"position"`
	Account  string    `json:"account"`
}

type placeJSON struct {
	ID     string `json:"id"`
	Layer  int    `json:"layer"`
	Number int    `json:"number"`
}

// MarshalJSON writes {"prize","layer","position":{"id","layer","number"},"account"}.
func (w Winner) MarshalJSON() ([]byte, error) { return json.Marshal(w.document()) }

func (w Winner) document() winnerJSON {
	p := w.Position
	return winnerJSON{Prize: w.Prize, Layer: p.Layer, Position: placeJSON{p.ID, p.Layer, p.Number}, Account: p.Account}
}

// UnmarshalJSON reads what MarshalJSON writes, as strictly as [ParseProof].
func (w *Winner) UnmarshalJSON(data []byte) error { return readDocument(data, readWinner(w)) }

type proofJSON struct {
	Versions   Versions     `json:"versions"`
	Campaign   string       `json:"campaign"`
	Commitment string       `json:"commitment"`
	ServerSeed string       `json:"server_seed"`
	Root       string       `json:"root"`
	DrawSeed   string       `json:"draw_seed"`
	Beacon     *beaconJSON  `json:"beacon,omitempty"`
	Seal       *Seal        `json:"seal,omitempty"`
	Positions  []Position   `json:"positions"`
	Prizes     []Prize      `json:"prizes"`
	Winners    []winnerJSON `json:"winners"`
}

// beaconJSON has only the signature in documents of version 1, and everything but, on most chains, the previous signature
// in those of versions 2 and 3.
type beaconJSON struct {
	Scheme            string `json:"scheme,omitempty"`
	ChainHash         string `json:"chain_hash,omitempty"`
	PublicKey         string `json:"public_key,omitempty"`
	PeriodSeconds     int    `json:"period,omitempty"`
	GenesisTime       int64  `json:"genesis_time,omitempty"`
	GenesisSeed       string `json:"genesis_seed,omitempty"`
	BeaconID          string `json:"beacon_id,omitempty"`
	Round             uint64 `json:"round,omitempty"`
	Signature         string `json:"signature"`
	PreviousSignature string `json:"previous_signature,omitempty"`
}

// document is the proof's JSON form with the given positions.
func (p *Proof) document(positions []Position) *proofJSON {
	doc := &proofJSON{
		Versions: p.Versions, Campaign: p.Campaign, Commitment: p.Commitment, ServerSeed: p.ServerSeed, Root: p.Root, DrawSeed: p.DrawSeed,
		Positions: entries(positions), Prizes: entries(p.Prizes), Winners: make([]winnerJSON, len(p.Winners)),
	}
	for i := range p.Winners {
		doc.Winners[i] = p.Winners[i].document()
	}
	if p.Beacon != "" || p.Source != nil {
		doc.Beacon = &beaconJSON{Signature: p.Beacon}
	}
	if s := p.Source; s != nil {
		*doc.Beacon = beaconJSON{
			Scheme: s.Chain.Scheme, ChainHash: s.ChainHash, PublicKey: s.Chain.PublicKey, PeriodSeconds: s.Chain.PeriodSeconds,
			GenesisTime: s.Chain.GenesisTime, GenesisSeed: s.Chain.GenesisSeed, BeaconID: s.Chain.BeaconID, Round: s.Round,
			Signature: p.Beacon, PreviousSignature: s.PreviousSignature,
		}
	}
	if p.Seal != nil {
		seal := *p.Seal
		seal.Inclusion = entries(seal.Inclusion)
		doc.Seal = &seal
	}
	return doc
}

// entries gives a list as documents have it: one without entries is [], never null.
func entries[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// MarshalJSON writes the document that ParseProof reads.
func (p *Proof) MarshalJSON() ([]byte, error) { return json.Marshal(p.document(p.Positions)) }

// UnmarshalJSON is ParseProof.
func (p *Proof) UnmarshalJSON(data []byte) error {
	parsed, err := ParseProof(data)
	if err == nil {
		*p = *parsed
	}
	return err
}

// MarshalJSON writes the document that ParseInclusionProof reads.
func (ip *InclusionProof) MarshalJSON() ([]byte, error) {
	type plain InclusionProof
	doc := plain(*ip)
	doc.Siblings = entries(doc.Siblings)
	return json.Marshal(doc)
}

// UnmarshalJSON is ParseInclusionProof.
func (ip *InclusionProof) UnmarshalJSON(data []byte) error {
	parsed, err := ParseInclusionProof(data)
	if err == nil {
		*ip = *parsed
	}
	return err
}

// proofBuffer is how much is written at a time.
const proofBuffer = 64 << 10

// WriteJSON writes the document that [ParseProof] reads, with the positions that are given in place of p's, one at a time:
// a million of them are never in memory together. It ends with the first error of positions or of w.
func (p *Proof) WriteJSON(w io.Writer, positions iter.Seq2[Position, error]) error {
	fail := func(err error) error { return fmt.Errorf("fairdraw: write a proof: %w", err) }
	whole, err := encode(p.document(nil))
	if err != nil {
		return fail(err)
	}
	// Positions go into the empty list. No text can look like it, as quotes in texts are escaped.
	at := bytes.Index(whole, []byte(`"positions":[]`)) + len(`"positions":[`)
	out := bufio.NewWriterSize(w, proofBuffer)
	_, _ = out.Write(whole[:at]) // The buffered writer keeps a failure, and returns it from now on.
	separator := ""
	for position, err := range positions {
		var raw []byte
		if err == nil {
			raw, err = encode(position)
		}
		if err == nil {
			_, _ = out.WriteString(separator)
			_, err = out.Write(raw)
		}
		if err != nil {
			return fail(err)
		}
		separator = ","
	}
	_, _ = out.Write(whole[at:])
	if err := out.Flush(); err != nil {
		return fail(err)
	}
	return nil
}

// encode writes a value as it is published: HTML's characters need no escapes there.
func encode(v any) ([]byte, error) {
	var buf bytes.Buffer
	encoder := json.NewEncoder(&buf)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return bytes.TrimSuffix(buf.Bytes(), []byte{'\n'}), err
}
