// Testring runs go test and shows how it gets on: a line for each package as it ends, a line whenever nothing else has
// been printed for 20 seconds, all output of tests that fail, and at the end how many tests passed, and how many were
// skipped and why. Its arguments are those of go test.
package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
)

func main() {
	args := os.Args[1:]
	dir := ""
	if len(args) > 1 && args[0] == "-C" { // go test wants -C before -json
		dir, args = args[1], args[2:]
	}
	args = append([]string{"test", "-json"}, args...)
	c := exec.CommandContext(context.Background(), "go", args...) //nolint:gosec // go test, with the arguments given
	c.Dir, c.Stderr = dir, os.Stderr
	if err := run(c, os.Stdout); err != nil {
		if failed := (*exec.ExitError)(nil); !errors.As(err, &failed) {
			fmt.Fprintln(os.Stderr, "testring:", err)
		}
		os.Exit(1)
	}
}

func run(c *exec.Cmd, out io.Writer) error {
	events, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	r := newReport(out)
	r.follow(events)
	r.summary()
	return c.Wait()
}

// event is a line of go test -json, as go doc test2json describes it.
type event struct {
	Action  string  `json:"Action"`
	Package string  `json:"Package"`
	Test    string  `json:"Test"`
	Output  string  `json:"Output"`
	Elapsed float64 `json:"Elapsed"`
}

// report prints events of several packages, which come at the same time.
type report struct {
	out      io.Writer
	begin    time.Time
	output   map[event]*strings.Builder // by package and test
	running  map[string][]string        // tests that have begun, by package
	counts   map[string]int             // of tests that are not part of another one, by how they ended
	packages map[string]int             // by how they ended
	skipped  map[string]int             // tests, by reason
}

func newReport(out io.Writer) *report {
	return &report{
		out: out, begin: time.Now(),
		output: map[event]*strings.Builder{}, running: map[string][]string{},
		counts: map[string]int{}, packages: map[string]int{}, skipped: map[string]int{},
	}
}

// patience is how long nothing is printed at most.
const patience = 20 * time.Second

// follow prints what happens until the output of go test ends.
func (r *report) follow(output io.Reader) {
	lines := make(chan string)
	go func() {
		defer close(lines)
		for s := bufio.NewReader(output); ; {
			line, err := s.ReadString('\n')
			if err != nil {
				return
			}
			lines <- line
		}
	}()
	quiet := time.NewTimer(patience)
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				return
			}
			if r.line(line) {
				quiet.Reset(patience)
			}
		case <-quiet.C:
			r.stillRunning()
			quiet.Reset(patience)
		}
	}
}

// line reports whether it has printed anything.
func (r *report) line(text string) (printed bool) {
	var e event
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		fmt.Fprint(r.out, text)
		return true
	}
	of := event{Package: e.Package, Test: e.Test}
	switch e.Action {
	case "start":
		r.running[e.Package] = nil
	case "run":
		r.running[e.Package] = append(r.running[e.Package], e.Test)
	case "build-output":
		fmt.Fprint(r.out, e.Output)
		return true
	case "output":
		if r.output[of] == nil {
			r.output[of] = new(strings.Builder)
		}
		r.output[of].WriteString(e.Output)
	case "pass", "fail", "skip":
		text := r.output[of]
		delete(r.output, of)
		if text == nil {
			text = new(strings.Builder)
		}
		if e.Test == "" {
			return r.packageEnded(e, text.String())
		}
		return r.testEnded(e, text.String())
	}
	return false
}

var message = regexp.MustCompile(`(?m)^ +\S+\.go:\d+: (.*)$`)

func (r *report) testEnded(e event, output string) (printed bool) {
	i := slices.Index(r.running[e.Package], e.Test)
	r.running[e.Package] = slices.Delete(r.running[e.Package], i, i+1)
	if !strings.Contains(e.Test, "/") {
		r.counts[e.Action]++
	}
	switch e.Action {
	case "skip":
		reason := "without a reason"
		if found := message.FindStringSubmatch(output); found != nil {
			reason = found[1]
		}
		r.skipped[reason]++
	case "fail":
		fmt.Fprint(r.out, output)
	}
	return e.Action == "fail"
}

func (r *report) packageEnded(e event, output string) (printed bool) {
	unended := r.running[e.Package] // if the tests have crashed
	delete(r.running, e.Package)
	if e.Action == "skip" { // it has no tests
		return false
	}
	r.packages[e.Action]++
	verdict := "ok  "
	if e.Action == "fail" {
		for _, test := range unended {
			of := event{Package: e.Package, Test: test}
			if text := r.output[of]; text != nil {
				fmt.Fprint(r.out, text)
				delete(r.output, of)
			}
		}
		fmt.Fprint(r.out, output)
		verdict = "FAIL"
	}
	fmt.Fprintf(r.out, "%s  %6.1f s  %s\n", verdict, e.Elapsed, short(e.Package))
	return true
}

// stillRunning prints what takes so long.
func (r *report) stillRunning() {
	all := make([]string, 0, len(r.running))
	for _, name := range slices.Sorted(maps.Keys(r.running)) {
		isPart := func(test string) bool { return strings.Contains(test, "/") }
		tests := slices.DeleteFunc(slices.Clone(r.running[name]), isPart)
		if more := len(tests) - 3; more > 0 {
			tests = append(tests[:3], fmt.Sprintf("%d more", more))
		}
		all = append(all, strings.TrimSpace(short(name)+" "+strings.Join(tests, " ")))
	}
	if len(all) == 0 {
		all = []string{"compiling"}
	}
	fmt.Fprintf(r.out, "...   %6.0f s  %s\n", time.Since(r.begin).Seconds(), strings.Join(all, ", "))
}

func (r *report) summary() {
	fmt.Fprintf(r.out, "In %.0f s, %d tests of %d packages passed", time.Since(r.begin).Seconds(),
		r.counts["pass"], r.packages["pass"]+r.packages["fail"])
	if n := r.counts["fail"]; n > 0 || r.packages["fail"] > 0 {
		fmt.Fprintf(r.out, ", %d failed (%d packages)", n, r.packages["fail"])
	}
	total := 0
	for _, n := range r.skipped {
		total += n
	}
	fmt.Fprintf(r.out, ", %d skipped.\n", total)
	most := func(a, b string) int { return cmp.Or(r.skipped[b]-r.skipped[a], strings.Compare(a, b)) }
	for _, reason := range slices.SortedFunc(maps.Keys(r.skipped), most) {
		fmt.Fprintf(r.out, "%6d skipped: %s\n", r.skipped[reason], reason)
	}
}

func short(name string) string { return strings.TrimPrefix(name, "github.com/sashlimit/sash/") }
