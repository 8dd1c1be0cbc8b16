package rules

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/sashlimit/sash/core/store"
)

// Each word of the schema has an effect here, or none on which files are right. It is JSON, too, and not only YAML. A
// field that is described is read, and so is each value of an enum: without this test, they could have no effect. Each
// algorithm has a value.
func TestSchema(t *testing.T) {
	words := []string{"$schema", "title", "minItems", "additionalProperties"} // a list has at least one item
	for f := range reflect.TypeFor[shape]().NumField() {
		field := reflect.TypeFor[shape]().Field(f)
		tag, given := field.Tag.Lookup("yaml")
		if !given {
			tag = strings.ToLower(field.Name)
		}
		words = append(words, tag)
	}
	source := ""
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if text, err := os.ReadFile(file); err != nil {
			t.Fatal(err)
		} else if !strings.HasSuffix(file, "_test.go") {
			source += string(text)
		}
	}
	isRead := func(name string) {
		if !strings.Contains(source, `"`+name+`"`) {
			t.Errorf("nothing reads %q", name)
		}
	}
	fields := 0
	var visit func(value any)
	visit = func(value any) {
		several, _ := value.([]any)
		schema, _ := value.(map[string]any)
		for word, value := range schema {
			named, _ := value.(map[string]any)
			switch {
			case !slices.Contains(words, word):
				t.Errorf("the schema has the word %q", word)
			case word == "items" && schema["minItems"] != 1.0:
				t.Errorf("a list may be empty: %v", schema)
			case word == "additionalProperties" && value != false:
				t.Errorf("other fields are errors, but here %v", value)
			case (word == "enum" || word == "pattern" || word == "minimum") && schema["description"] == nil:
				t.Errorf("a mistake would have no remedy: %v", schema)
			case word == "$ref":
				if s := (&shape{Ref: value.(string)}); s.resolve() == s { // a test
					t.Errorf("%s is not there", s.Ref)
				}
			case word == "enum":
				for _, one := range value.([]any) { // a test
					isRead(one.(string))
				}
			case word != "properties" && word != "patternProperties" && word != "definitions":
				several = append(several, value)
				continue
			}
			for name, one := range named {
				if fields++; word == "properties" && name != "$schema" {
					isRead(name)
				}
				several = append(several, one)
			}
		}
		for _, one := range several {
			visit(one)
		}
	}
	var schema map[string]any
	if err := json.Unmarshal(schemaText, &schema); err != nil {
		t.Fatal(err)
	}
	if visit(schema); fields < 40 {
		t.Errorf("only %d fields were seen", fields)
	}
	known, made := slices.Sorted(maps.Keys(algorithms)), slices.Sorted(maps.Values(algorithms))
	if named := fileShape().Definitions["algorithm"].Enum; !slices.Equal(known, slices.Sorted(slices.Values(named))) {
		t.Errorf("the algorithms are %q, and in the schema %q", known, named)
	} else if !slices.Equal(made, store.Algorithms()) {
		t.Errorf("%q are %v, want each of %v once", known, made, store.Algorithms())
	}
}
