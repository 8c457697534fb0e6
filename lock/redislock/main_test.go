package redislock

import (
	"testing"

	"github.com/fairlead-dev/fairlead/internal/testredis"
)

func TestMain(m *testing.M) { testredis.Main(m) }
