package auth_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/auth"
)

// oneKey is the smallest store there is.
type oneKey struct{ auth.Key }

func (s oneKey) KeyByHash(_ context.Context, hash [32]byte) (auth.Key, error) {
	if hash != s.Hash {
		return auth.Key{}, auth.ErrUnknownKey
	}
	return s.Key, nil
}
func (oneKey) InsertKey(context.Context, auth.Key) error  { return auth.ErrKeyExists }
func (s oneKey) Keys(context.Context) ([]auth.Key, error) { return []auth.Key{s.Key}, nil }
func (oneKey) RevokeKey(context.Context, string) error    { return auth.ErrUnknownKey }

func get(url, authorization string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	return http.DefaultClient.Do(req)
}

// A server asks who is there before it does anything else.
func ExampleAuthenticator_Authenticate() {
	secret, hash, err := auth.GenerateKey(auth.RoleService)
	if err != nil {
		panic(err)
	}
	a, err := auth.New(auth.Options{Store: oneKey{auth.Key{ID: "7", Role: auth.RoleService, Name: "shop", Hash: hash}}})
	if err != nil {
		panic(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		value, err := auth.Authorization(r.Header)
		var p auth.Principal
		if err == nil {
			p, err = a.Authenticate(r.Context(), value)
		}
		switch {
		case errors.Is(err, auth.ErrUnavailable):
			w.WriteHeader(http.StatusServiceUnavailable)
		case err != nil:
			w.Header().Set("WWW-Authenticate", auth.Challenge(err))
			w.WriteHeader(http.StatusUnauthorized)
		case !p.MayActFor("ann"):
			w.WriteHeader(http.StatusForbidden)
		default:
			w.Header().Set("Principal", p.ID)
		}
	}))
	defer a.Close()
	defer server.Close()

	for _, authorization := range []string{"Bearer " + secret, "Bearer guess", ""} {
		resp, err := get(server.URL, authorization)
		if err != nil {
			panic(err)
		}
		_ = resp.Body.Close()
		fmt.Printf("%d %q %s\n", resp.StatusCode, resp.Header.Get("Principal"), resp.Header.Values("WWW-Authenticate"))
	}
	// Output:
	// 200 "key:7" []
	// 401 "" [Bearer realm="fairlead", error="invalid_token"]
	// 401 "" [Bearer realm="fairlead"]
}

func ExamplePrincipal_MayActFor() {
	ann := auth.Principal{Role: auth.RoleUser, ID: "user:ann", Account: "ann"}
	shop := auth.Principal{Role: auth.RoleService, ID: "key:7"}
	fmt.Println(ann.MayActFor("ann"), ann.MayActFor("bob"), shop.MayActFor("bob"))
	// Output: true false true
}

func ExampleLimiter() {
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	l, err := auth.NewLimiter(auth.LimiterOptions{Quota: 2, Window: 10 * time.Second, Now: func() time.Time { return noon }})
	if err != nil {
		panic(err)
	}
	ann := auth.Principal{Role: auth.RoleUser, ID: "user:ann", Account: "ann"}
	for range 3 {
		h := http.Header{}
		d := l.Allow(ann)
		l.SetHeaders(h, d)
		fmt.Println(d.Allowed, h.Get("RateLimit-Policy"), h.Get("RateLimit"), h.Values("Retry-After"))
	}
	// Output:
	// true "user";q=2;w=10 "user";r=1;t=5 []
	// true "user";q=2;w=10 "user";r=0;t=10 []
	// false "user";q=2;w=10 "user";r=0;t=10 [5]
}
