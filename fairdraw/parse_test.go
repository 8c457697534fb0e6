package fairdraw

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

func TestParseProofSaysWhere(t *testing.T) {
	_, doc := mustProof(t, testInput())
	replace := func(old, replacement string) string {
		if !bytes.Contains(doc, []byte(old)) {
			t.Fatalf("no %s in %s", old, doc)
		}
		return strings.Replace(string(doc), old, replacement, 1)
	}
	for name, c := range map[string]struct{ doc, path, reason string }{
		"empty":             {"", "", "an object expected"},
		"list":              {"[]", "", "an object expected"},
		"unknown field":     {replace(`"campaign":`, `"comment":1,"campaign":`), "", `unknown field "comment"`},
		"other case":        {replace(`"campaign":`, `"Campaign":`), "", `unknown field "Campaign"`},
		"escaped name":      {replace(`"campaign":`, `"c\u0061mpaign":`), "", "unknown field"},
		"missing":           {replace(`"campaign":"c-1",`, ``), "campaign", "missing"},
		"twice":             {replace(`"campaign":`, `"campaign":"c-1","campaign":`), "campaign", "appears twice"},
		"version":           {replace(`"document":1`, `"document":4`), "versions.document", "version 4 is not known"},
		"fraction":          {replace(`"number":2`, `"number":2.0`), "positions[2].number", "a plain integer expected"},
		"exponent":          {replace(`"number":2`, `"number":2e0`), "positions[2].number", "a plain integer expected"},
		"leading zero":      {replace(`"number":2`, `"number":02`), "positions[2].number", "a plain integer expected"},
		"string":            {replace(`"number":2`, `"number":"2"`), "positions[2].number", "a plain integer expected"},
		"zero":              {replace(`"number":2`, `"number":0`), "positions[2].number", "a number under 1"},
		"large":             {replace(`"number":2`, `"number":1000001`), "positions[2].number", "a number over 1000000"},
		"null text":         {replace(`"account":"acct-0"`, `"account":null`), "positions[0].account", "a string expected"},
		"winner's layer":    {replace(`"prize":"first","layer":1`, `"prize":"first","layer":2`), "winners[0].layer", "not the layer of the position"},
		"winner's place":    {replace(`"position":{"id":"p-1-1"`, `"position":{"id":"p-1-1","account":"x"`), "winners[0].position", "unknown field"},
		"long unknown name": {replace(`"campaign":`, `"`+strings.Repeat("a", 1000)+`":1,"campaign":`), "", "…"},
		"no colon":          {replace(`"campaign":`, `"campaign"`), "campaign", "':' expected"},
		"no beacon":         {replace(`"document":1`, `"document":2`), "beacon", "missing"},
		"seal, unexpected":  {replace(`"campaign":`, `"seal":`+testSeal+`,"campaign":`), "seal", "not in a document of this version"},
		"null beacon":       {replace(`"campaign":`, `"beacon":null,"campaign":`), "beacon", "an object expected"},
		"empty beacon":      {replace(`"campaign":`, `"beacon":{"signature":""},"campaign":`), "beacon.signature", "hexadecimal expected"},
		"broken UTF-8":      {replace(`"c-1"`, "\"c\xff\""), "", "not valid UTF-8"},
		"control":           {replace(`"c-1"`, "\"c\n\""), "campaign", "a control character"},
		"control, escaped":  {replace(`"c-1"`, "\"\\u0041\n\""), "campaign", "a control character"},
		"lone surrogate":    {replace(`"c-1"`, `"\ud800"`), "campaign", "a lone surrogate"},
		"low surrogate":     {replace(`"c-1"`, `"\udc00"`), "campaign", "a lone surrogate"},
		"two high":          {replace(`"c-1"`, `"\ud800\ud800"`), "campaign", "a lone surrogate"},
		"bad escape":        {replace(`"c-1"`, `"\x41"`), "campaign", "not an escape"},
		"bad unit":          {replace(`"c-1"`, `"\u00g0"`), "campaign", "not an escape"},
		"bad second unit":   {replace(`"c-1"`, `"\ud800\u00g0"`), "campaign", "not an escape"},
		"unit cut short":    {`{"campaign":"\u00`, "campaign", "does not end"},
		"escape cut short":  {`{"campaign":"\`, "campaign", "does not end"},
		"text cut short":    {`{"campaign":"a`, "campaign", "does not end"},
		"escaped, cut":      {`{"campaign":"\n`, "campaign", "does not end"},
		"name cut short":    {`{"campaign`, "", "does not end"},
		"trailing":          {string(doc) + " {}", "", "data after the end"},
		"trailing comma":    {replace(`"layer":1,"number":1,"account":"acct-0"`, `"layer":1,"number":1,"account":"acct-0",`), "positions[0]", "a field name expected"},
	} {
		_, err := ParseProof([]byte(c.doc))
		var where *FormatError
		if !errors.As(err, &where) || !errors.Is(err, ErrNotCanonical) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if where.Path != c.path || !strings.Contains(where.Reason, c.reason) || where.Offset > len(c.doc) || !strings.Contains(err.Error(), "byte") || len(err.Error()) > 200 {
			t.Errorf("%s: %v, want %s: %s", name, err, c.path, c.reason)
		}
	}
	hexa := `"root":"`
	for _, bad := range []string{`"root":"0`, `"root":"A`, `"root":" `} {
		if _, err := ParseProof([]byte(replace(hexa, bad))); !errors.Is(err, ErrNotCanonical) {
			t.Errorf("root with %s: %v", bad, err)
		}
	}
}

// testSeal has the shape of a seal in a log.
const testSeal = `{"leaf":"e30=","index":9007199254740990,"inclusion":["` + "0000000000000000000000000000000000000000000000000000000000000001" + `"],"checkpoint":"log\n1\n"}`

// TestParseProofWithASeal reads documents of version 3.
func TestParseProofWithASeal(t *testing.T) {
	in := testInput()
	res, err := Draw(in)
	testwait.Must(t, err)
	chain := Chain{Scheme: "s", PublicKey: "00", PeriodSeconds: 1, GenesisTime: 1, GenesisSeed: "00", BeaconID: "b"}
	in.Beacon = []byte("signature")
	p := NewSealedProof(in, res, chain, Round{Number: 1, Signature: in.Beacon}, Seal{Leaf: "e30=", Index: 1<<53 - 2, Inclusion: []string{strings.Repeat("0", 63) + "1"}, Checkpoint: "log\n1\n"})
	doc, err := json.Marshal(p)
	testwait.Must(t, err)
	if !bytes.Contains(doc, []byte(`"seal":`+testSeal)) {
		t.Fatalf("%s", doc)
	}
	read, err := ParseProof(doc)
	testwait.Must(t, err)
	if read.Versions.Document != 3 || read.Seal.Leaf != p.Seal.Leaf || read.Seal.Index != p.Seal.Index || read.Seal.Checkpoint != p.Seal.Checkpoint || len(read.Seal.Inclusion) != 1 {
		t.Errorf("%+v", read.Seal)
	}
	var streamed bytes.Buffer
	testwait.Must(t, p.WriteJSON(&streamed, sequence(p.Positions)))
	if streamed.String() != string(doc) {
		t.Errorf("%s", streamed.Bytes())
	}
	for name, c := range map[string]struct{ old, replacement, path, reason string }{
		"no seal":          {`"seal":` + testSeal + `,`, ``, "seal", "missing"},
		"no beacon":        {`"beacon":{`, `"beacon":{"more":1,`, "beacon", "unknown field"},
		"an older version": {`"document":3`, `"document":2`, "seal", "not in a document of this version"},
		"null":             {`"seal":` + testSeal, `"seal":null`, "seal", "an object expected"},
		"unknown":          {`"leaf":`, `"more":1,"leaf":`, "seal", "unknown field"},
		"no leaf":          {`"leaf":"e30=",`, ``, "seal.leaf", "missing"},
		"an empty leaf":    {`"e30="`, `""`, "seal.leaf", "1 to"},
		"no padding":       {`"e30="`, `"e30"`, "seal.leaf", "in base64"},
		"bits left over":   {`"e30="`, `"e31="`, "seal.leaf", "in base64"},
		"a line end":       {`"e30="`, `"e3\n0="`, "seal.leaf", "in base64"},
		"a large index":    {`9007199254740990`, `9007199254740991`, "seal.index", "over"},
		"half a hash":      {`0001"]`, `01"]`, "seal.inclusion[0]", "hexadecimal"},
		"an empty note":    {`"log\n1\n"`, `""`, "seal.checkpoint", "1 to"},
		"a long note":      {`"log\n1\n"`, `"` + strings.Repeat("a", 128<<10+1) + `"`, "seal.checkpoint", "1 to"},
		"a long leaf":      {`"e30="`, `"` + strings.Repeat("AAAA", 21846) + `"`, "seal.leaf", "1 to"},
		"a long path":      {`"inclusion":[`, `"inclusion":[` + strings.Repeat(`"`+p.Root+`",`, 53), "seal.inclusion", "over 53"},
	} {
		altered := strings.Replace(string(doc), c.old, c.replacement, 1)
		_, err := ParseProof([]byte(altered))
		var where *FormatError
		if altered == string(doc) || !errors.As(err, &where) || where.Path != c.path || !strings.Contains(where.Reason, c.reason) {
			t.Errorf("%s: %v, want %s: %s", name, err, c.path, c.reason)
		}
	}
	for name, alter := range map[string]func(p *Proof){
		"versions.document": func(p *Proof) { p.Versions.Document = 2 },
		"beacon":            func(p *Proof) { p.Source = nil },
	} {
		altered := *p
		alter(&altered)
		if err := altered.Verify(); err == nil || !strings.HasPrefix(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestParseProofTakesFreeSpellings(t *testing.T) {
	in := testInput()
	in.Campaign = "\U0001f388 \"/\\ <é>"
	p, doc := mustProof(t, in)
	var indented bytes.Buffer
	testwait.Must(t, json.Indent(&indented, doc, "\r\n", "\t"))
	escaped := bytes.Replace(doc, []byte("\U0001f388"), []byte(`\ud83c\uDF88`), 1)
	escaped = bytes.Replace(escaped, []byte(`/`), []byte(`\/`), 1)
	// The order of an object's fields is free, so the tail may come first.
	var fields map[string]json.RawMessage
	testwait.Must(t, json.Unmarshal(doc, &fields))
	sorted, err := json.Marshal(fields)
	testwait.Must(t, err)
	for name, text := range map[string][]byte{"indented": indented.Bytes(), "escaped": escaped, "sorted": sorted} {
		got, err := ParseProof(text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := got.Verify(); err != nil || got.Campaign != p.Campaign {
			t.Errorf("%s: %q, %v", name, got.Campaign, err)
		}
	}
	got, err := ParseProof([]byte(strings.Replace(string(doc), `"account":"acct-0"`, `"account":"\b\f\n\r\t"`, 1)))
	if err != nil || got.Positions[0].Account != "\b\f\n\r\t" {
		t.Errorf("short escapes: %q, %v", got.Positions[0].Account, err)
	}
	if err := got.Verify(); !errors.Is(err, ErrBadInput) {
		t.Errorf("control characters by escape: %v", err)
	}
}

func TestParseLimits(t *testing.T) {
	siblings := `"` + strings.Repeat("0", 64) + `"` + strings.Repeat(`,"`+strings.Repeat("0", 64)+`"`, maxSiblings)
	if _, err := ParseInclusionProof([]byte(`{"siblings":[` + siblings + `]}`)); err == nil || !strings.Contains(err.Error(), "over 20 entries") {
		t.Errorf("too many siblings: %v", err)
	}
	if _, err := ParseInclusionProof(make([]byte, MaxInclusionProofBytes+1)); !errors.Is(err, ErrNotCanonical) {
		t.Errorf("long inclusion proof: %v", err)
	}
	prize := `{"name":"a","layer":0,"quantity":1}`
	if _, err := ParseProof([]byte(`{"prizes":[` + prize + strings.Repeat(","+prize, MaxPrizes) + `]}`)); err == nil || !strings.Contains(err.Error(), "over 10000 entries") {
		t.Errorf("too many prizes: %v", err)
	}
}

func TestJSONForms(t *testing.T) {
	w := Winner{Prize: "p", Position: Position{ID: "i", Layer: 2, Number: 1, Account: "a"}}
	doc, err := json.Marshal(w)
	if want := `{"prize":"p","layer":2,"position":{"id":"i","layer":2,"number":1},"account":"a"}`; err != nil || string(doc) != want {
		t.Errorf("winner: %s, %v", doc, err)
	}
	var back Winner
	if err := json.Unmarshal(doc, &back); err != nil || back != w {
		t.Errorf("winner read back: %v, %v", back, err)
	}
	doc, err = json.Marshal(w.Position)
	if want := `{"id":"i","layer":2,"number":1,"account":"a"}`; err != nil || string(doc) != want {
		t.Errorf("position: %s, %v", doc, err)
	}
	in := testInput()
	in.Prizes = nil
	p, doc := mustProof(t, in)
	if !bytes.Contains(doc, []byte(`"prizes":[],"winners":[]`)) || bytes.Contains(doc, []byte("beacon")) {
		t.Errorf("empty lists: %s", doc)
	}
	var read Proof
	if err := json.Unmarshal(doc, &read); err != nil || read.DrawSeed != p.DrawSeed {
		t.Errorf("proof read back: %v", err)
	}
	if err := json.Unmarshal([]byte(`{"Campaign":"x"}`), &read); !errors.Is(err, ErrNotCanonical) {
		t.Errorf("json.Unmarshal is lenient: %v", err)
	}
	var inclusion InclusionProof
	if err := json.Unmarshal([]byte(`{}`), &inclusion); !errors.Is(err, ErrNotCanonical) {
		t.Errorf("json.Unmarshal is lenient: %v", err)
	}
}

func fuzzSeeds(f *testing.F) {
	f.Helper()
	for _, doc := range []string{"", "{}", "[]", `{"versions":{}}`, `{"campaign":"\ud83c\udf88"}`, "\xff", `{"positions":[`} {
		f.Add([]byte(doc))
	}
}

// FuzzParseProof holds that what was accepted is written and read again as the same proof.
func FuzzParseProof(f *testing.F) {
	fuzzSeeds(f)
	in := testInput()
	_, doc := mustProof(f, in)
	f.Add(doc)
	in.Beacon, in.Prizes = []byte("beacon"), nil
	_, doc = mustProof(f, in)
	f.Add(doc)
	sealed, err := json.Marshal(NewSealedProof(in, &Result{}, Chain{Scheme: "s", PublicKey: "00", PeriodSeconds: 1, GenesisTime: 1, GenesisSeed: "00", BeaconID: "b"},
		Round{Number: 1, Signature: []byte("signature")}, Seal{Leaf: "e30=", Inclusion: []string{strings.Repeat("00", 32)}, Checkpoint: "log\n1\n"}))
	testwait.Must(f, err)
	f.Add(sealed)
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := ParseProof(data)
		if err != nil {
			var where *FormatError
			if !errors.As(err, &where) || where.Offset > len(data) {
				t.Fatalf("not a FormatError within the document: %v", err)
			}
			return
		}
		if !json.Valid(data) {
			t.Fatal("accepted what is not JSON")
		}
		first, err := json.Marshal(p)
		testwait.Must(t, err)
		again, err := ParseProof(first)
		testwait.Must(t, err)
		if second, err := json.Marshal(again); err != nil || !bytes.Equal(first, second) {
			t.Fatalf("%s\nthen %s, %v", first, second, err)
		}
	})
}

// FuzzParseInclusionProof holds the same of inclusion proofs, and that none but a true one verifies.
func FuzzParseInclusionProof(f *testing.F) {
	fuzzSeeds(f)
	positions := triangle(3)
	root, err := Root("c-1", positions)
	testwait.Must(f, err)
	for i := range positions {
		ip, err := Include("c-1", positions, i)
		testwait.Must(f, err)
		doc, err := json.Marshal(ip)
		testwait.Must(f, err)
		f.Add(doc)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		ip, err := ParseInclusionProof(data)
		if err != nil {
			return
		}
		if err := ip.Verify(root); err == nil {
			if ip.Index >= len(positions) || ip.Position != positions[ip.Index] {
				t.Fatalf("a proof of what is not there: %s", data)
			}
		}
		doc, err := json.Marshal(ip)
		testwait.Must(t, err)
		if _, err := ParseInclusionProof(doc); err != nil {
			t.Fatalf("%s: %v", doc, err)
		}
	})
}

// FuzzVerify holds that Verify does not panic on proofs that no parser has seen, and accepts none of another commitment
// that repeats the true one.
func FuzzVerify(f *testing.F) {
	p, doc := mustProof(f, testInput())
	f.Add(doc, p.Campaign, p.Commitment, p.ServerSeed, p.Root, p.DrawSeed, p.Beacon, 1, 1, 1)
	f.Add(doc, "", "", "zz", "", "", "0", -1, 0, 1<<40)
	f.Fuzz(func(t *testing.T, data []byte, campaign, commitment, seed, root, draw, beacon string, layer, number, quantity int) {
		_ = checkDocument(data)
		forged, _ := mustProof(t, testInput())
		forged.Campaign, forged.Commitment, forged.ServerSeed = campaign, commitment, seed
		forged.Root, forged.DrawSeed, forged.Beacon = root, draw, beacon
		forged.Positions[0].Layer, forged.Positions[0].Number = layer, number
		forged.Prizes[0].Quantity = quantity
		same := campaign == p.Campaign && commitment == p.Commitment && seed == p.ServerSeed && root == p.Root &&
			draw == p.DrawSeed && beacon == p.Beacon && layer == 1 && number == 1 && quantity == 1
		if err := forged.Verify(); (err == nil) != same {
			t.Fatalf("verify: %v", err)
		}
		_ = forged.VerifyCommitment(commitment)
	})
}
