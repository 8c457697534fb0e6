package alias

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestAlias computes an alias as docs/design/log.md says, and holds aliases of topics and secrets apart.
func TestAlias(t *testing.T) {
	t.Parallel()
	topic, secret := "auction:01a21506-5277-7006-bf26-ead79dda0043", []byte("0123456789abcdef0123456789abcdef")
	in := In(topic, secret)
	a := in.Of("ann@example.org")
	sum := sha256.Sum256([]byte("fairlead alias\n" + topic + "\nann@example.org\n" + a.Salt))
	if a.Name != hex.EncodeToString(sum[:16]) || len(a.Salt) != 32 || in.Of("ann@example.org") != a {
		t.Errorf("%+v", a)
	}
	if !Check(topic, "ann@example.org", a) || Check(topic, "bob@example.org", a) || Check("campaign:x", "ann@example.org", a) {
		t.Error("what an alias proves is not what it is")
	}
	for _, other := range []Alias{in.Of("bob@example.org"), In("campaign:x", secret).Of("ann@example.org"), In(topic, []byte("another")).Of("ann@example.org")} {
		if other.Name == a.Name || other.Salt == a.Salt {
			t.Errorf("%+v is the same as another", other)
		}
	}
}
