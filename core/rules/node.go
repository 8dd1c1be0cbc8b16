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
	start := &yaml.Node{Line: 1, Column: 1}
	if len(content) > maxFile {
		f.add(start, "", fmt.Sprintf("the file has more than %d MiB", maxFile>>20), "write fewer rules")
		return nil
	}
	content = bytes.TrimPrefix(content, []byte("\ufeff"))
	if at := invalidUTF8(content); at != nil {
		f.add(at, "", "this is not UTF-8", "save the file as UTF-8")
		return nil
	}
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	var docs [2]yaml.Node
	for i := range docs {
		if err := decode(decoder, &docs[i]); err != nil && !errors.Is(err, io.EOF) {
			at, problem := position(err)
			f.add(at, "", strings.TrimPrefix(problem, "yaml: "), "correct the YAML or JSON here")
			return nil
		}
	}
	switch doc, second := docs[0].Content, docs[1].Content; {
	case len(doc) == 0 || doc[0].ShortTag() == "!!null":
		f.add(start, "", "the file is empty", "write a list: rules:")
		return nil
	case len(second) > 0:
		f.add(second[0], "", "this is a second document", "write one document, without a line of ---")
		return nil
	default:
		return doc[0]
	}
}

// decode recovers a panic of the parser.
func decode(d *yaml.Decoder, n *yaml.Node) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the file cannot be read: %v", p)
		}
	}()
	return d.Decode(n)
}

// invalidUTF8 returns a node at the first byte that is not UTF-8, or nil.
func invalidUTF8(content []byte) *yaml.Node {
	for at := (&yaml.Node{Line: 1, Column: 1}); len(content) > 0; {
		r, size := utf8.DecodeRune(content)
		if r == utf8.RuneError && size == 1 {
			return at
		}
		if at.Column++; r == '\n' {
			at.Line, at.Column = at.Line+1, 1
		}
		content = content[size:]
	}
	return nil
}

// position returns a node at the place of a parser's error, and what is wrong there.
func position(err error) (at *yaml.Node, problem string) {
	at, problem = &yaml.Node{Line: 1, Column: 1}, err.Error()
	if load := (*yaml.LoadError)(nil); errors.As(err, &load) {
		if problem = cmp.Or(load.Message, problem); load.Mark.Line > 0 {
			at.Line, at.Column = load.Mark.Line, load.Mark.Column
		}
	}
	return at, problem
}

// place is a value of the file, or a field that is missing.
type place struct {
	*yaml.Node // the value, without aliases; nil if the field is missing

	field  string      // such as "rules[2].match.path"
	name   *yaml.Node  // of the field, or nil if it is an item of a list
	of     **yaml.Node // where the value is, before aliases are followed
	faults *faults
}

// child returns the value that is somewhere in p.
func (p place) child(field string, name *yaml.Node, of **yaml.Node) place {
	return place{resolve(*of), field, name, of, p.faults}
}

// resolve follows an alias.
func resolve(n *yaml.Node) *yaml.Node {
	for range maxDepth {
		if n.Kind != yaml.AliasNode || n.Alias == nil {
			break
		}
		n = n.Alias
	}
	return n
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
func (p place) remove() { *p.of = &yaml.Node{Line: p.Line, Column: p.Column} }

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

// nearest returns the word that differs least from s, if it is near.
func nearest(s string, words []string) (near string) {
	if len(s) > 40 {
		return ""
	}
	best := 1 + max(1, len(s)/3)
	for _, w := range words {
		if d := distance(strings.ToLower(s), w); d < best {
			best, near = d, w
		}
	}
	return near
}

// distance is how many letters must be inserted, removed, replaced or swapped with the next one to make b of a
// (Damerau and Levenshtein).
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			same := 1
			if a[i-1] == b[j-1] {
				same = 0
			}
			d := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+same)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(a)][len(b)]
}

// cut shortens a text that is quoted in an error.
func cut(s string) string {
	const longest = 60
	if len(s) <= longest {
		return s
	}
	return strings.ToValidUTF8(s[:longest], "") + "..."
}
