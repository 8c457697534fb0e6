package server

import (
	"compress/gzip"
	_ "embed"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/swaggest/swgui/v5/static"

	"github.com/fairlead-dev/fairlead/internal/console"
)

// docsPolicy is what the page of documentation may do: it runs its own scripts alone, asks this server alone, and is framed by
// nobody, since a visitor may type a key into it. Swagger UI has its icons in data URLs, and styles in its elements.
const docsPolicy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

var (
	//go:embed docs/docs.html
	docsPage []byte
	//go:embed docs/docs.js
	docsScript []byte
)

// docsAssets are the page, under no name, and what it loads, unpacked and packed once and for all.
//
//nolint:gochecknoglobals // What is embedded is the same for all, and never changes.
var docsAssets = sync.OnceValue(func() map[string]*console.Asset {
	all := map[string]*console.Asset{"": console.NewAsset("docs.html", docsPage), "docs.js": console.NewAsset("docs.js", docsScript)}
	for _, name := range []string{"swagger-ui-bundle.js", "swagger-ui.css", "favicon-32x32.png"} {
		body, err := unpacked(name)
		if err != nil {
			panic("server: embedded files cannot be read: " + err.Error())
		}
		all[name] = console.NewAsset(name, body)
	}
	return all
})

func unpacked(name string) ([]byte, error) {
	if strings.HasSuffix(name, ".png") {
		return static.FS.ReadFile(name) //nolint:wrapcheck // It names the file.
	}
	f, err := static.FS.Open(name + ".gz")
	if err != nil {
		return nil, err //nolint:wrapcheck // As above.
	}
	defer func() { _ = f.Close() }()
	r, err := gzip.NewReader(f)
	if err != nil {
		return nil, err //nolint:wrapcheck // The caller says what for.
	}
	return io.ReadAll(r) //nolint:wrapcheck // As above.
}

func getDocs(w http.ResponseWriter, r *http.Request) error {
	asset, ok := docsAssets()[r.PathValue("asset")]
	if !ok {
		return noSuchPath(w, r)
	}
	h := w.Header()
	h.Set("Content-Security-Policy", docsPolicy)
	h.Set("X-Frame-Options", "DENY") // For browsers that do not know frame-ancestors.
	h.Set("Referrer-Policy", "no-referrer")
	asset.Send(w, r, http.StatusOK)
	return nil
}
