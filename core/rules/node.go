package rules

import (
	"bytes"
	"cmp"
	"errors"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// parse reads the only document of a file. After a mistake in the document as a whole, it is empty.
func parse(content []byte, f *faults) (top place) {
	top = place{Node: new(yaml.Node), faults: f}
	defer f.recover()
	valid := bytes.ToValidUTF8(content, []byte{0})
	isControl := func(r rune) bool { return unicode.IsControl(r) && !strings.ContainsRune("\t\n\r\u0085", r) }
	if i := bytes.IndexFunc(valid, isControl); i >= 0 { // the parser would not say where
		top.Line = 1 + bytes.Count(valid[:i], []byte("\n"))
		top.Column = 1 + utf8.RuneCount(valid[1+bytes.LastIndexByte(valid[:i], '\n'):i])
		top.fault("this is not UTF-8, or a control character", "save the file as UTF-8, and escape the character")
		return top
	}
	var docs []yaml.Node
	if err := yaml.Load(content, &docs, yaml.WithAllDocuments()); err != nil {
		problem := err.Error()
		if load := (*yaml.LoadError)(nil); errors.As(err, &load) {
			problem = cmp.Or(load.Message, problem)
			top.Line, top.Column = load.Mark.Line, load.Mark.Column
		}
		top.fault(strings.TrimPrefix(problem, "yaml: "), "correct the YAML or JSON here")
		return top
	}
	switch {
	case len(docs) == 0 || docs[0].Content[0].ShortTag() == "!!null":
		top.fault("the file is empty", "write a list: rules:")
	case len(docs) > 1:
		f.add(docs[1].Content[0], "", "this is a second document", "write one document, without a line of ---")
	default:
		whole := place{Node: docs[0].Content[0], faults: f}
		if whole.check(fileShape(), 0); f.nodes < maxNodes { // else reading it might not end
			return whole
		}
	}
	return top
}

// place is a value of the file. That of a field that is missing, or of which a mistake was reported, is empty.
type place struct {
	*yaml.Node // without aliases

	field  string     // such as "rules[2].match.path"
	name   *yaml.Node // of the field, or nil if it is an item of a list, or missing
	faults *faults
}

// child returns a value in p.
func (p place) child(field string, name, value *yaml.Node) place {
	if value.Kind == yaml.AliasNode {
		value = value.Alias
	}
	return place{value, field, name, p.faults}
}

// exists reports whether a field is there, with a value or with a mistake.
func (p place) exists() bool { return p.name != nil }

// isEmpty reports whether there is no value, or a mistake in its place.
func (p place) isEmpty() bool { return p.Kind == 0 }

// fields returns the fields of a mapping, or none.
func (p place) fields() (all []place) {
	for i := 0; i+1 < len(p.Content) && p.Kind == yaml.MappingNode; i += 2 {
		name := p.Content[i]
		all = append(all, p.child(join(p.field, name.Value), name, p.Content[i+1]))
	}
	return all
}

// get returns a field of a mapping.
func (p place) get(name string) place {
	for _, f := range p.fields() {
		if f.name.Value == name && f.name.Kind == yaml.ScalarNode {
			return f
		}
	}
	return place{new(yaml.Node), join(p.field, name), nil, p.faults}
}

// items returns the values of a list in which no mistake was found, or none.
func (p place) items() (all []place) {
	for i := 0; i < len(p.Content) && p.Kind == yaml.SequenceNode; i++ {
		if one := p.child(p.field+"["+strconv.Itoa(i)+"]", nil, p.Content[i]); !one.isEmpty() {
			all = append(all, one)
		}
	}
	return all
}

// isTrue reports whether a field is true.
func (p place) isTrue() bool { return strings.EqualFold(p.Value, "true") }

// fault reports a mistake at the value.
func (p place) fault(problem, remedy string) { p.faults.add(p.Node, p.field, problem, remedy) }

// asName returns the field's name in place of its value, if it has one.
func (p place) asName() place {
	p.Node = cmp.Or(p.name, p.Node)
	return p
}

// asFirst returns the name of the first field of a mapping in its place.
func (p place) asFirst() place {
	if p.Kind == yaml.MappingNode && len(p.Content) > 0 {
		p.Node = p.Content[0]
	}
	return p
}

// integer returns the value of a whole number, or -1.
func integer(n *yaml.Node) int {
	v, err := strconv.ParseInt(strings.ReplaceAll(n.Value, "_", ""), 0, 32)
	if err != nil {
		return -1
	}
	return int(v)
}

// nearest returns the word whose letters differ least from those of s, in whatever order, if few do.
func nearest(s string, words []string) (near string) {
	best := 1 + max(1, len(s)/5)
	for _, w := range words {
		missing, rest := 0, w // of the letters of s, and of those of the word
		for _, r := range strings.ToLower(s) {
			before, after, found := strings.Cut(rest, string(r))
			if rest = before + after; !found {
				missing++
			}
		}
		if d := max(missing, len(rest)); d < best {
			best, near = d, w
		}
	}
	return near
}
