package rules

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v4"
)

// Error is one mistake in a file of rules. [Load] and [Parse] return all mistakes of a file, joined in the order of
// their positions; [errors.As] returns the first.
type Error struct {
	File    string
	Line    int    // from 1
	Column  int    // from 1, in characters
	Field   string // such as "rules[2].match.path", or empty for the file as a whole
	Problem string // what is wrong
	Remedy  string // what to do
}

// Error is one line: FILE:LINE:COLUMN: field: what is wrong; what to do. Characters that cannot be printed are escaped.
func (e *Error) Error() string {
	text := e.Problem + "; " + e.Remedy
	if e.Field != "" {
		text = e.Field + ": " + text
	}
	return oneLine(fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, text))
}

// oneLine escapes line breaks and other characters that cannot be seen, which names of a file may have.
func oneLine(text string) string {
	var b strings.Builder
	for _, r := range text {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}

// faults collects the mistakes of a file.
type faults struct {
	file  string
	all   []*Error
	nodes int // that were looked at
}

// add reports a mistake at a node. Of several at one place about one field, the first is kept.
func (f *faults) add(at *yaml.Node, field, problem, remedy string) {
	e := &Error{File: f.file, Line: max(at.Line, 1), Column: max(at.Column, 1), Field: field, Problem: problem,
		Remedy: remedy}
	same := func(other *Error) bool {
		return other.Line == e.Line && other.Column == e.Column && (other.Field == e.Field || e.Field == "")
	}
	if !slices.ContainsFunc(f.all, same) {
		f.all = append(f.all, e)
	}
}

// recover is deferred: a panic, such as one of the parser or of a store, is a mistake of the file, since it must not
// end a program that loads a file again.
func (f *faults) recover() {
	if p := recover(); p != nil {
		f.add(new(yaml.Node), "", fmt.Sprintf("reading the file panicked: %v", p),
			"correct the YAML or JSON; if nothing is wrong with it, report the panic with the file")
	}
}

// hasFault reports whether there is a mistake within a field.
func (f *faults) hasFault(field string) bool {
	return slices.ContainsFunc(f.all, func(e *Error) bool { return strings.HasPrefix(e.Field, field) })
}

func (f *faults) err() error {
	slices.SortStableFunc(f.all, func(a, b *Error) int {
		return cmp.Or(a.Line-b.Line, a.Column-b.Column)
	})
	errs := make([]error, len(f.all))
	for i, e := range f.all {
		errs[i] = e
	}
	return errors.Join(errs...)
}

// join makes the name of a field within another one.
func join(field, name string) string { return strings.TrimPrefix(field+"."+name, ".") }
