package live

import (
	"errors"
	"net/url"
	"strings"
)

var errOrigin = errors.New("an origin is http:// or https://, a host in ASCII and, unless it is the scheme's own, a port: https://shop.example")

// ParseOrigin returns an origin as browsers send it, in lower case (RFC 6454, section 6.2).
func ParseOrigin(s string) (string, error) {
	u, err := url.Parse(strings.ToLower(strings.TrimSuffix(s, "/")))
	if err != nil || u.Hostname() == "" || strings.Contains(u.Host, "*") {
		return "", errOrigin
	}
	for _, r := range u.Host {
		if r > '~' {
			return "", errOrigin
		}
	}
	port, ok := map[string]string{"http": ":80", "https": ":443"}[u.Scheme]
	origin := u.Scheme + "://" + u.Host
	if !ok || origin != u.String() || strings.HasSuffix(origin, ":") {
		return "", errOrigin
	}
	return strings.TrimSuffix(origin, port), nil
}
