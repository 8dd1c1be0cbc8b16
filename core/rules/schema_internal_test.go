package rules

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/sashlimit/sash/core"
)

// Each word of the schema has an effect here, or none on which files are right. It is JSON, too, and not only YAML.
func TestSchema(t *testing.T) {
	words := []string{"$schema", "title", "minItems"} // a list has at least one item
	for f := range reflect.TypeFor[shape]().NumField() {
		field := reflect.TypeFor[shape]().Field(f)
		tag, given := field.Tag.Lookup("yaml")
		if !given {
			tag = strings.ToLower(field.Name)
		}
		words = append(words, tag)
	}
	var visit func(schema map[string]any)
	visit = func(schema map[string]any) {
		for word, value := range schema {
			if !slices.Contains(words, word) {
				t.Errorf("the schema has the word %q", word)
			}
			if word == "items" && schema["minItems"] != 1.0 {
				t.Errorf("a list may be empty: %v", schema)
			}
			several, _ := value.([]any)
			if schema, ok := value.(map[string]any); ok && (word == "properties" || word == "definitions") {
				for _, one := range schema {
					several = append(several, one)
				}
			} else if ok {
				several = append(several, value)
			}
			for _, one := range several {
				if schema, ok := one.(map[string]any); ok {
					visit(schema)
				}
			}
		}
	}
	var schema map[string]any
	if err := json.Unmarshal(schemaText, &schema); err != nil {
		t.Fatal(err)
	}
	visit(schema)
	for name, s := range visitShapes(fileShape()) {
		if s.Ref != "" && s.resolve() == s {
			t.Errorf("%s refers to %s, which is not there", name, s.Ref)
		}
	}
}

// What the schema allows can be written.
func TestSchemaAndCode(t *testing.T) {
	known := fileShape().Definitions
	cost := known["rule"].property("cost")
	for _, algorithm := range known["algorithm"].Enum {
		for _, cost := range []int{int(cost.Minimum), int(cost.Maximum)} {
			text := fmt.Appendf(nil, "rules: [{name: a, key: ip, limits: [%d/day], cost: %d, algorithm: %s}]",
				core.MaxQuota, cost, algorithm)
			if _, err := Parse(text, "limits.yaml"); err != nil {
				t.Error(err)
			}
		}
	}
}

// visitShapes returns the shapes of all fields by name.
func visitShapes(root *shape) map[string]*shape {
	seen := make(map[string]*shape)
	visited := make(map[*shape]bool)
	var visit func(s *shape)
	visit = func(s *shape) {
		if s == nil || visited[s] {
			return
		}
		visited[s] = true
		for _, f := range s.Properties {
			seen[f.name] = f.shape
			visit(f.shape)
		}
		visit(s.Items)
		visit(s.Additional.shape)
		for _, one := range s.AnyOf {
			visit(one)
		}
		visit(s.resolve())
	}
	visit(root)
	return seen
}

// A field that is described is read: without this test, a field of the shape could have no effect.
func TestEveryFieldIsRead(t *testing.T) {
	seen := visitShapes(fileShape())
	source := new(bytes.Buffer)
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
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
	if len(seen) < 30 || seen[""] != nil {
		t.Errorf("only %d fields were seen", len(seen))
	}
}
