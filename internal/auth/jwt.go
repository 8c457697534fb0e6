package auth

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// The bounds on what verifies a token.
const (
	jwtSecretMinBytes = 32 // of an HMAC secret: 256 bits
	// jwtLeeway is how far the issuer's clock may be ahead of ours. It counts for nbf and iat; a token is never accepted
	// past its exp.
	jwtLeeway = 60 * time.Second
	// rsaMinBits and rsaMaxBits bound RSA keys: below is breakable (NIST SP 800-131A), above makes a forged token expensive
	// to refuse.
	rsaMinBits    = 2048
	rsaMaxBits    = 8192
	publicKeysMax = 64 // in one PEM file or key set
	candidatesMax = 8  // that one token is tried with
)

// JWTOptions say how users' tokens are verified. Secret may be combined with one of PublicKeysPEM and JWKSURL. Which
// algorithms are accepted follows from the keys alone, never from what a token says of itself.
type JWTOptions struct {
	Secret []byte // verifies HS256, HS384 and HS512: 32 bytes or more
	// PublicKeysPEM holds one to eight public keys or certificates, one after the other: RSA (2048 to 8192 bits) for RS256
	// to RS512 and PS256 to PS512, P-256 for ES256, P-384 for ES384, P-521 for ES512, Ed25519 for EdDSA. Certificates lend
	// their key, their dates are not looked at.
	PublicKeysPEM []byte
	// JWKSURL is where the issuer publishes its keys as a JSON Web Key Set (RFC 7517): https, or http to a loopback address.
	JWKSURL  string
	Issuer   string // what a token's iss must be; empty accepts any
	Audience string // what a token's aud must contain; empty accepts any
}

// enabled reports whether any way to verify tokens is configured.
func (o JWTOptions) enabled() bool {
	return len(o.Secret) > 0 || len(o.PublicKeysPEM) > 0 || o.JWKSURL != ""
}

// publicKey is a key with the algorithms it may verify.
type publicKey struct {
	id   string // the JWK's kid; empty for a PEM file's
	key  any    // *rsa.PublicKey, *ecdsa.PublicKey or ed25519.PublicKey
	algs []string
}

// verifier tells whether a token is one of the configured issuer's.
type verifier struct {
	parser *jwt.Parser
	secret []byte
	static []publicKey
	set    *keySet // nil without JWKSURL
	now    func() time.Time
}

// newVerifier returns nil when no way to verify tokens is configured.
func newVerifier(background context.Context, opts JWTOptions, now func() time.Time) (*verifier, error) {
	if !opts.enabled() {
		if opts.Issuer != "" || opts.Audience != "" {
			return nil, fmt.Errorf("%w: a JWT issuer or audience without a key", ErrInvalidOptions)
		}
		return nil, nil
	}
	v := &verifier{now: now}
	var algs []string
	if len(opts.Secret) > 0 {
		if err := ValidSecret(opts.Secret); err != nil {
			return nil, err
		}
		v.secret = bytes.Clone(opts.Secret)
		algs = append(algs, "HS256", "HS384", "HS512")
	}
	switch {
	case len(opts.PublicKeysPEM) > 0 && opts.JWKSURL != "":
		return nil, fmt.Errorf("%w: a JWT public key and a JWKS URL exclude each other", ErrInvalidOptions)
	case len(opts.PublicKeysPEM) > 0:
		keys, err := parsePublicKeysPEM(opts.PublicKeysPEM)
		if err != nil {
			return nil, err
		}
		v.static = keys
		for _, k := range keys {
			algs = append(algs, k.algs...)
		}
	case opts.JWKSURL != "":
		set, err := newKeySet(background, opts.JWKSURL, now)
		if err != nil {
			return nil, err
		}
		v.set = set
		algs = append(algs, "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
	}
	parserOptions := []jwt.ParserOption{
		jwt.WithValidMethods(algs), jwt.WithStrictDecoding(), jwt.WithTimeFunc(now),
		jwt.WithExpirationRequired(), jwt.WithIssuedAt(), jwt.WithLeeway(jwtLeeway),
	}
	if opts.Issuer != "" {
		parserOptions = append(parserOptions, jwt.WithIssuer(opts.Issuer))
	}
	if opts.Audience != "" {
		parserOptions = append(parserOptions, jwt.WithAudience(opts.Audience))
	}
	v.parser = jwt.NewParser(parserOptions...)
	return v, nil
}

// verify returns the user whose token it is, and when it expires. It returns [ErrBadCredential] or [ErrUnavailable].
func (v *verifier) verify(ctx context.Context, token string) (Principal, time.Time, error) {
	// A map matches claims by their exact names; a struct would take "SUB" too.
	claims := jwt.MapClaims{}
	_, err := v.parser.ParseWithClaims(token, claims, func(t *jwt.Token) (any, error) { return v.candidates(ctx, t) })
	if errors.Is(err, ErrUnavailable) {
		return Principal{}, time.Time{}, err
	}
	if err != nil {
		return Principal{}, time.Time{}, fmt.Errorf("%w: %w", ErrBadCredential, err)
	}
	expiresAt, err := claims.GetExpirationTime()
	if err != nil || expiresAt == nil || !v.now().Before(expiresAt.Time) {
		return Principal{}, time.Time{}, fmt.Errorf("%w: %w", ErrBadCredential, jwt.ErrTokenExpired)
	}
	sub, err := claims.GetSubject()
	if err != nil || !ValidAccount(sub) {
		return Principal{}, time.Time{}, fmt.Errorf("%w: the token's sub can't be an account", ErrBadCredential)
	}
	return Principal{Role: RoleUser, ID: "user:" + sub, Account: sub, Name: sub}, expiresAt.Time, nil
}

// candidates returns the keys that may have signed t: those made for the very algorithm that it names, so that an RSA key
// never serves as an HMAC secret, nor one curve's key another's signature.
func (v *verifier) candidates(ctx context.Context, t *jwt.Token) (any, error) {
	if _, ok := t.Header["crit"]; ok {
		// RFC 7515 section 4.1.11: what must be understood, and isn't, refuses.
		return nil, errors.New("its crit header names extensions")
	}
	alg := t.Method.Alg()
	if strings.HasPrefix(alg, "HS") {
		if v.secret == nil {
			return nil, errors.New("no secret is configured")
		}
		return v.secret, nil
	}
	kid, _ := t.Header["kid"].(string)
	if _, ok := t.Header["kid"]; ok && kid == "" {
		return nil, errors.New("its kid is not a name")
	}
	var found []jwt.VerificationKey
	if v.set != nil {
		keys, err := v.set.find(ctx, kid, alg)
		if err != nil {
			return nil, err
		}
		for _, k := range keys {
			found = append(found, k.key)
		}
	}
	for _, k := range v.static {
		if slices.Contains(k.algs, alg) {
			found = append(found, k.key)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no key verifies %s", alg)
	}
	return jwt.VerificationKeySet{Keys: found}, nil
}

// ValidSecret refuses secrets that are too short, and those that are no secret.
func ValidSecret(secret []byte) error {
	if len(secret) < jwtSecretMinBytes {
		return fmt.Errorf("%w: the JWT secret has %d bytes, of at least %d", ErrInvalidOptions, len(secret), jwtSecretMinBytes)
	}
	if block, _ := pem.Decode(secret); block != nil {
		return fmt.Errorf("%w: the JWT secret is a PEM file (%s); give it as the public key", ErrInvalidOptions, block.Type)
	}
	return nil
}

// parsePublicKeysPEM reads the keys of a PEM file.
func parsePublicKeysPEM(data []byte) ([]publicKey, error) {
	var keys []publicKey
	for {
		var block *pem.Block
		block, data = pem.Decode(data)
		if block == nil {
			break
		}
		key, err := parsePublicKeyBlock(block)
		if err != nil {
			return nil, fmt.Errorf("%w: JWT public key %d: %w", ErrInvalidOptions, len(keys)+1, err)
		}
		algs, err := algorithms(key)
		if err != nil {
			return nil, fmt.Errorf("%w: JWT public key %d: %w", ErrInvalidOptions, len(keys)+1, err)
		}
		keys = append(keys, publicKey{key: key, algs: algs})
	}
	switch {
	case len(bytes.TrimSpace(data)) > 0:
		return nil, fmt.Errorf("%w: the JWT public key has text that isn't PEM", ErrInvalidOptions)
	case len(keys) == 0:
		return nil, fmt.Errorf("%w: the JWT public key has no PEM block", ErrInvalidOptions)
	case len(keys) > candidatesMax:
		return nil, fmt.Errorf("%w: %d JWT public keys, of at most %d", ErrInvalidOptions, len(keys), candidatesMax)
	}
	return keys, nil
}

func parsePublicKeyBlock(block *pem.Block) (any, error) {
	switch block.Type {
	case "PUBLIC KEY":
		return x509.ParsePKIXPublicKey(block.Bytes)
	case "RSA PUBLIC KEY":
		return x509.ParsePKCS1PublicKey(block.Bytes)
	case "CERTIFICATE":
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		return cert.PublicKey, nil
	default:
		return nil, fmt.Errorf("a PEM block of type %q is no public key", block.Type)
	}
}

// algorithms returns what a key may verify, by its type and curve alone.
func algorithms(key any) ([]string, error) {
	switch k := key.(type) {
	case *rsa.PublicKey:
		if bits := k.N.BitLen(); bits < rsaMinBits || bits > rsaMaxBits {
			return nil, fmt.Errorf("an RSA key of %d bits isn't %d to %d", bits, rsaMinBits, rsaMaxBits)
		}
		return []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}, nil
	case *ecdsa.PublicKey:
		switch k.Curve {
		case elliptic.P256():
			return []string{"ES256"}, nil
		case elliptic.P384():
			return []string{"ES384"}, nil
		case elliptic.P521():
			return []string{"ES512"}, nil
		}
		return nil, fmt.Errorf("no algorithm uses the curve %s", k.Curve.Params().Name)
	case ed25519.PublicKey:
		return []string{"EdDSA"}, nil
	default:
		return nil, fmt.Errorf("a key of type %T verifies no token", key)
	}
}
