package edge_test

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/fairlead-dev/fairlead/internal/server/edge"
)

// TestDescribeTellsDeepFromMalformed: JSON that is nested too deep is not called malformed.
func TestDescribeTellsDeepFromMalformed(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		strings.Repeat("[", 10_001) + strings.Repeat("]", 10_001): "nested too deep",
		"[[": "malformed JSON at byte",
	} {
		var v any
		if err := json.Unmarshal([]byte(text), &v); err == nil || !strings.Contains(edge.Describe(err), want) {
			t.Errorf("%.10s…: %v", text, err)
		}
	}
}
