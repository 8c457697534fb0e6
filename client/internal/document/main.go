// Command document prints the OpenAPI document that docs/openapi.json is the copy of. scripts/generate.sh runs it.
package main

import (
	"fmt"
	"os"

	"github.com/fairlead-dev/fairlead/internal/server"
)

func main() {
	document, err := server.Document(server.ContractVersion)
	if err == nil {
		_, err = os.Stdout.Write(document)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "document:", err)
		os.Exit(1)
	}
}
