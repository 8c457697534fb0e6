//go:build unix

package explore

import (
	"crypto/rand"
	"encoding/binary"
	"hash/fnv"
	mathrand "math/rand/v2"
	"strconv"
	"sync"

	"github.com/google/uuid"
)

// chance takes the place of crypto/rand. What goroutines get depends on the seed, on how they came to ask, and on how often somebody came
// that way: so it doesn't matter which of two that are at work at one moment asks first.
type chance struct {
	mu    sync.Mutex
	seed  uint64
	who   *goroutines
	asked map[string]uint64
}

// takeChances makes chance that of the whole program, for good. It is called before anything else runs.
func takeChances() {
	c := &chance{asked: map[string]uint64{}, who: newGoroutines()}
	rand.Reader = c
	uuid.SetRand(c)
}

// begin begins anew with a seed.
func (c *chance) begin(seed uint64, who *goroutines) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seed, c.who = seed, who
	clear(c.asked)
}

// Read implements [io.Reader].
func (c *chance) Read(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	how := caller() + strconv.FormatUint(c.who.lastOf(c.who.here()), 10)
	c.asked[how]++
	h := fnv.New64a()
	_, _ = h.Write(binary.LittleEndian.AppendUint64([]byte(how), c.asked[how])) // It never fails.
	source := mathrand.New(mathrand.NewPCG(c.seed, h.Sum64()))                  //nolint:gosec // Repeatable, not secret.
	for i := range p {
		p[i] = byte(source.Uint32()) //nolint:gosec // One of its bytes is enough.
	}
	return len(p), nil
}
