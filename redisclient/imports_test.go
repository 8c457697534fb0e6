package redisclient_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// A program imports no other client library than its own.
func TestImports(t *testing.T) {
	t.Parallel()
	const module, rueidis, goRedis = "github.com/fairlead-dev/fairlead/", "github.com/redis/rueidis", "github.com/redis/go-redis/v9"
	for name, allowed := range map[string]string{
		"redisclient": "", "lock/redislock": "", "checkpoint/redisstore": "", "idempotency/redisstore": "",
		"redisclient/rueidisclient": rueidis, "redisclient/goredisclient": goRedis,
	} {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", module+name).Output()
		testwait.Must(t, err)
		for _, library := range []string{rueidis, goRedis} {
			if found := strings.Contains(string(out), library+"\n"); found != (library == allowed) {
				t.Errorf("%s imports %s: %t", name, library, found)
			}
		}
	}
}
