package rules

import (
	"cmp"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v4"
)

//go:embed schema.json
var schemaText []byte

// fileShape returns the shape of a file. Editors complete and check files by the same schema.
var fileShape = sync.OnceValue(func() *shape {
	s := new(shape)
	if err := yaml.Load(schemaText, s); err != nil {
		panic(err) //nolint:forbidigo // it is embedded
	}
	return s
})

// shape is what a place of the file may have: a JSON schema, of which it has as much as schema.json uses.
type shape struct {
	Ref         string `yaml:"$ref"` // to one of Definitions, which has the rest
	Description string
	Type        any // a list for a scalar, which is taken as it is written
	Enum        []string
	Minimum     int
	Maximum     int
	Items       *shape
	Properties  properties
	Additional  additional `yaml:"additionalProperties"` // of a mapping whose fields are unknown
	Required    []string
	AnyOf       []*shape `yaml:"anyOf"`
	Definitions map[string]*shape
}

// properties are in the order in which they are written.
type properties []property

type property struct {
	name string
	*shape
}

// UnmarshalYAML implements [yaml.Unmarshaler].
func (all *properties) UnmarshalYAML(n *yaml.Node) error {
	for i := 0; i < len(n.Content); i += 2 {
		one := property{n.Content[i].Value, new(shape)}
		if err := n.Content[i+1].Decode(one.shape); err != nil {
			return err
		}
		*all = append(*all, one)
	}
	return nil
}

// additional is nil if there are no other fields than the properties.
type additional struct{ *shape }

// UnmarshalYAML implements [yaml.Unmarshaler].
func (a *additional) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode { // false
		return nil
	}
	return n.Decode(&a.shape)
}

const definitions = "#/definitions/"

// resolve follows a reference.
func (s *shape) resolve() *shape {
	return cmp.Or(fileShape().Definitions[strings.TrimPrefix(s.Ref, definitions)], s)
}

// property returns the shape of a field, or nil.
func (s *shape) property(name string) *shape {
	if i := slices.IndexFunc(s.Properties, func(p property) bool { return p.name == name }); i >= 0 {
		return s.Properties[i].shape
	}
	return s.Additional.shape
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
	s = s.resolve()
	either := s.AnyOf
	if i := slices.IndexFunc(either, func(one *shape) bool { return fits(p.Node, one) }); i >= 0 {
		s = either[i].resolve()
	}
	problem, remedy := "", ""
	switch {
	case !fits(p.Node, s):
		problem, remedy = wrongKind(p.Node, s)
	case (s.Items != nil || s.Additional.shape != nil) && len(p.Content) == 0:
		problem, remedy = "this is empty", "write at least one item"
	case s.Items != nil:
		for _, one := range p.items() {
			c.check(one, s.Items, depth+1)
		}
	case s.Type == "object":
		c.checkFields(p, s, depth)
	case s.Enum != nil && !slices.Contains(s.Enum, p.Value):
		allowed := strings.Join(s.Enum, ", ")
		if either != nil { // only keys have words and something else
			allowed += fmt.Sprintf(", or a key such as {value: %s}", cut(p.Value))
		}
		problem, remedy = fmt.Sprintf("%q is not allowed here", cut(p.Value)), "choose "+allowed
		if near := nearest(p.Value, s.Enum); near != "" {
			remedy = fmt.Sprintf("did you mean %q? Allowed are %s", near, allowed)
		}
	case s.Type == "integer":
		if v, ok := integer(p.Node); !ok || v < s.Minimum || v > s.Maximum {
			problem = cut(p.Value) + " is out of range"
			remedy = fmt.Sprintf("write a whole number from %d to %d", s.Minimum, s.Maximum)
		}
	}
	if problem != "" {
		p.fault(problem, remedy)
		p.remove()
	}
}

// kind returns which nodes are of a shape's type: their kind, their tags if not all are, and words for them.
func (s *shape) kind() (kind yaml.Kind, tags, words string) {
	switch {
	case s.Additional.shape != nil:
		return yaml.MappingNode, "", "a mapping"
	case s.Type == "object":
		return yaml.MappingNode, "", "a mapping of fields"
	case s.Type == "array":
		return yaml.SequenceNode, "", "a list"
	case s.Type == "string":
		return yaml.ScalarNode, "!!str !!timestamp", "a string"
	case s.Type == "integer":
		return yaml.ScalarNode, "!!int", "a whole number"
	case s.Type == "boolean":
		return yaml.ScalarNode, "!!bool", "true or false"
	}
	return yaml.ScalarNode, "", "a string"
}

// fits reports whether a node is of the type that a shape has. None is of one with alternatives.
func fits(n *yaml.Node, s *shape) bool {
	s = s.resolve()
	kind, tags, _ := s.kind()
	tag := n.ShortTag()
	return s.AnyOf == nil && n.Kind == kind && tag != "!!null" &&
		(tags == "" || slices.Contains(strings.Fields(tags), tag))
}

// wrongKind returns what is wrong with a node that does not fit.
func wrongKind(n *yaml.Node, s *shape) (problem, remedy string) {
	_, _, want := s.kind()
	for i, one := range s.AnyOf {
		if _, _, words := one.resolve().kind(); i > 0 {
			want += " or " + words
		} else {
			want = words
		}
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
		} else if s.Type == "string" {
			found += " without quotes"
			remedy = fmt.Sprintf("put it in quotes: %q", cut(n.Value))
		}
	}
	return fmt.Sprintf("this is %s, but must be %s", found, want), remedy
}

// checkFields reports what does not fit an object or a table.
func (c *checker) checkFields(p place, s *shape, depth int) {
	lines := make(map[string]int) // of the fields so far
	for _, f := range p.fields() {
		line, twice := lines[f.name.Value]
		lines[f.name.Value] = f.name.Line
		want := s.property(f.name.Value)
		switch {
		case f.name.Kind != yaml.ScalarNode || f.name.ShortTag() != "!!str":
			p.badName(f.name)
		case twice:
			f.asName().fault("this field is duplicated",
				fmt.Sprintf("merge it with the one on line %d, or remove one", line))
		case want == nil:
			names := make([]string, len(s.Properties))
			for i, known := range s.Properties {
				names[i] = known.name
			}
			remedy := "fields are " + strings.Join(names, ", ")
			if near := nearest(f.name.Value, names); near != "" {
				remedy = fmt.Sprintf("did you mean %q?", near)
			} else if s != fileShape() && fileShape().property(f.name.Value) != nil {
				remedy = "write it at the top of the file: it is the same for all rules"
			}
			p.faults.add(f.name, join(p.field, cut(f.name.Value)), "this field is unknown", remedy)
		default:
			c.check(f, want, depth+1)
		}
	}
	for _, name := range s.Required {
		if !p.get(name).exists() {
			p.asFirst().fault(fmt.Sprintf("the field %q is missing", name),
				fmt.Sprintf("add %s: %s", name, s.property(name).resolve().Description))
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
