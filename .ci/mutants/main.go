// Mutants makes the mistakes of the lists beside it, one at a time and in a copy, and checks that the test named with
// each fails. Its arguments select lists by name, or mistakes by a part of theirs. It runs in the root of the module.
//
// A mistake is a block of lines, and blocks are separated by empty lines:
//
//	# what is wrong with it, in words
//	file core/key.go
//	- lines of the file, whole but for leading white space; they are in it once
//	+ lines in their place, or none
//	test ./core TestName/OfACase
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	all, err := readLists(".ci/mutants", args)
	if err != nil {
		return err
	}
	temp, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	begin := time.Now()
	r := report{out: out, results: make(map[result]int)}
	fmt.Fprintf(out, "%d mistakes; first their tests without them\n", len(all))
	passes := r.checkTests(all, temp)
	inParallel(len(all), func(i int) {
		m := &all[i]
		begin, res, text := time.Now(), unusable, "its test does not pass without it"
		if passes[m.test] {
			res, text = m.check(filepath.Join(temp, strconv.Itoa(i)))
		}
		r.print(m, res, text, time.Since(begin))
	})
	fmt.Fprintf(out, "In %.0f s, %d of %d mistakes were found, %d not found, %d unusable.\n",
		time.Since(begin).Seconds(), r.results[found], len(all), r.results[notFound], r.results[unusable])
	if r.results[found] < len(all) {
		return fmt.Errorf("%d mistakes were not found", len(all)-r.results[found])
	}
	return nil
}

// result is what became of a mistake.
type result string

const (
	found    result = "found"
	notFound result = "NOT FOUND" // the test passes
	unusable result = "UNUSABLE"  // the list is out of date
)

// report prints a line for each mistake.
type report struct {
	out     io.Writer
	mu      sync.Mutex
	results map[result]int
}

func (r *report) print(m *mutant, res result, text string, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.results[res]++
	fmt.Fprintf(r.out, "%-9s %5.1f s  %s: %s", res, took.Seconds(), m.list, m.name)
	if res != found {
		fmt.Fprintf(r.out, "\n  %s\n  %s", m.test, strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  "))
	}
	fmt.Fprintln(r.out)
}

// checkTests runs each test that the mutants name, without a mistake. It returns those that pass.
func (r *report) checkTests(all []mutant, temp string) (passes map[test]bool) {
	names := make(map[string][]string)
	for i := range all {
		if t := all[i].test; !slices.Contains(names[t.pkg], t.name) {
			names[t.pkg] = append(names[t.pkg], t.name)
		}
	}
	passes = make(map[test]bool)
	packages := slices.Sorted(maps.Keys(names))
	inParallel(len(packages), func(i int) {
		pkg := packages[i]
		program := filepath.Join(temp, strconv.Itoa(i)+".test")
		module, in := moduleOf(pkg)
		args := slices.Concat([]string{"test", "-c", "-o", program}, quick, []string{in})
		compiled, err := command(module, "go", args...)
		for _, name := range names[pkg] {
			t, output := test{pkg, name}, compiled
			if err == nil {
				output, _ = command(pkg, program, "-test.v", "-test.short", "-test.timeout=90s",
					"-test.run", t.pattern())
			}
			line := regexp.MustCompile(`(?m)^ *--- PASS: ` + regexp.QuoteMeta(name) + ` \(`)
			r.note(t, line.MatchString(output), output, passes)
		}
	})
	return passes
}

// note notes in passes whether a test passes.
func (r *report) note(t test, pass bool, output string, passes map[test]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if passes[t] = pass; !pass {
		fmt.Fprintf(r.out, "%s does not pass, or does not exist:\n%s", t, output)
	}
}

// inParallel calls f for the numbers below n. It makes two calls at a time.
func inParallel(n int, f func(i int)) {
	numbers := make(chan int)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for i := range numbers {
				f(i)
			}
		})
	}
	for i := range n {
		numbers <- i
	}
	close(numbers)
	wg.Wait()
}

// check runs the mutant's test with the mistake. It keeps the changed file in a new folder of that name.
func (m *mutant) check(dir string) (res result, output string) {
	overlay, err := m.write(dir)
	if err != nil {
		return unusable, err.Error()
	}
	output, err = goTest(m.test, "-overlay", overlay)
	switch {
	case isBroken(output):
		return unusable, output
	case err != nil: // or it has taken too long
		return found, ""
	}
	return notFound, output
}

// isBroken reports whether the output of go test tells that the changed file is no program.
func isBroken(output string) bool {
	return regexp.MustCompile(`\[(build|setup) failed\]|rror compiling script`).MatchString(output)
}

// write writes the mutant's file with the mistake, and the overlay that puts it in the place of the file.
func (m *mutant) write(dir string) (overlay string, err error) {
	text, err := os.ReadFile(m.file)
	if err != nil {
		return "", err
	}
	changed, err := m.apply(string(text))
	if err != nil {
		return "", err
	}
	original, err := filepath.Abs(m.file)
	if err != nil {
		return "", err
	}
	copied, overlay := filepath.Join(dir, filepath.Base(m.file)), filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{original: copied}})
	if err != nil {
		return "", err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	if err := os.WriteFile(copied, []byte(changed), 0o600); err != nil { //nolint:gosec // in a folder made for it
		return "", err
	}
	return overlay, os.WriteFile(overlay, replace, 0o600)
}

// quick are flags with which go build takes half the time.
var quick = []string{"-vet=off", "-gcflags=github.com/sashlimit/sash/...=-N -l -dwarf=false", "-ldflags=-s -w"}

// goTest runs a test as make test does.
func goTest(t test, flags ...string) (output string, err error) {
	module, pkg := moduleOf(t.pkg)
	args := slices.Concat([]string{"test"}, quick, flags,
		[]string{"-short", "-failfast", "-count=1", "-timeout=90s", "-run", t.pattern(), pkg})
	return command(module, "go", args...)
}

// moduleOf returns the folder of the module that a package is of, and what the package is called there.
func moduleOf(pkg string) (dir, in string) {
	for dir = filepath.Clean(pkg); dir != "."; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, "." + strings.TrimPrefix(filepath.Clean(pkg), dir)
		}
	}
	return "", pkg
}

func command(dir, name string, args ...string) (output string, err error) {
	c := exec.CommandContext(context.Background(), name, args...) //nolint:gosec // those of this program
	c.Dir = dir
	text, err := c.CombinedOutput()
	return string(text), err
}
