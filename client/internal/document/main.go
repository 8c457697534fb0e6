// Command document prints a document that is made from the server's code: openapi, for docs/openapi.json, or problems, for
// docs/problems.md. With check it prints docs/check-this-draw.md as the page that the server has. scripts/generate.sh runs it.
package main

import (
	"fmt"
	"os"

	"github.com/fairlead-dev/fairlead/internal/server"
)

func main() {
	var document []byte
	var err error
	switch name := os.Args[len(os.Args)-1]; name {
	case "openapi":
		document, err = server.Document(server.ContractVersion)
	case "check":
		document, err = checkPage()
	case "problems":
		document = server.ProblemsDocument()
	default:
		err = fmt.Errorf("there is no document %q", name)
	}
	if err == nil {
		_, err = os.Stdout.Write(document)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "document:", err)
		os.Exit(1)
	}
}
