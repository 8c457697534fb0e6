package archive

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// place is what sums are kept of: an account's entries, or one direction of the outside's or of transit's.
type place struct {
	Account, Currency string
	Side              int16 // 0; of entries without versions -1: came in, 1: went out
}

// books are the sums of entries.
type books map[place]*big.Int

func (b books) add(p place, amount *big.Int) {
	if b[p] == nil {
		b[p] = new(big.Int)
	}
	b[p].Add(b[p], amount)
}

// differs returns the first place whose sum is another one in other books.
func (b books) differs(other books) (string, bool) {
	for _, p := range slices.SortedFunc(maps.Keys(merged(b, other)), comparePlaces) {
		if x, y := b.of(p), other.of(p); x.Cmp(y) != 0 {
			return fmt.Sprintf("account %s: the entries in the files sum up to %v %s, and the database has %v", p.Account, x, p.Currency, y), true
		}
	}
	return "", false
}

func (b books) of(p place) *big.Int {
	if n := b[p]; n != nil {
		return n
	}
	return new(big.Int)
}

func merged(a, b books) books {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

func comparePlaces(a, b place) int {
	return cmp.Or(strings.Compare(a.Account, b.Account), strings.Compare(a.Currency, b.Currency), cmp.Compare(a.Side, b.Side))
}

// moves are what transfers moved, and what their entries, their holds and the purchases say of it.
type moves struct{ entries, captures, payments, refunds sides }

// sides are the sum of the hashes of what moved, modulo 2^64: of both sides of transfers added, of entries subtracted. It is zero where each side is an
// entry and each entry a side; else it is zero once in 2^64.
type sides uint64

func (s *sides) add(transfer, account, amount, currency string, sign int) error {
	n, err := strconv.ParseInt(amount, 10, 64)
	if err != nil {
		return err
	}
	h := sha256.Sum256([]byte(transfer + "\x00" + account + "\x00" + currency + "\x00" + strconv.FormatInt(n, 10)))
	*s += sides(uint64(sign) * binary.BigEndian.Uint64(h[:])) //nolint:gosec // Modulo 2^64.
	return nil
}

// addTimes adds an amount between two accounts, so that what counts is what all such amounts add up to.
func (s *sides) addTimes(from, to, amount string, sign int) error {
	n, err := strconv.ParseInt(amount, 10, 64)
	if err != nil {
		return err
	}
	h := sha256.Sum256([]byte(from + "\x00" + to))
	*s += sides(uint64(int64(sign)*n) * (binary.BigEndian.Uint64(h[:]) | 1)) //nolint:gosec // Modulo 2^64.
	return nil
}
