package main

import "math/rand/v2"

// zipfPairs picks two different accounts of each transfer, and an amount. The account of rank k, from 1 on, is picked in proportion to
// k to the power of minus the exponent, as tb-perf does it, and picked anew when it is both payer and payee. It is for one goroutine.
type zipfPairs struct {
	ranks  *rand.Zipf
	random *rand.Rand
}

func newZipfPairs(random *rand.Rand, exponent float64, accounts int) *zipfPairs {
	return &zipfPairs{rand.NewZipf(random, exponent, 1, uint64(accounts-1)), random} //nolint:gosec // Accounts are at least two.
}

// next returns the ranks of payer and payee, from 0 on. Amounts have three digits, so that all requests are of one length.
func (z *zipfPairs) next() (from, to, amount int) {
	from = int(z.ranks.Uint64()) //nolint:gosec // It is below the number of accounts.
	for to = from; to == from; {
		to = int(z.ranks.Uint64()) //nolint:gosec // As above.
	}
	return from, to, 100 + z.random.IntN(900)
}
