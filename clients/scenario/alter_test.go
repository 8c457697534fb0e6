package scenario

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"unicode/utf16"

	"github.com/fairlead-dev/fairlead/fairdraw"
)

// respell writes a document in one of the ways that mean the same.
func respell(doc []byte, n int) []byte {
	var out bytes.Buffer
	switch n % 4 {
	case 1:
		if json.Indent(&out, doc, "\r", "\t ") == nil {
			return append([]byte("\n \t\r"), append(out.Bytes(), "\r\n "...)...)
		}
	case 2:
		return escaped(doc)
	case 3:
		return reversed(doc)
	}
	return doc
}

// escaped writes characters of strings as escapes that need none, hexadecimal digits too. Names stay.
func escaped(doc []byte) []byte {
	var out strings.Builder
	runes := []rune(string(doc))
	inside, value := false, false
	for i, c := range runes {
		switch {
		case c == '"' && (i == 0 || !backslashed(runes[:i])):
			inside = !inside
			value = inside && i > 0 && !isName(runes[i+1:])
		case inside && value && !backslashed(runes[:i]) && c != '\\' && (c > 0x7e || i%7 == 0):
			for _, unit := range utf16.Encode([]rune{c}) {
				if i%2 == 0 {
					_, _ = fmt.Fprintf(&out, `\u%04x`, unit)
				} else {
					_, _ = fmt.Fprintf(&out, `\u%04X`, unit)
				}
			}
			continue
		case inside && value && c == '/' && !backslashed(runes[:i]):
			out.WriteByte('\\')
		}
		out.WriteRune(c)
	}
	return []byte(out.String())
}

// backslashed reports whether what follows belongs to an escape: \x, or the digits of \uXXXX.
func backslashed(before []rune) bool {
	count := func(before []rune) (n int) {
		for n < len(before) && before[len(before)-1-n] == '\\' {
			n++
		}
		return n
	}
	if count(before)%2 == 1 {
		return true
	}
	for back := 1; back <= 4 && back < len(before); back++ {
		if before[len(before)-back] == 'u' && count(before[:len(before)-back])%2 == 1 {
			return true
		}
	}
	return false
}

// isName reports whether the string that begins here is a member's name.
func isName(rest []rune) bool {
	for i, c := range rest {
		if c == '"' && !backslashed(rest[:i]) {
			return i+1 < len(rest) && rest[i+1] == ':'
		}
	}
	return false
}

// reversed writes the members of the document's object in the other order.
func reversed(doc []byte) []byte {
	var members map[string]json.RawMessage
	if json.Unmarshal(doc, &members) != nil {
		return doc
	}
	names := make([]string, 0, len(members))
	for name := range members {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return bytes.Index(doc, []byte(`"`+b+`":`)) - bytes.Index(doc, []byte(`"`+a+`":`))
	})
	parts := make([]string, len(names))
	for i, name := range names {
		parts[i] = fmt.Sprintf("%q : %s", name, members[name])
	}
	return []byte("{" + strings.Join(parts, " ,\n") + "}")
}

// alter alters a document in the turn's way, and says how. It gives nil where that way does not fit the document.
func alter(doc []byte, turn int, rng *rand.Rand) (altered []byte, what string) {
	var proof fairdraw.Proof
	if json.Unmarshal(doc, &proof) == nil {
		ways := []func(*fairdraw.Proof, *rand.Rand) string{
			swapWinners, dropWinner, doubleWinner, changeAccount, dropPosition, swapPositions, changePrize, renamePrize, dropPrize, changeCampaign, moveWinner,
		}
		if turn%2 == 0 {
			if what = ways[turn/2%len(ways)](&proof, rng); what == "" {
				return nil, ""
			}
			altered, err := json.Marshal(&proof)
			if err != nil {
				return nil, ""
			}
			return altered, what
		}
		return spoil(mustJSON(&proof), turn/2, rng)
	}
	var inclusion fairdraw.InclusionProof
	if json.Unmarshal(doc, &inclusion) != nil {
		return nil, ""
	}
	if turn%2 == 0 {
		what = changeInclusion(&inclusion, turn/2, rng)
		return mustJSON(&inclusion), what
	}
	return spoil(mustJSON(&inclusion), turn/2, rng)
}

func mustJSON(v any) []byte {
	doc, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return doc
}

func swapWinners(p *fairdraw.Proof, _ *rand.Rand) string {
	for i := 1; i < len(p.Winners); i++ {
		if p.Winners[i] != p.Winners[i-1] {
			p.Winners[i], p.Winners[i-1] = p.Winners[i-1], p.Winners[i]
			return "two winners swapped"
		}
	}
	return ""
}

func dropWinner(p *fairdraw.Proof, _ *rand.Rand) string {
	if len(p.Winners) == 0 {
		return ""
	}
	p.Winners = p.Winners[:len(p.Winners)-1]
	return "the last winner dropped"
}

func doubleWinner(p *fairdraw.Proof, _ *rand.Rand) string {
	if len(p.Winners) == 0 {
		return ""
	}
	p.Winners = append(p.Winners, p.Winners[0])
	return "the first winner again"
}

func changeAccount(p *fairdraw.Proof, rng *rand.Rand) string {
	p.Positions[rng.IntN(len(p.Positions))].Account = "forger"
	return "the account of a position changed"
}

func dropPosition(p *fairdraw.Proof, rng *rand.Rand) string {
	i := rng.IntN(len(p.Positions))
	p.Positions = slices.Delete(p.Positions, i, i+1)
	return "a position dropped"
}

func swapPositions(p *fairdraw.Proof, _ *rand.Rand) string {
	if len(p.Positions) < 2 {
		return ""
	}
	p.Positions[0], p.Positions[1] = p.Positions[1], p.Positions[0]
	return "two positions swapped"
}

func changePrize(p *fairdraw.Proof, _ *rand.Rand) string {
	if len(p.Prizes) == 0 {
		return ""
	}
	p.Prizes[0].Quantity++
	return "one more of a prize"
}

func renamePrize(p *fairdraw.Proof, _ *rand.Rand) string {
	if len(p.Prizes) == 0 {
		return ""
	}
	for i := range p.Winners {
		if p.Winners[i].Prize == p.Prizes[0].Name {
			p.Winners[i].Prize = "renamed"
		}
	}
	p.Prizes[0].Name = "renamed"
	return "a prize renamed, in the winners too"
}

func dropPrize(p *fairdraw.Proof, _ *rand.Rand) string {
	if len(p.Prizes) == 0 {
		return ""
	}
	last := p.Prizes[len(p.Prizes)-1]
	p.Prizes = p.Prizes[:len(p.Prizes)-1]
	p.Winners = p.Winners[:len(p.Winners)-last.Quantity]
	return "a prize dropped, with its winners"
}

func changeCampaign(p *fairdraw.Proof, _ *rand.Rand) string {
	p.Campaign = "another"
	return "another campaign"
}

func moveWinner(p *fairdraw.Proof, _ *rand.Rand) string {
	for _, position := range p.Positions {
		if len(p.Winners) > 0 && p.Winners[0].Position != position {
			p.Winners[0].Position = position
			return "another position wins"
		}
	}
	return ""
}

func changeInclusion(ip *fairdraw.InclusionProof, turn int, rng *rand.Rand) string {
	switch turn % 7 {
	case 0:
		ip.Position.Account += "x"
		return "another account"
	case 1:
		ip.Index++
		return "the next index"
	case 2:
		ip.Size++
		return "a larger size"
	case 3:
		ip.Siblings = append(ip.Siblings, ip.Root)
		return "a sibling left over"
	case 4:
		ip.Campaign = "another"
		return "another campaign"
	case 5:
		ip.Position.Number++
		return "another number"
	}
	if len(ip.Siblings) == 0 {
		ip.Index = -1
		return "no index"
	}
	i := rng.IntN(len(ip.Siblings))
	ip.Siblings = slices.Delete(ip.Siblings, i, i+1)
	return "a sibling missing"
}

// spoil alters how a document is written, so that readers could read different things in it.
func spoil(doc []byte, turn int, rng *rand.Rand) ([]byte, string) {
	text := string(doc)
	root := strings.Index(text, `"root":"`) + len(`"root":"`)
	digit := root + rng.IntN(64)
	letter := strings.IndexAny(text[root:root+64], "abcdef") + root
	pairs := []struct{ what, from, to string }{
		{"an unknown field", `{"versions"`, `{"note":"","versions"`},
		{"a field twice", `"campaign":`, `"campaign":"c","campaign":`},
		{"a version twice", `{"document":1,`, `{"document":1,"document":1,`},
		{"a null", `"document":1`, `"document":null`},
		{"a missing field", `"document":1,`, ``},
		{"a fraction", `"document":1`, `"document":1.0`},
		{"an exponent", `"algorithm":1`, `"algorithm":1e0`},
		{"a leading zero", `"document":1`, `"document":01`},
		{"a sign", `"document":1`, `"document":+1`},
		{"a number that wraps to 1", `"algorithm":1`, `"algorithm":18446744073709551617`},
		{"a number in a string", `"algorithm":1`, `"algorithm":"1"`},
		{"true for 1", `"algorithm":1`, `"algorithm":true`},
		{"a name in another case", `"root"`, `"Root"`},
		{"a name with an escape", `"root"`, `"\u0072oot"`},
		{"another document version", `"document":1`, `"document":3`},
		{"the beacon's version", `"document":1`, `"document":2`},
		{"another algorithm", `"algorithm":1`, `"algorithm":2`},
		{"a comma at the end", `"algorithm":1}`, `"algorithm":1,}`},
		{"a comment", `{"versions"`, `{/**/"versions"`},
		{"a white space that is none", `{"versions"`, "{\u00a0\"versions\""},
		{"a null beacon", `{"versions"`, `{"beacon":null,"versions"`},
		{"an empty beacon", `{"versions"`, `{"beacon":{},"versions"`},
		{"a beacon without bytes", `{"versions"`, `{"beacon":{"signature":""},"versions"`},
		{"a lone surrogate", `"campaign":"`, `"campaign":"\ud800`},
		{"surrogates in the wrong order", `"campaign":"`, `"campaign":"\udc00\ud800`},
		{"invalid UTF-8", `"campaign":"`, "\"campaign\":\"\xed\xa0\x80"},
		{"a control character", `"campaign":"`, "\"campaign\":\"\n"},
		{"an escaped control character", `"campaign":"`, `"campaign":"\u0085`},
		{"an escape that is none", `"campaign":"`, `"campaign":"\x41`},
		{"an invisible character", `"campaign":"`, "\"campaign\":\"\u200b"},
		{"a letter and its escape", `"campaign":"`, `"campaign":"\\u0041`},
		{"a list nested deeply", `"campaign":`, `"campaign":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `,"x":`},
		{"a byte order mark", `{"versions"`, "\ufeff{\"versions\""},
	}
	switch n := turn % (len(pairs) + 6); {
	case n < len(pairs):
		return []byte(strings.Replace(text, pairs[n].from, pairs[n].to, 1)), pairs[n].what
	case n == len(pairs):
		return []byte(text + "{}"), "a second document"
	case n == len(pairs)+1:
		return []byte(text[:len(text)-1]), "the end missing"
	case n == len(pairs)+2:
		return []byte(text[:letter] + strings.ToUpper(text[letter:letter+1]) + text[letter+1:]), "upper-case hexadecimal"
	case n == len(pairs)+3:
		return []byte(text[:root] + text[root+2:]), "a byte missing"
	case n == len(pairs)+4:
		return []byte(text + "\x00"), "a NUL at the end"
	}
	other := "0"
	if text[digit] == '0' {
		other = "1"
	}
	return []byte(text[:digit] + other + text[digit+1:]), "another root"
}
