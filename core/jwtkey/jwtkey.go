// Package jwtkey makes keys of the claims of JSON Web Tokens. It verifies tokens, because a client can write any claim
// into one that nobody verifies.
//
//	core.First(jwtkey.ByClaim("sub", jwtkey.Config{
//		Methods: []string{"HS256"},
//		Key:     secret,
//		Issuer:  []string{"https://idp.example"},
//	}), core.ByIP())
//
// [ByClaim] verifies tokens itself, in front of whatever authorizes requests. [ByContextClaim] takes the claims that
// middleware in front of it has verified, which costs next to nothing and cannot disagree with it.
//
// [Claims] returns the verified claims to the limiter's other callbacks, such as [core.LimitBy], and to handlers.
package jwtkey

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/golang-jwt/jwt/v5"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/internal/keys"
)

var (
	// ErrInvalidToken means that the request has a token, but no valid one. [errors.Is] also finds [core.ErrNoKey] in
	// it, and the cause if golang-jwt has an error for it, such as [jwt.ErrTokenExpired]. It never contains the token
	// or its claims.
	ErrInvalidToken = adapter.ErrorWithCause(errors.New("sash: the token is not valid"), core.ErrNoKey)

	// ErrInvalidClaim means that a verified token has no identity: its claim is missing, empty, or not an identity.
	// [errors.Is] also finds [core.ErrNoKey] in it.
	ErrInvalidClaim = adapter.ErrorWithCause(errors.New("sash: the token's claim is not an identity"), core.ErrNoKey)
)

// ByClaim is the claim of a token that the request carries, such as "sub", once the token is verified. The name is
// taken literally, dots included; for a claim within another see Config.Path. An identity consists of the claim and the
// token's issuer.
//
// An identity is a string, taken byte for byte, or a whole number as it is written; a list of one string is that
// string. Nothing else is: 1.5, 1e6, true, "", lists, objects, and text that was not Unicode are [ErrInvalidClaim].
//
// A request without a token, or with one that is not valid ([ErrInvalidToken]), has no such key: [core.First] tries the
// next one, which should be an address; without one the request is refused (400).
//
// [core.New] returns an error for a wrong configuration, with every mistake in it.
func ByClaim(claim string, cfg Config) core.Key {
	v, err := newVerifier(claim, cfg)
	if err != nil {
		return core.KeyOf("jwt", nil, err)
	}
	return keyOf(v.path, func(r adapter.Request) (jwt.MapClaims, error) {
		token, err := v.find(r)
		if err != nil {
			return nil, err
		}
		return v.verify(token)
	})
}

// keyOf returns the key of the claim at a path in the claims that read returns, which it keeps.
func keyOf(path []string, read func(adapter.Request) (jwt.MapClaims, error)) core.Key {
	scope := scopeOf(path)
	return core.KeyOf("jwt", func(r adapter.Request) (string, string, error) {
		claims, err := read(r)
		if err != nil {
			return "", "", err
		}
		keep(r, claims)
		return identity(claims, path, scope)
	})
}

// ByContextClaim is a claim of the token that authorizing middleware has verified and left under key, as echo-jwt and
// fiber's jwt do under "user" and gin-jwt under "JWT_PAYLOAD". It must be mounted after that middleware. What it takes:
//
//   - a *jwt.Token of golang-jwt v5 that is Valid, with [jwt.MapClaims] or, for "sub", any [jwt.Claims];
//   - claims alone: a map[string]any, also as a type with another name.
//
// Identities are as in [ByClaim], except that such middleware reads numbers as float64: those
// of 2^53 and above are [ErrInvalidClaim], because there several become one.
//
// Nothing under key is [core.ErrNoKey]. If that is so for every request, the middleware is not
// in front of the limiter, or has another key.
func ByContextClaim(key any, claim string) core.Key {
	var faults faults
	if key == nil || !reflect.TypeOf(key).Comparable() {
		faults.add("ByContextClaim", fmt.Sprintf("%T", key), "this cannot be a key of context values",
			`pass the key under which your middleware stores claims, such as "user"`)
	}
	if claim == "" {
		faults.add("ByContextClaim", `""`, "the name is empty", `pass the name of a claim, such as "sub"`)
	}
	if faults != nil {
		return core.KeyOf("jwt", nil, faults...)
	}
	return keyOf([]string{claim}, func(r adapter.Request) (jwt.MapClaims, error) { return verified(r.Value(key)) })
}

// verified is what middleware has left, as claims.
func verified(left any) (jwt.MapClaims, error) {
	if left == nil {
		return nil, core.ErrNoKey
	}
	if token, ok := left.(*jwt.Token); ok {
		if token == nil || !token.Valid || token.Claims == nil { // claims are there even where verifying failed
			return nil, ErrInvalidToken
		}
		if claims, ok := token.Claims.(jwt.MapClaims); ok {
			return claims, nil
		}
		issuer, err := token.Claims.GetIssuer()
		subject, err2 := token.Claims.GetSubject()
		if err != nil || err2 != nil {
			return nil, ErrInvalidClaim
		}
		return jwt.MapClaims{"iss": issuer, "sub": subject}, nil
	}
	if v := reflect.ValueOf(left); v.CanConvert(reflect.TypeFor[jwt.MapClaims]()) {
		//nolint:forcetypeassert // just converted
		return v.Convert(reflect.TypeFor[jwt.MapClaims]()).Interface().(jwt.MapClaims), nil
	}
	return nil, ErrInvalidClaim
}

// scopeOf parts claims of one name from those of another: no two paths, each with an issuer behind it, read the same.
func scopeOf(path []string) string {
	var b []byte
	for _, name := range path {
		b = strconv.AppendQuote(b, name)
	}
	return string(append(b, ':'))
}

// identity is the text of the claim at path, and within what it is one. What fmt would make of other
// values, such as "<nil>" or "1e+06", is one text for many, and they would share a quota.
func identity(claims jwt.MapClaims, path []string, scope string) (_, text string, err error) {
	issuer, err := claims.GetIssuer()
	if err != nil {
		return "", "", ErrInvalidClaim
	}
	var value any = map[string]any(claims)
	for _, name := range path {
		object, _ := value.(map[string]any)
		value = object[name]
	}
	if list, ok := value.([]any); ok && len(list) == 1 { // as RFC 7519, 4.1.3 has it for aud
		value, _ = list[0].(string)
	}
	switch v := value.(type) {
	case string, float64:
		text = keys.TextOf(v)
	case json.Number:
		if strings.Trim(string(v), "-0123456789") == "" && v != "-0" {
			text = string(v)
		}
	}
	// encoding/json writes U+FFFD for whatever is not Unicode, different as it was.
	if text == "" || strings.ContainsRune(text, utf8.RuneError) {
		return "", "", ErrInvalidClaim
	}
	return scope + issuer, text, nil
}

// find is the token in a request, not longer than allowed and not looked into yet.
func (v *verifier) find(r adapter.Request) (string, error) {
	lines := r.Header(v.Header)
	if v.Cookie != "" {
		found := (&http.Request{Header: http.Header{"Cookie": lines}}).CookiesNamed(v.Cookie)
		lines = make([]string, len(found))
		for i, cookie := range found {
			lines[i] = cookie.Value
		}
	}
	if len(lines) == 0 {
		return "", core.ErrNoKey
	}
	token := strings.Trim(lines[0], " \t")
	if scheme, rest, _ := strings.Cut(token, " "); strings.EqualFold(scheme, "Bearer") {
		token = strings.Trim(rest, " \t")
	} else if strings.EqualFold(v.Header, "Authorization") {
		token = ""
	}
	other := func(line string) bool { return line != lines[0] } // later middleware may read that one
	switch {
	case slices.ContainsFunc(lines, other), len(token) > v.MaxTokenBytes,
		strings.ContainsAny(token, " \t\r\n,"): // base64 skips CR and LF
		return "", because(jwt.ErrTokenMalformed)
	case token == "":
		return "", core.ErrNoKey
	}
	return token, nil
}

// verify is the token's claims, if everything about it is right.
func (v *verifier) verify(text string) (jwt.MapClaims, error) {
	claims := jwt.MapClaims{} // filled before anything is verified: worth nothing until the end
	err := adapter.Guard(func() error {
		token, err := v.parser.ParseWithClaims(text, claims, v.key)
		if err == nil && !token.Valid {
			err = jwt.ErrTokenUnverifiable
		}
		return err
	})
	if err != nil {
		return nil, because(err)
	}
	if iss, err := claims.GetIssuer(); err != nil || len(v.Issuer) > 0 && !slices.Contains(v.Issuer, iss) {
		return nil, because(jwt.ErrTokenInvalidIssuer)
	}
	meant := func(audience string) bool { return slices.Contains(v.Audience, audience) }
	if aud, err := claims.GetAudience(); err != nil || len(v.Audience) > 0 && !slices.ContainsFunc(aud, meant) {
		return nil, because(jwt.ErrTokenInvalidAudience)
	}
	return claims, nil
}

// because returns an ErrInvalidToken that wraps a known cause without the cause's own text, which may
// contain what the client sent.
func because(cause error) error {
	var panicked *adapter.PanicError
	if errors.As(cause, &panicked) {
		return adapter.ErrorWithCause(ErrInvalidToken, panicked)
	}
	for _, known := range []error{
		jwt.ErrTokenMalformed, jwt.ErrTokenUnverifiable, jwt.ErrTokenSignatureInvalid,
		jwt.ErrTokenExpired, jwt.ErrTokenNotValidYet, jwt.ErrTokenRequiredClaimMissing,
		jwt.ErrTokenInvalidIssuer, jwt.ErrTokenInvalidAudience, jwt.ErrTokenInvalidClaims,
	} {
		if errors.Is(cause, known) {
			return fmt.Errorf("%w: %w", ErrInvalidToken, known)
		}
	}
	return ErrInvalidToken
}
