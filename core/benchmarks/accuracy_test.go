package main

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"html"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
)

// With this folder to write to, a test binary is the program.
const accuracyDir = "SASH_BENCHMARKS_ACCURACY"

func TestMain(m *testing.M) {
	dir := os.Getenv(accuracyDir)
	if dir == "" {
		os.Exit(m.Run())
	}
	os.Args = []string{"benchmarks", "-out", dir, "accuracy"}
	main()
}

// faulty are contestants that are not exact, but should be.
func faulty() map[string]contestant {
	generous := algorithm("generous", exact, one, local)
	exactly := generous.make
	generous.make = func(l limit) (limiter, error) {
		l.quota++
		return exactly(l)
	}
	mean := algorithm("mean", exact, one, local)
	mean.make = func(l limit) (limiter, error) {
		lim, err := exactly(l)
		n, check := 0, lim.check
		lim.check = func(ctx context.Context, key string) (bool, error) {
			n++
			ok, err := check(ctx, key)
			return ok && n != 50, err
		}
		return lim, err
	}
	failing := algorithm("failing", window, one, local)
	failing.make = func(limit) (limiter, error) {
		fails := func(context.Context, string) (bool, error) { return false, errors.New("no answer") }
		return limiter{check: fails}, nil
	}
	return map[string]contestant{"generous": generous, "mean": mean, "failing": failing}
}

func TestVerdict(t *testing.T) {
	of := func(contestants ...contestant) (trials []*trial) {
		synctest.Test(t, func(*testing.T) { trials = replays(contestants) })
		return trials
	}
	faulty, log := faulty(), algorithm("sash", exact, one, local)
	inexact := faulty["generous"]
	inexact.kind = bucket
	for name, c := range map[string]struct {
		trials []*trial
		want   string // in the error; empty if there should be none
	}{
		"sash":                  {of(log), ""},
		"beside an inexact one": {of(log, inexact), ""},
		"one too many":          {of(log, faulty["generous"]), "generous is not exact: edge: 1 above"},
		"one too few":           {of(faulty["mean"], log), "steady: 0 above the quota in one window, 1 denied falsely"},
		"one that fails":        {of(log, faulty["failing"]), "failing: herd after 0s: no answer"},
		"nothing exact":         {of(inexact), "nothing exact was judged"},
		"nothing":               {nil, "nothing exact was judged"},
	} {
		err := verdict(c.trials)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, trial := range of(log) {
		if n := len(trial.trace.at); trial.err != nil || len(trial.asked) != n {
			t.Errorf("%s: %d of %d requests asked: %v", trial.trace.name, len(trial.asked), n, trial.err)
		}
	}
}

// asProgram runs this test binary as the program and returns its output and the folder it has written to.
func asProgram(t *testing.T) (stdout, stderr, dir string, err error) {
	t.Helper()
	connect(t) // or skip the test
	dir = t.TempDir()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "README.md"), readme, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), accuracyDir+"="+dir)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), dir, err
}

// TestAccuracy runs the program. README.md must have the tables that it prints.
func TestAccuracy(t *testing.T) {
	stdout, stderr, dir, err := asProgram(t)
	if err != nil || stderr != "" {
		t.Fatalf("%v: %s\n%s", err, stderr, stdout)
	}
	zeros := 0
	for line := range strings.Lines(stdout) {
		name, cells, _ := strings.Cut(strings.Trim(line, "|\n"), "|")
		if name = strings.TrimSpace(name); name == "sash" || name == "sash, in Redis" {
			zeros++
			if strings.Trim(cells, " 0|") != "" {
				t.Errorf("not exact: %s", line)
			}
		}
	}
	if zeros != 4 {
		t.Errorf("%d lines of sash's log, not 2 in each of 2 tables", zeros)
	}
	written, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil || !strings.Contains(string(written), stdout) {
		t.Errorf("README.md is written without the tables: %v", err)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	// Elsewhere sums of floating point numbers may differ in their last digit.
	if runtime.GOARCH == "amd64" && !bytes.Equal(written, readme) {
		t.Errorf("README.md has other tables: do \"go run . accuracy\"\n%s", stdout)
	}
	chart, err := os.ReadFile(filepath.Join(dir, "charts", "accuracy.svg"))
	if err != nil {
		t.Fatal(err)
	}
	wellFormed(t, "accuracy.svg", chart)
	for _, c := range judged(nil) {
		drawn := bytes.Contains(chart, []byte(">"+html.EscapeString(c.name)+"<"))
		if !strings.Contains(stdout, "| "+c.name+" ") || drawn == strings.HasPrefix(c.name, "sash, ") {
			t.Errorf("%s is missing in a table or the chart, or is another algorithm of sash in the chart", c.name)
		}
	}
	var width, height float64
	if _, size, ok := strings.Cut(string(chart), " viewBox=\""); !ok {
		t.Fatal("the chart has no size")
	} else if _, err := fmt.Sscanf(size, "0 0 %f %f", &width, &height); err != nil || height > 480 {
		t.Errorf("the chart is %v high, want 480 at most; %v", height, err)
	}
	for _, found := range regexp.MustCompile(`font-size:([\d.]+)`).FindAllStringSubmatch(string(chart), -1) {
		const phone, least = 390, 11 // px
		if size, err := strconv.ParseFloat(found[1], 64); err != nil || size*phone/width < least {
			t.Errorf("letters of %s are too small where the chart is %d px wide", found[1], phone)
		}
	}
}

func wellFormed(t *testing.T, name string, text []byte) {
	t.Helper()
	for d := xml.NewDecoder(bytes.NewReader(text)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
}
