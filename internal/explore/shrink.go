//go:build unix

package explore

import "slices"

// shrink looks for few decisions that still fail, with at most tries runs. fails runs the decisions, and everything goes on in order
// after the last one.
func shrink(decisions []Decision, tries int, fails func([]Decision) bool) []Decision {
	try := func(shorter []Decision) bool {
		if tries == 0 || len(shorter) == len(decisions) {
			return false
		}
		tries--
		if !fails(shorter) {
			return false
		}
		decisions = shorter
		return true
	}
	// First the end, which is mostly what would have happened in order.
	for cut := len(decisions) / 2; cut > 0; cut /= 2 {
		for len(decisions) > cut && try(slices.Clone(decisions[:len(decisions)-cut])) {
			continue
		}
	}
	for size := max(len(decisions)/2, 1); ; size /= 2 {
		for i := 0; i < len(decisions); {
			if !try(slices.Delete(slices.Clone(decisions), i, min(i+size, len(decisions)))) {
				i += size
			}
		}
		if size <= 1 {
			return decisions
		}
	}
}
