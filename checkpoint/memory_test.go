package checkpoint_test

import (
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/checkpoint"
	"github.com/fairlead-dev/fairlead/checkpoint/storetest"
)

func TestMemory(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(*testing.T) storetest.Harness {
		m := &checkpoint.Memory{}
		return storetest.Harness{
			Store:  m,
			Plant:  func(_ testing.TB, key checkpoint.Key, body []byte) { m.Plant(key, body, time.Hour) },
			Forget: func(testing.TB) { m.Forget() },
		}
	})
}
