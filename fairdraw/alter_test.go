package fairdraw

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// node is a JSON value whose parts can be altered one by one, also into what no encoder would write.
type node struct {
	raw   string // a leaf, as written
	names []string
	kids  []*node
	open  byte // '{', '[', or 0 for a leaf
}

func parseNode(t *testing.T, doc []byte) *node {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(doc))
	dec.UseNumber()
	n := readNode(t, dec)
	if dec.More() {
		t.Fatal("more than one value")
	}
	return n
}

func readNode(t *testing.T, dec *json.Decoder) *node {
	t.Helper()
	tok, err := dec.Token()
	testwait.Must(t, err)
	delim, ok := tok.(json.Delim)
	if !ok {
		raw, err := json.Marshal(tok)
		testwait.Must(t, err)
		return &node{raw: string(raw)}
	}
	n := &node{open: delim.String()[0]}
	for dec.More() {
		if n.open == '{' {
			name, err := dec.Token()
			testwait.Must(t, err)
			n.names = append(n.names, name.(string)) //nolint:errcheck // A member name is a string.
		}
		n.kids = append(n.kids, readNode(t, dec))
	}
	testwait.Must(t, testwait.Err(dec.Token()))
	return n
}

func (n *node) write(b *strings.Builder) {
	if n.open == 0 {
		b.WriteString(n.raw)
		return
	}
	b.WriteByte(n.open)
	for i, kid := range n.kids {
		if i > 0 {
			b.WriteByte(',')
		}
		if n.open == '{' {
			fmt.Fprintf(b, "%q:", n.names[i])
		}
		kid.write(b)
	}
	b.WriteByte(n.open + 2) // '}' and ']' follow '{' and '[' by two
}

func (n *node) String() string {
	var b strings.Builder
	n.write(&b)
	return b.String()
}

// leaves collects every different leaf of the document.
func (n *node) leaves(into map[string]struct{}) {
	if n.open == 0 {
		into[n.raw] = struct{}{}
	}
	for _, kid := range n.kids {
		kid.leaves(into)
	}
}

// alterations calls try after each alteration of n or of what lies in it, and takes the alteration back. try gets the path
// and what was done.
func (n *node) alterations(path string, all []string, try func(path, what string)) {
	with := func(what string, altered node) {
		saved := *n
		*n = altered
		try(path, what)
		*n = saved
	}
	for _, other := range []string{"null", "true", "false", `""`, "[]", "{}", "0", "-1", `"x"`, "[null]", n.wrapped(), ""} {
		with("becomes "+other, node{raw: other})
	}
	switch n.open {
	case 0:
		for _, other := range all {
			with("becomes "+other, node{raw: other})
		}
		for _, other := range alteredLeaf(n.raw) {
			with("becomes "+other, node{raw: other})
		}
	case '{':
		for i, name := range n.names {
			with("without "+name, node{open: '{', names: without(n.names, i), kids: without(n.kids, i)})
			with("twice "+name, node{open: '{', names: append(slices.Clone(n.names), name), kids: append(slices.Clone(n.kids), n.kids[i])})
			with("null before "+name, node{
				open:  '{',
				names: slices.Insert(slices.Clone(n.names), i, name),
				kids:  slices.Insert(slices.Clone(n.kids), i, &node{raw: "null"}),
			})
			for _, other := range []string{strings.ToUpper(name), strings.ToUpper(name[:1]) + name[1:], name + "_", name + " ", ""} {
				names := slices.Clone(n.names)
				names[i] = other
				with(name+" renamed "+other, node{open: '{', names: names, kids: n.kids})
				with(name+" also as "+other, node{open: '{', names: append(slices.Clone(n.names), other), kids: append(slices.Clone(n.kids), n.kids[i])})
			}
			for j := range i {
				kids := slices.Clone(n.kids)
				kids[i], kids[j] = kids[j], kids[i]
				with("values swapped of "+name+" and "+n.names[j], node{open: '{', names: n.names, kids: kids})
			}
		}
		for _, extra := range []string{"completed_at", "beacon", "comment", "layer", "account", "version"} {
			if !slices.Contains(n.names, extra) {
				with("with "+extra, node{open: '{', names: append(slices.Clone(n.names), extra), kids: append(slices.Clone(n.kids), &node{raw: `"00"`})})
				with("with beacon "+extra, node{open: '{', names: append(slices.Clone(n.names), extra), kids: append(slices.Clone(n.kids), &node{raw: `{"signature":"00"}`})})
			}
		}
	case '[':
		for i := range n.kids {
			with(fmt.Sprintf("without [%d]", i), node{open: '[', kids: without(n.kids, i)})
			for j := 0; j <= len(n.kids); j++ {
				with(fmt.Sprintf("with [%d] again at %d", i, j), node{open: '[', kids: slices.Insert(slices.Clone(n.kids), j, n.kids[i])})
			}
			for j := range i {
				kids := slices.Clone(n.kids)
				kids[i], kids[j] = kids[j], kids[i]
				with(fmt.Sprintf("[%d] and [%d] swapped", i, j), node{open: '[', kids: kids})
				with(fmt.Sprintf("[%d] moved to [%d]", i, j), node{open: '[', kids: slices.Insert(without(n.kids, i), j, n.kids[i])})
			}
		}
		reversed := slices.Clone(n.kids)
		slices.Reverse(reversed)
		with("reversed", node{open: '[', kids: reversed})
	}
	for i, kid := range n.kids {
		step := fmt.Sprintf("[%d]", i)
		if n.open == '{' {
			step = "." + n.names[i]
		}
		kid.alterations(path+step, all, try)
	}
}

func (n *node) wrapped() string { return "[" + n.String() + "]" }

func without[T any](list []T, i int) []T { return slices.Delete(slices.Clone(list), i, i+1) }

// alteredLeaf gives other spellings and near values of a leaf. Spellings that mean the same in JSON, such as an escape for
// a letter, are not among them.
func alteredLeaf(raw string) []string {
	if raw[0] != '"' {
		return []string{
			raw + ".0", raw + "e0", raw + "E0", raw + "e+0", "0" + raw, "+" + raw, "-" + raw, raw + "0", raw + "1",
			raw + "\x00", raw + "_", `"` + raw + `"`, "0x" + raw, "1" + raw, "1e400", "99999999999999999999", "18446744073709551617",
			raw + ".", "." + raw, "2", "3", "1", "4294967297", "\u0661", "\uff11", "NaN", "Infinity",
		}
	}
	text := raw[1 : len(raw)-1]
	out := []string{text, `"` + text, text + `"`}
	add := func(s string) { out = append(out, `"`+s+`"`) }
	add(strings.ToUpper(text))
	add(strings.ToLower(text))
	add(text + " ")
	add(" " + text)
	add(text + "0")
	add("0" + text)
	add(text + text)
	add("0x" + text)
	add(text + `\u0000`)
	add(text + `\ud800`)
	add(text + `\udc00\ud800`)
	add(text + "\x80")
	add(text + "\xed\xa0\x80")
	add(text + "\n")
	add(text + `\n`)
	add(text + `\x`)
	add(text + "\u0301")
	add(text + "\u200b")
	add(strings.Repeat("a", MaxTextRunes+1))
	for i := range len(text) {
		add(text[:i] + text[i+1:])
		for _, flip := range []byte{1, 0x20} {
			b := []byte(text)
			b[i] ^= flip
			add(string(b))
		}
	}
	if len(text)%2 == 0 && len(text) >= 32 {
		add(text[:len(text)-2])
		add(text + "00")
	}
	return out
}

// refuseEveryAlteration fails the test for each altered document that check accepts, and gives how many were tried.
func refuseEveryAlteration(t *testing.T, doc []byte, check func([]byte) error) int {
	t.Helper()
	if err := check(doc); err != nil {
		t.Fatalf("the true document: %v", err)
	}
	tree := parseNode(t, doc)
	same := tree.String()
	if err := check([]byte(same)); err != nil {
		t.Fatalf("the true document, written anew: %v", err)
	}
	leaves := make(map[string]struct{})
	tree.leaves(leaves)
	all := make([]string, 0, len(leaves))
	for leaf := range leaves {
		all = append(all, leaf)
	}
	slices.Sort(all)
	tried := 0
	tree.alterations("", all, func(path, what string) {
		altered := tree.String()
		if altered == same {
			return
		}
		tried++
		if check([]byte(altered)) == nil {
			t.Errorf("accepted: %s %s", path, what)
		}
	})
	for what, altered := range map[string]string{
		"trailing value":  same + "{}",
		"trailing letter": same + "x",
		"trailing NUL":    same + "\x00",
		"twice":           same + same,
		"byte order mark": "\ufeff" + same,
		"comma at end":    same[:len(same)-1] + ",}",
		"cut":             same[:len(same)-1],
		"empty":           "",
		"broken UTF-8":    same + "\xff",
		"comment":         same + "//",
		"UTF-16":          "\xff\xfe" + same,
	} {
		tried++
		if check([]byte(altered)) == nil {
			t.Errorf("accepted: %s", what)
		}
	}
	return tried
}

func TestEveryAlterationIsRefused(t *testing.T) {
	t.Parallel()
	withBeacon := testInput()
	withBeacon.Beacon = []byte{1, 2, 3, 0xfe}
	// With one position and one prize the winner can't be another, whatever the seed: what binds the other fields must not
	// rest on luck.
	single := testInput()
	single.Positions, single.Prizes = single.Positions[:1], single.Prizes[:1]
	singleBeacon := single
	singleBeacon.Beacon = []byte{9}
	noPrizes := testInput()
	noPrizes.Prizes = nil
	everyone := testInput()
	everyone.Positions = triangle(2)
	everyone.Prizes = []Prize{{Name: "all", Quantity: 3}, {Name: "two", Layer: 2, Quantity: 2}}
	for name, in := range map[string]Input{
		"instant": testInput(), "beacon": withBeacon, "single": single, "single with beacon": singleBeacon,
		"no prizes": noPrizes, "everyone wins": everyone,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, doc := mustProof(t, in)
			t.Logf("%d alterations", refuseEveryAlteration(t, doc, checkDocument))
		})
	}
}

func TestEveryInclusionAlterationIsRefused(t *testing.T) {
	t.Parallel()
	positions := triangle(4)
	for _, size := range []int{1, 2, 3, 7, 8, 10} {
		root, err := Root("c-1", positions[:size])
		testwait.Must(t, err)
		for index := range size {
			ip, err := Include("c-1", positions[:size], index)
			testwait.Must(t, err)
			doc, err := json.Marshal(ip)
			testwait.Must(t, err)
			refuseEveryAlteration(t, doc, func(doc []byte) error { return checkInclusionDocument(doc, root) })
		}
	}
}

// TestConsistentForgeries alters several fields so that they still agree with each other, as a forger would, short of
// recomputing the draw.
func TestConsistentForgeries(t *testing.T) {
	t.Parallel()
	forgeries := map[string]func(p *Proof){
		"prize renamed in prizes and winners": func(p *Proof) {
			for i := range p.Winners {
				if p.Winners[i].Prize == p.Prizes[0].Name {
					p.Winners[i].Prize = "renamed"
				}
			}
			p.Prizes[0].Name = "renamed"
		},
		"winner's account changed in positions too": func(p *Proof) {
			for i := range p.Positions {
				if p.Positions[i].ID == p.Winners[0].Position.ID {
					p.Positions[i].Account = "forger"
				}
			}
			p.Winners[0].Position.Account = "forger"
		},
		"account of a loser changed": func(p *Proof) { p.Positions[len(p.Positions)-1].Account += "x" },
		"one more prize and winner": func(p *Proof) {
			p.Prizes = append(p.Prizes, Prize{Name: "extra", Quantity: 1})
			p.Winners = append(p.Winners, Winner{Prize: "extra", Position: p.Positions[0]})
		},
		"prizes reordered with their winners": func(p *Proof) {
			p.Prizes[0], p.Prizes[1] = p.Prizes[1], p.Prizes[0]
			p.Winners[0], p.Winners[1], p.Winners[2] = p.Winners[1], p.Winners[2], p.Winners[0]
		},
		"prize opened to all layers": func(p *Proof) { p.Prizes[1].Layer = 0 },
		"last position not sold":     func(p *Proof) { p.Positions = p.Positions[:len(p.Positions)-1] },
		"two accounts exchanged": func(p *Proof) {
			a, b := &p.Positions[0], &p.Positions[1]
			a.Account, b.Account = b.Account, a.Account
		},
		"another seed with its commitment": func(p *Proof) {
			other := testSeed("other")
			p.ServerSeed, p.Commitment = other.Hex(), other.Commitment()
		},
		"another campaign": func(p *Proof) { p.Campaign = "c-2" },
		"another campaign and its root": func(p *Proof) {
			p.Campaign = "c-2"
			root := rootOf(p.Campaign, p.Positions)
			p.Root = hex.EncodeToString(root[:])
		},
		"a beacon added": func(p *Proof) { p.Beacon = "00" },
	}
	for name, forge := range forgeries {
		p, _ := mustProof(t, testInput())
		forge(p)
		if err := p.Verify(); err == nil {
			t.Errorf("accepted: %s", name)
		}
		doc, err := json.Marshal(p)
		testwait.Must(t, err)
		if err := checkDocument(doc); err == nil {
			t.Errorf("accepted as a document: %s", name)
		}
	}
}
