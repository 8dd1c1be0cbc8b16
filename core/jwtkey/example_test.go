package jwtkey_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/golang-jwt/jwt/v5"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/jwtkey"
	"github.com/sashlimit/sash/nethttp"
)

// Each user has a quota of their own; requests without a valid token share the quota of their address.
func ExampleByClaim() {
	secret := []byte("32 random bytes, from a safe one")
	limit := nethttp.New(core.PerHour(1), core.First(
		jwtkey.ByClaim("sub", jwtkey.Config{
			Methods: []string{"HS256"},
			Key:     secret,
			Issuer:  []string{"https://idp.example"},
		}),
		core.ByIP(),
	))
	handler := limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))

	for _, user := range []string{"ann", "bob", "ann", ""} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		if user != "" {
			claims := jwt.MapClaims{"sub": user, "iss": "https://idp.example"}
			token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString(secret)
			if err != nil {
				panic(err)
			}
			r.Header.Set("Authorization", "Bearer "+token)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Printf("%q %d\n", user, w.Code)
	}
	// Output:
	// "ann" 200
	// "bob" 200
	// "ann" 429
	// "" 200
}

// Keys from an identity provider's JWKS come through Keyfunc. With github.com/MicahParks/keyfunc/v3 it is
//
//	jwks, err := keyfunc.NewDefaultCtx(ctx, []string{"https://idp.example/.well-known/jwks.json"})
//
// and then jwks.Keyfunc; here a map stands in for it.
func ExampleByClaim_jwks() {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	jwks := map[string]any{"2026-01": &private.PublicKey}
	find := func(token *jwt.Token) (any, error) { // jwks.Keyfunc
		key, ok := jwks[fmt.Sprint(token.Header["kid"])]
		if !ok {
			return nil, errors.New("no such key")
		}
		return key, nil
	}

	limit := nethttp.New(core.PerHour(100), jwtkey.ByClaim("sub", jwtkey.Config{
		Methods:       []string{"ES256"},
		Keyfunc:       find,
		Issuer:        []string{"https://idp.example"},
		Audience:      []string{"api"},
		RequireExpiry: true,
	}))
	handler := limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))

	token := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{
		"sub": "ann", "iss": "https://idp.example", "aud": "api", "exp": int64(4102444800),
	})
	for _, kid := range []string{"2026-01", "1999-12"} {
		token.Header["kid"] = kid
		text, err := token.SignedString(private)
		if err != nil {
			panic(err)
		}
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Authorization", "Bearer "+text)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Println(kid, w.Code)
	}
	// Output:
	// 2026-01 200
	// 1999-12 400
}

// The plan is a claim of the token that the limiter's key has verified, and the handler sees the claims too.
func ExampleClaims() {
	secret := []byte("32 random bytes, from a safe one")
	limit := nethttp.New(
		core.LimitBy(func(r *http.Request) core.Limits {
			if claims, ok := jwtkey.Claims(r); ok && claims["plan"] == "pro" {
				return core.Limits{core.PerHour(1000)}
			}
			return core.Limits{core.PerHour(10)}
		}),
		core.First(jwtkey.ByClaim("sub", jwtkey.Config{Methods: []string{"HS256"}, Key: secret}), core.ByIP()),
	)
	handler := limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		claims, _ := jwtkey.Claims(r)
		fmt.Println(claims["sub"], w.Header().Get("RateLimit-Policy"))
	}))

	claims := jwt.MapClaims{"sub": "ann", "plan": "pro"}
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString(secret)
	if err != nil {
		panic(err)
	}
	for _, authorization := range []string{"Bearer " + token, ""} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Authorization", authorization)
		handler.ServeHTTP(httptest.NewRecorder(), r)
	}
	// Output:
	// ann "1000-per-hour";q=1000;w=3600
	// <nil> "10-per-hour";q=10;w=3600
}
