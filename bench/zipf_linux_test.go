package main

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestZipfPairsFollowTheDistribution counts how often accounts pay, and how often they are paid given that they are not the payer, and
// compares the counts with the exact probabilities: within five standard deviations each, and by chi squared together.
func TestZipfPairsFollowTheDistribution(t *testing.T) {
	t.Parallel()
	const accounts, exponent, n = 1000, 2.0, 1_000_000
	z := newZipfPairs(rand.New(rand.NewPCG(19, 3)), exponent, accounts)
	payers, payees := make([]float64, accounts), make([]float64, accounts)
	for range n {
		from, to, amount := z.next()
		if from == to || from < 0 || to < 0 || from >= accounts || to >= accounts || amount < 100 || amount > 999 {
			t.Fatalf("%d pays %d to %d", from, amount, to)
		}
		payers[from]++
		payees[to]++
	}
	weights, sum := make([]float64, accounts), 0.0
	for k := range weights {
		weights[k] = math.Pow(float64(k+1), -exponent)
		sum += weights[k]
	}
	pays := make([]float64, accounts)
	others := 0.0 // The sum over payers of their probability, divided by that of all others.
	for k, w := range weights {
		pays[k] = w / sum
		others += pays[k] / (1 - pays[k])
	}
	isPaid := make([]float64, accounts)
	for k, p := range pays {
		isPaid[k] = p * (others - p/(1-p))
	}
	requireCounts(t, "payers", payers, pays, n)
	requireCounts(t, "payees", payees, isPaid, n)
}

func requireCounts(t *testing.T, what string, counts, probabilities []float64, n float64) {
	t.Helper()
	const tail = 50 // From this rank on, ranks are counted together: each alone is too rare.
	squares, tailCount, tailExpected := 0.0, 0.0, 0.0
	for k, p := range probabilities {
		expected := n * p
		if k >= tail {
			tailCount += counts[k]
			tailExpected += expected
			continue
		}
		if off := math.Abs(counts[k] - expected); off > 5*math.Sqrt(expected*(1-p)) {
			t.Errorf("%s: rank %d was picked %.0f times, want %.0f", what, k+1, counts[k], expected)
		}
		squares += (counts[k] - expected) * (counts[k] - expected) / expected
	}
	squares += (tailCount - tailExpected) * (tailCount - tailExpected) / tailExpected
	const limit = 86.7 // The 99.9th percentile of chi squared with 50 degrees of freedom.
	if squares > limit {
		t.Errorf("%s: chi squared is %.1f, want at most %.1f", what, squares, limit)
	}
}
