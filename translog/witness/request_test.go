package witness

import (
	"testing"

	"golang.org/x/mod/sumdb/tlog"
)

// FuzzParseRequest: a body that is read is written again as it was.
func FuzzParseRequest(f *testing.F) {
	hash := tlog.RecordHash([]byte("x"))
	f.Add(request{checkpoint: "log\n1\n" + hash.String() + "\n\n— log AAAAAAAA\n"}.String())
	f.Add(request{old: 20852014, proof: tlog.TreeProof{hash, hash}, checkpoint: "x\n"}.String())
	f.Add("old 0\n\n")
	f.Add("old 01\n\nx")
	f.Add("")
	f.Fuzz(func(t *testing.T, body string) {
		r, err := parseRequest(body)
		if err != nil {
			return
		}
		if r.String() != body || r.old < 0 || len(r.proof) > maxProofLines {
			t.Errorf("%q became %q", body, r)
		}
	})
}
