package rules

import (
	"bytes"
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
	var doc, second yaml.Node
	if err := decode(decoder, &doc); err != nil && !errors.Is(err, io.EOF) {
		f.add(position(err), "", strings.TrimPrefix(problemOf(err), "yaml: "), "correct the YAML or JSON here")
		return nil
	}
	if len(doc.Content) == 0 || doc.Content[0].ShortTag() == "!!null" {
		f.add(start, "", "the file is empty", "write a list: rules:")
		return nil
	}
	if err := decode(decoder, &second); err == nil && len(second.Content) > 0 {
		f.add(second.Content[0], "", "this is a second document", "write one document, without a line of ---")
		return nil
	} else if err != nil && !errors.Is(err, io.EOF) {
		f.add(position(err), "", strings.TrimPrefix(problemOf(err), "yaml: "), "correct the YAML or JSON here")
		return nil
	}
	return doc.Content[0]
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

func invalidUTF8(content []byte) *yaml.Node {
	if utf8.Valid(content) {
		return nil
	}
	at := &yaml.Node{Line: 1, Column: 1}
	for len(content) > 0 {
		r, size := utf8.DecodeRune(content)
		if r == utf8.RuneError && size == 1 {
			break
		}
		if at.Column++; r == '\n' {
			at.Line, at.Column = at.Line+1, 1
		}
		content = content[size:]
	}
	return at
}

// position returns a node at the place of a parser's error.
func position(err error) *yaml.Node {
	at := &yaml.Node{Line: 1, Column: 1}
	if load := (*yaml.LoadError)(nil); errors.As(err, &load) && load.Mark.Line > 0 {
		at.Line, at.Column = load.Mark.Line, load.Mark.Column
	}
	return at
}

func problemOf(err error) string {
	if load := (*yaml.LoadError)(nil); errors.As(err, &load) && load.Message != "" {
		return load.Message
	}
	return err.Error()
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

// get returns the value of a field, or nil.
func get(n *yaml.Node, name string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name && n.Content[i].Kind == yaml.ScalarNode {
			return resolve(n.Content[i+1])
		}
	}
	return nil
}

// nameNode returns the node of a field's name, or n itself if there is none.
func nameNode(n *yaml.Node, name string) *yaml.Node {
	if n.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == name {
				return n.Content[i]
			}
		}
	}
	return n
}

// first returns the first field's name of a mapping, or the node itself.
func first(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.MappingNode && len(n.Content) > 0 {
		return n.Content[0]
	}
	return n
}

// textAt returns the text of a field, or "".
func textAt(n *yaml.Node, name string) string {
	if v := get(n, name); v != nil && v.Kind == yaml.ScalarNode {
		return v.Value
	}
	return ""
}

// isTrue reports whether a field is true.
func isTrue(n *yaml.Node, name string) bool {
	v := get(n, name)
	return v != nil && v.ShortTag() == "!!bool" && strings.EqualFold(v.Value, "true")
}

// items returns the nodes of a list, or none.
func items(n *yaml.Node) []*yaml.Node {
	if n == nil || n.Kind != yaml.SequenceNode {
		return nil
	}
	all := make([]*yaml.Node, len(n.Content))
	for i, one := range n.Content {
		all[i] = resolve(one)
	}
	return all
}

func integer(n *yaml.Node) (int, bool) {
	v, err := strconv.ParseInt(strings.ReplaceAll(n.Value, "_", ""), 0, 32)
	return int(v), err == nil
}

// nearest returns the word that differs least from s, if it is near.
func nearest(s string, words []string) string {
	best, near := 1+max(1, len(s)/3), ""
	for _, w := range words {
		if d := distance(strings.ToLower(s), w, best); d < best {
			best, near = d, w
		}
	}
	return near
}

// distance is how many letters must be inserted, removed, replaced or swapped with the next one to make b of a
// (Damerau and Levenshtein), or limit if it is at least that.
func distance(a, b string, limit int) int {
	if len(a) > 40 || len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
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

// maxDepth is of lists and mappings within each other.
const maxDepth = 64

// cut shortens a text that is quoted in an error.
func cut(s string) string {
	const longest = 60
	if len(s) <= longest {
		return s
	}
	return strings.ToValidUTF8(s[:longest], "") + "..."
}
