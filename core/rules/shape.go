package rules

import (
	"cmp"
	_ "embed"
	"fmt"
	"maps"
	"regexp"
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
	Type        any // one of types
	Enum        []string
	Pattern     *regexp.Regexp
	Minimum     int
	Maximum     int
	Items       *shape
	Properties  map[string]*shape
	Patterns    map[string]*shape `yaml:"patternProperties"` // "." is of all fields, whose names are free
	Required    []string
	AnyOf       []*shape `yaml:"anyOf"`
	Definitions map[string]*shape
}

// resolve follows a reference.
func (s *shape) resolve() *shape {
	return cmp.Or(fileShape().Definitions[strings.TrimPrefix(s.Ref, "#/definitions/")], s)
}

// alternatives returns the shapes of which one must fit.
func (s *shape) alternatives() (all []*shape) {
	if s = s.resolve(); s.AnyOf == nil {
		return []*shape{s}
	}
	for _, one := range s.AnyOf {
		all = append(all, one.alternatives()...)
	}
	return all
}

// types are which nodes are of a type: their kind, and their tags if not all are.
var types = map[string]struct {
	kind        yaml.Kind
	tags, words string
}{
	"object":  {yaml.MappingNode, "", "a mapping"},
	"array":   {yaml.SequenceNode, "", "a list"},
	"string":  {yaml.ScalarNode, "!!str !!timestamp", "a string"},
	"integer": {yaml.ScalarNode, "!!int", "a whole number"},
	"boolean": {yaml.ScalarNode, "!!bool", "true or false"},

	"[string number boolean]": {yaml.ScalarNode, "!!str !!timestamp !!int !!float !!bool", "a string"},
}

// fits reports whether a node is of the shape's type.
func (s *shape) fits(n *yaml.Node) bool {
	t := types[fmt.Sprint(s.Type)]
	return n.Kind == t.kind && (t.tags == "" || slices.Contains(strings.Fields(t.tags), n.ShortTag()))
}

// allows reports whether a node of the shape's type has a value that is allowed. Description says in words which are.
func (s *shape) allows(n *yaml.Node) bool {
	number := integer(n)
	return (s.Enum == nil || slices.Contains(s.Enum, n.Value)) &&
		(s.Pattern == nil || s.Pattern.MatchString(n.Value)) &&
		(s.Type != "integer" || s.Minimum <= number && number <= s.Maximum)
}

// maxNodes and maxDepth bound the work for a file whose aliases refer to each other.
const (
	maxNodes = 1_000_000
	maxDepth = 64 // of lists and mappings within each other
)

// check compares a value with its shape, and empties what does not fit. Whoever reads the document then finds only
// values of the right type, and lists and mappings that are not empty.
func (p place) check(s *shape, depth int) {
	f := p.faults
	if f.nodes++; depth > maxDepth && f.nodes < maxNodes {
		f.nodes = maxNodes
	}
	if f.nodes == maxNodes {
		f.add(p.Node, "", "the file is too large or too deep", "write fewer rules, without aliases in aliases")
	}
	if f.nodes >= maxNodes || p.isEmpty() {
		return
	}
	all := s.alternatives()
	var problem, remedy string
	switch i := slices.IndexFunc(all, func(one *shape) bool { return one.fits(p.Node) }); {
	case i < 0:
		problem, remedy = wrongType(p.Node, all)
	case !all[i].allows(p.Node):
		problem, remedy = fmt.Sprintf("%.60q is not allowed here", p.Value), "write "+all[i].Description
	case (all[i].Items != nil || all[i].Patterns != nil) && len(p.Content) == 0:
		problem, remedy = "this is empty", "write at least one item"
	default:
		for _, one := range p.items() {
			one.check(all[i].Items, depth+1)
		}
		p.checkFields(all[i], depth)
		return
	}
	p.fault(problem, remedy)
	*p.Node = yaml.Node{Line: p.Line, Column: p.Column}
}

// wrongType returns what is wrong with a node that fits none of some shapes.
func wrongType(n *yaml.Node, shapes []*shape) (problem, remedy string) {
	words := make([]string, 0, len(shapes))
	for _, s := range shapes {
		words = append(words, types[fmt.Sprint(s.Type)].words)
	}
	want, found := strings.Join(words, " or "), fmt.Sprintf("%.60q", n.Value)
	remedy = "write " + want
	switch {
	case n.Kind == yaml.MappingNode:
		found = "a mapping"
	case n.Kind == yaml.SequenceNode:
		found = "a list"
	case n.ShortTag() == "!!null":
		found, remedy = "empty", remedy+", or leave the field out"
	case want == "a string":
		found, remedy = found+" without quotes", "put it in quotes: "+found
	}
	return fmt.Sprintf("this is %s, but must be %s", found, want), remedy
}

// checkFields reports what does not fit a mapping.
func (p place) checkFields(s *shape, depth int) {
	lines := make(map[string]int) // of the fields so far
	for _, f := range p.fields() {
		line, twice := lines[f.name.Value]
		lines[f.name.Value] = f.name.Line
		switch want := cmp.Or(s.Properties[f.name.Value], s.Patterns["."]); {
		case f.name.ShortTag() != "!!str", f.name.Value == "":
			p.faults.add(f.name, p.field, fmt.Sprintf("%.60q is not a field's name", f.name.Value),
				"write a word, in quotes if it looks like a number; mappings cannot be merged")
		case twice:
			f.asName().fault("this field is duplicated",
				fmt.Sprintf("merge it with the one on line %d, or remove one", line))
		case want == nil:
			names := slices.Sorted(maps.Keys(s.Properties))
			remedy := "fields are " + strings.Join(names, ", ")
			if near := nearest(f.name.Value, names); near != "" {
				remedy = fmt.Sprintf("did you mean %q?", near)
			} else if fileShape().Properties[f.name.Value] != nil {
				remedy = "write it at the top of the file: it is the same for all rules"
			}
			f.asName().fault("this field is unknown", remedy)
		default:
			f.check(want, depth+1)
		}
	}
	for _, name := range s.Required {
		if !p.get(name).exists() {
			p.asFirst().fault(fmt.Sprintf("the field %q is missing", name),
				fmt.Sprintf("add %s: %s", name, s.Properties[name].resolve().Description))
		}
	}
}
