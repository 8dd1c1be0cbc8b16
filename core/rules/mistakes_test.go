package rules_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/rules"
	"github.com/sashlimit/sash/core/store"
)

// mistakes are files, and for each mark of a place in them the field and words of its mistake. A text of one line is a
// rule's fields.
var mistakes = [][]string{
	{"§", "the file is empty"},
	{"§domain: a\n", `the field "rules" is missing`},
	{"rules: §[]\n", "rules: this is empty; write at least one item"},
	{"§- name: a\n", "this is a list, but must be a mapping"},
	{"rules:\n- name: a\n  key: [ip\n§", "did not find expected"},
	{"rules:\n§\t- name: a\n", "found character that cannot start any token"},
	{"rules:\n- name: \"§\xff\"\n", "this is not UTF-8"},
	{"rules:\n- name: a§\x01\n", "or a control character"},
	{minimal + "---\n§rules: []\n", "this is a second document"},
	{"rules: §*a\n", "unknown anchor"},
	{
		"rules:\n- §name: a\n  descriptors:\n  - key: user\n    limits: [1/day, 2/hour, 3/minute, 4/second, 5/2h]\n" +
			"  - {key: plan, limits: [1/day, 2/hour, 3/minute, 4/second]}\n",
		"rules[0]: with this rule, 9 limits may apply to one request",
	},
	{
		"rules:\n- name: a\n  match: {path: /a}\n  key: ip\n  limits: [§100 tokens/minute, 5/minute]\n- name: b\n" +
			"  match: {path: /b}\n  key: ip\n" +
			"  limits: [{limit: 100/minute, unit: §Tokens}, {limit: 2 in flight, unit: §tokens}, {limit: 1 a/minute, " +
			"unit: §b}]\n- name: c\n  match: {path: /c}\n  key: ip\n  limits: [1 images/minute]\n" +
			"  costs: {§requests: 1, §tokens: 2, images: §-1}\n- name: d\n  match: {path: /d}\n  key: ip\n" +
			"  limits: [1 images/minute]\n  costs: {images: {§§header: x}}\n",
		`rules[0].limits[0]: "100 tokens/minute" counts tokens, and the rule does not say what a request costs; add ` +
			`costs: {tokens: {value: NAME}}, or a number`,
		`rules[1].limits[0].unit: "Tokens" is not allowed here; write 1 to 32 lower-case letters`,
		"rules[1].limits[1].unit: a limit of requests in flight counts requests; remove the unit",
		`rules[1].limits[2].unit: "1 a/minute" counts a already; remove one of the units`,
		"rules[2].costs.requests: requests have a cost of their own; write cost: in place of it",
		"rules[2].costs.tokens: no limit of the rule counts tokens; remove it, or add a limit such as",
		`rules[2].costs.images: "-1" is not allowed here; write 0 to 1000000000`,
		"rules[3].costs.images.header: this field is unknown; fields are value",
		`rules[3].costs.images: the field "value" is missing`,
	},
	{"key: ip, limits: [100/minute burst 5], count_denied: §true", "rules[0].count_denied: remove it"},
	{"rules:\n- &a {name: a, key: ip, limits: [1/minute], match: {path: /a}}\n- {§<<: *a, name: b}\n",
		`rules[1]: "<<" is not a field's name; write a word`},
	{"key: ip, limits: [1/minute], match: {headers: {X-Plan: a, §x-plan: b}}",
		"rules[0].match.headers.x-plan: this header is listed twice; write one list with its values"},
	{"key: ip, limits: [1/minute], match: {values: {plan: [a, §'']}}", "rules[0].match.values.plan[1]: write a value"},
	{"rules:\n- name: a\n  key: &a {first: [§ip, *a]}\n  limits: [1/minute]\n", "the file is too large or too deep"},
	{"key: ip, limits: [1/minute], §kost: 2", `rules[0].kost: this field is unknown; did you mean "cost"?`},
	{"key: ip, limits: [1/minute], §requests_per_unit: 2", "rules[0].requests_per_unit: fields are algorithm, allow"},
	{"domain: a\n§domain: b\n" + minimal, "domain: this field is duplicated; merge it with the one on line 1"},
	{"key: ip, limits: [1/minute], §0.25: 1", `rules[0]: "0.25" is not a field's name`},
	{"rules:\n- name: a\n  key:§\n  limits: [1/minute]\n",
		"rules[0].key: this is empty, but must be a string or a mapping"},
	{"rules:\n- {§key: ip, limits: [1/minute]}\n", `rules[0]: the field "name" is missing`},
	{"rules:\n- {name: §Log in, key: ip, limits: [1/minute]}\n", "rules[0].name: write 1 to 48 lower-case letters"},
	{"rules:\n- {name: §7, key: ip, limits: [1/minute]}\n",
		`rules[0].name: this is "7" without quotes, but must be a string`},
	{
		"apply: all\n" + minimal + "- {name: §a, key: global, limits: [1/minute]}\n",
		`rules[1].name: the name "a" is used twice; choose another name: line 3 has it too`,
	},
	{
		"domain: dddddddddddddddddddddddddddddd\nrules:\n" +
			"- {name: §aaaaaaaaaaaaaaaaaaaa, key: ip, limits: [1/minute]}\n",
		"rules[0].name: domain and name together are longer than 47",
	},
	{"domain: §\"\"\n" + minimal, `domain: "" is not allowed here`},
	{"§name: a, limits: [1/minute]", `rules[0]: the limit "1/minute" has no key`},
	{"key: §user, limits: [1/minute]", `rules[0].key: "user" is not allowed here`},
	{"key: {claim: sub, §value: user}, limits: [1/minute]", "rules[0].key.value: these are two keys: claim and value"},
	{"key: {§verify: keys}, limits: [1/minute]", "rules[0].key: this key is empty"},
	{"key: {§header: X-API-Key}, limits: [1/minute]", "rules[0].key.header: the header is not verified"},
	{"key: {header: X-API-Key, verify: §kyes}, limits: [1/minute]",
		`rules[0].key.verify: the verifier "kyes" is not registered; register it with rules.WithVerifier`},
	{"key: {claim: §sub}, limits: [1/minute]", "rules[0].key.claim: pass rules.WithClaims"},
	{"key: {forwarded: [10.0.0.0/8, §10.0.0.0/33]}, limits: [1/minute]", `rules[0].key.forwarded[1]: "10.0.0.0/33"`},
	{"key: {join: [ip, §ip]}, limits: [1/minute]", "rules[0].key.join[1]: this key is listed twice"},
	{"key: ip, limits: [§1/fortnight]", `rules[0].limits[0]: "1/fortnight": there is no window`},
	{"key: ip, limits: [§0/minute]", "rules[0].limits[0]: to refuse every request, use deny"},
	{"key: ip, limits: [§100]", `rules[0].limits[0]: this is "100", but must be a string or a mapping`},
	{"key: ip, limits: §1/minute", `rules[0].limits: this is "1/minute", but must be a list`},
	{"limits: [{§key: ip}]", `rules[0].limits[0]: the field "limit" is missing`},
	{
		"rules:\n- name: a\n  descriptors:\n  - key: ip\n" +
			"    limits: [{limit: 1/day, name: x}, {limit: 2/day, name: §x}]\n    §kost: 1\n",
		`rules[0].descriptors[0].limits[1].name: the name "x" is used twice`,
		"rules[0].descriptors[0].kost: this field is unknown",
	},
	{
		"rules:\n- {name: §\"a\\n\", key: ip, limits: [1/minute], §\"x\\u2028y\\r\\n\\tz\": 1, " +
			"match: {values: {\"p\\nq\": §''}}}\n",
		`rules[0].name: "a\n" is not allowed here`,
		`rules[0].x\u2028y\r\n\tz: this field is unknown`,
		`rules[0].match.values.p\nq: the value is empty, but no key has an empty value`,
	},
	{"key: ip, algorithm: §leaky_bucket, limits: [1/minute]", `rules[0].algorithm: "leaky_bucket" is not allowed here`},
	{"key: ip, limits: [{limit: 4 in flight, algorithm: §fixed_window}]",
		`rules[0].limits[0].algorithm: "4 in flight" cannot be a fixed_window`},
	{
		strings.Replace(manyRules(65, "all"), "name: r64", "§name: r64", 1),
		"rules[64]: with this rule, 65 limits may apply",
	},
	{"key: ip, §limits: [1/minute, 60/minute, 5/hour]",
		"rules[0].limits: 1/minute, 60/minute: two limits of one key count the same"},
	{"key: ip, limits: [1/minute], §failure: open", "rules[0].failure: write it at the top of the file"},
	{"key: ip, §limits: [4 in flight], shadow: true",
		"rules[0].limits: 4 in flight: requests in flight cannot be tried out"},
	{"key: ip, limits: [1 images/minute], costs: {images: {value: §''}}",
		"rules[0].costs.images.value: write the name"},
	{"key: ip, limits: [{limit: 1/minute, name: §a b}]", "rules[0].limits[0].name: write 1 to 64 letters"},
	{"key: ip, limits: [1/minute], match: {values: {§'': a}}", `rules[0].match.values: "" is not a field's name`},
	{"key: ip, limits: [1/minute], cost: §0", `rules[0].cost: "0" is not allowed here; write 1 to 1000000000`},
	{"key: ip, limits: [5/day, 4/minute], cost: §5",
		`rules[0].cost: a cost of 5 never fits the limit "4/minute" on line`},
	{"descriptors: [{key: user, limits: [2 images/day]}], costs: {images: §3}",
		`rules[0].costs.images: a cost of 3 never fits the limit "2 images/day" on line`},
	{"key: ip, limits: [1/minute], §unlimited: true", "rules[0].unlimited: this cannot be combined with limits"},
	{"§name: a, key: ip", "rules[0]: there are no limits here"},
	{"descriptors: [{§value: x, limits: [1/minute]}]", `rules[0].descriptors[0]: the field "key" is missing`},
	{`descriptors: [{key: §"", limits: [1/minute]}]`, `rules[0].descriptors[0].key: "" is not allowed here; write ip`},
	{"descriptors: [{key: user, value: x, limits: [1/minute]}, {§key: user, value: x, limits: [2/minute]}]",
		"rules[0].descriptors[1].key: this key and value are used twice; merge this with the descriptor on line 2"},
	{`descriptors: [{key: user, value: §"a*", limits: [1/minute]}]`,
		`rules[0].descriptors[0].value: "a*" is not allowed here; write one value, compared exactly`},
	{
		"descriptors: [{§key: user, §limit: [1/minute]}]",
		"rules[0].descriptors[0]: there are no limits here",
		`rules[0].descriptors[0].limit: this field is unknown; did you mean "limits"?`,
	},
	{"§key: ip, descriptors: [{key: user, limits: [1/minute]}]", "rules[0].key: a rule with descriptors takes no key"},
	{"descriptors: [{key: ip, value: §10.0.0.0/8, limits: [1/minute]}]", "rules[0].descriptors[0].value: write one"},
	{"descriptors: [{key: {forwarded: [10.0.0.1]}, value: §'2001:DB8::1', unlimited: true}]",
		`rules[0].descriptors[0].value: no request has the address in the form "2001:DB8::1"; write 2001:db8`},
	{"match: {methods: [§get]}, key: ip, limits: [1/minute]",
		`rules[0].match.methods[0]: "get" is not allowed here; write a method in upper case`},
	{`match: {host: §"example.com:80"}, key: ip, limits: [1/minute]`,
		`rules[0].match.host: "example.com:80" is not a host`},
	{"match: {headers: {X-Plan: §[]}}, key: ip, limits: [1/minute]", "rules[0].match.headers.X-Plan: this is empty"},
	{"match: {path: §/a/*}, key: ip, limits: [1/minute]", `rules[0].match.path: "/a/*": * is not a segment of a path`},
	{"allow: §[x], limits: [{limit: 1/minute, key: ip}]",
		"rules[0].allow: the rule has no key that these could be values of"},
	{"deny: {key: ip, values: [10.0.0.0/8, §localhost]}, key: ip, limits: [1/minute]",
		`rules[0].deny.values[1]: "localhost": the key finds addresses`},
	{
		"rules:\n- {name: a, key: ip, limits: [1/minute, §x], §kost: 1}\n" +
			"- {name: §A, match: {path: §x}, key: ip, limits: [1/minute]}\n" +
			"- {§name: b, match: {path: /b}, key: ip, §limits: [1/minute, 2/minute]}\n",
		`rules[0].limits[1]: "x": there is no window`,
		"rules[0].kost: this field is unknown",
		`rules[1].name: "A" is not allowed here`,
		`rules[1].match.path: "x": a path`,
		`rules[2]: this rule never applies: rule "a" on line 2 matches`,
		"rules[2].limits: 1/minute, 2/minute: two limits of one key count the same",
	},
}

// A rule that can never apply, since an earlier one matches all of its requests, is a mistake.
func TestRulesThatNeverApply(t *testing.T) {
	for _, test := range []struct {
		earlier, later string
		reached        bool
	}{
		{"", "path: /a", false},
		{"path: /a/", "path: '/a/{id}', methods: [GET]", false},
		{"path: '/a/{id}'", "path: /a/", true},
		{"methods: [GET]", "methods: [HEAD]", false},
		{"methods: [GET]", "methods: [GET, POST]", true},
		{"host: a.example", "host: A.example., path: /a", false},
		{"host: a.example", "path: /a", true},
		{"headers: {x-plan: [a, b]}", "headers: {X-Plan: b}", false},
		{"headers: {x-plan: a}", "headers: {X-Plan: [a, b]}", true},
		{"values: {v: a}", "values: {v: a, w: b}", false},
		{"values: {v: a}", "claims: {v: a}", true},
	} {
		for apply, reached := range map[string]bool{"first": test.reached, "all": true} {
			text := fmt.Sprintf("apply: %s\nrules:\n- {name: a, unlimited: true, match: {%s}}\n"+
				"- {name: b, unlimited: true, match: {%s}}\n", apply, test.earlier, test.later)
			_, err := rules.Parse([]byte(text), "limits.yaml", readOptions...)
			if (err == nil) != reached || err != nil && !strings.Contains(err.Error(), ":4:4: rules[1]: this rule") {
				t.Errorf("%s%v, want it reached: %v", text, err, reached)
			}
		}
	}
}

const minimal = "rules:\n- {name: a, key: ip, limits: [1/minute]}\n"

// mistaken returns a file of mistakes and their places.
func mistaken(text string) (file string, places []string) {
	if !strings.Contains(text, "\n") && strings.Contains(text, ":") {
		if !strings.HasPrefix(text, "§name:") {
			text = "name: a, " + text
		}
		text = "rules:\n- {" + text + "}\n"
	}
	parts := strings.Split(text, "§")
	for i := range parts[1:] {
		before := strings.Join(parts[:i+1], "")
		line := before[strings.LastIndexByte(before, '\n')+1:]
		places = append(places, fmt.Sprintf("limits.yaml:%d:%d: ", strings.Count(before, "\n")+1, len(line)+1))
	}
	return strings.Join(parts, ""), places
}

func TestMistakes(t *testing.T) {
	verify := rules.WithVerifier("keys", core.Unverified)
	other := rules.WithVerifier("other", core.Unverified)
	for _, test := range mistakes {
		text, places := mistaken(test[0])
		set, err := rules.Parse([]byte(text), "limits.yaml", verify, other)
		if set != nil || err == nil {
			t.Errorf("%s: there is no error", text)
			continue
		}
		got := unjoin(err)
		if len(got) != len(places) || len(places) != len(test)-1 {
			t.Errorf("%s: %d mistakes, want %d: %v", text, len(got), len(places), err)
			continue
		}
		for i, want := range test[1:] {
			field, words, found := strings.Cut(want, ": ")
			if !found {
				field, words = "", want
			}
			var e *rules.Error
			if !errors.As(got[i], &e) || e.File != "limits.yaml" || e.Remedy == "" ||
				!strings.HasPrefix(e.Error(), places[i]+field) || !strings.Contains(e.Error(), words) {
				t.Errorf("got  %v\nwant %s%s", got[i], places[i], want)
			}
		}
	}
}

// JSON is read as well, with tabs and with positions.
func TestJSON(t *testing.T) {
	text := "{\n\t\"$schema\": \"x\",\n\t\"rules\": [\n\t\t{\"name\": \"a\", \"key\": \"ip\", \"limits\": " +
		"[\"1\\/minute\"]}\n\t]\n}\n"
	parse(t, text)
	_, err := rules.Parse([]byte(strings.Replace(text, "key", "kez", 1)), "limits.json")
	if e := (*rules.Error)(nil); !errors.As(err, &e) || e.Line != 4 || e.Column != 4 && e.Column != 17 {
		t.Errorf("%v", err)
	}
}

// Mistakes of options are told with those of the file. An option that files have a field for is a mistake that names
// the field.
func TestOptionsOfRules(t *testing.T) {
	wrong := func(remedy string, err error) {
		t.Helper()
		var config *core.ConfigError
		if !errors.As(err, &config) || !strings.Contains(config.Remedy, remedy) {
			t.Errorf("%v, want a mistake whose remedy has %q", err, remedy)
		}
	}
	early := func(remedy string, opt rules.Option) {
		t.Helper()
		_, err := rules.Parse([]byte("rulez: []"), "limits.yaml", opt)
		if wrong(remedy, err); !errors.As(err, new(*rules.Error)) {
			t.Errorf("%v, want the mistake of the file too", err)
		}
	}
	early("", nil)
	early("", rules.WithVerifier("keys", nil))
	early("", rules.WithVerifier("unverified", core.Unverified))
	early("", rules.WithClaims(nil))
	early("", rules.WithOptions(core.WithTimeout(-1))) // a mistake of New's own
	cost := func(context.Context) int { return 1 }
	for field, opt := range map[string]core.Option{
		"domain": core.WithName("x"), "name": core.WithName("x"), "cost": core.WithCost(cost),
		"costs": core.WithCostOf("tokens", cost), "failure": core.WithFailure(core.FailOpen),
		"shadow": core.WithShadow(core.PerMinute(1)), "deny": core.WithBan(1, 1e9, 1e9),
	} {
		early(field, rules.WithOptions(opt))
		_, err := parse(t, minimal).Limiter(opt)
		wrong(field, err)
	}
}

func TestLoadMissingFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.yaml")
	if _, err := rules.Load(path); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("%v", err)
	}
}

func ExampleParse() {
	_, err := rules.Parse([]byte(`
rules:
- name: login
  match: {pth: /login}
  key: user
  limits: [5/minute]
`), "api.yaml")
	fmt.Println(err)
	// Output:
	// api.yaml:4:11: rules[0].match.pth: this field is unknown; did you mean "path"?
	// api.yaml:5:8: rules[0].key: "user" is not allowed here; write ip, global, route, or a key such as {value: user}
}

// alone is a store that cannot decide over several logs.
type alone struct{ core.Store }

func (alone) Validate(limits ...*store.Limit) error { return store.OneLog(limits) }

func TestStoreOfOneLog(t *testing.T) {
	store := rules.WithOptions(core.WithStore(alone{core.NewMemoryStore()}))
	const two = "rules:\n- {name: a, %skey: ip, limits: [5/day]}\n- {name: b, %skey: ip, limits: [6/day]}\n"
	const nested = "rules:\n- name: a\n  descriptors:\n  - {key: user, limits: [5/day]}\n" +
		"  - {key: %s, value: x, limits: [6/day]}\n"
	const shadow = "rules:\n- name: a\n  descriptors:\n" +
		"  - {key: user, limits: [5/day], descriptors: [{key: plan, shadow: %t, limits: [6/day]}]}\n"
	for text, at := range map[string]string{
		fmt.Sprintf(two, "match: {path: /a}, ", ""):                                     "",
		"apply: all\n" + fmt.Sprintf(two, "match: {path: /a}, ", "match: {path: /b}, "): "limits.yaml:4:4: rules[1]: ",
		"apply: all\n" + fmt.Sprintf(two, "", ""):                                       "limits.yaml:4:4: rules[1]: ",
		fmt.Sprintf(nested, "user"):                                                     "",
		fmt.Sprintf(nested, "plan"):                                                     "limits.yaml:2:3: rules[0]: ",
		fmt.Sprintf(shadow, false):                                                      "",
		fmt.Sprintf(shadow, true):                                                       "",
		"rules:\n- {name: a, key: ip, limits: [5/day, {limit: 6/day, key: global}]}\n": "limits.yaml:2:22: " +
			"rules[0].limits: ",
	} {
		_, err := rules.Parse([]byte(text), "limits.yaml", store)
		switch {
		case at == "" && err != nil, at != "" && (err == nil || !strings.HasPrefix(err.Error(), at)):
			t.Errorf("%s\n%v, want %q", text, err, at)
		case err != nil && !strings.Contains(err.Error(), "one log at a time"):
			t.Errorf("%v does not tell what the store cannot do", err)
		}
	}
	limit(t, fmt.Sprintf(shadow, true), store).follow("5/6 user=ann plan=a")
}

// A path that is written as for another router would match nothing, and its rule limit nothing.
func TestPathsOfOtherRouters(t *testing.T) {
	const text = "rules:\n- {name: a, key: ip, limits: [1/day], match: {path: %q}}\n"
	for _, path := range []string{
		"/users/:id", "/users/:id/posts", "/users/:id<int>", "/users/:id?", "/:id-:to", "/from-:id", "/files/x.:id",
		"/users/<id>", "/users/<int:id>", "/users/(?P<id>[0-9]+)", "/users/(?P<id>[^/]+)", "/users/{id:[0-9]+}",
		"/users/{id:[a-z]{2}}", "/users/{id?}", "/users/x{id}", "/{id}.json", "/*/x", "/users/(.*)/x",
		"/users/[0-9]+", "/users/[id]", "/users/\\d+", "/(a|b)", "/login$", "/users/a^b", "/users/{}", "/files/*rest",
		"/{*rest}", "/files/*", "/files/**", "/files/*.json", "/files/+", "/users/(.+)", "/users/{id...}/x",
		"/{$}/x", "/login?next=x", "/login#x", "/{id}/{id}", "/a%zz", "/a%2Fb", "//a", "/a/./b",
		"/%2e%2e/a", "/a/%2E",
	} {
		_, err := rules.Parse(fmt.Appendf(nil, text, path), "limits.yaml")
		if e := (*rules.Error)(nil); !errors.As(err, &e) || e.Field != "rules[0].match.path" || e.Problem == "" {
			t.Errorf("%s: %v, want a mistake", path, err)
		}
	}
	for _, path := range []string{
		"/", "/users/{id}", "/users/{id...}", "/users/{$}", "/v1/docs:batch", "/%3Aid", "/a%2Ab", "/%7Bid%7D",
		"/$metadata", "/c++", "/+491", "/~me", "/@me", "/a,b;c=d", "/.well-known/x", "/a(7)", "/a!$&'()+,;=@b",
		"/a b", "/users/ä",
	} {
		parse(t, fmt.Sprintf(text, path))
	}
}

// A fixed cost is refused if no request could pass, and only then.
func TestFixedCosts(t *testing.T) {
	const text = `rules: [{name: a, key: ip, limits: [%s], %s}]`
	for limits, most := range map[string]int{
		"5/day": 5, "9/minute, 5/day": 5, "5/month": 5, "10/second burst 50": 50, "10/second burst 5": 5,
		"{limit: 5/day, algorithm: token_bucket}": 5, "{limit: 5/day, algorithm: sliding_window_counter}": 5,
		"4 in flight, 100/day": 100,
	} {
		fits, over := fmt.Sprint("cost: ", most), fmt.Sprint("cost: ", most+1)
		limit(t, fmt.Sprintf(text, limits, fits)).want("GET /", "", 1, 1)
		if _, err := rules.Parse(fmt.Appendf(nil, text, limits, over), "limits.yaml"); err == nil {
			t.Errorf("%s, %s: no error", limits, over)
		}
	}
	const units = "100/day, 5 images/day"
	limit(t, fmt.Sprintf(text, units, "cost: 100, costs: {images: 5}")).want("GET /", "", 1, 1)
}
