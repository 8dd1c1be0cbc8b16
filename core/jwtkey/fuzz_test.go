package jwtkey_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/jwtkey"
)

// FuzzAuthorization checks that only a token that wellSigned accepts has a key, and that the key
// is that of its subject, however the scheme and the spaces are written.
func FuzzAuthorization(f *testing.F) {
	_, vectors := readVectors(f)
	for _, v := range vectors {
		f.Add(v.Authorization[0])
	}
	token := sign(f, "HS256", secret, claims{"sub": "ann"})
	for _, value := range []string{
		"", "Bearer", " bEARER \t  " + token + "\t ", token, "Bearer" + token, "Bearer\t" + token,
		"Bearer " + token + "\n", "Bearer " + strings.Repeat(".", 100), "Bearer \x00" + token,
		"Bearer " + token + "." + token, "\t BEARER" + strings.Repeat(" ", 10) + token + "\t ",
	} {
		f.Add(value)
	}
	keyOf := keysOf(f, jwtkey.ByClaim("sub", hs256()))
	ann, err := keyOf(authorized("Authorization", "Bearer "+token))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, value string) {
		got, err := keyOf(authorized("Authorization", value))
		if err != nil && !errors.Is(err, core.ErrNoKey) {
			t.Fatalf("%q: error %v, which stops the request", value, err)
		}
		if err == nil && !wellSigned(value) {
			t.Fatalf("%q: key %s", value, got)
		}
		scheme, rest, _ := strings.Cut(strings.Trim(value, " \t"), " ")
		if strings.ToLower(scheme) == "bearer" && strings.Trim(rest, " \t") == token && got != ann {
			t.Fatalf("%q: key %q, %v; want ann's, %s", value, got, err, ann)
		}
	})
}

// wellSigned checks a token as RFC 7515 says, for HS256 and the secret of hs256 only.
func wellSigned(value string) bool {
	fields := strings.Fields(value)
	if len(fields) != 2 || !strings.EqualFold(fields[0], "bearer") {
		return false
	}
	parts := strings.Split(fields[1], ".")
	if len(parts) != 3 {
		return false
	}
	head, err := base64.RawURLEncoding.DecodeString(parts[0])
	if err != nil {
		return false
	}
	var header struct{ Alg string }
	if json.Unmarshal(head, &header) != nil || header.Alg != "HS256" {
		return false
	}
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(parts[0] + "." + parts[1]))
	return err == nil && hmac.Equal(signature, mac.Sum(nil))
}
