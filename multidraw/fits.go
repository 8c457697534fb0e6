package multidraw

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"

	"github.com/fairlead-dev/fairlead/checkpoint"
)

// What the state of an [Engine]'s operation has besides its parameters and draws, at most: names, hashes, times, counts.
const stateOverhead = 8 << 10

// unlikely is how improbable it is that an operation which was let through outgrows its state: e to the power of -unlikely.
const unlikely = 40

// lengths describes how long draws are as JSON, including the comma after each.
type lengths struct {
	mean, variance float64
	most           float64
}

// add counts a length that a part of all draws has: weight, of 1.
func (l *lengths) add(length, weight float64) {
	l.mean += length * weight
	l.variance += length * length * weight // The square of the mean is taken off by done.
	if weight > 0 {
		l.most = max(l.most, length)
	}
}

func (l *lengths) done() { l.variance = max(0, l.variance-l.mean*l.mean) }

// bytes is what count draws have in all but one of e^unlikely cases (Bernstein's inequality), and never more than if each
// had the most.
func (l *lengths) bytes(count int64) int64 {
	n := float64(count)
	third := (l.most - l.mean) * unlikely / 3
	more := third + math.Sqrt(third*third+2*n*l.variance*unlikely)
	return int64(math.Ceil(min(n*l.mean+more, n*l.most)))
}

// digits are the lengths of integers from low to high.
func digits(r Range) lengths {
	var l lengths
	low, high := float64(r.Min), float64(r.Max)
	part := func(from, to float64) float64 { return max(0, min(high, to)-max(low, from)+1) / (high - low + 1) }
	// All integers of a sign and a number of digits are between two powers of ten.
	for n, from := 1, 0.0; n <= len(strconv.Itoa(math.MaxInt64)); n++ {
		to := math.Pow10(n) - 1
		l.add(float64(n+len(",")), part(from, to))
		l.add(float64(n+len("-,")), part(-to, -max(from, 1))) // Zero has no sign.
		from = to + 1
	}
	l.done()
	return l
}

// wons are the lengths of prizes as they are saved.
func wons(prizes []Prize, objects bool) lengths {
	var (
		l   lengths
		all float64
	)
	for _, p := range prizes {
		all += float64(p.Weight)
	}
	for _, p := range prizes {
		l.add(float64(len(wonOf(p, objects))+len(",")), float64(p.Weight)/all)
	}
	l.done()
	return l
}

// fits returns a [*checkpoint.ParameterError] for an operation that its state can't hold when all is drawn. Parameters that
// break another rule are refused elsewhere.
func fits(o request) error {
	if spec := o.spec(); spec.Validate() != nil || o.Count < 1 || o.Count > MaxCount {
		return nil //nolint:nilerr // Parameters that break another rule are refused elsewhere.
	}
	var l lengths
	if o.Range != nil {
		l = digits(*o.Range)
	} else {
		l = wons(o.Prizes, o.PrizeObjects)
	}
	parameters, err := json.Marshal(o)
	if err != nil {
		return &checkpoint.ParameterError{Field: "parameters", Reason: "cannot be written as JSON: " + err.Error(), Err: err}
	}
	size := stateOverhead + int64(len(parameters)) + l.bytes(o.Count)
	if size <= checkpoint.MaxBytes {
		return nil
	}
	err = bad("count", "of %d draws makes a state of up to %d bytes, over the limit of %d: draw in several operations", o.Count, size, checkpoint.MaxBytes)
	return &checkpoint.ParameterError{Field: "parameters", Reason: err.Error(), Err: errors.Join(err, &checkpoint.SizeError{Bytes: int(size)})}
}
