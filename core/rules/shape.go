package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/sashlimit/sash/core"
)

// shape is what a place of the file may have. The JSON schema is made of it too.
type shape struct {
	kind   kind
	doc    string
	fields []namedShape // of an object
	of     *shape       // the items of a list, the values of a table
	words  []string     // that a text may be, or nil for any
	least  int          // of a number
	most   int          // of a number
	either []*shape     // of which one must fit
	name   string       // of a shape that others refer to, in the schema
}

type namedShape struct {
	name     string
	required bool
	shape    *shape
}

type kind uint8

const (
	object kind = iota
	list
	table  // an object whose fields are unknown
	text   // a string
	scalar // a string, a number or a boolean, taken as it is written
	number
	boolean
	either
)

var kindNames = [...]string{
	object: "a mapping of fields", list: "a list", table: "a mapping", text: "a string",
	scalar: "a string", number: "a whole number", boolean: "true or false", either: "a value",
}

func textOf(doc string, words ...string) *shape { return &shape{kind: text, doc: doc, words: words} }
func listOf(doc string, of *shape) *shape       { return &shape{kind: list, doc: doc, of: of} }

func conditions(doc string) *shape {
	value := &shape{kind: scalar, doc: "compared exactly"}
	return &shape{kind: table, doc: doc, of: &shape{
		kind: either, doc: "a value, or alternatives", either: []*shape{value, listOf("alternatives", value)},
	}}
}

var (
	algorithmShape = textOf("how units are counted; the default is sliding_window_log", algorithmNames...)
	limitsShape    = listOf("all of them hold, and are decided together", limitShape)
	shadowShape    = &shape{kind: boolean, doc: "true: observed, but never denies, and writes no header fields"}
	unlimitedShape = &shape{kind: boolean, doc: "true: requests pass uncounted"}
)

var keyShape = &shape{kind: either, name: "key", doc: "whose quota it is"}

var limitShape = &shape{kind: either, name: "limit", doc: "how much is allowed", either: []*shape{
	textOf(`such as "100/minute", "10/second burst 50", "1000000/month in Europe/Berlin" or "4 in flight"`),
	{kind: object, doc: "a limit with settings of its own", fields: []namedShape{
		{"limit", true, textOf(`such as "100/minute"`)},
		{"key", false, keyShape},
		{"algorithm", false, algorithmShape},
		{"name", false, textOf("what clients see in the header fields; the default is RULE-LIMIT")},
	}},
}}

var descriptorShape = &shape{kind: object, name: "descriptor", doc: "limits for a value of a key, or for each value"}

var fileShape = &shape{kind: object, doc: "Rules that limit requests.", fields: []namedShape{
	{"$schema", false, textOf("ignored")},
	{"domain", false, textOf("begins the names of the logs; the default is \"default\"")},
	{"apply", false, textOf("first (default): the first rule that matches; all: every one, in one decision",
		"first", "all")},
	{"rules", true, listOf("in the order in which they are tried", ruleShape)},
}}

var ruleShape = &shape{kind: object, name: "rule", doc: "limits for the requests that match", fields: []namedShape{
	{"name", true, textOf("unique: 1 to 48 of [a-z0-9._-]")},
	{"match", false, matchShape},
	{"key", false, keyShape},
	{"limits", false, limitsShape},
	{"descriptors", false, listOf("limits for values of keys", descriptorShape)},
	{"unlimited", false, unlimitedShape},
	{"algorithm", false, algorithmShape},
	{"cost", false, &shape{kind: number, least: 1, most: core.MaxQuota,
		doc: "units of a request; of several rules the largest; default 1"}},
	{"failure", false, textOf("while the store does not answer: enforce in this process (local, the default), admit "+
		"(open) or refuse (closed); of several rules the strictest", "local", "open", "closed")},
	{"shadow", false, shadowShape},
	{"allow", false, listShape("clients that pass uncounted")},
	{"deny", false, listShape("clients that are refused (403)")},
	{"message", false, textOf("detail of the problem document of a denial")},
}}

var matchShape = &shape{kind: object, doc: "conditions that must all hold; without any, every request matches",
	fields: []namedShape{
		{"methods", false, listOf("such as GET, which includes HEAD", textOf(""))},
		{"host", false, textOf("without a port")},
		{"path", false, textOf("a pattern of net/http: /users/{id}, /static/, /{$}")},
		{"headers", false, conditions("header fields")},
		{"claims", false, conditions("claims of a verified token")},
		{"values", false, conditions("values of earlier middleware")},
	}}

func listShape(doc string) *shape {
	values := listOf("identities, or addresses and networks", &shape{kind: scalar})
	return &shape{kind: either, doc: doc, either: []*shape{values, {kind: object, fields: []namedShape{
		{"key", true, keyShape},
		{"values", true, values},
	}}}}
}

func init() { //nolint:gochecknoinits // shapes that refer to themselves
	keys := listOf("", keyShape)
	keyShape.either = []*shape{
		textOf("the peer's address, one quota for all, or the request's method and the rule's path", keyWords...),
		{kind: object, doc: "one of these", fields: []namedShape{
			{"forwarded", false, listOf("X-Forwarded-For behind these trusted networks", textOf(""))},
			{"header", false, textOf("a header's name; verify names what checks its value")},
			{"verify", false, textOf("a verifier that the program has registered, or unverified")},
			{"claim", false, textOf("a claim of a verified token")},
			{"value", false, textOf("a value of earlier middleware")},
			{"join", false, keys},
			{"first", false, keys},
		}},
	}
	descriptorShape.fields = []namedShape{
		{"key", true, &shape{kind: either, doc: "a key; another word is a value of earlier middleware",
			either: []*shape{textOf(""), keyShape.either[1]}}},
		{"value", false, &shape{kind: scalar, doc: "without it, each value has a quota of its own"}},
		{"limits", false, limitsShape},
		{"unlimited", false, unlimitedShape},
		{"descriptors", false, listOf("for requests that have further keys", descriptorShape)},
		{"algorithm", false, algorithmShape},
		{"shadow", false, shadowShape},
	}
}

// maxNodes bounds the work for a file whose aliases refer to each other.
const maxNodes = 1_000_000

// checker compares a document with its shape, and removes what does not fit. Whoever reads the document finds only
// values of the right kind, and lists and mappings that are not empty.
type checker struct {
	nodes  int
	beyond bool // maxNodes or maxDepth: reading the document might not end
}

// check reports what does not fit the shape.
func (c *checker) check(p place, s *shape, depth int) {
	if c.nodes++; c.beyond || c.nodes > maxNodes || depth > maxDepth {
		if !c.beyond {
			p.faults.add(p.Node, "", "the file is too large or too deep",
				"write fewer rules, without aliases in aliases")
		}
		c.beyond = true
		return
	}
	if i := slices.IndexFunc(s.either, func(one *shape) bool { return fits(p.Node, one) }); i >= 0 {
		s = s.either[i]
	}
	problem, remedy := "", ""
	switch {
	case !fits(p.Node, s):
		problem, remedy = wrongKind(p.Node, s)
	case (s.kind == list || s.kind == table) && len(p.Content) == 0:
		problem, remedy = "this is empty", "write at least one item"
	case s.kind == list:
		for _, one := range p.items() {
			c.check(one, s.of, depth+1)
		}
	case s.kind == object || s.kind == table:
		c.checkFields(p, s, depth)
	case s.kind == text && s.words != nil && !slices.Contains(s.words, p.Value):
		problem, remedy = fmt.Sprintf("%q is not allowed here", cut(p.Value)), "choose "+strings.Join(s.words, ", ")
		if near := nearest(p.Value, s.words); near != "" {
			remedy = fmt.Sprintf("did you mean %q? Allowed are %s", near, strings.Join(s.words, ", "))
		}
	case s.kind == number:
		if v, ok := integer(p.Node); !ok || v < s.least || v > s.most {
			problem = cut(p.Value) + " is out of range"
			remedy = fmt.Sprintf("write a whole number from %d to %d", s.least, s.most)
		}
	}
	if problem != "" {
		p.fault(problem, remedy)
		p.remove()
	}
}

// fits reports whether a node is of the kind that a shape has.
func fits(n *yaml.Node, s *shape) bool {
	tag := n.ShortTag()
	switch s.kind {
	case object, table:
		return n.Kind == yaml.MappingNode
	case list:
		return n.Kind == yaml.SequenceNode
	case text:
		return n.Kind == yaml.ScalarNode && (tag == "!!str" || tag == "!!timestamp")
	case scalar:
		return n.Kind == yaml.ScalarNode && tag != "!!null"
	case number:
		return n.Kind == yaml.ScalarNode && tag == "!!int"
	case boolean:
		return n.Kind == yaml.ScalarNode && tag == "!!bool"
	case either: // none of them fits
	}
	return false
}

// wrongKind returns what is wrong with a node that does not fit.
func wrongKind(n *yaml.Node, s *shape) (problem, remedy string) {
	want := kindNames[s.kind]
	if s.kind == either {
		names := make([]string, len(s.either))
		for i, one := range s.either {
			names[i] = kindNames[one.kind]
		}
		want = strings.Join(slices.Compact(names), " or ")
	}
	found := "a mapping"
	remedy = "write " + want
	switch n.Kind { //nolint:exhaustive // the others are mappings
	case yaml.SequenceNode:
		found = "a list"
	case yaml.ScalarNode:
		found = fmt.Sprintf("%q", cut(n.Value))
		if n.ShortTag() == "!!null" {
			found, remedy = "empty", remedy+", or leave the field out"
		} else if s.kind == text {
			found += " without quotes"
			remedy = fmt.Sprintf("put it in quotes: %q", cut(n.Value))
		}
	}
	return fmt.Sprintf("this is %s, but must be %s", found, want), remedy
}

// checkFields reports what does not fit an object or a table.
func (c *checker) checkFields(p place, s *shape, depth int) {
	names := make([]string, 0, len(s.fields))
	known := make(map[string]*shape)
	for _, f := range s.fields {
		names, known[f.name] = append(names, f.name), f.shape
	}
	lines := make(map[string]int) // of the fields so far
	for _, f := range p.fields() {
		line, twice := lines[f.name.Value]
		lines[f.name.Value] = f.name.Line
		want := cmp.Or(s.of, known[f.name.Value])
		switch {
		case f.name.Kind != yaml.ScalarNode || f.name.ShortTag() != "!!str":
			p.badName(f.name)
		case twice:
			f.asName().fault("this field is duplicated",
				fmt.Sprintf("merge it with the one on line %d, or remove one", line))
		case want == nil:
			remedy := "fields are " + strings.Join(names, ", ")
			if near := nearest(f.name.Value, names); near != "" {
				remedy = fmt.Sprintf("did you mean %q?", near)
			}
			p.faults.add(f.name, join(p.field, cut(f.name.Value)), "this field is unknown", remedy)
		default:
			c.check(f, want, depth+1)
		}
	}
	for _, f := range s.fields {
		if f.required && !p.get(f.name).exists() {
			p.asFirst().fault(fmt.Sprintf("the field %q is missing", f.name),
				fmt.Sprintf("add %s: %s", f.name, f.shape.doc))
		}
	}
}

// badName reports a name that is not a text.
func (p place) badName(name *yaml.Node) {
	found := "this"
	if name.Kind == yaml.ScalarNode {
		found = fmt.Sprintf("%q", cut(name.Value))
	}
	remedy := "write a word, in quotes if it looks like a number"
	if name.ShortTag() == "!!merge" {
		remedy = "write the fields out: mappings are not merged"
	}
	p.faults.add(name, p.field, found+" is not a field's name", remedy)
}
