package rules

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// maxFile is the size of a file in bytes.
const maxFile = 16 << 20

// parse reads the only document of a file. It returns nil after a mistake.
func parse(content []byte, f *faults) *yaml.Node {
	at := &yaml.Node{Line: 1, Column: 1}
	fault := func(problem, remedy string) *yaml.Node { //nolint:unparam // parse returns it
		f.add(at, "", problem, remedy)
		return nil
	}
	if len(content) > maxFile {
		return fault(fmt.Sprintf("the file has more than %d MiB", maxFile>>20), "write fewer rules")
	}
	content = bytes.TrimPrefix(content, []byte("\ufeff"))
	if !utf8.Valid(content) {
		at = invalidUTF8(content)
		return fault("this is not UTF-8", "save the file as UTF-8")
	}
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	var docs [2]yaml.Node
	for i := range docs {
		if err := decoder.Decode(&docs[i]); err != nil && !errors.Is(err, io.EOF) {
			problem := err.Error()
			if load := (*yaml.LoadError)(nil); errors.As(err, &load) {
				problem = cmp.Or(load.Message, problem)
				at = &yaml.Node{Line: load.Mark.Line, Column: load.Mark.Column}
			}
			return fault(strings.TrimPrefix(problem, "yaml: "), "correct the YAML or JSON here")
		}
	}
	switch doc, second := docs[0].Content, docs[1].Content; {
	case len(doc) == 0 || doc[0].ShortTag() == "!!null":
		return fault("the file is empty", "write a list: rules:")
	case len(second) > 0:
		at = second[0]
		return fault("this is a second document", "write one document, without a line of ---")
	default:
		return doc[0]
	}
}

// invalidUTF8 returns a node at the first byte that is not UTF-8.
func invalidUTF8(content []byte) *yaml.Node {
	for at := (&yaml.Node{Line: 1, Column: 1}); ; {
		r, size := utf8.DecodeRune(content)
		if r == utf8.RuneError && size == 1 {
			return at
		}
		if at.Column++; r == '\n' {
			at.Line, at.Column = at.Line+1, 1
		}
		content = content[size:]
	}
}

// place is a value of the file, or a field that is missing.
type place struct {
	*yaml.Node // the value, without aliases; nil if the field is missing

	field  string      // such as "rules[2].match.path"
	name   *yaml.Node  // of the field, or nil if it is an item of a list
	ref    **yaml.Node // where the value is, before aliases are followed
	faults *faults
}

// child returns the value that is somewhere in p.
func (p place) child(field string, name *yaml.Node, ref **yaml.Node) place {
	value := *ref
	if value.Kind == yaml.AliasNode {
		value = value.Alias
	}
	return place{value, field, name, ref, p.faults}
}

// maxDepth is of lists and mappings within each other.
const maxDepth = 64

func (p place) exists() bool { return p.Node != nil }

// fields returns the fields of a mapping, or none.
func (p place) fields() (all []place) {
	if !p.exists() || p.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(p.Content); i += 2 {
		name := p.Content[i]
		all = append(all, p.child(join(p.field, name.Value), name, &p.Content[i+1]))
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
	return place{field: join(p.field, name), faults: p.faults}
}

// items returns the values of a list that were not removed, or none.
func (p place) items() (all []place) {
	if !p.exists() || p.Kind != yaml.SequenceNode {
		return nil
	}
	for i := range p.Content {
		if one := p.child(p.field+"["+strconv.Itoa(i)+"]", nil, &p.Content[i]); one.Kind != 0 {
			all = append(all, one)
		}
	}
	return all
}

// text returns the text of a field, or "".
func (p place) text() string {
	if p.exists() && p.Kind == yaml.ScalarNode {
		return p.Value
	}
	return ""
}

// isTrue reports whether a field is true.
func (p place) isTrue() bool {
	return p.exists() && p.ShortTag() == "!!bool" && strings.EqualFold(p.Value, "true")
}

// isWrong reports whether the value was removed because its mistake has been reported.
func (p place) isWrong() bool { return p.exists() && p.Kind == 0 }

// remove puts an empty node in the place of a value that is wrong, so that it has no meaning.
func (p place) remove() { *p.ref = &yaml.Node{Line: p.Line, Column: p.Column} }

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

func integer(n *yaml.Node) (int, bool) {
	v, err := strconv.ParseInt(strings.ReplaceAll(n.Value, "_", ""), 0, 32)
	return int(v), err == nil
}

// nearest returns the word whose letters differ least from those of s, if few do.
func nearest(s string, words []string) (near string) {
	if len(s) > 40 {
		return ""
	}
	best := 1 + max(1, len(s)/5)
	for _, w := range words {
		if d := distance(strings.ToLower(s), w); d < best {
			best, near = d, w
		}
	}
	return near
}

// distance is how many letters of one of the words the other does not have. Their order does not count.
func distance(a, b string) int {
	missing := 0
	for _, r := range a {
		if i := strings.IndexRune(b, r); i >= 0 {
			b = b[:i] + b[i+utf8.RuneLen(r):]
		} else {
			missing++
		}
	}
	return max(missing, utf8.RuneCountInString(b))
}

// cut shortens a text that is quoted in an error.
func cut(s string) string {
	const longest = 60
	if len(s) <= longest {
		return s
	}
	return strings.ToValidUTF8(s[:longest], "") + "..."
}
