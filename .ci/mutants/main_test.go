package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

const list = `# A comment of the
# whole list.

# units are added
# twice
file a/b.lua
- if x then
- units = units - 1
+ units = units + 1
test ./a TestStore/Oracle

# a line is missing
file c.go
- x++
test ./c TestX
`

func TestParse(t *testing.T) {
	want := []mutant{
		{
			list: "redis", name: "units are added twice", file: "a/b.lua",
			before: []string{"if x then", "units = units - 1"}, after: []string{"units = units + 1"},
			test: test{"./a", "TestStore/Oracle"},
		},
		{list: "redis", name: "a line is missing", file: "c.go", before: []string{"x++"}, test: test{"./c", "TestX"}},
	}
	if got, err := parse("redis", list); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("parse returns %+v, %v; want %+v", got, err, want)
	}
	if got, want := want[0].test.pattern(), "^TestStore$/^Oracle$"; got != want {
		t.Errorf("the pattern is %s, want %s", got, want)
	}
	for _, wrong := range []string{
		"# no test\nfile a.go\n- x", "# no line\nfile a.go\ntest . TestX",
		"# no name of a test\nfile a.go\n- x\ntest .",
		"file no.name\n- x\ntest . TestX", "# no file\n- x\ntest . TestX", "# word\nfiles a.go\n- x\ntest . TestX",
	} {
		if got, err := parse("redis", wrong); err == nil {
			t.Errorf("parse(%q) returns %+v, want an error", wrong, got)
		}
	}
}

func TestApply(t *testing.T) {
	const text = "if x {\n\tx++\n\ty++\n}\nx++\nif x {\n\tz++\n}\n"
	for _, c := range []struct{ before, after, want string }{
		{"if x {\nx++", "if !x {\nx--", "if !x {\nx--\n\ty++\n}\nx++\nif x {\n\tz++\n}\n"},
		{"y++", "", "if x {\n\tx++\n\n}\nx++\nif x {\n\tz++\n}\n"},
		{"x++", "x--", ""},   // there are two
		{"x+++", "x--", ""},  // there is none
		{"if x", "if y", ""}, // no whole line
	} {
		m := mutant{file: "x.go", before: strings.Split(c.before, "\n"), after: strings.Split(c.after, "\n")}
		if got, err := m.apply(text); got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("with %q, %q becomes %q, %v; want %q", c.after, c.before, got, err, c.want)
		}
	}
}

// Tests of other modules run in these.
func TestModuleOf(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	for pkg, want := range map[string][2]string{
		"./core/store": {"", "./core/store"}, ".": {"", "."}, "./echolimit": {"", "./echolimit"},
		"./echolimit/v5": {"echolimit/v5", "."}, "./examples/recipes/x": {"examples/recipes", "./x"},
	} {
		if dir, in := moduleOf(pkg); dir != want[0] || in != want[1] {
			t.Errorf("%s is %s in %q, want %q", pkg, in, dir, want)
		}
	}
}

// The lists themselves name lines that exist.
func TestLists(t *testing.T) {
	all, err := readLists(".", nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range all {
		m := &all[i]
		text, err := os.ReadFile(filepath.Join("..", "..", m.file))
		if err == nil {
			_, err = m.apply(string(text))
		}
		if err != nil {
			t.Errorf("%s: %s: %v", m.list, m.name, err)
		}
	}
}

// A small module with a file of each kind that go test builds.
func TestCheck(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		"go.mod": "module example\n\ngo 1.25\n",
		"a.go":   "package a\n\nimport _ \"embed\"\n\n//go:embed b.txt\nvar b string\n\nvar one = 1\n\nvar two = 2\n",
		"b.txt":  "b\n",
		"a_test.go": "package a\n\nimport \"testing\"\n\nfunc TestA(t *testing.T) {\n" +
			"\tif b != \"b\\n\" || one != 1 {\n\t\tt.Error(b, one)\n\t}\n}\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	testA := test{".", "TestA"}
	for _, c := range []struct {
		file, before, after string
		want                result
	}{
		{"a.go", "var one = 1", "var one = 2", found},
		{"b.txt", "b", "c", found},
		{"a.go", "var two = 2", "var two = 3", notFound},
		{"a.go", "var two = 2", "var two", unusable},
		{"a.go", "var three = 2", "var three = 3", unusable},
	} {
		m := mutant{file: c.file, before: []string{c.before}, after: []string{c.after}, test: testA}
		if got, output := m.check(filepath.Join(t.TempDir(), "copy")); got != c.want {
			t.Errorf("%s with %q is %s, want %s:\n%s", c.file, c.after, got, c.want, output)
		}
	}
	r := report{out: t.Output(), results: make(map[result]int)}
	passes := r.checkTests([]mutant{{test: testA}, {test: test{".", "TestB"}}}, t.TempDir())
	if !passes[testA] || passes[test{".", "TestB"}] {
		t.Errorf("the tests that pass are %v, want TestA alone", passes)
	}
}
