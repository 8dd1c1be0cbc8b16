package rules

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// shape is what may stand at a place of the file. The JSON schema is made of it too.
type shape struct {
	kind   kind
	doc    string
	fields []namedShape // of an object
	of     *shape       // the items of a list, the values of a table
	words  []string     // that a text may be, or nil for any
	least  int          // of a number
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
	table  // an object whose fields are not known
	text   // that is written as a text
	scalar // a text, a number or a boolean, taken as it is written
	number
	boolean
	either
)

var kindNames = [...]string{
	object: "a mapping of fields", list: "a list", table: "a mapping", text: "a text",
	scalar: "a text", number: "a whole number", boolean: "true or false", either: "a value",
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
	shadowShape    = &shape{kind: boolean, doc: "true: asked and observed, never denies, and writes no header fields"}
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
	{"cost", false, &shape{kind: number, least: 1, doc: "units of a request; of several rules the largest; default 1"}},
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
			{"header", false, textOf("a header's name; verify says who checks its value")},
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

// fieldNames returns the names of an object's fields.
func (s *shape) fieldNames() []string {
	names := make([]string, len(s.fields))
	for i, f := range s.fields {
		names[i] = f.name
	}
	return names
}

// maxNodes bounds the work for a file whose aliases refer to each other.
const maxNodes = 1_000_000

// checker compares a document with its shape.
type checker struct {
	*faults

	nodes  int
	beyond bool // maxNodes or maxDepth: reading the document might not end
}

// check reports what does not fit the shape. It reports whether the kind of the node does.
func (c *checker) check(n *yaml.Node, s *shape, field string, depth int) bool {
	if c.nodes++; c.beyond || c.nodes > maxNodes || depth > maxDepth {
		if !c.beyond {
			c.add(n, "", "the file is too large or too deep", "write fewer rules, without aliases in aliases")
		}
		c.beyond = true
		return false
	}
	n = resolve(n)
	switch s.kind { //nolint:exhaustive // the others are below
	case either:
		for _, one := range s.either {
			if fits(n, one) {
				return c.check(n, one, field, depth)
			}
		}
		c.wrongKind(n, s, field)
		return false
	case object:
		if !fits(n, s) {
			c.wrongKind(n, s, field)
			return false
		}
		return c.checkObject(n, s, field, depth)
	}
	if !fits(n, s) {
		c.wrongKind(n, s, field)
		return false
	}
	switch s.kind { //nolint:exhaustive // of the others nothing is left to check
	case list:
		for i, one := range n.Content {
			c.check(one, s.of, item(field, i), depth+1)
		}
	case table:
		for i := 0; i+1 < len(n.Content); i += 2 {
			c.checkName(n, i, field)
			c.check(n.Content[i+1], s.of, join(field, n.Content[i].Value), depth+1)
		}
	case text:
		c.checkWord(n, s, field)
	case number:
		c.checkNumber(n, s, field)
	}
	return true
}

// fits reports whether a node is of the kind that a shape has.
func fits(n *yaml.Node, s *shape) bool {
	tag := n.ShortTag()
	switch s.kind { //nolint:exhaustive // either is below
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
	}
	return slices.ContainsFunc(s.either, func(one *shape) bool { return fits(n, one) })
}

func (c *checker) wrongKind(n *yaml.Node, s *shape, field string) {
	want := kindNames[s.kind]
	if s.kind == either {
		names := make([]string, len(s.either))
		for i, one := range s.either {
			names[i] = kindNames[one.kind]
		}
		want = strings.Join(slices.Compact(names), " or ")
	}
	remedy := "write " + want
	found := "a mapping"
	switch n.Kind { //nolint:exhaustive // the others are mappings
	case yaml.SequenceNode:
		found = "a list"
	case yaml.ScalarNode:
		found = fmt.Sprintf("%q", cut(n.Value))
		if n.ShortTag() == "!!null" {
			found, remedy = "nothing", remedy+", or leave the field out"
		} else if s.kind == text {
			found += " without quotes"
			remedy = fmt.Sprintf("write it as a text: %q", cut(n.Value))
		}
	}
	c.add(n, field, fmt.Sprintf("this is %s, and must be %s", found, want), remedy)
}

func (c *checker) checkObject(n *yaml.Node, s *shape, field string, depth int) bool {
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := n.Content[i]
		if !c.checkName(n, i, field) {
			continue
		}
		at := slices.IndexFunc(s.fields, func(f namedShape) bool { return f.name == name.Value })
		if at < 0 {
			c.unknown(name, s, field)
			continue
		}
		c.check(n.Content[i+1], s.fields[at].shape, join(field, name.Value), depth+1)
	}
	for _, f := range s.fields {
		if f.required && get(n, f.name) == nil {
			at := n
			if len(n.Content) > 0 {
				at = n.Content[0]
			}
			c.add(at, field, fmt.Sprintf("there is no %q", f.name), fmt.Sprintf("add %s: %s", f.name, f.shape.doc))
		}
	}
	return true
}

// checkName reports a field's name that is not a text, or is there twice.
func (c *checker) checkName(n *yaml.Node, i int, field string) bool {
	name := n.Content[i]
	if name.Kind != yaml.ScalarNode || name.ShortTag() != "!!str" {
		found := "this"
		if name.Kind == yaml.ScalarNode {
			found = fmt.Sprintf("%q", cut(name.Value))
		}
		remedy := "write a text; names of fields are words, and values that look like numbers are quoted"
		if name.ShortTag() == "!!merge" {
			remedy = "write the fields out: they are not merged with those of another mapping"
		}
		c.add(name, field, found+" is not a field's name", remedy)
		return false
	}
	for j := 0; j < i; j += 2 {
		if n.Content[j].Value == name.Value {
			c.add(name, join(field, name.Value), "this field is there twice", "merge it with that of line "+
				strconv.Itoa(n.Content[j].Line)+", or remove one")
			return false
		}
	}
	return true
}

func (c *checker) unknown(name *yaml.Node, s *shape, field string) {
	names := s.fieldNames()
	remedy := "fields are " + strings.Join(names, ", ")
	if near := nearest(name.Value, names); near != "" {
		remedy = fmt.Sprintf("did you mean %q?", near)
	}
	c.add(name, join(field, cut(name.Value)), "there is no such field", remedy)
}

func (c *checker) checkWord(n *yaml.Node, s *shape, field string) {
	if len(s.words) == 0 || slices.Contains(s.words, n.Value) {
		return
	}
	remedy := "choose " + strings.Join(s.words, ", ")
	if near := nearest(n.Value, s.words); near != "" {
		remedy = fmt.Sprintf("did you mean %q? There are %s", near, strings.Join(s.words, ", "))
	}
	c.add(n, field, fmt.Sprintf("%q is not one of them", cut(n.Value)), remedy)
}

func (c *checker) checkNumber(n *yaml.Node, s *shape, field string) {
	if v, ok := integer(n); !ok || v < s.least {
		c.add(n, field, cut(n.Value)+" is out of range",
			"write a whole number from "+strconv.Itoa(s.least))
	}
}
