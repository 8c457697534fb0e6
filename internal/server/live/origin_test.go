package live

import (
	"testing"
)

func TestParseOrigin(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]string{
		"https://shop.example": "https://shop.example", "HTTPS://Shop.Example/": "https://shop.example", "https://shop.example:443": "https://shop.example",
		"http://shop.example:80": "http://shop.example", "http://shop.example:443": "http://shop.example:443", "http://[::1]:8080": "http://[::1]:8080",
		"http://localhost:3000": "http://localhost:3000", "https://xn--bcher-kva.example": "https://xn--bcher-kva.example",
		"": "", "*": "", "shop.example": "", "shop.example:443": "", "//shop.example": "", "ftp://shop.example": "", "null": "", "https://": "", "https://:443": "",
		"https://shop.example/page": "", "https://shop.example//": "", "https://shop.example?a": "", "https://shop.example#a": "", "https://me@shop.example": "", "https://shop.example:": "",
		"https://*.shop.example": "", "https://bücher.example": "", "https://shop.example:x": "", "https://shop example": "",
	} {
		if got, err := ParseOrigin(s); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v; want %q", s, got, err, want)
		}
	}
}
