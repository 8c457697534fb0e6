package translog_test

import (
	"fmt"
	"strings"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/fairlead-dev/fairlead/translog"
)

// A log signs a checkpoint, a witness cosigns it, and a reader who knows both keys verifies both.
func ExampleOpen() {
	key, err := translog.GenerateKey("log.example.com/shop")
	if err != nil {
		panic(err)
	}
	witness, err := translog.GenerateCosigner("witness.example.com/w1")
	if err != nil {
		panic(err)
	}
	checkpoint, err := key.Sign(tlog.Tree{N: 1, Hash: tlog.RecordHash([]byte("the first leaf"))})
	if err != nil {
		panic(err)
	}
	text, _, _ := strings.Cut(checkpoint, "\n\n")
	line, err := witness.Cosign(text + "\n")
	if err != nil {
		panic(err)
	}
	if checkpoint, err = translog.AddCosignatures(checkpoint, []string{witness.Verifier()}, line); err != nil {
		panic(err)
	}
	c, err := translog.Open(checkpoint, key.Verifier(), witness.Verifier())
	if err != nil {
		panic(err)
	}
	fmt.Println(c.Origin, c.Tree.N, c.Cosignatures[0].Name)
	// Output: log.example.com/shop 1 witness.example.com/w1
}
