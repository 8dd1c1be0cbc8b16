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

// mistakes are files, and where and what their mistakes are: "line:column field: words that are in the text".
var mistakes = map[string]struct {
	text string
	want []string
}{
	"empty":           {"", []string{"1:1 : the file is empty"}},
	"only a comment":  {"# nothing\n", []string{"1:1 : the file is empty"}},
	"no rules":        {"domain: a\n", []string{"1:1 : the field \"rules\" is missing"}},
	"no rule":         {"rules: []\n", []string{"1:8 rules: this is empty; write at least one item"}},
	"a list":          {"- name: a\n", []string{"1:1 : this is a list, but must be a mapping"}},
	"bad YAML":        {"rules:\n- name: a\n  key: [ip\n", []string{"4:1 : did not find expected"}},
	"bad indentation": {"rules:\n- name: a\n   key: ip\n", []string{"3:7 : mapping values are not allowed"}},
	"tab":             {"rules:\n\t- name: a\n", []string{"2:1 : found character that cannot start any token"}},
	"not UTF-8":       {"rules:\n- name: \"\xff\"\n", []string{"2:10 : this is not UTF-8"}},
	"two documents":   {minimal + "---\nrules: []\n", []string{"4:1 : this is a second document"}},
	"unknown anchor":  {"rules: *a\n", []string{"1:8 : unknown anchor"}},
	"too many limits of a descriptor and one below in shadow": {
		"rules:\n- name: a\n  descriptors:\n  - key: user\n    limits: [1/day, 2/day, 3/day, 4/day, 5/day]\n" +
			"    descriptors:\n    - {key: plan, shadow: true, limits: [1/hour, 2/hour, 3/hour, 4/hour]}\n",
		[]string{"2:3 rules[0]: 9 limits of this rule may apply to one request"},
	},
	"units": {
		"rules:\n- name: a\n  match: {path: /a}\n  key: ip\n  limits: [100 tokens/minute, 5/minute]\n" +
			"- name: b\n  match: {path: /b}\n  key: ip\n  limits: [{limit: 100/minute, unit: Tokens}, " +
			"{limit: 2 in flight, unit: tokens}, " +
			"{limit: 1 a/minute, unit: b}]\n" +
			"- name: c\n  match: {path: /c}\n  key: ip\n  limits: [1 images/minute]\n" +
			"  costs: {requests: 1, tokens: 2, images: -1}\n" +
			"- name: d\n  match: {path: /d}\n  key: ip\n  limits: [1 images/minute]\n  costs: {images: {header: x}}\n",
		[]string{
			`5:12 rules[0].limits[0]: "100 tokens/minute" counts tokens, and the rule does not say what a request ` +
				`costs; add costs: {tokens: {value: NAME}}, or a number`,
			`9:38 rules[1].limits[0].unit: "Tokens" is not a unit; use 1 to 32 lower-case letters`,
			`9:74 rules[1].limits[1].unit: a limit of requests in flight counts requests; remove the unit`,
			`9:109 rules[1].limits[2].unit: "1 a/minute" counts a already; remove one of the units`,
			`14:11 rules[2].costs.requests: requests have a cost of their own; write cost: in place of it`,
			`14:24 rules[2].costs.tokens: no limit of the rule counts tokens; remove it, or add a limit such as`,
			`14:43 rules[2].costs.images: -1 is out of range; write a whole number from 0 to 10000000`,
			`19:20 rules[3].costs.images.header: this field is unknown; fields are value`,
			`19:20 rules[3].costs.images: the field "value" is missing`,
		},
	},
	"a unit without costs in a rule without a name": {
		"rules:\n- {key: ip, limits: [100 tokens/minute]}\n",
		[]string{
			`2:4 rules[0]: the field "name" is missing`,
			`2:22 rules[0].limits[0]: "100 tokens/minute" counts tokens, and the rule does not say what a request`,
		},
	},
	"denials that cannot be counted": {
		"rules:\n- {name: a, key: ip, limits: [100/minute burst 5], count_denied: true}\n",
		[]string{
			"2:66 rules[0].count_denied: only limits of the algorithm sliding_window_log can count denials; remove it",
		},
	},
	"merge key": {
		"rules:\n- &a {name: a, key: ip, limits: [1/minute], match: {path: /a}}\n- {<<: *a, name: b}\n",
		[]string{`3:4 rules[1]: "<<" is not a field's name; write the fields out`},
	},
	"default name that is too long": {
		"rules:\n- name: a-rule-with-a-long-name\n  descriptors:\n  - {key: user, limits: [1000000/month]}\n" +
			"  - {key: another-long-name, limits: [1/day, 1000000/month in America/Argentina/ComodRivadavia]}\n",
		[]string{`5:46 rules[0].descriptors[1].limits[1]: the default name of the limit "1000000/month in America/`},
	},
	"host of nothing": {
		"rules:\n- {name: a, key: ip, limits: [1/minute], match: {host: .}}\n- {name: b, key: ip, limits: " +
			"[1/minute], match: {host: '[]'}}\n",
		[]string{`2:56 rules[0].match.host: "." is not a host`, `3:56 rules[1].match.host: "[]" is not a host`},
	},
	"header twice": {
		"rules:\n- {name: a, key: ip, limits: [1/minute], match: {headers: {X-Plan: a, x-plan: b}}}\n",
		[]string{`2:71 rules[0].match.headers.x-plan: this header is listed twice; write one list with its values`},
	},
	"empty value of middleware": {
		"rules:\n- {name: a, key: ip, limits: [1/minute], match: {values: {plan: ''}}}\n",
		[]string{"2:65 rules[0].match.values.plan: the value is empty, but no key has an empty value; write a value"},
	},
	"empty value among others": {
		"rules:\n- {name: a, key: ip, limits: [1/minute], match: {values: {plan: [a, '']}}}\n",
		[]string{
			"2:69 rules[0].match.values.plan[1]: the value is empty, but no key has an empty value; write a value",
		},
	},
	"alias of the list that it is in": {
		"rules:\n- name: a\n  key: &a {first: [ip, *a]}\n  limits: [1/minute]\n",
		[]string{"3:20 : the file is too large or too deep; write fewer rules, without aliases in aliases"},
	},

	"unknown field": {
		"rules:\n- {name: a, key: ip, limits: [1/minute], kost: 2}\n",
		[]string{`2:42 rules[0].kost: this field is unknown; did you mean "cost"?`},
	},
	"field far from any": {
		"rules:\n- {name: a, key: ip, limits: [1/minute], requests_per_unit: 2}\n",
		[]string{"2:42 rules[0].requests_per_unit: this field is unknown; fields are name, match, key"},
	},
	"unknown field at the top": {
		minimal + "appyl: all\n", []string{`3:1 appyl: this field is unknown; did you mean "apply"?`},
	},
	"domain twice": {
		"domain: a\ndomain: b\n" + minimal, []string{"2:1 domain: this field is duplicated; merge it with the " +
			"one on line 1"},
	},
	"field twice": {
		"rules:\n- {name: a, key: ip, limits: [1/minute], key: global}\n",
		[]string{"2:42 rules[0].key: this field is duplicated; merge it with the one on line 2"},
	},
	"name is no text": {
		"rules:\n- {name: a, key: ip, limits: [1/minute], 0.25: 1}\n",
		[]string{`2:42 rules[0]: "0.25" is not a field's name`},
	},
	"field without a value": {
		"rules:\n- name: a\n  key:\n  limits: [1/minute]\n",
		[]string{"3:7 rules[0].key: this is empty, but must be a string or a mapping of fields"},
	},
	"no name": {
		"rules:\n- {key: ip, limits: [1/minute]}\n", []string{`2:4 rules[0]: the field "name" is missing`},
	},
	"bad name": {
		"rules:\n- {name: Log in, key: ip, limits: [1/minute]}\n",
		[]string{`2:10 rules[0].name: "Log in" is not a name; use 1 to 48 lower-case letters`},
	},
	"name is a number": {
		"rules:\n- {name: 7, key: ip, limits: [1/minute]}\n",
		[]string{`2:10 rules[0].name: this is "7" without quotes, but must be a string`},
	},
	"name twice": {
		"apply: all\nrules:\n- {name: a, key: ip, limits: [1/minute]}\n- {name: a, key: global, limits: [1/minute]}\n",
		[]string{`4:10 rules[1].name: the name "a" is used twice; choose another name: line 3 has it too`},
	},
	"long names together": {
		"domain: " + strings.Repeat("d", 30) + "\nrules:\n- {name: " + strings.Repeat("a", 20) +
			", key: ip, limits: [1/minute]}\n",
		[]string{"3:10 rules[0].name: domain and name together are longer than 47"},
	},
	"bad domain": {"domain: \"\"\n" + minimal, []string{`1:9 domain: "" is not a name`}},
	"bad apply": {
		"apply: frist\n" + minimal, []string{`1:8 apply: "frist" is not allowed here; did you mean "first"?`},
	},

	"no key": {
		"rules:\n- {name: a, limits: [1/minute]}\n", []string{`2:4 rules[0]: the limit "1/minute" has no key`},
	},
	"unknown key": {
		"rules:\n- {name: a, key: pi, limits: [1/minute]}\n", []string{`2:18 rules[0].key: "pi" is not allowed here; ` +
			`did you mean "ip"?`},
	},
	"a value as key": {
		"rules:\n- {name: a, key: user, limits: [1/minute]}\n",
		[]string{`2:18 rules[0].key: "user" is not allowed here; choose ip, global, route, ` +
			`or a key such as {value: user}`},
	},
	"two keys in one": {
		"rules:\n- {name: a, key: {claim: sub, value: user}, limits: [1/minute]}\n",
		[]string{"2:31 rules[0].key.value: these are two keys: claim and value"},
	},
	"a key of nothing": {
		"rules:\n- {name: a, key: {verify: keys}, limits: [1/minute]}\n",
		[]string{"2:19 rules[0].key: this key is empty"},
	},
	"nobody verifies": {
		"rules:\n- {name: a, key: {header: X-API-Key}, limits: [1/minute]}\n",
		[]string{"2:19 rules[0].key.header: the header is not verified"},
	},
	"verifier not registered": {
		"rules:\n- {name: a, key: {header: X-API-Key, verify: kyes}, limits: [1/minute]}\n",
		[]string{`2:46 rules[0].key.verify: the verifier "kyes" is not registered; register it with ` +
			`rules.WithVerifier; registered are keys, other`},
	},
	"a claim that nobody reads": {
		"rules:\n- {name: a, key: {claim: sub}, limits: [1/minute]}\n",
		[]string{"2:26 rules[0].key.claim: the program reads no claims; pass rules.WithClaims"},
	},
	"untrustworthy networks": {
		"rules:\n- {name: a, key: {forwarded: [10.0.0.0/8, 10.0.0.0/33]}, limits: [1/minute]}\n",
		[]string{`2:43 rules[0].key.forwarded[1]: "10.0.0.0/33"`},
	},
	"the same key twice": {
		"rules:\n- {name: a, key: {join: [ip, ip]}, limits: [1/minute]}\n",
		[]string{"2:30 rules[0].key.join[1]: this key is listed twice"},
	},

	"bad unit": {
		"rules:\n- {name: a, key: ip, limits: [1/fortnight]}\n", []string{`2:31 rules[0].limits[0]: "1/fortnight" ` +
			`is not a limit`},
	},
	"quota 0": {
		"rules:\n- {name: a, key: ip, limits: [0/minute]}\n",
		[]string{`2:31 rules[0].limits[0]: "0/minute" is not a limit; to refuse every request, use deny`},
	},
	"limit is a number": {
		"rules:\n- {name: a, key: ip, limits: [100]}\n",
		[]string{"2:31 rules[0].limits[0]: this is \"100\", but must be a string or a mapping of fields"},
	},
	"limits are no list": {
		"rules:\n- {name: a, key: ip, limits: 1/minute}\n", []string{`2:30 rules[0].limits: this is "1/minute", but ` +
			`must be a list`},
	},
	"limits are a mapping": {
		"rules:\n- name: a\n  key: ip\n  limits:\n    unit: minute\n", []string{"5:5 rules[0].limits: this is a " +
			"mapping, but must be a list"},
	},
	"limit without a limit": {
		"rules:\n- {name: a, limits: [{key: ip}]}\n", []string{`2:23 rules[0].limits[0]: the field "limit" is missing`},
	},
	"two limits of one name": {
		"rules:\n- {name: a, key: ip, limits: [1/minute, {limit: 1/minute, key: global}]}\n",
		[]string{`2:42 rules[0].limits[1]: the name "a-1-per-minute" is used twice; drop one of the limits, or`},
	},
	"two limits of one name, and another mistake": {
		"rules:\n- name: a\n  descriptors:\n  - key: ip\n    limits: [{limit: 1/day, name: x}, " +
			"{limit: 2/day, name: x}, 1/day in UTC, 1/day, {limit: 3/day, name: a-1-per-day}]\n    kost: 1\n",
		[]string{
			`5:60 rules[0].descriptors[0].limits[1].name: the name "x" is used twice`,
			`5:78 rules[0].descriptors[0].limits[3]: the name "a-1-per-day" is used twice`,
			`5:106 rules[0].descriptors[0].limits[4].name: the name "a-1-per-day" is used twice`,
			"6:5 rules[0].descriptors[0].kost: this field is unknown",
		},
	},
	"line breaks": {
		"rules:\n- {name: \"a\\n\", key: ip, limits: [1/minute], \"x\\u2028y\\r\\n\\tz\": 1, match: {values: " +
			"{\"p\\nq\": ''}}}\n",
		[]string{
			`2:10 rules[0].name: "a\n" is not a name`,
			`2:46 rules[0].x\u2028y\r\n\tz: this field is unknown`,
			`2:93 rules[0].match.values.p\nq: the value is empty, but no key has an empty value`,
		},
	},
	"bad algorithm": {
		"rules:\n- {name: a, key: ip, algorithm: leaky_bucket, limits: [1/minute]}\n",
		[]string{`2:33 rules[0].algorithm: "leaky_bucket" is not allowed here; choose sliding_window_log, ` +
			`sliding_window_counter, fixed_window, token_bucket`},
	},
	"algorithm of requests in flight": {
		"rules:\n- {name: a, key: ip, limits: [{limit: 4 in flight, algorithm: fixed_window}]}\n",
		[]string{`2:63 rules[0].limits[0].algorithm: "4 in flight" cannot be a fixed_window`},
	},
	"too many limits": {
		"rules:\n- {name: a, key: ip, limits: [1/s, 2/s, 3/s, 4/s, 5/s, 6/s, 7/s, 8/s, 9/s]}\n",
		[]string{"2:4 rules[0]: 9 limits of this rule may apply to one request"},
	},
	"too many limits together": {
		manyRules(65, "all"),
		[]string{"259:3 rules[64]: with this one, the rules have 65 limits that may apply to one request"},
	},
	"two limits of one window": {
		"rules:\n- {name: a, key: ip, limits: [1/minute, 60/minute, 5/hour]}\n",
		[]string{"2:22 rules[0].limits: 1/minute, 60/minute: two limits of one key count the same"},
	},
	"failure of a rule": {
		"rules:\n- {name: a, key: ip, limits: [1/minute], failure: open}\n",
		[]string{"2:42 rules[0].failure: this field is unknown; write it at the top of the file"},
	},
	"requests in flight in shadow": {
		"rules:\n- {name: a, key: ip, limits: [4 in flight], shadow: true}\n",
		[]string{"2:22 rules[0].limits: 4 in flight: requests in flight cannot be tried out"},
	},
	"cost 0": {
		"rules:\n- {name: a, key: ip, limits: [1/minute], cost: 0}\n", []string{"2:48 rules[0].cost: 0 is out of " +
			"range"},
	},

	"limits and unlimited": {
		"rules:\n- {name: a, key: ip, limits: [1/minute], unlimited: true}\n",
		[]string{"2:42 rules[0].unlimited: this cannot be combined with limits"},
	},
	"nothing is allowed": {
		"rules:\n- {name: a, key: ip}\n", []string{"2:4 rules[0]: this rule has no limits"},
	},
	"unlimited with a unit": {
		"rules:\n- name: a\n  descriptors:\n  - {key: user, unlimited: true, limits: [1/minute]}\n",
		[]string{"4:34 rules[0].descriptors[0].limits: this cannot be combined with unlimited"},
	},
	"descriptor without a key": {
		"rules:\n- name: a\n  descriptors:\n  - {value: x, limits: [1/minute]}\n",
		[]string{`4:6 rules[0].descriptors[0]: the field "key" is missing`},
	},
	"descriptor with an empty key": {
		"rules:\n- name: a\n  descriptors:\n  - {key: \"\", limits: [1/minute]}\n",
		[]string{"4:11 rules[0].descriptors[0].key: the key is empty"},
	},
	"descriptor twice": {
		"rules:\n- name: a\n  descriptors:\n  - {key: user, value: x, limits: [1/minute]}\n" +
			"  - {key: user, value: x, limits: [2/minute]}\n",
		[]string{"5:6 rules[0].descriptors[1].key: this key and value are used twice; merge this with the " +
			"descriptor on line 4"},
	},
	"wildcard": {
		"rules:\n- name: a\n  descriptors:\n  - {key: user, value: \"a*\", limits: [1/minute]}\n",
		[]string{`4:24 rules[0].descriptors[0].value: "a*" has a wildcard`},
	},
	"misspelled descriptor": {
		"rules:\n- name: a\n  descriptors:\n  - {key: user, limit: [1/minute]}\n",
		[]string{
			"4:6 rules[0].descriptors[0]: this descriptor has no limits",
			`4:17 rules[0].descriptors[0].limit: this field is unknown; did you mean "limits"?`,
		},
	},
	"key beside descriptors": {
		"rules:\n- {name: a, key: ip, descriptors: [{key: user, limits: [1/minute]}]}\n",
		[]string{"2:13 rules[0].key: a rule with descriptors takes no key"},
	},

	"a network as a value": {
		"rules:\n- {name: a, descriptors: [{key: ip, value: 10.0.0.0/8, limits: [1/minute]}]}\n",
		[]string{`2:44 rules[0].descriptors[0].value: "10.0.0.0/8" is not an address, which the key finds; write one`},
	},
	"an address in another form": {
		"rules:\n- {name: a, descriptors: [{key: {forwarded: [10.0.0.1]}, value: '2001:DB8::1', unlimited: true}]}\n",
		[]string{
			`2:65 rules[0].descriptors[0].value: no request has the address in the form "2001:DB8::1"; write 2001:db8`,
		},
	},
	"all methods": {
		"rules:\n- {name: a, match: {methods: ['*']}, key: ip, limits: [1/minute]}\n",
		[]string{`2:31 rules[0].match.methods[0]: "*" is not a method; leave the field out`},
	},
	"bad method": {
		"rules:\n- {name: a, match: {methods: [get]}, key: ip, limits: [1/minute]}\n",
		[]string{`2:31 rules[0].match.methods[0]: no request has the method "get"; write GET`},
	},
	"host with a port": {
		"rules:\n- {name: a, match: {host: \"example.com:80\"}, key: ip, limits: [1/minute]}\n",
		[]string{`2:27 rules[0].match.host: "example.com:80" is not a host`},
	},
	"no alternatives": {
		"rules:\n- {name: a, match: {headers: {X-Plan: []}}, key: ip, limits: [1/minute]}\n",
		[]string{"2:39 rules[0].match.headers.X-Plan: this is empty"},
	},
	"path without a slash": {
		"rules:\n- {name: a, match: {path: users}, key: ip, limits: [1/minute]}\n",
		[]string{`2:27 rules[0].match.path: "users": a path must begin with a slash`},
	},
	"path with a method": {
		"rules:\n- {name: a, match: {path: GET /users}, key: ip, limits: [1/minute]}\n",
		[]string{`2:27 rules[0].match.path: "GET /users": a path must begin with a slash`},
	},
	"path that is not clean": {
		"rules:\n- {name: a, match: {path: /a/../b}, key: ip, limits: [1/minute]}\n",
		[]string{`2:27 rules[0].match.path: "/a/../b": no request has such a path`},
	},
	"star in a path": {
		"rules:\n- {name: a, match: {path: /a/*}, key: ip, limits: [1/minute]}\n",
		[]string{`2:27 rules[0].match.path: "/a/*": * is not a wildcard`},
	},
	"unreachable": {
		"rules:\n- {name: a, match: {path: /a/}, key: ip, limits: [1/minute]}\n" +
			"- {name: b, match: {path: \"/a/{id}\", methods: [GET]}, key: ip, limits: [1/minute]}\n",
		[]string{`3:4 rules[1]: this rule never applies: rule "a" on line 2 matches all`},
	},

	"allow without a key": {
		"rules:\n- {name: a, allow: [x], limits: [{limit: 1/minute, key: ip}]}\n",
		[]string{"2:20 rules[0].allow: the rule has no key that these could be values of"},
	},
	"deny what is no address": {
		"rules:\n- {name: a, deny: {key: ip, values: [10.0.0.0/8, localhost]}, key: ip, limits: [1/minute]}\n",
		[]string{`2:50 rules[0].deny.values[1]: "localhost": the key finds addresses`},
	},
	"all at once": {
		"rules:\n- {name: a, key: ip, limits: [1/minute, x], kost: 1}\n- {name: A, match: {path: x}, key: ip, " +
			"limits: [1/minute]}\n",
		[]string{
			`2:41 rules[0].limits[1]: "x" is not a limit`,
			"2:45 rules[0].kost: this field is unknown",
			`3:10 rules[1].name: "A" is not a name`,
			`3:27 rules[1].match.path: "x": a path`,
		},
	},
}

const minimal = "rules:\n- {name: a, key: ip, limits: [1/minute]}\n"

func TestMistakes(t *testing.T) {
	verify := rules.WithVerifier("keys", core.Unverified)
	other := rules.WithVerifier("other", core.Unverified)
	for name, test := range mistakes {
		t.Run(name, func(t *testing.T) {
			set, err := rules.Parse([]byte(test.text), "limits.yaml", verify, other)
			if set != nil || err == nil {
				t.Fatal("there is no error")
			}
			joined, _ := err.(interface{ Unwrap() []error }) // that of errors.Join
			var got []string
			for _, one := range joined.Unwrap() {
				var e *rules.Error
				for _, e := range one.(interface{ Unwrap() []error }).Unwrap() {
					got = append(got, e.Error())
				}
				if !errors.As(one, &e) || e.File != "limits.yaml" || e.Remedy == "" {
					t.Errorf("%#v", one)
				}
			}
			if len(got) != len(test.want) {
				t.Errorf("%d mistakes, want %d:\n%s", len(got), len(test.want), strings.Join(got, "\n"))
				return
			}
			for i, want := range test.want {
				at, text, _ := strings.Cut(want, " ")
				text = strings.TrimPrefix(text, ": ")
				if !strings.HasPrefix(got[i], "limits.yaml:"+at+": "+text) {
					t.Errorf("got  %s\nwant %s", got[i], want)
				}
			}
		})
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

func TestOptionsOfRules(t *testing.T) {
	for name, opt := range map[string]rules.Option{
		"nil":                    nil,
		"WithVerifier":           rules.WithVerifier("keys", nil),
		"unverified":             rules.WithVerifier("unverified", core.Unverified),
		"WithClaims":             rules.WithClaims(nil),
		"WithName":               rules.WithOptions(core.WithName("x")),
		"WithShadow":             rules.WithOptions(core.WithShadow(core.PerMinute(1))),
		"WithFailure":            rules.WithOptions(core.WithFailure(core.FailOpen)),
		"WithBan":                rules.WithOptions(core.WithBan(1, 1e9, 1e9)),
		"WithCost":               rules.WithOptions(core.WithCost(func(context.Context) int { return 1 })),
		"a mistake of New's own": rules.WithOptions(core.WithTimeout(-1)),
	} {
		_, err := rules.Parse([]byte("rulez: []"), "limits.yaml", opt)
		var config *core.ConfigError
		var e *rules.Error
		if !errors.As(err, &config) || !errors.As(err, &e) {
			t.Errorf("%s: %v; want this mistake and that of the file", name, err)
		}
	}
}

// The error about an option that a file has a field for names that field.
func TestOptionsThatFilesHave(t *testing.T) {
	cost := func(context.Context) int { return 1 }
	for field, opt := range map[string]core.Option{
		"domain": core.WithName("x"), "name": core.WithName("x"), "cost": core.WithCost(cost),
		"costs": core.WithCostOf("tokens", cost), "failure": core.WithFailure(core.FailOpen),
		"shadow": core.WithShadow(core.PerMinute(1)), "deny": core.WithBan(1, 1e9, 1e9),
	} {
		text := "rules:\n- {name: a, key: ip, limits: [1/minute]}\n"
		_, early := rules.Parse([]byte(text), "limits.yaml", rules.WithOptions(opt))
		_, late := parse(t, text).Limiter(opt)
		for _, err := range []error{early, late} {
			var config *core.ConfigError
			if !errors.As(err, &config) || !strings.Contains(config.Remedy, field) {
				t.Errorf("%v, want a remedy with %s", err, field)
			}
		}
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
  key: ip
  limits: [5/minuet]
`), "api.yaml")
	fmt.Println(err)
	// Output:
	// api.yaml:4:11: rules[0].match.pth: this field is unknown; did you mean "path"?
	// api.yaml:6:12: rules[0].limits[0]: "5/minuet" is not a limit: there is no window "minuet"; did you mean "minute"?
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
		fmt.Sprintf(shadow, true):                                                       "limits.yaml:2:3: rules[0]: ",
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
}

// A path that is written as for another router would match nothing, and its rule limit nothing.
func TestPathsOfOtherRouters(t *testing.T) {
	const text = "rules:\n- {name: a, key: ip, limits: [1/day], match: {path: %q}}\n"
	for remedy, paths := range map[string][]string{
		"{id}": {
			"/users/:id", "/users/:id/posts", "/users/:id<int>", "/users/:id?", "/:id-:to", "/from-:id", "/files/x.:id",
			"/users/<id>", "/users/<int:id>", "/users/(?P<id>[0-9]+)", "/users/(?P<id>[^/]+)", "/users/{id:[0-9]+}",
			"/users/{id:[a-z]{2}}", "/users/{id?}", "/users/x{id}", "/{id}.json",
		},
		"{name}": {
			"/*/x", "/users/(.*)/x", "/users/[0-9]+", "/users/[id]", "/users/\\d+", "/(a|b)", "/login$", "/users/a^b",
			"/users/{}",
		},
		"{rest...}":           {"/files/*rest", "/{*rest}"},
		"{name...}":           {"/files/*", "/files/**", "/files/*.json", "/files/+", "/users/(.+)"},
		"put it at the end":   {"/users/{id...}/x"},
		"remove what follows": {"/login?next=x", "/login#x"},
		"another name":        {"/{id}/{id}"},
	} {
		for _, path := range paths {
			_, err := rules.Parse(fmt.Appendf(nil, text, path), "limits.yaml")
			if e := (*rules.Error)(nil); !errors.As(err, &e) || e.Field != "rules[0].match.path" ||
				!strings.Contains(e.Remedy, remedy) {
				t.Errorf("%s: %v, want the remedy %s", path, err, remedy)
			}
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
