package core_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/store"
)

// web shows core an *http.Request, as adapters do.
type web struct{ *http.Request }

func (r web) Peer() adapter.Peer             { return adapter.PeerOf(r.Request) }
func (r web) Header(name string) []string    { return r.Request.Header.Values(name) }
func (r web) Value(key any) any              { return r.Context().Value(key) }
func (r web) Native() any                    { return r.Request }
func from(addr string, header ...string) web { return request(addr, header...) }

func request(addr string, header ...string) web {
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = addr
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return web{r}
}

// keyOf is the storage key that a limiter asks its store about, or the error.
func keyOf(t *testing.T, k core.Key, r adapter.Request, opts ...core.Option) (string, error) {
	t.Helper()
	asked := ""
	s := &double{Full: core.NewMemoryStore(), take: func(takes []store.Take, ask func() error) error {
		asked = takes[0].Key.String()
		return ask()
	}}
	l := newLimiterBy(t, core.PerMinute(1), k, append(opts, core.WithStore(s))...)
	if _, err := l.Check(r); err != nil {
		return "", err
	}
	return asked, nil
}

// Values are often of an application's own types, and numbers in JSON are floating-point numbers.
func TestByValue(t *testing.T) {
	type userKey struct{}
	type name string
	type number int32
	find := func(value any) (string, error) {
		r := request("192.0.2.1:1")
		return keyOf(t, core.ByValue(userKey{}), web{r.WithContext(context.WithValue(r.Context(), userKey{}, value))})
	}
	for _, c := range []struct {
		value any
		want  string // empty if it is no key
	}{
		{"ann", "ann"}, {name("ann"), "ann"}, {json.Number("7"), "7"}, {7, "7"}, {number(-7), "-7"}, {uint8(7), "7"},
		{uint64(1<<64 - 1), "18446744073709551615"}, {7.0, "7"}, {float32(7), "7"}, {1e6, "1000000"}, {7.5, ""},
		{float64(1 << 53), ""}, {math.NaN(), ""}, {"", ""}, {name(""), ""}, {nil, ""}, {true, ""}, {[]string{"a"}, ""},
	} {
		got, err := find(c.value)
		if c.want == "" {
			if !errors.Is(err, core.ErrNoKey) {
				t.Errorf("%T %v: %s, %v", c.value, c.value, got, err)
			}
			continue
		}
		if want, _ := find(c.want); err != nil || got != want {
			t.Errorf("%T %v: %q, %v; want that of %s", c.value, c.value, got, err, c.want)
		}
	}
}

// A peer without an address has no key. Other peers are in the vectors of coretest.ClientIP, and here how some of them
// are stored.
func TestByIP(t *testing.T) {
	for remote, want := range map[string]string{
		"203.0.113.9:4711": "203.0.113.9", "203.0.113.9": "203.0.113.9", "[::ffff:cb00:7109]:4711": "203.0.113.9",
		"[2001:db8:1:2:3:4:5:6]:443": "2001:db8:1:2::_64", "[2001:db8::1]": "2001:db8::_64", "[::1]:9": "::_64",
		"": "", "@": "", "client.example:80": "", "0.0.0.0:1": "", "[::]:1": "", "[203.0.113.9]": "", "1.2.3.4.": "",
		"01.2.3.4:5": "",
	} {
		headers := []string{"X-Forwarded-For", "6.6.6.6", "X-Real-IP", "6.6.6.7", "Forwarded", "for=6.6.6.8"}
		got, err := keyOf(t, core.ByIP(), from(remote, headers...))
		if want == "" && !errors.Is(err, core.ErrNoKey) {
			t.Errorf("peer %q: key %q, error %v, want ErrNoKey", remote, got, err)
		} else if want != "" && got != "1-per-minute:own.ip:"+want {
			t.Errorf("peer %q: key %q, %v; want %q", remote, got, err, want)
		}
	}
	got, err := keyOf(t, core.ByIP(), from("203.0.113.9:4711"), core.WithIPv4Prefix(24))
	if got != "1-per-minute:own.ip:203.0.113.0_24" {
		t.Errorf("key %q, %v", got, err)
	}
}

var wellFormed = regexp.MustCompile(`^[a-z0-9:._-]{1,111}$`)

// Different identities have different stored keys, and stored keys contain safe characters only.
func TestKeysAreInjectiveAndTame(t *testing.T) {
	texts := []string{
		"a", "A", "a:b", "b", "203.0.113.9", "ip:203.0.113.9", "}", "{}x", "{a}b", "\x00", "a\x00", "\r\n", "%s",
		`"`, "\xff\xfe", "é", strings.Repeat("x", 8192), strings.Repeat("x", 8193),
		strings.Repeat("x", 64), strings.Repeat("x", 65),
	}
	by := func(s string) core.Key {
		return core.By(func(context.Context) (string, error) { return s, nil })
	}
	const addr = "203.0.113.9:1"
	type item struct {
		desc string
		key  core.Key
		req  web
	}
	cases := []item{
		{"ip", core.ByIP(), from(addr)},
		{"global", core.Global(), from(addr)},
		{"join ip", core.Join(core.ByIP()), from(addr)},
		{"join ip twice", core.Join(core.ByIP(), core.ByIP()), from(addr)},
	}
	for _, s := range texts {
		cases = append(cases,
			item{fmt.Sprintf("by %.30q", s), by(s), from(addr)},
			item{fmt.Sprintf("join by %.30q", s), core.Join(by(s)), from(addr)},
			item{fmt.Sprintf("join by %.30q, b", s), core.Join(by(s), by("b")), from(addr)},
			item{fmt.Sprintf("join b, by %.30q", s), core.Join(by("b"), by(s+"!")), from(addr)},
			item{fmt.Sprintf("header One: %.30q", s), core.ByHeader("X-One", core.Unverified), from(addr, "X-One", s)},
			item{fmt.Sprintf("header Two: %.30q", s), core.ByHeader("X-Two", core.Unverified), from(addr, "X-Two", s)},
		)
	}
	secret := []byte("sixteen bytes or more")
	for _, opts := range [][]core.Option{nil, {core.WithSecret(secret)}, {core.WithName(strings.Repeat("n", 48))}} {
		seen := map[string]string{}
		for _, c := range cases {
			key, err := keyOf(t, c.key, c.req, opts...)
			if err != nil {
				t.Errorf("%s: %v", c.desc, err)
				continue
			}
			if other, ok := seen[key]; ok {
				t.Errorf("%s and %s have the same key %s", c.desc, other, key)
			}
			seen[key] = c.desc
			if !wellFormed.MatchString(key) {
				t.Errorf("%s: key %q", c.desc, key)
			}
			if len(opts) > 0 && strings.Contains(key, "203.0.113") && key != "" && !strings.Contains(key, "nnn") {
				t.Errorf("%s: the address is readable in %q although a secret is set", c.desc, key)
			}
		}
	}
	plain, _ := keyOf(t, by("a"), from(addr))
	one, _ := keyOf(t, by("a"), from(addr), core.WithSecret(secret))
	two, _ := keyOf(t, by("a"), from(addr), core.WithSecret([]byte("another secret of ours")))
	if plain == one || one == two {
		t.Errorf("keys %s, %s and %s: the secret does not count", plain, one, two)
	}
}

func TestByHeader(t *testing.T) {
	boom := errors.New("boom")
	known := core.ByHeader("x-api-key", func(_ context.Context, v string) (string, error) {
		switch v {
		case "good":
			return "ann", nil
		case "boom":
			return "", boom
		}
		return "", core.ErrNoKey
	})
	for _, c := range []struct {
		desc   string
		header []string
		good   bool
	}{
		{"good", []string{"X-API-Key", "good"}, true},
		{"good with spaces", []string{"X-API-Key", " good\t"}, true},
		{"missing", nil, false},
		{"empty", []string{"X-API-Key", ""}, false},
		{"blank", []string{"X-API-Key", "  "}, false},
		{"twice", []string{"X-API-Key", "good", "X-API-Key", "good"}, false},
		{"not believed", []string{"X-API-Key", "bad"}, false},
	} {
		r := from("203.0.113.9:1", c.header...)
		_, err := keyOf(t, known, r)
		if c.good != (err == nil) || !c.good && !errors.Is(err, core.ErrNoKey) {
			t.Errorf("%s: %v", c.desc, err)
		}
		got, err := keyOf(t, core.First(known, core.ByIP()), r)
		if err != nil || strings.Contains(got, ".ip:") == c.good {
			t.Errorf("%s, then the address: key %s, %v", c.desc, got, err)
		}
	}
	// That the database does not answer says nothing about the client.
	for _, key := range []core.Key{known, core.First(known, core.ByIP())} {
		_, err := keyOf(t, key, from("203.0.113.9:1", "X-API-Key", "boom"))
		if !errors.Is(err, boom) || errors.Is(err, core.ErrNoKey) {
			t.Errorf("verify fails: %v", err)
		}
	}
}

func TestFirstStopsAtOtherErrors(t *testing.T) {
	boom := errors.New("boom")
	fails := core.By(func(*http.Request) (string, error) { return "", boom })
	if _, err := keyOf(t, core.First(fails, core.ByIP()), from("203.0.113.9:1")); !errors.Is(err, boom) {
		t.Errorf("error %v, want boom", err)
	}
	empty := core.By(func(*http.Request) (string, error) { return "", nil })
	key, err := keyOf(t, core.First(empty, core.ByIP()), from("203.0.113.9:1"))
	if err != nil || !strings.HasSuffix(key, ".ip:203.0.113.9") {
		t.Errorf("key %s, %v", key, err)
	}
	if _, err := keyOf(t, core.First(empty, core.ByIP()), from("@")); !errors.Is(err, core.ErrNoKey) {
		t.Errorf("no key at all: %v", err)
	}
	if _, err := keyOf(t, core.Join(core.ByIP(), empty), from("203.0.113.9:1")); !errors.Is(err, core.ErrNoKey) {
		t.Errorf("half a key: %v", err)
	}
}

// A text names the log of the request that it describes.
func TestAllowNamesTheSameLog(t *testing.T) {
	user := func(r *http.Request) (string, error) { return r.Header.Get("User"), nil }
	for _, c := range []struct {
		desc string
		key  core.Key
		req  web
		name string
	}{
		{"address", core.ByIP(), from("203.0.113.9:1"), "203.0.113.9"},
		{"address of the same /64", core.ByIP(), from("[2001:db8::1]:1"), "2001:db8::2"},
		{"found address of the same /64", core.ByAddr(foundAddr), found(netip.MustParseAddr("2001:db8::7")),
			"2001:db8::8"},
		{"header", core.ByHeader("User", core.Unverified), from("203.0.113.9:1", "User", "ann"), "ann"},
		{"own function", core.By(user), from("203.0.113.9:1", "User", "ann"), "ann"},
	} {
		l := newLimiterBy(t, core.PerHour(1), c.key)
		if d, err := l.Check(c.req); err != nil || !d.Allowed {
			t.Fatalf("%s: %+v, %v", c.desc, d, err)
		}
		if d, err := l.Allow(t.Context(), c.name); err != nil || d.Allowed {
			t.Errorf("%s: Allow(%q) draws from another log: %v", c.desc, c.name, err)
		}
		noError(t, l.Reset(t.Context(), c.name))
		if d, err := l.Check(c.req); err != nil || !d.Allowed {
			t.Errorf("%s: Reset(%q) forgot another log: %v", c.desc, c.name, err)
		}
		if _, err := l.Allow(t.Context(), ""); !errors.Is(err, core.ErrNoKey) {
			t.Errorf("%s: an empty key: %v", c.desc, err)
		}
	}
}

// A request reads each key once, whatever it is for: a key of lists called verify again, such as a query of a database.
func TestKeyIsReadOnce(t *testing.T) {
	reads := 0
	user := core.ByHeader("User", func(_ context.Context, name string) (string, error) {
		reads++
		return name, nil
	})
	addr := core.ByAddr(func(r *http.Request) (netip.Addr, error) {
		reads++
		if r.Header.Get("User") == "mallory" {
			return netip.MustParseAddr("192.0.2.1"), nil
		}
		return netip.MustParseAddr("2001:db8::7"), nil
	})
	ip, all := core.ByIP(), core.Global()
	or, at := core.First(user, ip), core.Join(user, ip)
	quotas := core.Limits{core.PerDay(100), core.PerHour(9).By(at), core.PerDay(9).By(or)}
	named := core.Limits{core.PerHour(100), core.PerHour(9).By(user)}
	deny, allow := core.WithDenyList(user, "mallory"), core.WithAllowList(user, "monitor")
	shadow := core.WithShadow(core.PerHour(50).By(at))
	chosen := func(*http.Request) core.Limits { return core.Limits{core.PerHour(100)} }
	for desc, c := range map[string]struct {
		policy core.Policy
		key    core.Key
		opts   []core.Option
	}{
		"no list":                  {core.PerHour(100), user, nil},
		"a list":                   {core.PerHour(100), user, []core.Option{deny}},
		"two lists":                {core.PerHour(100), user, []core.Option{deny, allow}},
		"two lists of another key": {core.PerHour(100), ip, []core.Option{deny, allow}},
		"a first, and its list":    {core.PerHour(100), or, []core.Option{core.WithDenyList(or, "mallory")}},
		"a first, and a list":      {core.PerHour(100), or, []core.Option{deny}},
		"a join, and a list":       {core.PerHour(100), at, []core.Option{deny}},
		"keys of limits":           {quotas, user, nil},
		"a list's and a limit's":   {named, all, []core.Option{deny}},
		"a limit's and its slots'": {core.Limits{core.PerHour(9).By(at), core.InFlight(99).By(user)}, all, nil},
		"a shadow":                 {core.PerHour(100), user, []core.Option{shadow}},
		"limits by request":        {core.LimitBy(chosen), user, []core.Option{deny, allow}},
		"an address, and its list": {core.PerHour(100), addr, []core.Option{core.WithDenyList(addr, "192.0.2.1")}},
	} {
		l := newLimiterBy(t, c.policy, c.key, c.opts...)
		reads = 0
		for range 5 {
			if d, err := l.Check(from("203.0.113.9:1", "User", "ann")); err != nil || !d.Allowed {
				t.Errorf("%s: %+v, %v", desc, d, err)
			}
		}
		if reads != 5 {
			t.Errorf("%s: %d reads for 5 requests", desc, reads)
		}
		if _, err := l.Check(from("203.0.113.9:1", "User", "mallory")); len(c.opts) > 0 && desc != "a shadow" &&
			!errors.Is(err, core.ErrForbidden) {
			t.Errorf("%s: %v", desc, err)
		}
	}
}
