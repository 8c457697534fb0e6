package fairdraw

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
func ParseProof(data []byte) (*Proof, error) {
	return parse(data, MaxProofBytes, "1 GiB", readProof)
}

// ParseInclusionProof reads an inclusion proof as strictly as ParseProof reads a proof, and returns a [*FormatError]
// likewise.
func ParseInclusionProof(data []byte) (*InclusionProof, error) {
	return parse(data, MaxInclusionProofBytes, "64 KiB", readInclusion)
}

func parse[T any](data []byte, most int, spelt string, read func(*reader, *T) error) (*T, error) {
	if len(data) > most {
		return nil, &FormatError{Offset: most, Reason: "document longer than " + spelt}
	}
	into := new(T)
	if err := readDocument(data, func(r *reader) error { return read(r, into) }); err != nil {
		return nil, err
	}
	return into, nil
}

// list reads an array of at most limit values.
func list[T any](r *reader, limit int, into *[]T, read func(*reader, *T) error) error {
	return r.array(limit, func(int) error {
		var v T
		err := read(r, &v)
		*into = append(*into, v)
		return err
	})
}

func readProof(r *reader, p *Proof) (err error) {
	names := []string{
		"versions", "campaign", "commitment", "server_seed", "root", "draw_seed",
		"positions", "prizes", "winners", "beacon",
	}
	const optional = 1
	beaconAt := -1
	err = r.object(names, optional, func(i int) (err error) {
		switch names[i] {
		case "versions":
			err = readVersions(r, &p.Versions, DocumentVersion, BeaconDocumentVersion)
		case "campaign":
			p.Campaign, err = r.text()
		case "commitment":
			p.Commitment, err = r.hex(32, 32)
		case "server_seed":
			p.ServerSeed, err = r.hex(32, 32)
		case "root":
			p.Root, err = r.hex(32, 32)
		case "draw_seed":
			p.DrawSeed, err = r.hex(32, 32)
		case "positions":
			err = list(r, MaxPositions, &p.Positions, readPosition)
		case "prizes":
			err = list(r, MaxPrizes, &p.Prizes, readPrize)
		case "winners":
			err = list(r, MaxWinners, &p.Winners, readWinner)
		case "beacon":
			beaconAt = r.pos
			err = readBeacon(r, p)
		}
		return err
	})
	if err != nil {
		return err
	}
	// Fields have no order, so that only now both are known.
	switch named := p.Source != nil; {
	case p.Versions.Document == BeaconDocumentVersion && beaconAt < 0:
		return &FormatError{Path: "beacon", Offset: r.pos, Reason: "missing"}
	case named != (p.Versions.Document == BeaconDocumentVersion):
		return &FormatError{Path: "beacon", Offset: beaconAt, Reason: "not that of the document's version"}
	}
	return nil
}

// readBeacon reads a bare signature, as version 1 has it, or a round with its chain.
func readBeacon(r *reader, p *Proof) error {
	names := []string{
		"signature", "scheme", "chain_hash", "public_key", "period", "genesis_time", "genesis_seed", "beacon_id", "round",
		"previous_signature",
	}
	const bare, full = 1, 9
	var s BeaconSource
	seen, previous, start := 0, false, r.pos
	err := r.object(names, len(names)-bare, func(i int) (err error) {
		seen++
		switch names[i] {
		case "signature":
			p.Beacon, err = r.hex(1, MaxBeaconBytes)
		case "scheme":
			s.Chain.Scheme, err = r.text()
		case "chain_hash":
			s.ChainHash, err = r.hex(32, 32)
		case "public_key":
			s.Chain.PublicKey, err = r.hex(1, maxKeyBytes)
		case "period":
			s.Chain.PeriodSeconds, err = r.integer(1, int(MaxBeaconPeriod.Seconds()))
		case "genesis_time":
			s.Chain.GenesisTime, err = r.integer64(1, maxGenesisTime-1)
		case "genesis_seed":
			s.Chain.GenesisSeed, err = r.hex(1, maxKeyBytes)
		case "beacon_id":
			s.Chain.BeaconID, err = r.text()
		case "round":
			var round int64
			round, err = r.integer64(1, MaxBeaconRound)
			s.Round = uint64(round) //nolint:gosec // Positive.
		case "previous_signature":
			previous = true
			s.PreviousSignature, err = r.hex(1, MaxBeaconBytes)
		}
		return err
	})
	if err != nil || seen == bare {
		return err
	}
	if previous {
		seen--
	}
	if seen != full {
		return &FormatError{Offset: start, Reason: "neither a signature alone nor a round with all of its chain"}
	}
	p.Source = &s
	return nil
}

func readInclusion(r *reader, ip *InclusionProof) error {
	names := []string{"versions", "campaign", "root", "position", "index", "size", "siblings"}
	return r.object(names, 0, func(i int) (err error) {
		switch names[i] {
		case "versions":
			err = readVersions(r, &ip.Versions, DocumentVersion)
		case "campaign":
			ip.Campaign, err = r.text()
		case "root":
			ip.Root, err = r.hex(32, 32)
		case "position":
			err = readPosition(r, &ip.Position)
		case "index":
			ip.Index, err = r.integer(0, MaxPositions-1)
		case "size":
			ip.Size, err = r.integer(1, MaxPositions)
		case "siblings":
			err = list(r, maxSiblings, &ip.Siblings, func(r *reader, sibling *string) (err error) {
				*sibling, err = r.hex(32, 32)
				return err
			})
		}
		return err
	})
}

func readVersions(r *reader, v *Versions, documents ...int) error {
	return r.object([]string{"document", "algorithm"}, 0, func(i int) (err error) {
		// A version that this package does not know is refused here, before the rest of the document is given a meaning
		// that it may not have.
		if i == 0 {
			v.Document, err = r.version(documents...)
		} else {
			v.Algorithm, err = r.version(AlgorithmVersion)
		}
		return err
	})
}

// readPlaceField reads what a position has in every form.
func readPlaceField(r *reader, p *Position, name string) (err error) {
	switch name {
	case "id":
		p.ID, err = r.text()
	case "layer":
		p.Layer, err = r.integer(1, MaxLayer)
	case "number":
		p.Number, err = r.integer(1, MaxNumber)
	}
	return err
}

func readPosition(r *reader, p *Position) error {
	names := []string{"id", "layer", "number", "account"}
	return r.object(names, 0, func(i int) (err error) {
		if names[i] == "account" {
			p.Account, err = r.text()
			return err
		}
		return readPlaceField(r, p, names[i])
	})
}

func readPrize(r *reader, p *Prize) error {
	names := []string{"name", "layer", "quantity"}
	return r.object(names, 0, func(i int) (err error) {
		switch names[i] {
		case "name":
			p.Name, err = r.text()
		case "layer":
			p.Layer, err = r.integer(0, MaxLayer)
		case "quantity":
			p.Quantity, err = r.integer(1, MaxWinners)
		}
		return err
	})
}

func readWinner(r *reader, w *Winner) error {
	names := []string{"prize", "layer", "position", "account"}
	layer, layerAt := 0, 0
	err := r.object(names, 0, func(i int) (err error) {
		switch names[i] {
		case "prize":
			w.Prize, err = r.text()
		case "layer":
			layerAt = r.pos
			layer, err = r.integer(1, MaxLayer)
		case "position":
			place := []string{"id", "layer", "number"}
			err = r.object(place, 0, func(i int) error {
				return readPlaceField(r, &w.Position, place[i])
			})
		case "account":
			w.Position.Account, err = r.text()
		}
		return err
	})
	if err != nil {
		return err
	}
	// The layer stands twice in the document and once in a Winner.
	if layer != w.Position.Layer {
		return &FormatError{Path: "layer", Offset: layerAt, Reason: "not the layer of the position"}
	}
	return nil
}
