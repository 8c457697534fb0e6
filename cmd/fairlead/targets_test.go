package main

import (
	"net/http"
	"testing"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead"
)

// TestTargetsOfThisNetwork: a URL to which nothing would be sent is refused where it is given, unless private targets are
// allowed. The key stays free.
func TestTargetsOfThisNetwork(t *testing.T) {
	t.Parallel()
	for _, allowed := range []bool{false, true} {
		s := startSceneWith(t, func(o *fairlead.Options) { o.AllowPrivateTargets = allowed })
		want := map[bool]int{false: http.StatusBadRequest, true: http.StatusCreated}[allowed]
		for _, host := range []string{
			"localhost", "localhost.", "LOCALHOST.:8080", "hook.localhost", "127.0.0.1", "127.0.0.1.", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "10.1.2.3", "169.254.169.254",
			"[::1]", "[::ffff:127.0.0.1]", "[::ffff:a9fe:a9fe]", "[fe80::1%25eth0]", "[64:ff9b::7f00:1]", "metadata.google.internal",
		} {
			key := uuid.NewString()
			doc, status := s.keyed("POST", "/v1/targets", key, obj{"name": key, "kind": "webhook", "url": "http://" + host + "/hook"})
			if status != want || !allowed && (doc["code"] != "bad_request" || doc["outcome"] != "not_applied") {
				t.Errorf("private targets allowed: %v, %s: %d %v", allowed, host, status, doc)
			}
			if allowed {
				continue
			}
			if doc, status := s.keyed("POST", "/v1/targets", key, obj{"name": key, "kind": "webhook", "url": "https://example.com/hook"}); status != http.StatusCreated {
				t.Errorf("corrected from %s: %d %v", host, status, doc)
			}
		}
	}
}
