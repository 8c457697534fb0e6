package leanhttp

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// net/http keeps a connection that it has closed for half a second more, so that the client can read its last answer.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}
