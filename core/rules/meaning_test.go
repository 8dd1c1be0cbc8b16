package rules_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/rules"
	"github.com/sashlimit/sash/core/store"
)

// with makes a request of "METHOD host/path" with values of earlier middleware: "user=7 plan=pro".
func with(target, values string) *request {
	method, rest, _ := strings.Cut(target, " ")
	host, path, _ := strings.Cut(rest, "/")
	r := &request{
		method: method, host: host, path: "/" + path, header: make(http.Header), values: make(map[any]any),
		peer: adapter.PeerAddr(tcpAddr("192.0.2.1:1234")),
	}
	for pair := range strings.FieldsSeq(values) {
		name, value, _ := strings.Cut(pair, "=")
		switch {
		case name == "ip":
			r.peer = adapter.PeerAddr(tcpAddr(value + ":1234"))
		case 'A' <= name[0] && name[0] <= 'Z':
			r.header.Add(name, value)
		case value == "true":
			r.values[name] = true
		default:
			r.values[name] = value
		}
	}
	return r
}

// limited asks the rules for requests.
type limited struct {
	t *testing.T
	*rules.Set

	limiter *core.Limiter
}

func limit(t *testing.T, text string, opts ...rules.Option) *limited {
	t.Helper()
	set := parse(t, text, opts...)
	return &limited{t, set, limiterOf(t, set)}
}

func (l *limited) ask(r *request) (core.Decision, error) {
	d, err := l.limiter.Check(r)
	if err == nil && d.Allowed {
		d.Serve(func() int { return 200 })
	}
	return d, err
}

// want checks that so many of n equal requests are admitted.
func (l *limited) want(target, values string, n, admitted int) {
	l.t.Helper()
	got := 0
	for range n {
		d, err := l.ask(with(target, values))
		if err != nil {
			l.t.Fatalf("%s %s: %v", target, values, err)
		}
		if d.Allowed {
			got++
		}
	}
	if got != admitted {
		l.t.Errorf("%s %s: %d of %d admitted, want %d", target, values, got, n, admitted)
	}
}

// follow goes through steps, one a line. "3/5 path values" means that 3 of 5 equal requests are admitted, and
// "403 path values" that a request is refused with that status. "override rule key 5/minute" lasts a minute; others are
// "denied" and "unlimited". The key "-" is empty.
func (l *limited) follow(steps string) {
	l.t.Helper()
	for line := range strings.FieldsFuncSeq(steps, func(r rune) bool { return r == '\n' }) {
		want, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		target, values := "/", rest
		if path, after, _ := strings.Cut(rest, " "); !strings.Contains(path, "=") {
			target, values = path, after
		}
		target = "GET " + target
		var admitted, n, status int
		switch {
		case want == "override":
			rule, of, _ := strings.Cut(rest, " ")
			key, what, _ := strings.Cut(of, " ")
			o := core.Override{Denied: what == "denied", Unlimited: what == "unlimited", Note: "n"}
			if limit, err := core.ParseLimit(what); err == nil {
				o.Limits = core.Limits{limit}
			}
			l.override(rule, strings.Replace(key, "-", "", 1), o)
		case scanned(want, "%d/%d", &admitted, &n):
			l.want(target, values, n, admitted)
		case scanned(want, "%d", &status):
			if _, err := l.ask(with(target, values)); err == nil || core.ProblemOf(err).Status != status {
				l.t.Errorf("%s %s: %v, want %d", target, values, err, status)
			}
		default:
			l.t.Error(line)
		}
	}
}

func scanned(text, format string, to ...any) bool {
	n, err := fmt.Sscanf(text, format, to...)
	return err == nil && n == len(to)
}

// Those whose domain is given are the documented examples of envoyproxy/ratelimit, translated.
func TestMeaning(t *testing.T) {
	for name, test := range map[string]struct{ rules, steps string }{
		"databases": {`
domain: mongo_cps
rules:
- name: databases
  descriptors:
  - {key: database, value: users, limits: [500/hour]}
  - {key: database, value: default, limits: [400/hour]}
`, `500/510 database=users
			400/410 database=default
			600/600 database=other`}, // no descriptor, no limit
		"messages": {`
domain: messaging
rules:
- name: sms
  descriptors:
  - key: message_type
    value: marketing
    descriptors:
    - {key: to_number, limits: [5/day]}
  - {key: to_number, limits: [100/day]}
`, `5/7 message_type=marketing to_number=2061111111
			5/7 message_type=marketing to_number=2062222222
			95/100 message_type=alert to_number=2061111111
			95/100 to_number=2062222222
			200/200 message_type=marketing`}, // five were marketing; without a number neither applies
		"addresses": {`
domain: edge_proxy_per_ip
rules:
- name: addresses
  deny: {key: ip, values: [50.0.0.5]}
  descriptors:
  - {key: ip, limits: [10/hour]}
  - {key: ip, value: 50.0.0.6, limits: [100/hour]}
`, `10/12 ip=50.0.0.1
			10/12 ip=50.0.0.2
			100/102 ip=50.0.0.6
			403 ip=50.0.0.5`},
		"levels": {`
domain: example4
rules:
- name: levels
  descriptors:
  - key: key
    value: value
    descriptors: [{key: subkey, limits: [300/hour]}]
`, `300/310 key=value subkey=subvalue
			300/310 key=value subkey=another
			310/310 key=value
			310/310 key=other subkey=subvalue`},
		"values beside every value": {`
domain: example8
rules:
- name: values
  descriptors:
  - {key: key1, limits: [10/hour]}
  - {key: key1, value: value1, limits: [20/hour]}
`, `10/21 key1=unspecified_value
			10/21 key1=unspecified_value2
			20/21 key1=value1`},
		"unlimited": {`
domain: internal
rules:
- name: ldap
  descriptors:
  - {key: ldap, limits: [5/hour]}
  - {key: ldap, value: robot, unlimited: true}
  - key: azure
    limits: [3/hour]
    descriptors: [{key: role, value: admin, unlimited: true}]
`, `50/50 ldap=robot
			5/7 ldap=anna
			50/50 azure=x role=admin
			3/5 azure=x role=user`},
		"shadow mode": {`
domain: example6
rules:
- name: users
  descriptors:
  - key: service
    descriptors:
    - {key: user, value: user-a, shadow: true, limits: [10/hour]}
    - {key: user, value: user-b, limits: [20/hour]}
`, `25/25 service=auth-service user=user-a
			20/25 service=auth-service user=user-b
			25/25 service=auth-service user=user-c`},
		"a quota for each combination of values": {`
rules:
- name: levels
  descriptors: [{key: {value: tenant}, descriptors: [{key: {value: user}, limits: [2/day]}]}]
`, `2/3 tenant=a user=7
			2/3 tenant=b user=7
			2/3 tenant=b user=8`},
		// What a proxy reports of no client is not the proxy itself, as in lists, but has a quota.
		"clients that are not identified": {`
rules:
- name: a
  descriptors:
  - {key: {forwarded: [10.0.0.0/8]}, limits: [1/day]}
  - {key: {forwarded: [10.0.0.0/8]}, value: 10.0.0.1, unlimited: true}
`, `3/3 ip=10.0.0.1
			1/3 ip=10.0.0.1 X-Forwarded-For=unknown
			1/3 ip=10.0.0.1 X-Forwarded-For=192.0.2.1`},
		// Each rule costs what it says, and the last one nothing to who is on its list.
		"all rules": {`
apply: all
rules:
- {name: service, key: global, limits: [9/day], cost: 2}
- {name: users, key: {value: user}, limits: [1/day], match: {values: {user: [a, b, c, d]}}}
- {name: tried, key: {value: user}, limits: [1/day], shadow: true, match: {values: {user: a}}}
- {name: staff, match: {path: /staff}, unlimited: true}
- name: listed
  match: {values: {user: [a, b, c, d]}}
  key: global
  limits: [4/day]
  cost: 3
  allow: {key: {value: user}, values: [a, c]}
`, `1/2 user=a
			1/1 user=b
			0/1 user=d
			1/1 user=c
			1/1 /staff
			0/3`},
		"lists": {`
rules:
- name: api
  key: {value: user}
  limits: [1/day]
  allow: [root]
  deny: {key: ip, values: ["203.0.113.0/24", "2001:db8::/32"]}
`, `5/5 user=root
			1/2 user=a
			403 user=root ip=203.0.113.99
			403 user=root ip=[2001:db8::9]
			400`}, // without a user
		// A list has one address, and a quota is that of a /64.
		"networks": {`rules: [{name: a, key: ip, limits: [1/day], deny: [2001:db8::1]}]`, `1/1 ip=[2001:db8::2]
			0/1 ip=[2001:db8::3]`},
		// Each unit has limits and a cost of its own. A rule in shadow denies nothing, whatever its unit.
		"units": {`
apply: all
rules:
- name: chat
  match: {path: /chat}
  key: {value: user}
  limits: [5/minute, 100 tokens/minute, {limit: 150/hour, unit: tokens}]
  costs: {tokens: {value: tokens}}
- name: images
  match: {path: /images}
  key: {value: user}
  limits: [10 images/minute]
  costs: {images: 4}
- name: all
  key: global
  limits: [{limit: 120/minute, unit: tokens}, 8/minute]
  costs: {tokens: {value: tokens}}
- name: tried
  key: global
  shadow: true
  limits: [50 bytes/minute, 1000000 tokens/minute]
  costs: {bytes: 20, tokens: 100}
`, `1/1 /chat user=ann tokens=60
			0/1 /chat user=ann tokens=41
			1/1 /chat user=ann tokens=0
			2/3 /images user=ann tokens=0
			0/1 /chat user=bob tokens=61
			1/1 /chat user=bob tokens=60
			500 /chat user=eve`},
		// A request that no descriptor limits, or only one in shadow, needs no costs. Each costs the other rule 10.
		"costs of descriptors": {`
apply: all
rules:
- name: chat
  descriptors:
  - {key: user, limits: [100 tokens/minute]}
  - {key: user, value: root, unlimited: true}
  - {key: trial, shadow: true, limits: [1 tokens/minute]}
  costs: {tokens: {value: tokens}}
- name: all
  key: global
  limits: [60 tokens/minute]
  costs: {tokens: 10}
`, `1/1
			1/1 user=root
			1/1 user=root trial=a tokens=20
			1/1 trial=a
			1/1 trial=a tokens=30
			1/1 user=ann tokens=40
			0/1 user=ann tokens=1
			500 user=ann`},
	} {
		t.Run(name, func(t *testing.T) { limit(t, test.rules).follow(test.steps) })
	}
}

func TestMatches(t *testing.T) {
	l := limit(t, `
rules:
- {name: method, match: {methods: [GET], path: /m}, key: global, limits: [1/day]}
- {name: host, match: {host: API.example.com}, key: global, limits: [1/day]}
- {name: path, match: {path: "/users/{id}"}, key: global, limits: [1/day]}
- {name: root, match: {path: "/{$}"}, key: global, limits: [1/day]}
- {name: header, match: {headers: {x-plan: [free, trial]}}, key: global, limits: [1/day]}
- {name: value, match: {values: {tier: [2, true]}}, key: global, limits: [1/day]}
- {name: claim, match: {claims: {role: admin}}, key: global, limits: [1/day]}
`, rules.WithClaims(func(claim string) core.Key { return core.ByValue("claim " + claim) }))
	for _, test := range []struct{ target, values, rule string }{
		{"GET /m", "", "method"},
		{"HEAD /m", "", "method"},
		{"POST /m", "", ""},
		{"GET api.example.com/x", "", "host"},
		{"GET api.EXAMPLE.com.:8080/x", "", "host"},
		{"GET www.example.com/x", "", ""},
		{"GET /users/7", "", "path"},
		{"GET //users/./7", "", "path"},
		{"GET /users/7/x", "", ""},
		{"GET /users/", "", ""},
		{"GET /", "", "root"},
		{"GET /x", "X-Plan=trial", "header"},
		{"GET /x", "X-Plan=paid", ""},
		{"GET /x", "X-Plan=paid X-Plan=free", "header"},
		{"GET /x", "tier=2", "value"},
		{"GET /x", "tier=3", ""},
		{"GET /x", "tier=true", "value"},
	} {
		e := l.Explain(with(test.target, test.values))
		if e.Err != nil {
			t.Errorf("%s %s: %v", test.target, test.values, e.Err)
		}
		var applies []string
		for _, r := range e.Rules {
			if r.Applies {
				applies = append(applies, r.Name)
			} else if r.Reason == "" {
				t.Errorf("%s %s: rule %s has no reason", test.target, test.values, r.Name)
			}
		}
		if strings.Join(applies, " ") != test.rule {
			t.Errorf("%s %s: %v, want %s", test.target, test.values, applies, test.rule)
		}
		if d, err := l.ask(with(test.target, test.values)); err != nil || d.Policy != test.rule {
			t.Errorf("%s %s: decided by %q, %v; want %q", test.target, test.values, d.Policy, err, test.rule)
		}
	}
	r := with("GET /x", "")
	r.values["claim role"] = "admin"
	if d, err := l.ask(r); err != nil || d.Policy != "claim" {
		t.Errorf("a claim: %v, %v", d, err)
	}
}

func TestKeysOfRules(t *testing.T) {
	verify := func(_ context.Context, key string) (string, error) {
		if key == "bad" {
			return "", core.ErrNoKey
		}
		return "customer " + key, nil
	}
	l := limit(t, `
apply: all
rules:
- name: keys
  match: {path: /k}
  key: {header: X-API-Key, verify: keys}
  limits: [3/day, {limit: 4/day, key: {join: [{header: X-API-Key, verify: keys}, ip]}}]
- {name: too, match: {path: /k}, key: {first: [{header: X-API-Key, verify: keys}, ip]}, limits: [5/day]}
- {name: route, match: {path: "/r/{id}"}, key: route, limits: [2/day]}
- {name: proxy, match: {path: /p}, key: {forwarded: [192.0.2.0/24]}, limits: [2/day]}
`, rules.WithVerifier("keys", verify))
	l.follow(`3/4 /k X-Api-Key=1
		3/4 /k X-Api-Key=2
		400 /k X-Api-Key=bad
		1/1 /r/1
		1/2 /r/2 ip=192.0.2.9
		2/3 /p X-Forwarded-For=203.0.113.7
		2/3 /p X-Forwarded-For=203.0.113.8`)
	l.want("HEAD /r/3", "", 1, 0) // as GET
	l.want("POST /r/1", "", 3, 2)
	l.want("BREW /r/1", "", 1, 1)
	l.want("BREW2 /r/1", "", 2, 1) // made up methods share a quota
}

// Keys of several are one only if their parts are, whatever the names of values are.
func TestKeysOfOddNames(t *testing.T) {
	l := limit(t, `
rules:
- {name: x, match: {path: /x}, key: {join: [{value: a}, {value: b}, ip]}, limits: [9/day]}
- {name: y, match: {path: /y}, key: {join: [{value: "a) (value b"}, ip]}, limits: [9/day]}
`)
	r := with("GET /y", "")
	r.values["a) (value b"] = "7"
	if d, err := l.ask(r); err != nil || d.Policy != "y" {
		t.Errorf("%v, %v; want the key of y", d, err)
	}
}

// Limits without a name of their own have different ones, which no other limit has.
func TestNamesOfLimits(t *testing.T) {
	l := limit(t, "rules: [{name: a, key: ip, limits: [1/day, 1/day in UTC, {limit: 3/hour, name: a-1-per-day-2}]}]")
	d, err := l.ask(with("GET /", ""))
	must(t, err)
	var names []string
	for _, limit := range d.Limits() {
		names = append(names, limit.Name)
	}
	if want := []string{"a-1-per-day", "a-1-per-day-3", "a-1-per-day-2"}; !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
}

// A request reads a key once for lists, descriptors and limits together.
func TestKeyIsReadOnce(t *testing.T) {
	reads := 0
	verify := rules.WithVerifier("keys", func(_ context.Context, key string) (string, error) {
		reads++
		return key, nil
	})
	const key = "{header: X-K, verify: keys}"
	for _, rule := range []string{
		"key: KEY, limits: [5/day], deny: [x], allow: [y]",
		"descriptors: [{key: KEY, limits: [5/day]}]",
		"key: {first: [KEY, ip]}, limits: [5/day], deny: [x]",
		"key: {join: [KEY, ip]}, limits: [5/day], deny: {key: KEY, values: [x]}",
	} {
		l := limit(t, "rules:\n- {name: a, "+strings.ReplaceAll(rule, "KEY", key)+"}\n", verify)
		reads = 0
		if l.want("GET /", "X-K=1", 1, 1); reads != 1 {
			t.Errorf("%s: the verifier was called %d times", rule, reads)
		}
	}
}

// Requests in flight are counted by rules as well.
func TestInFlightByRules(t *testing.T) {
	l := limit(t, `
apply: all
rules:
- {name: busy, key: global, limits: [2 in flight], match: {path: /a}}
- {name: all, key: global, limits: [9/day]}
`)
	for n := range 3 {
		d, err := l.limiter.Check(with("GET /a", ""))
		if err != nil || d.Allowed != (n < 2) || d.Policy != "busy" {
			t.Error(d, err)
		}
		if d.Allowed {
			defer d.Serve(func() int { return 200 })
		}
	}
}

// The failure policy of a file holds for all of its rules. A request that passes uncounted has an event of its rule.
func TestFailureByRules(t *testing.T) {
	const one = "rules:\n- {name: one, key: global, limits: [2/day]}\n"
	var policies []string
	down := rules.WithOptions(core.WithStore(unavailable{core.NewMemoryStore()}),
		core.WithObserver(func(_ context.Context, e core.Event) {
			policies = append(policies, e.Policy, e.Decision.Policy)
		}))
	limit(t, "failure: open\n"+one, down).want("GET /", "", 1, 1)
	if !slices.Equal(policies, []string{"one", "one"}) {
		t.Errorf("policies %q, want that of the rule", policies)
	}
	limit(t, "failure: closed\n"+one, down).follow("503")
	for _, local := range []string{"", "failure: local\n"} {
		l := limit(t, local+one, down)
		l.want("GET /", "", 5, 2)
		if err := l.Close(); err == nil {
			t.Error("Close does not tell what was not replayed")
		}
	}
}

// The decision about a request resets what its rules have counted for their keys, and nobody else's quota.
func TestResetOfADecision(t *testing.T) {
	l := limit(t, strings.ReplaceAll(`
rules:
- {name: named, match: {path: /named}, key: BOTH, limits: [{limit: 2/day, key: BOTH}, {limit: 5/day, key: global}]}
- {name: counted, match: {path: /counted}, key: BOTH, limits: [{limit: 2/day, algorithm: fixed_window}, 2/hour]}
- {name: everybody, match: {path: /everybody}, key: BOTH, limits: [{limit: 2/day, key: global}]}
`, "BOTH", "{join: [ip, {value: user}]}"))
	for path, after := range map[string]string{
		"/named": "2/9 /named user=7\n1/9 /named user=8", "/counted": "2/9 /counted user=7",
		"/everybody": "0/9 /everybody user=7",
	} {
		l.follow("2/9 " + path + " user=7")
		d, err := l.ask(with("GET "+path, "user=7"))
		must(t, err)
		if err := d.Reset(t.Context()); (err == nil) != (path != "/everybody") {
			t.Errorf("%s: %v", path, err)
		}
		l.follow(after)
	}
}

// A limiter of rules has no key of its own, so calls that name one are errors.
func TestCallsThatNameAKey(t *testing.T) {
	l := limit(t, minimal).limiter
	ctx := t.Context()
	_, allow := l.Allow(ctx, "k")
	_, wait := l.Wait(ctx, "k")
	_, log := l.Log(ctx, "k")
	_, record := l.Record(ctx, "k", 1)
	_, peek := l.Peek(ctx, "k")
	for name, err := range map[string]error{
		"Allow": allow, "Wait": wait, "Log": log, "Record": record, "Peek": peek, "Reset": l.Reset(ctx, "k"),
	} {
		if err == nil || !strings.Contains(err.Error(), "rules need a request") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Each request is one event, which names its rule.
func TestEventsOfRules(t *testing.T) {
	got := ""
	l := limit(t, `
rules:
- {name: a, match: {path: /a}, key: {value: user}, limits: [1/day], allow: [root]}
- {name: b, match: {path: /b}, key: ip, limits: [1/day], deny: [192.0.2.9]}
`, rules.WithOptions(core.WithObserver(func(_ context.Context, e core.Event) {
		got += fmt.Sprintf("%s %v %s\n", e.Policy, e.Outcome, e.Key)
	})))
	for _, r := range []*request{
		with("GET /a", "user=7"), with("GET /a", "user=7"), with("GET /a", "user=root"), with("GET /a", ""),
		with("GET /b", ""), with("GET /b", "ip=192.0.2.9"), with("GET /c", ""),
	} {
		l.ask(r) // the events tell
		l.Explain(r)
	}
	const want = "a allowed 7\na denied 7\nrules listed \na no key \nb allowed 192.0.2.1\nrules forbidden \n" +
		"rules skipped \n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// unavailable is a store that does not answer.
type unavailable struct{ *core.MemoryStore }

var errDown = &core.StoreError{Err: errors.New("down")}

func (unavailable) Take(context.Context, []store.Take, []store.Answer) error { return errDown }

func (unavailable) Merge(context.Context, store.MergeRequest) error { return errDown }

func ExampleSet_String() {
	set, _ := rules.Parse([]byte(`
rules:
- {name: login, match: {path: /login}, key: ip, limits: [5/minute, {limit: 50/day, key: global}]}
- {name: health, match: {path: /health}, unlimited: true}
- name: users
  shadow: true
  descriptors:
  - {key: user, value: robot, limits: [9/hour]}
  - {key: user, limits: [100/hour]}
`), "limits.yaml")
	fmt.Println(set)
	// Output:
	// limits.yaml: rules: 3, limits: 4
	// login: 5/minute, 50/day
	// health: unlimited
	// users: 9/hour, 100/hour (shadow)
}

// A client cannot escape a rule by a path that the framework reads in another way than the rules, that earlier
// middleware has changed for the router, or that later middleware may shorten (AnyEnd). Of the last, a rule that gives
// way to an earlier one for the path itself does not apply.
func TestPathsThatAreReadInSeveralWays(t *testing.T) {
	const text = `
apply: %s
rules:
- {name: health, match: {path: /health}, unlimited: true}
- {name: report, match: {path: /report.json}, key: global, limits: [1000/day]}
- {name: api, match: {path: /v1/}, key: global, limits: [1000/day]}
- {name: login, match: {path: /login}, key: global, limits: [1000/day]}
- {name: below, match: {path: /login/}, key: global, limits: [1000/day]}
- {name: user, match: {path: "/users/{id}"}, key: global, limits: [1000/day]}
- {name: rest, key: global, limits: [1000/day]}
`
	for paths, want := range map[string]string{ // as it was sent, and as it was left; with apply: first, besides rest
		"/health":                          "-", // it is unlimited
		"/v1/a":                            "api",
		"/v1/../health":                    "api",
		"/v1/x%2F..%2F..%2Fhealth":         "api",
		"/v1/%2e%2e/health":                "api",
		"/health%2F..%2Fv1%2Fx":            "api rest",
		"/health/../v1/x":                  "api rest",
		"//v1/x":                           "api rest",
		"/x/../v1/.":                       "api rest", // nginx and gin leave the slash at the end
		"/x/../v1/y/..":                    "api rest",
		"/x%2Fy/../v1/.":                   "api rest",
		"/users/a%2Fb":                     "user rest", // one segment of net/http, and two of gin
		"/users/..%2Fusers%2F7":            "user rest",
		"/%75sers/7":                       "user",
		"/%76%31/x":                        "api",
		"/.well-known/x":                   "rest",
		"/old/login /login":                "login rest",
		"/old/login /log%69n":              "login rest",
		"/old/login /login/":               "below rest",
		"END /login":                       "login",
		"END /login/":                      "login below",
		"END /login.json":                  "login rest",
		"END /login.a.b":                   "login rest",
		"END /login/.json":                 "login below",
		"END /login.json/":                 "login rest",
		"END /report.json":                 "report",
		"END /report.json/":                "report rest",
		"END /users/7/":                    "user rest",
		"END /users/7.json":                "user",
		"END /users/7/x.json":              "rest",
		"END //login/":                     "login below rest",
		"END /log%69n.json":                "login rest",
		"END /x/..%2Flogin.json":           "login rest",
		"END /old/login/ /login.json":      "login rest",
		"END /report.json /report":         "report rest",
		"END /x/y/z/v/w/login /login/y/z/": "below rest",
	} {
		for _, apply := range []string{"first", "all"} {
			l, r := limit(t, fmt.Sprintf(text, apply)), with("GET /", "")
			sent, anyEnd := strings.CutPrefix(paths, "END ")
			path, routed, _ := strings.Cut(sent, " ")
			r.path, _ = url.PathUnescape(path)
			r.routed, r.anyEnd = routed, anyEnd
			if r.path != path {
				r.raw = path
			}
			d, err := l.ask(r)
			var got []string
			for _, limit := range d.Limits() {
				name, _, _ := strings.Cut(limit.Name, "-")
				got = append(got, name)
			}
			want := want
			if apply == "all" {
				want = strings.TrimPrefix(strings.TrimSuffix(want, " rest")+" rest", "- ")
				want = strings.TrimPrefix(want, "rest ")
			}
			if names := cmp.Or(strings.Join(got, " "), "-"); err != nil || names != want {
				t.Errorf("%s, %s: %v, want %s; %v", paths, apply, names, want, err)
			}
		}
	}
}

// A client cannot bring about an error of the server, or pass, by a path whose readings choose limits that the store
// cannot decide about together.
func TestPathsWithTooManyRules(t *testing.T) {
	const two = `
rules:
- {name: a, match: {path: /a/}, key: global, limits: [10/day]}
- {name: b, match: {path: /b/}, key: global, limits: [20/day], shadow: %v}
`
	odd := with("GET /b/x", "")
	odd.raw = "/a/..%2Fb/x"
	load := func(shadow bool) *limited {
		store := rules.WithOptions(core.WithStore(alone{core.NewMemoryStore()}))
		return limit(t, fmt.Sprintf(two, shadow), store)
	}
	l := load(false)
	e := l.Explain(odd)
	d, err := l.ask(odd)
	if err == nil || core.ProblemOf(err).Status != http.StatusBadRequest || fmt.Sprint(e.Err) != err.Error() {
		t.Errorf("%v, %v; explained %v", d, err, e.Err)
	}
	l.want("GET /a/x", "", 11, 10) // nothing was charged
	l = load(true)
	for n := range 11 {
		if d, err := l.ask(odd); err != nil || d.Allowed != (n < 10) || d.Policy != "a" {
			t.Errorf("in shadow: %v, %v", d, err)
		}
	}
}
