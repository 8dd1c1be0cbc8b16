package rules

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "write schema.json")

// schemaFile is for editors, which complete and check files with it.
const schemaFile = "schema.json"

// schema makes the JSON schema of a shape. Shapes with a name are in definitions.
func schema(s *shape, definitions map[string]any, top bool) map[string]any {
	if s.name != "" && !top {
		if _, known := definitions[s.name]; !known {
			definitions[s.name] = nil // it may refer to itself
			definitions[s.name] = schema(s, definitions, true)
		}
		return map[string]any{"$ref": "#/definitions/" + s.name}
	}
	m := make(map[string]any)
	if s.doc != "" {
		m["description"] = s.doc
	}
	switch s.kind {
	case object:
		properties, required := make(map[string]any), []string{}
		for _, f := range s.fields {
			properties[f.name] = schema(f.shape, definitions, false)
			if f.required {
				required = append(required, f.name)
			}
		}
		m["type"], m["properties"], m["additionalProperties"] = "object", properties, false
		if len(required) > 0 {
			m["required"] = required
		}
	case list:
		m["type"], m["items"], m["minItems"] = "array", schema(s.of, definitions, false), 1
	case table:
		m["type"], m["additionalProperties"] = "object", schema(s.of, definitions, false)
	case text:
		if m["type"] = "string"; len(s.words) > 0 {
			m["enum"] = s.words
		}
	case scalar:
		m["type"] = []string{"string", "number", "boolean"}
	case number:
		m["type"], m["minimum"], m["maximum"] = "integer", s.least, s.most
	case boolean:
		m["type"] = "boolean"
	case either:
		var all []any
		for _, one := range s.either {
			all = append(all, schema(one, definitions, false))
		}
		m["anyOf"] = all
	}
	return m
}

// The schema in the repository is that of the shapes by which files are checked.
func TestSchema(t *testing.T) {
	definitions := make(map[string]any)
	root := schema(fileShape, definitions, true)
	root["$schema"], root["title"] = "http://json-schema.org/draft-07/schema#", "Rules of sash"
	root["definitions"] = definitions
	want, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, '\n')
	if *update {
		if err := os.WriteFile(schemaFile, want, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(schemaFile)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is stale (%v): run go test ./core/rules -run TestSchema -update", schemaFile, err)
	}
}

// A field that is described is read: without this test, a field of the shape could have no effect.
func TestEveryFieldIsRead(t *testing.T) {
	seen := make(map[string]bool)
	var visit func(s *shape)
	visited := make(map[*shape]bool)
	visit = func(s *shape) {
		if s == nil || visited[s] {
			return
		}
		visited[s] = true
		for _, f := range s.fields {
			seen[f.name] = true
			visit(f.shape)
		}
		visit(s.of)
		for _, one := range s.either {
			visit(one)
		}
	}
	visit(fileShape)
	source := new(bytes.Buffer)
	for _, file := range []string{"rule.go", "key.go", "limit.go", "match.go", "rules.go"} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		source.Write(b)
	}
	for name := range seen {
		if name != "$schema" && !bytes.Contains(source.Bytes(), []byte(`"`+name+`"`)) {
			t.Errorf("nothing reads the field %q", name)
		}
	}
	if len(seen) < 30 || seen[""] {
		t.Errorf("only %d fields were seen", len(seen))
	}
}
