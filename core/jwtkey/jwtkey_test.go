package jwtkey_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/jwtkey"
	"github.com/sashlimit/sash/core/store"
)

const issuer = "https://idp.example"

var secret = []byte("an-hs256-test-secret-of-32-bytes")

func hs256() jwtkey.Config {
	return jwtkey.Config{Methods: []string{"HS256"}, Key: secret, Issuer: []string{issuer}, Audience: []string{"api"}}
}

type claims map[string]any

// sign makes a token that is valid for hs256, except for what c says.
func sign(t testing.TB, method string, key any, c claims, header ...any) string {
	t.Helper()
	all := jwt.MapClaims{"iss": issuer, "aud": "api", "exp": int64(4102444800)}
	maps.Copy(all, c)
	maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil })
	token := jwt.NewWithClaims(jwt.GetSigningMethod(method), all)
	for i := 0; i < len(header); i += 2 {
		token.Header[header[i].(string)] = header[i+1]
	}
	text, err := token.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func bearer(t testing.TB, subject any) string {
	t.Helper()
	return "Bearer " + sign(t, "HS256", secret, claims{"sub": subject})
}

// shown shows core a request as adapters do, together with the values that middleware has left in it.
type shown struct {
	*http.Request
	left map[any]any
}

func (s shown) Peer() adapter.Peer          { return adapter.PeerOf(s.Request) }
func (s shown) Header(name string) []string { return s.Request.Header.Values(name) }
func (s shown) Value(key any) any           { return s.left[key] }
func (s shown) Native() any                 { return s.Request }

// spy notes the stored key of the last take.
type spy struct {
	core.Store
	key string
}

func (s *spy) Take(ctx context.Context, takes []store.Take, answers []store.Answer) error {
	s.key = takes[0].Key.String()
	return s.Store.Take(ctx, takes, answers)
}

// keyOf returns the stored key for a request, or the error.
func keyOf(t testing.TB, k core.Key, r adapter.Request) (string, error) {
	t.Helper()
	return keysOf(t, k)(r)
}

func keysOf(t testing.TB, k core.Key) func(adapter.Request) (string, error) {
	t.Helper()
	s := &spy{Store: new(coretest.FakeStore)}
	l := limiter(t, k, core.WithStore(s), core.WithDenyCache(0))
	return func(r adapter.Request) (string, error) {
		s.key = ""
		_, err := l.Check(r)
		return s.key, err
	}
}

func authorized(header ...string) adapter.Request {
	return shown{Request: from("203.0.113.9", header...)}
}

func TestIdentitiesStayApart(t *testing.T) {
	cfg := hs256()
	cfg.Issuer = []string{issuer, "https://other.example"}
	key := core.First(jwtkey.ByClaim("sub", cfg), core.ByIP())
	nobody := cfg
	nobody.Issuer = nil
	nested := cfg
	nested.Path = []string{"sub"}
	pair := cfg
	pair.Path = []string{"a"}
	token := func(c claims) adapter.Request {
		return authorized("Authorization", "Bearer "+sign(t, "HS256", secret, c))
	}
	seen := map[string]string{}
	for _, c := range []struct {
		desc string
		key  core.Key
		r    adapter.Request
	}{
		{"ann", key, authorized("Authorization", bearer(t, "ann"))},
		{"Ann", key, authorized("Authorization", bearer(t, "Ann"))},
		{"ann of another issuer", key, token(claims{"sub": "ann", "iss": "https://other.example"})},
		{"ann of no issuer", jwtkey.ByClaim("sub", nobody), token(claims{"sub": "ann", "iss": nil})},
		{"ann by another claim", jwtkey.ByClaim("uid", cfg), token(claims{"uid": "ann"})},
		{"ann by a nested claim", jwtkey.ByClaim("sub", nested), token(claims{"sub": claims{"sub": "ann"}})},
		{"an issuer in the claim's name", jwtkey.ByClaim(`sub":`+issuer, nobody),
			token(claims{`sub":` + issuer: "ann", "iss": nil})},
		{"ann by b within a", jwtkey.ByClaim("b", pair), token(claims{"a": claims{"b": "ann"}})},
		{"ann by ab", jwtkey.ByClaim("ab", cfg), token(claims{"ab": "ann"})},
		{"an address as subject", key, authorized("Authorization", bearer(t, "203.0.113.9"))},
		{"that address", key, authorized()},
		{"an API key", core.ByHeader("X-API-Key", core.Unverified), authorized("X-API-Key", "ann")},
		{"a callback", core.By(func(context.Context) (string, error) { return "ann", nil }), authorized()},
	} {
		got, err := keyOf(t, c.key, c.r)
		if err != nil {
			t.Errorf("%s: %v", c.desc, err)
		}
		if before, ok := seen[got]; ok {
			t.Errorf("%s and %s share the key %s", c.desc, before, got)
		}
		seen[got] = c.desc
	}
	left := shown{from("203.0.113.9"), map[any]any{"user": claims{"sub": "ann", "iss": issuer}}}
	if got, err := keyOf(t, jwtkey.ByContextClaim("user", "sub"), left); seen[got] != "ann" || err != nil {
		t.Errorf("ann, verified by middleware: key %s, %v; want ann's", got, err)
	}
}

// TestTokensInRequests covers where a request may carry its token, and in which forms.
func TestTokensInRequests(t *testing.T) {
	ann := sign(t, "HS256", secret, claims{"sub": "ann"})
	bob := sign(t, "HS256", secret, claims{"sub": "bob"})
	for _, c := range []struct {
		desc           string
		header, cookie string
		request        []string
		want           error // or nil for ann
	}{
		{"Authorization", "", "", []string{"Authorization", "Bearer " + ann}, nil},
		{"by its name", "authorization", "", []string{"Authorization", "Bearer " + ann}, nil},
		{"without Bearer", "", "", []string{"Authorization", ann}, core.ErrNoKey},
		{"another scheme", "", "", []string{"Authorization", "Basic " + ann}, core.ErrNoKey},
		{"Bearer alone", "", "", []string{"Authorization", "Bearer "}, core.ErrNoKey},
		{"nothing", "", "", nil, core.ErrNoKey},
		{"twice the same", "", "", []string{"Authorization", "Bearer " + ann, "Authorization", "Bearer " + ann}, nil},
		{"two", "", "",
			[]string{"Authorization", "Bearer " + ann, "Authorization", "Bearer " + bob}, jwtkey.ErrInvalidToken},
		{"a comma", "", "", []string{"Authorization", "Bearer " + ann + ","}, jwtkey.ErrInvalidToken},
		{"a space inside", "", "",
			[]string{"Authorization", "Bearer " + ann[:20] + " " + ann[20:]}, jwtkey.ErrInvalidToken},
		{"padding", "", "", []string{"Authorization", "Bearer " + ann + "="}, jwtkey.ErrInvalidToken},
		{"a line break inside", "", "", []string{"Authorization", "Bearer " + ann + "\r\n"}, jwtkey.ErrInvalidToken},
		{"in a cookie that is not asked for", "", "", []string{"Cookie", "session=" + ann}, core.ErrNoKey},
		{"a header of its own", "X-Access-Token", "", []string{"X-Access-Token", ann}, nil},
		{"that with Bearer", "X-Access-Token", "", []string{"X-Access-Token", "bearer " + ann}, nil},
		{"that is not sent", "X-Access-Token", "", []string{"Authorization", "Bearer " + ann}, core.ErrNoKey},
		{"a cookie", "", "session", []string{"Cookie", "a=b; session=" + ann + "; c=d"}, nil},
		{"a quoted cookie", "", "session", []string{"Cookie", `session="` + ann + `"`}, nil},
		{"a cookie on the second line", "", "session", []string{"Cookie", "a=b", "Cookie", "session=" + ann}, nil},
		{"two cookies", "", "session",
			[]string{"Cookie", "session=" + ann + "; session=" + bob}, jwtkey.ErrInvalidToken},
		{"a cookie of another name", "", "session", []string{"Cookie", "Session=" + ann}, core.ErrNoKey},
		{"a cookie is no header", "", "session", []string{"Authorization", "Bearer " + ann}, core.ErrNoKey},
	} {
		cfg := hs256()
		cfg.Header, cfg.Cookie = c.header, c.cookie
		got, err := keyOf(t, jwtkey.ByClaim("sub", cfg), authorized(c.request...))
		if c.want == nil {
			want, _ := keyOf(t, jwtkey.ByClaim("sub", hs256()), authorized("Authorization", "Bearer "+ann))
			if got != want || err != nil {
				t.Errorf("%s: key %q, %v; want %q", c.desc, got, err, want)
			}
			continue
		}
		wantInvalid := errors.Is(c.want, jwtkey.ErrInvalidToken)
		if !errors.Is(err, c.want) || !errors.Is(err, core.ErrNoKey) ||
			errors.Is(err, jwtkey.ErrInvalidToken) != wantInvalid {
			t.Errorf("%s: key %q, error %v, want %v", c.desc, got, err, c.want)
		}
	}
}

// fasthttp keeps cookies apart from other headers.
func TestCookiesInFrameworks(t *testing.T) {
	cfg := hs256()
	cfg.Cookie = "session"
	token := sign(t, "HS256", secret, claims{"sub": "ann"})
	inEach(t, func(t *testing.T, serve func(*core.Limiter) func(*http.Request) int) {
		send := serve(limiter(t, jwtkey.ByClaim("sub", cfg)))
		for i, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
			if got := send(from("203.0.113.9", "Cookie", "a=b; session="+token+"; c=d")); got != want {
				t.Errorf("request %d: status %d, want %d", i+1, got, want)
			}
		}
		if got := send(from("203.0.113.9", "Cookie", "a=b")); got != http.StatusBadRequest {
			t.Errorf("no token: status %d, want 400", got)
		}
	})
}

func TestWhatIsVerified(t *testing.T) {
	_, vectors := readVectors(t)
	weak := secret[:31]
	set := func(keys ...jwt.VerificationKey) jwt.Keyfunc {
		return func(*jwt.Token) (any, error) { return jwt.VerificationKeySet{Keys: keys}, nil }
	}
	use := func(keyfunc jwt.Keyfunc) func(*jwtkey.Config) {
		return func(c *jwtkey.Config) { c.Key, c.Keyfunc = nil, keyfunc }
	}
	by := func(key any, err error) func(*jwtkey.Config) {
		return use(func(*jwt.Token) (any, error) { return key, err })
	}
	kid := func(c *jwtkey.Config) {
		c.Key, c.Keys = nil, map[string]any{"k1": secret, "k2": []byte("another-hs256-secret-of-32-bytes")}
	}
	anyIssuer := func(c *jwtkey.Config) { c.Issuer = nil }
	expiring := func(c *jwtkey.Config) { c.RequireExpiry = true }
	signed := func(c claims, header ...any) string { return sign(t, "HS256", secret, c, header...) }
	for _, c := range []struct {
		desc   string
		change func(*jwtkey.Config)
		token  string
		want   error
	}{
		{"as it is", nil, signed(nil), nil},
		{"kid", kid, signed(nil, "kid", "k1"), nil},
		{"another's kid", kid, signed(nil, "kid", "k2"), jwt.ErrTokenSignatureInvalid},
		{"unknown kid", kid, signed(nil, "kid", "k3"), jwt.ErrTokenUnverifiable},
		{"no kid", kid, signed(nil), jwt.ErrTokenUnverifiable},
		{"a kid that is no text", kid, signed(nil, "kid", 1), jwt.ErrTokenUnverifiable},
		{"an empty map beside the key", func(c *jwtkey.Config) { c.Keys = map[string]any{} }, signed(nil), nil},
		{"Keyfunc", by(secret, nil), signed(nil), nil},
		{"Keyfunc fails", by(secret, errors.New("no such key")), signed(nil), jwt.ErrTokenUnverifiable},
		{"Keyfunc gives nil", by(nil, nil), signed(nil), jwt.ErrTokenUnverifiable},
		{"Keyfunc gives a weak secret", by(weak, nil), sign(t, "HS256", weak, nil), jwt.ErrTokenUnverifiable},
		{"Keyfunc gives keys", use(set(weak, &rsa.PublicKey{}, secret)), signed(nil), nil},
		{"Keyfunc gives weak keys", use(set(weak, []byte{})), sign(t, "HS256", weak, nil), jwt.ErrTokenUnverifiable},
		{"Keyfunc gives no keys", use(set()), signed(nil), jwt.ErrTokenUnverifiable},
		{"a method that is not allowed", nil, sign(t, "HS512", secret, nil), jwt.ErrTokenSignatureInvalid},
		{"second issuer", func(c *jwtkey.Config) { c.Issuer = []string{"x", "y"} }, signed(claims{"iss": "y"}), nil},
		{"no issuer", nil, signed(claims{"iss": nil}), jwt.ErrTokenInvalidIssuer},
		{"any issuer", anyIssuer, signed(claims{"iss": "z"}), nil},
		{"an issuer that is no text", anyIssuer, signed(claims{"iss": 7}), jwt.ErrTokenInvalidIssuer},
		{"one of the audiences", func(c *jwtkey.Config) { c.Audience = []string{"x", "api"} },
			signed(claims{"aud": []string{"web", "api"}}), nil},
		{"other audiences", nil, signed(claims{"aud": []string{"web", "ap", "i"}}), jwt.ErrTokenInvalidAudience},
		{"no audience", nil, signed(claims{"aud": nil}), jwt.ErrTokenInvalidAudience},
		{"any audience", func(c *jwtkey.Config) { c.Audience = nil }, signed(claims{"aud": nil}), nil},
		{"no expiry where it is required", expiring, signed(claims{"exp": nil}), jwt.ErrTokenRequiredClaimMissing},
		{"expiry where it is required", expiring, signed(nil), nil},
		{"an expiry that is no number", nil, signed(claims{"exp": "never"}), jwt.ErrTokenInvalidClaims},
		{"expired", nil, signed(claims{"exp": 1}), jwt.ErrTokenExpired},
		{"unused bits of the last letter set", nil,
			strings.TrimPrefix(vectors[13].Authorization[0], "Bearer "), jwt.ErrTokenMalformed},
		{"no JSON", nil, "e30.e30.e30", jwt.ErrTokenUnverifiable},
		{"four parts", nil, signed(nil) + ".", jwt.ErrTokenMalformed},
	} {
		cfg := hs256()
		if c.change != nil {
			c.change(&cfg)
		}
		_, err := keyOf(t, jwtkey.ByClaim("iss", cfg), authorized("Authorization", "Bearer "+c.token))
		if c.want == nil {
			if err != nil {
				t.Errorf("%s: %v", c.desc, err)
			}
			continue
		}
		if !errors.Is(err, c.want) || !errors.Is(err, jwtkey.ErrInvalidToken) || !errors.Is(err, core.ErrNoKey) {
			t.Errorf("%s: error %v, want %v", c.desc, err, c.want)
		}
		if problem := core.ProblemOf(err); problem.Status != http.StatusBadRequest {
			t.Errorf("%s: status %d", c.desc, problem.Status)
		}
		for part := range strings.SplitSeq(c.token, ".") {
			if len(part) > 5 && strings.Contains(fmt.Sprintf("%v %+v %q", err, err, err), part) {
				t.Errorf("%s: the token is in %v", c.desc, err)
			}
		}
	}
}

func TestLeeway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := hs256()
		cfg.Leeway = time.Minute
		for _, c := range []struct {
			at   string
			off  time.Duration
			want error
		}{
			{"exp", -59 * time.Second, nil}, {"exp", -61 * time.Second, jwt.ErrTokenExpired},
			{"nbf", 59 * time.Second, nil}, {"nbf", 61 * time.Second, jwt.ErrTokenNotValidYet},
		} {
			token := sign(t, "HS256", secret, claims{"sub": "ann", c.at: time.Now().Add(c.off).Unix()})
			_, err := keyOf(t, jwtkey.ByClaim("sub", cfg), authorized("Authorization", "Bearer "+token))
			if !errors.Is(err, c.want) {
				t.Errorf("%s %v: error %v, want %v", c.at, c.off, err, c.want)
			}
		}
	})
}

// The JSON decoder turns every text that is not Unicode into the same replacement characters, so such
// claims must be refused: different users would share a key.
func TestClaimsThatAreNotUnicode(t *testing.T) {
	segment := (&jwt.Token{}).EncodeSegment
	key := jwtkey.ByClaim("sub", jwtkey.Config{Methods: []string{"HS256"}, Key: secret})
	for _, payload := range []string{
		`{"sub":"` + "\xff" + `"}`, `{"sub":"` + "\xfe" + `"}`, `{"sub":"\ud800"}`, `{"sub":"a\udfff"}`,
		`{"sub":"\ufffd"}`, `{"sub":-0}`, `{"sub":[7]}`, `{"sub":[""]}`, `null`,
	} {
		head := segment([]byte(`{"alg":"HS256"}`)) + "." + segment([]byte(payload))
		signature, err := jwt.SigningMethodHS256.Sign(head, secret)
		if err != nil {
			t.Fatal(err)
		}
		token := head + "." + segment(signature)
		got, err := keyOf(t, key, authorized("Authorization", "Bearer "+token))
		if !errors.Is(err, jwtkey.ErrInvalidClaim) || !errors.Is(err, core.ErrNoKey) {
			t.Errorf("%q: key %q, error %v, want ErrInvalidClaim", payload, got, err)
		}
	}
}

// bytesPer returns how many bytes a call of f allocates. Decoding a token allocates more than the token's length.
func bytesPer(f func()) uint64 {
	const n = 200
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range n {
		f()
	}
	runtime.ReadMemStats(&after)
	return (after.TotalAlloc - before.TotalAlloc) / n
}

func TestHugeTokensCostNothing(t *testing.T) {
	cfg := hs256()
	asked := 0
	cfg.Key, cfg.Keyfunc = nil, func(*jwt.Token) (any, error) { asked++; return secret, nil }
	l := limiter(t, jwtkey.ByClaim("sub", cfg))
	padded := sign(t, "HS256", secret, claims{"sub": "ann", "pad": strings.Repeat("x", 45_000)})
	for desc, token := range map[string]string{"dots": strings.Repeat(".", 100_000), "padded": padded} {
		r := authorized("Authorization", "Bearer "+token)
		perCheck := bytesPer(func() {
			if _, err := l.Check(r); !errors.Is(err, jwtkey.ErrInvalidToken) {
				t.Fatalf("%s: error %v, want ErrInvalidToken", desc, err)
			}
		})
		if perCheck > 4096 || asked != 0 {
			t.Errorf("%s: %d bytes for a token of %d, %d calls of Keyfunc", desc, perCheck, len(token), asked)
		}
	}
	cfg.MaxTokenBytes = 65536
	_, err := keyOf(t, jwtkey.ByClaim("sub", cfg), authorized("Authorization", "Bearer "+padded))
	if err != nil || asked != 1 {
		t.Errorf("allowed to be long: %v", err)
	}
	cfg.MaxTokenBytes = 256
	for n, want := range map[int]error{256: jwt.ErrTokenUnverifiable, 257: jwt.ErrTokenMalformed} {
		token := "e30.e30." + strings.Repeat("A", n-8)
		_, err := keyOf(t, jwtkey.ByClaim("sub", cfg), authorized("Authorization", "Bearer "+token))
		if !errors.Is(err, want) {
			t.Errorf("%d bytes of 256: error %v, want %v", n, err, want)
		}
	}
}

func TestKeyfuncThatPanics(t *testing.T) {
	cfg := hs256()
	cfg.Key, cfg.Keyfunc = nil, func(token *jwt.Token) (any, error) { panic(token.Raw) }
	token := bearer(t, "ann")
	_, err := keyOf(t, jwtkey.ByClaim("sub", cfg), authorized("Authorization", token))
	var panicked *adapter.PanicError
	if !errors.Is(err, jwtkey.ErrInvalidToken) || !errors.Is(err, core.ErrNoKey) || !errors.As(err, &panicked) ||
		strings.Contains(err.Error(), token[7:]) {
		t.Errorf("error %v, want an ErrInvalidToken that wraps the PanicError without its text", err)
	}
}

// While the key server does not answer, only the requests that need its key wait.
func TestKeyfuncThatBlocks(t *testing.T) {
	blocked, release := make(chan bool), make(chan bool)
	cfg := hs256()
	cfg.Key, cfg.Keyfunc = nil, func(token *jwt.Token) (any, error) {
		if token.Header["kid"] == "slow" {
			blocked <- true
			<-release
		}
		return secret, nil
	}
	send := statuses("nethttp")(limiter(t, core.First(jwtkey.ByClaim("sub", cfg), core.ByIP())))
	slow := sign(t, "HS256", secret, claims{"sub": "slow"}, "kid", "slow")
	done := make(chan int)
	go func() { done <- send(from("203.0.113.9", "Authorization", "Bearer "+slow)) }()
	<-blocked
	for i := range 100 {
		if got := send(from("203.0.113.9", "Authorization", bearer(t, fmt.Sprint("user ", i)))); got != http.StatusOK {
			t.Errorf("user %d: status %d", i, got)
		}
	}
	close(release)
	if got := <-done; got != http.StatusOK {
		t.Errorf("the request that waited: status %d", got)
	}
}

// A caller that changes its Config after ByClaim does not change the key.
func TestSettingsAreCopied(t *testing.T) {
	key, byKid := bytes.Clone(secret), map[string]any{"k1": bytes.Clone(secret)}
	cfg := hs256()
	cfg.Key = key
	cfg.Path = append(make([]string, 0, 2), "user")
	single := jwtkey.ByClaim("id", cfg)
	cfg.Key, cfg.Keys = nil, byKid
	several := jwtkey.ByClaim("id", cfg)
	jwtkey.ByClaim("name", cfg)
	clear(key)
	clear(byKid["k1"].([]byte))
	clear(byKid)
	cfg.Methods[0], cfg.Issuer[0], cfg.Audience[0], cfg.Path[0] = "HS512", "x", "x", "x"
	token := sign(t, "HS256", secret, claims{"user": claims{"id": 7}}, "kid", "k1")
	zeros := sign(t, "HS256", make([]byte, 32), claims{"user": claims{"id": 7}}, "kid", "k1")
	for desc, k := range map[string]core.Key{"Key": single, "Keys": several} {
		if _, err := keyOf(t, k, authorized("Authorization", "Bearer "+token)); err != nil {
			t.Errorf("%s: %v", desc, err)
		}
		_, err := keyOf(t, k, authorized("Authorization", "Bearer "+zeros))
		if !errors.Is(err, jwtkey.ErrInvalidToken) {
			t.Errorf("%s: signed with zeros: error %v", desc, err)
		}
	}
}

type named map[string]any

type custom struct {
	jwt.RegisteredClaims
	UID string
}

// unsure returns a subject together with an error.
type unsure struct{ jwt.RegisteredClaims }

func (unsure) GetSubject() (string, error) { return "ann", jwt.ErrInvalidType }

func TestByContextClaim(t *testing.T) {
	valid := func(c jwt.Claims) *jwt.Token { return &jwt.Token{Claims: c, Valid: true} }
	byClaim := func(claim string, left any) (string, error) {
		r := shown{from("203.0.113.9"), map[any]any{"user": left}}
		return keyOf(t, jwtkey.ByContextClaim("user", claim), r)
	}
	for _, c := range []struct {
		desc  string
		left  any
		claim string
		want  string // the subject
		err   error
	}{
		{"a token", valid(jwt.MapClaims{"sub": "ann"}), "sub", "ann", nil},
		{"its numbers", valid(jwt.MapClaims{"uid": 1e6}), "uid", "1000000", nil},
		{"minus zero", valid(jwt.MapClaims{"uid": math.Copysign(0, -1)}), "uid", "0", nil},
		{"2^53-1", valid(jwt.MapClaims{"uid": float64(1<<53 - 1)}), "uid", "9007199254740991", nil},
		{"2^53", valid(jwt.MapClaims{"uid": float64(1 << 53)}), "uid", "", jwtkey.ErrInvalidClaim},
		{"-2^53", valid(jwt.MapClaims{"uid": -float64(1 << 53)}), "uid", "", jwtkey.ErrInvalidClaim},
		{"half", valid(jwt.MapClaims{"uid": 0.5}), "uid", "", jwtkey.ErrInvalidClaim},
		{"a list of one", valid(jwt.MapClaims{"uid": []any{"ann"}}), "uid", "ann", nil},
		{"an issuer that is no text", valid(jwt.MapClaims{"sub": "ann", "iss": 7}), "sub", "", jwtkey.ErrInvalidClaim},
		{"claims of a type", valid(&custom{RegisteredClaims: jwt.RegisteredClaims{Subject: "ann"}, UID: "7"}),
			"sub", "ann", nil},
		{"another claim of theirs", valid(&custom{UID: "7"}), "UID", "", jwtkey.ErrInvalidClaim},
		{"no subject", valid(&custom{}), "sub", "", jwtkey.ErrInvalidClaim},
		{"a subject with an error", valid(unsure{}), "sub", "", jwtkey.ErrInvalidClaim},
		{"not valid", &jwt.Token{Claims: jwt.MapClaims{"sub": "ann"}}, "sub", "", jwtkey.ErrInvalidToken},
		{"no claims", &jwt.Token{Valid: true}, "sub", "", jwtkey.ErrInvalidToken},
		{"no token", (*jwt.Token)(nil), "sub", "", jwtkey.ErrInvalidToken},
		{"a map", map[string]any{"sub": "ann"}, "sub", "ann", nil},
		{"a named map", named{"sub": "ann"}, "sub", "ann", nil},
		{"an empty map", named(nil), "sub", "", jwtkey.ErrInvalidClaim},
		{"a map of text", map[string]string{"sub": "ann"}, "sub", "", jwtkey.ErrInvalidClaim},
		{"a pointer to a map", &named{"sub": "ann"}, "sub", "", jwtkey.ErrInvalidClaim},
		{"text", "ann", "sub", "", jwtkey.ErrInvalidClaim},
		{"another library's token", &struct{ Claims named }{named{"sub": "ann"}}, "sub", "", jwtkey.ErrInvalidClaim},
		{"nothing", nil, "sub", "", core.ErrNoKey},
	} {
		got, err := byClaim(c.claim, c.left)
		if c.err != nil {
			same := err == c.err //nolint:errorlint // ErrNoKey itself is wanted, not an error that wraps it
			if !errors.Is(err, c.err) || !errors.Is(err, core.ErrNoKey) || (c.err == core.ErrNoKey && !same) {
				t.Errorf("%s: key %q, error %v, want %v", c.desc, got, err, c.err)
			}
			continue
		}
		want, _ := byClaim(c.claim, named{c.claim: c.want})
		if got != want || err != nil {
			t.Errorf("%s: key %q, %v; want that of %q, %q", c.desc, got, err, c.want, want)
		}
	}
}

func TestMistakes(t *testing.T) {
	small := &rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), 1023), E: 65537}
	large := &rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), 2047), E: 65537}
	curve, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	edwards, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	methods := func(key any, names ...string) jwtkey.Config { return jwtkey.Config{Methods: names, Key: key} }
	byKid := func(keys map[string]any, names ...string) jwtkey.Config {
		return jwtkey.Config{Methods: names, Keys: keys}
	}
	with := func(change func(*jwtkey.Config)) jwtkey.Config {
		c := hs256()
		change(&c)
		return c
	}
	keyfunc := func(*jwt.Token) (any, error) { return secret, nil }
	long := bytes.Repeat(secret, 2)
	for _, c := range []struct {
		desc  string
		claim string
		cfg   jwtkey.Config
		want  []string // a part of each mistake
	}{
		{"right", "sub", hs256(), nil},
		{"HS512", "sub", methods(long, "HS256", "HS384", "HS512"), nil},
		{"RSA", "sub", methods(large, "RS256", "PS512"), nil},
		{"ECDSA", "sub", methods(&curve.PublicKey, "ES384"), nil},
		{"EdDSA", "sub", methods(edwards, "EdDSA"), nil},
		{"several families by kid", "sub",
			byKid(map[string]any{"a": large, "b": &curve.PublicKey}, "RS256", "ES384"), nil},
		{"a library's Keyfunc", "sub",
			jwtkey.Config{Methods: []string{"RS256", "ES384", "EdDSA"}, Keyfunc: keyfunc}, nil},
		{"a name with dots", "https://example.com/user.id", hs256(), nil},
		{"at the bounds", "sub",
			with(func(c *jwtkey.Config) { c.Leeway, c.MaxTokenBytes = 5*time.Minute, 65536 }), nil},

		{"nothing", "", jwtkey.Config{}, []string{"claim: ", "Methods: none", "0 of Key, Keys and Keyfunc"}},
		{"none", "sub", methods(secret, "none"), []string{`Methods: "none"`}},
		{"unknown", "sub", methods(secret, "hs256"), []string{`Methods: "hs256"`}},
		{"mixed", "sub", methods(large, "HS256", "RS256"), []string{`Methods: ["HS256" "RS256"]`}},
		{"mixed by kid", "sub", byKid(map[string]any{"a": large}, "HS256", "RS256"),
			[]string{`Methods: ["HS256" "RS256"]`}},
		{"two keys", "sub", jwtkey.Config{Methods: []string{"HS256"}, Key: secret, Keyfunc: keyfunc},
			[]string{"2 of Key"}},
		{"no keys", "sub", byKid(map[string]any{}, "HS256"), []string{"0 of Key"}},
		{"a short secret", "sub", methods(secret[:31], "HS256"), []string{"Key: []uint8"}},
		{"short for one", "sub", methods(long[:47], "HS256", "HS384"), []string{"Key: []uint8"}},
		{"short for HS512", "sub", methods(long[:63], "HS512"), []string{"Key: []uint8"}},
		{"text", "sub", methods(string(secret), "HS256"), []string{"Key: string"}},
		{"a small RSA key", "sub", methods(small, "RS256"), []string{"Key: *rsa.PublicKey"}},
		{"an RSA key that is nil", "sub", methods((*rsa.PublicKey)(nil), "RS256"), []string{"Key: *rsa.PublicKey"}},
		{"an RSA key that is empty", "sub", methods(&rsa.PublicKey{}, "RS256"), []string{"Key: *rsa.PublicKey"}},
		{"a private key", "sub", methods(curve, "ES384"), []string{"Key: *ecdsa.PrivateKey"}},
		{"another curve", "sub", methods(&curve.PublicKey, "ES256"), []string{"Key: *ecdsa.PublicKey"}},
		{"an ECDSA key that is empty", "sub", methods(&ecdsa.PublicKey{}, "ES256"), []string{"Key: *ecdsa.PublicKey"}},
		{"a short Ed25519 key", "sub", methods(edwards[:31], "EdDSA"), []string{"Key: ed25519.PublicKey"}},
		{"a public key as secret", "sub", methods(large, "HS256"), []string{"Key: *rsa.PublicKey"}},
		{"one of several", "sub", byKid(map[string]any{"a": large, "b": secret, "c": nil}, "RS256"),
			[]string{`Keys: "b": []uint8`, `Keys: "c": <nil>`}},
		{"an empty object", "id", with(func(c *jwtkey.Config) { c.Path = []string{"user", ""} }),
			[]string{`Path: ["user" ""]`}},
		{"Leeway", "sub", with(func(c *jwtkey.Config) { c.Leeway = -1 }), []string{"Leeway: -1ns"}},
		{"too much Leeway", "sub", with(func(c *jwtkey.Config) { c.Leeway = 5*time.Minute + 1 }),
			[]string{"Leeway: 5m0"}},
		{"MaxTokenBytes", "sub", with(func(c *jwtkey.Config) { c.MaxTokenBytes = 255 }),
			[]string{"MaxTokenBytes: 255"}},
		{"large MaxTokenBytes", "sub", with(func(c *jwtkey.Config) { c.MaxTokenBytes = 65537 }),
			[]string{"MaxTokenBytes: 65537"}},
		{"an empty issuer", "sub", with(func(c *jwtkey.Config) { c.Issuer = []string{""} }),
			[]string{`Issuer: [""]`}},
		{"an empty audience", "sub", with(func(c *jwtkey.Config) { c.Audience = []string{"api", ""} }),
			[]string{`Audience: ["api" ""]`}},
		{"Header and Cookie", "sub", with(func(c *jwtkey.Config) { c.Header, c.Cookie = "X-Token", "token" }),
			[]string{`Header: "X-Token", Cookie: "token"`}},
		{"a bad header", "sub", with(func(c *jwtkey.Config) { c.Header = "Authorization:" }),
			[]string{`Header: "Authorization:"`}},
		{"a bad cookie", "sub", with(func(c *jwtkey.Config) { c.Cookie = "a=b" }), []string{`Cookie: "a=b"`}},
		{"all at once", "",
			jwtkey.Config{
				Methods: []string{"none", "HS256"}, Key: secret[:5], Leeway: -1, MaxTokenBytes: 1,
				Issuer: []string{""}, Cookie: " ",
			},
			[]string{"claim: ", `Methods: "none"`, "Key: ", "Issuer: ", "Leeway: ", "MaxTokenBytes: ", "Cookie: "}},
	} {
		checkMistakes(t, c.desc, "ByClaim", jwtkey.ByClaim(c.claim, c.cfg), c.want)
	}
	checkMistakes(t, "right", "ByContextClaim", jwtkey.ByContextClaim("user", "sub"), nil)
	checkMistakes(t, "nothing", "ByContextClaim", jwtkey.ByContextClaim(nil, ""), []string{"<nil>", `""`})
	unusable := jwtkey.ByContextClaim([]string{"user"}, "sub")
	checkMistakes(t, "a key that cannot be compared", "ByContextClaim", unusable, []string{"[]string"})
}

// checkMistakes checks the errors of New for a key, used alone and within First.
func checkMistakes(t *testing.T, desc, function string, k core.Key, want []string) {
	t.Helper()
	for _, key := range []core.Key{k, core.First(k, core.ByIP())} {
		_, err := core.New(core.PerHour(1), key)
		var found []*core.ConfigError
		var walk func(error)
		walk = func(err error) {
			if c, ok := err.(*core.ConfigError); ok { //nolint:errorlint // all of them, not the first
				found = append(found, c)
			} else if several, ok := err.(interface{ Unwrap() []error }); ok {
				for _, err := range several.Unwrap() {
					walk(err)
				}
			}
		}
		walk(err)
		if len(found) != len(want) || (err == nil) != (len(want) == 0) {
			t.Errorf("%s: %d mistakes, want %d: %v", desc, len(found), len(want), err)
			continue
		}
		for _, part := range want {
			ok := false
			for _, c := range found {
				ok = ok || strings.Contains(c.Value, part) && c.Option == "jwtkey."+function && c.Problem != "" &&
					c.Remedy != ""
			}
			if !ok {
				t.Errorf("%s: no %s in %v", desc, part, err)
			}
		}
		if err != nil && strings.Contains(err.Error(), string(secret[:5])) {
			t.Errorf("%s: the secret is in %v", desc, err)
		}
	}
}
