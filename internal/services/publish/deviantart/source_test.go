package deviantart

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/services/publish"
)

// TestSourceHasALimit reads a file whose length nobody said, and which is too long.
func TestSourceHasALimit(t *testing.T) {
	t.Parallel()
	for limit, whole := range map[int64]bool{6: false, 7: true} {
		s := &source{Reader: strings.NewReader("7 bytes"), left: limit}
		_, err := io.ReadAll(s)
		p, tooLong := errors.AsType[*problem](err)
		if tooLong == whole || tooLong && (p.result.Class != publish.Permanent || s.failure.Load() != p) {
			t.Errorf("%d: %v", limit, err)
		}
	}
}
