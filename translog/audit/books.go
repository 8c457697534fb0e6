package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/big"
)

// ledgers plays the closings of the books. The balances behind a closing's root are private, so what follows is that the sums add up.
type ledgers struct{ counts *Counts }

func (b *ledgers) apply(l *leaf) (over bool, p *problem) {
	o := newObject(l.data)
	accounts := o.integer("accounts", 0, maxAmount)
	root := hex.EncodeToString(o.hex("root", sha256.Size, 0))
	empty := sha256.Sum256(nil)
	if none := root == hex.EncodeToString(empty[:]); none != (accounts == 0) {
		o.wrong("root", root, fmt.Sprintf("that of %d accounts", accounts))
	}
	before := ""
	for i, c := range o.objects("currencies") {
		currency := c.str("currency")
		if i > 0 && currency <= before {
			c.wrong("currency", quote(currency), "one that comes after "+quote(before))
		}
		before = currency
		held := new(big.Int).Add(c.big("available", false), c.big("held", false))
		came := new(big.Int).Add(c.big("outside", true), c.big("transit", true))
		if held.Cmp(came) != 0 {
			c.wrong("available + held", held.String(), "outside + transit, which is "+came.String())
		}
		if o.problem() != nil {
			break
		}
	}
	b.counts.Closings++
	return false, o.problem()
}
