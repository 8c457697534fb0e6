package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
)

//go:embed static
var static embed.FS

// The pages, by their names among [Assets].
const (
	Page         = "console.html"
	CampaignPage = "campaign.html"
	AuctionPage  = "auction.html"
	CheckPage    = "check.html" // made from docs/check-this-draw.md
)

// Asset is a file of the console, ready to be sent.
type Asset struct {
	name        string
	contentType string
	tag         string // entity tag
	plain       []byte
	packed      []byte // by gzip; nil where that does not help
}

// IsPage reports whether the asset is an HTML page, which is served with a content policy and never as a mere file.
func (a *Asset) IsPage() bool { return strings.HasSuffix(a.name, ".html") }

// Assets are all files by name, such as js/app.js, pages too. They are read when first asked for.
//
//nolint:gochecknoglobals // What is embedded is the same for all, and never changes.
var Assets = sync.OnceValue(func() map[string]*Asset {
	all := map[string]*Asset{}
	err := fs.WalkDir(static, "static", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		body, err := static.ReadFile(file)
		if err != nil {
			return err
		}
		a := NewAsset(strings.TrimPrefix(file, "static/"), body)
		all[a.name] = a
		return nil
	})
	if err != nil {
		panic("console: embedded files cannot be read: " + err.Error())
	}
	return all
})

// NewAsset makes an asset of a file.
func NewAsset(name string, body []byte) *Asset {
	sum := sha256.Sum256(body)
	a := &Asset{name: name, contentType: contentType(name), tag: `"` + hex.EncodeToString(sum[:12]) + `"`, plain: body}
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err == nil {
		_, err = w.Write(body)
	}
	if err == nil && w.Close() == nil && packed.Len() < len(body) {
		a.packed = packed.Bytes()
	}
	return a
}

// contentType is spelled out for what the console has: the system's own table may say anything.
func contentType(name string) string {
	switch path.Ext(name) {
	case ".html":
		return "text/html; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".txt":
		return "text/plain; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	}
	return mime.TypeByExtension(path.Ext(name))
}

// Serve answers with the asset: with 304 where the browser has it, compressed where the browser takes that. Headers that the
// caller has set stay.
func (a *Asset) Serve(w http.ResponseWriter, r *http.Request, status int) {
	h := w.Header()
	// A browser may keep it, and asks each time whether it still is the one: pages and modules of two versions never mix.
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", a.tag)
	if status == http.StatusOK && strings.Contains(r.Header.Get("If-None-Match"), a.tag) {
		h.Add("Vary", "Accept-Encoding")
		w.WriteHeader(http.StatusNotModified)
		return
	}
	a.Send(w, r, status)
}

// Send is Serve without a word about keeping the asset.
func (a *Asset) Send(w http.ResponseWriter, r *http.Request, status int) {
	h := w.Header()
	h.Set("Content-Type", a.contentType)
	h.Add("Vary", "Accept-Encoding")
	body := a.plain
	if a.packed != nil && TakesGzip(r.Header.Get("Accept-Encoding")) {
		h.Set("Content-Encoding", "gzip")
		body = a.packed
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // The browser may have gone away.
	}
}

// TakesGzip reads an Accept-Encoding as browsers write it, and says whether what is zipped may be sent; where in doubt, what is plain is always right.
func TakesGzip(accepted string) bool {
	for part := range strings.SplitSeq(accepted, ",") {
		coding, quality, _ := strings.Cut(strings.TrimSpace(part), ";")
		if strings.EqualFold(strings.TrimSpace(coding), "gzip") {
			quality = strings.ReplaceAll(quality, " ", "")
			return !strings.HasPrefix(quality, "q=0") || strings.Trim(quality, "q=0.") != ""
		}
	}
	return false
}
