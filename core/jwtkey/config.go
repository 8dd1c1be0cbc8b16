package jwtkey

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/sashlimit/sash/core"
)

// Config sets which tokens [ByClaim] accepts, and where it finds them. Methods and one of Key, Keys and Keyfunc are
// required.
type Config struct {
	// Methods are the algorithms that tokens may be signed with, such as "RS256", whatever a token says
	// of itself. HMAC, where the key that verifies can also sign, does not mix with public keys.
	Methods []string

	// Key verifies all tokens: a []byte for HMAC, as long as the hash (32 bytes for HS256), or an
	// *rsa.PublicKey of 2048 bits or more, an *ecdsa.PublicKey or an ed25519.PublicKey.
	Key any
	// Keys are such keys by the "kid" in a token's header. A token that names none of them is not valid.
	Keys map[string]any
	// Keyfunc finds the key for a token, so that a library for JWKS can. What it returns is checked like Key, each
	// time. If it returns an error or panics, the token is not valid. While it waits for a server, so does the request.
	Keyfunc jwt.Keyfunc

	// Issuer are the values of "iss" that are accepted; any by default, so set it unless each key belongs to one
	// issuer. The same claim of two issuers is two identities.
	Issuer []string
	// Audience are the values of "aud" of which a token must have one; by default none must.
	Audience []string
	// Leeway is how far the clocks of issuers may be off, 0 to 5 minutes.
	Leeway time.Duration
	// RequireExpiry makes a token without "exp" invalid. By default it is valid forever.
	RequireExpiry bool

	// MaxTokenBytes is how long a token may be, 256 to 65536. The default is 8192. A longer token is invalid, and is
	// not parsed.
	MaxTokenBytes int

	// Header is where the token is, behind "Bearer", which only Authorization needs to have. The default
	// is Authorization. Two different tokens are invalid.
	Header string
	// Cookie is the name of a cookie that is the token, instead of a header. There is
	// no such setting for the query: what is in URLs ends up in logs.
	Cookie string

	// Path are the objects around the claim, the outermost first: {"user"} for the "id" in {"user": {"id": 7}}.
	Path []string
}

// verifier is a Config that has been checked, with its defaults and nothing that its maker can still change.
type verifier struct {
	Config
	path   []string
	parser *jwt.Parser
}

func newVerifier(claim string, cfg Config) (*verifier, error) {
	var faults faults
	bad := func(value, problem, remedy string) { faults.add("ByClaim", value, problem, remedy) }
	path := append(slices.Clone(cfg.Path), claim)
	if slices.Contains(path, "") {
		bad(fmt.Sprintf("claim: %q, Path: %q", claim, cfg.Path),
			"a name is empty", `name the claim and the objects around it, such as "sub"`)
	}
	cfg.checkKeys(bad)
	if slices.Contains(slices.Concat(cfg.Issuer, cfg.Audience), "") {
		bad(fmt.Sprintf("Issuer: %q, Audience: %q", cfg.Issuer, cfg.Audience), "an entry is empty", "remove it")
	}
	if cfg.Leeway < 0 || cfg.Leeway > 5*time.Minute {
		bad(fmt.Sprintf("Leeway: %v", cfg.Leeway), "the time is out of range", "choose 0 to 5m")
	}
	cfg.MaxTokenBytes = cmp.Or(cfg.MaxTokenBytes, 8192)
	if cfg.MaxTokenBytes < 256 || cfg.MaxTokenBytes > 65536 {
		bad(fmt.Sprintf("MaxTokenBytes: %d", cfg.MaxTokenBytes), "the length is out of range", "choose 256 to 65536")
	}
	name := cmp.Or(cfg.Header, cfg.Cookie, "Authorization")
	// It knows which names are valid; header names are of the same letters.
	named := http.Cookie{Name: name} //nolint:gosec // never sent
	if cfg.Header != "" && cfg.Cookie != "" || named.Valid() != nil {
		bad(fmt.Sprintf("Header: %q, Cookie: %q", cfg.Header, cfg.Cookie), "the name is not valid, or there are two",
			`set one of them, to letters, digits and '-', as in "X-Access-Token"; for both, use core.First`)
	}
	if faults != nil {
		return nil, errors.Join(faults...)
	}
	cfg.Header = name
	if cfg.Cookie != "" {
		cfg.Header = "Cookie"
	}
	cfg.Methods = slices.Clone(cfg.Methods)
	cfg.Issuer, cfg.Audience = slices.Clone(cfg.Issuer), slices.Clone(cfg.Audience)
	cfg.Key, cfg.Keys = own(cfg.Key), maps.Clone(cfg.Keys)
	for kid, key := range cfg.Keys {
		cfg.Keys[kid] = own(key)
	}
	options := []jwt.ParserOption{
		jwt.WithValidMethods(cfg.Methods), jwt.WithJSONNumber(), jwt.WithStrictDecoding(), jwt.WithLeeway(cfg.Leeway),
	}
	if cfg.RequireExpiry {
		options = append(options, jwt.WithExpirationRequired())
	}
	return &verifier{cfg, path, jwt.NewParser(options...)}, nil
}

// own copies a secret: one that its maker wipes would be all zeros, which everybody can sign with.
func own(key any) any {
	if secret, ok := key.([]byte); ok {
		return slices.Clone(secret)
	}
	return key
}

const (
	known = "HS256 HS384 HS512 RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 ES512 EdDSA"
	fit   = "HS256, HS384 and HS512 take a []byte of at least 32, 48 and 64 random bytes " +
		"(RFC 7518, 3.2), RS and PS an *rsa.PublicKey of at least 2048 bits, " +
		"ES256, ES384 and ES512 an *ecdsa.PublicKey on P-256, P-384 and P-521, and EdDSA an ed25519.PublicKey"
)

func (c *Config) checkKeys(bad func(value, problem, remedy string)) {
	var methods []jwt.SigningMethod
	secret := 0
	for _, name := range c.Methods {
		if !slices.Contains(strings.Fields(known), name) {
			bad(fmt.Sprintf("Methods: %q", name), "this method is not supported", "choose from "+known)
			continue
		}
		if strings.HasPrefix(name, "HS") {
			secret++
		}
		methods = append(methods, jwt.GetSigningMethod(name))
	}
	if len(c.Methods) == 0 {
		bad("Methods: none", "there are no methods", "set the methods that sign your tokens: some of "+known)
	}
	if secret > 0 && secret < len(methods) {
		bad(fmt.Sprintf("Methods: %q", c.Methods),
			"a public key could be used as a secret", "leave out HS, or all others")
		methods = nil // no key fits both
	}
	given := 0
	for _, is := range []bool{c.Key != nil, len(c.Keys) > 0, c.Keyfunc != nil} {
		if is {
			given++
		}
	}
	if given != 1 {
		bad(fmt.Sprintf("%d of Key, Keys and Keyfunc", given), "exactly one must be set",
			"set one and leave out the others")
	}
	check := func(name string, key any, least int) {
		n := 0
		for _, m := range methods {
			if fits(m, key) {
				n++
			}
		}
		if n < least {
			bad(fmt.Sprintf("%s: %T", name, key), "the key does not fit the methods", fit)
		}
	}
	if c.Key != nil {
		check("Key", c.Key, len(methods))
	}
	for kid, key := range c.Keys {
		check(fmt.Sprintf("Keys: %q", kid), key, min(1, len(methods)))
	}
}

// key is the parser's Keyfunc. It looks at each key again, because an empty secret would verify what anybody can sign.
func (v *verifier) key(token *jwt.Token) (key any, err error) {
	switch {
	case v.Keyfunc != nil:
		key, err = v.Keyfunc(token)
	case len(v.Keys) > 0:
		kid, _ := token.Header["kid"].(string)
		key = v.Keys[kid]
	default:
		key = v.Key
	}
	if set, ok := key.(jwt.VerificationKeySet); ok && err == nil {
		unfit := func(k jwt.VerificationKey) bool { return !fits(token.Method, k) }
		// The parser refuses an empty set.
		return jwt.VerificationKeySet{Keys: slices.DeleteFunc(slices.Clone(set.Keys), unfit)}, nil
	}
	if err == nil && !fits(token.Method, key) {
		err = jwt.ErrInvalidKey
	}
	return key, err
}

// fits reports whether a key has a type and strength with which a method is safe.
func fits(method jwt.SigningMethod, key any) (safe bool) {
	switch m := method.(type) {
	case *jwt.SigningMethodHMAC:
		k, ok := key.([]byte)
		safe = ok && len(k) >= m.Hash.Size()
	case *jwt.SigningMethodRSA, *jwt.SigningMethodRSAPSS:
		k, ok := key.(*rsa.PublicKey)
		safe = ok && k != nil && k.N != nil && k.N.BitLen() >= 2048
	case *jwt.SigningMethodECDSA:
		k, ok := key.(*ecdsa.PublicKey)
		safe = ok && k != nil && k.Curve != nil && k.Params().BitSize == m.CurveBits
	case *jwt.SigningMethodEd25519:
		k, ok := key.(ed25519.PublicKey)
		safe = ok && len(k) == ed25519.PublicKeySize
	}
	return safe
}

// faults are the mistakes of a configuration.
type faults []error

func (f *faults) add(function, value, problem, remedy string) {
	*f = append(*f, &core.ConfigError{Option: "jwtkey." + function, Value: value, Problem: problem, Remedy: remedy})
}
