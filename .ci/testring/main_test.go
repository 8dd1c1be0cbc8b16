package main

import (
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const module = "github.com/sashlimit/sash/"

// lineOf is a line of go test -json.
func lineOf(action, pkg, test, output string) string {
	return fmt.Sprintf(`{"Action":%q,"Package":%q,"Test":%q,"Output":%q,"Elapsed":1.25}`+"\n",
		action, module+pkg, test, output)
}

// Two packages at the same time: what passes is a line, what fails has all its output, what is skipped its reason.
func TestReport(t *testing.T) {
	events := lineOf("start", "core", "", "") + lineOf("start", "nethttp", "", "") +
		lineOf("run", "core", "TestA", "") + lineOf("run", "core", "TestA/one", "") +
		lineOf("output", "core", "TestA/one", "    a_test.go:7: no nginx\n") + lineOf("skip", "core", "TestA/one", "") +
		lineOf("run", "nethttp", "TestB", "") + lineOf("output", "nethttp", "TestB", "    b_test.go:9: wrong\n") +
		lineOf("output", "core", "TestA", "    a_test.go:5: a seed\n") + lineOf("pass", "core", "TestA", "") +
		lineOf("run", "core", "TestC", "") + lineOf("output", "core", "TestC", "    c_test.go:1: no nginx\n") +
		lineOf("skip", "core", "TestC", "") +
		lineOf("output", "core", "", "PASS\n") + lineOf("pass", "core", "", "") +
		lineOf("fail", "nethttp", "TestB", "") + lineOf("output", "nethttp", "", "exit status 1\n") +
		lineOf("fail", "nethttp", "", "") +
		lineOf("start", "examples/gin", "", "") + lineOf("skip", "examples/gin", "", "") +
		`{"ImportPath":"x","Action":"build-output","Output":"x.go:1: it does not compile\n"}` +
		"\na warning of go\n"
	const want = `ok       1.2 s  core
    b_test.go:9: wrong
exit status 1
FAIL     1.2 s  nethttp
x.go:1: it does not compile
a warning of go
In 0 s, 1 tests of 2 packages passed, 1 failed (1 packages), 2 skipped.
     2 skipped: no nginx
`
	var out strings.Builder
	r := newReport(&out)
	r.follow(strings.NewReader(events))
	r.summary()
	if out.String() != want {
		t.Errorf("it printed\n%s\nwant\n%s", &out, want)
	}
}

// A crash ends a package before its tests, and its text is output of a test.
func TestReportOfACrash(t *testing.T) {
	events := lineOf("start", "core", "", "") + lineOf("run", "core", "TestA", "") +
		lineOf("output", "core", "TestA", "SIGSEGV\n") + lineOf("output", "core", "", "exit status 2\n") +
		lineOf("fail", "core", "", "")
	const want = "SIGSEGV\nexit status 2\nFAIL     1.2 s  core\n"
	var out strings.Builder
	newReport(&out).follow(strings.NewReader(events))
	if out.String() != want {
		t.Errorf("it printed\n%s\nwant\n%s", &out, want)
	}
}

// While nothing ends, a line tells what runs, so that there is one in any 20 seconds.
func TestStillRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events, send := io.Pipe()
		go func() {
			time.Sleep(25 * time.Second)
			io.WriteString(send, lineOf("start", "core", "", "")+lineOf("run", "core", "TestA", "")+
				lineOf("run", "core", "TestA/one", "")+lineOf("run", "core", "TestB", ""))
			time.Sleep(30 * time.Second)
			io.WriteString(send, lineOf("pass", "core", "TestA/one", "")+lineOf("pass", "core", "TestA", ""))
			time.Sleep(10 * time.Second)
			io.WriteString(send, lineOf("pass", "core", "TestB", "")+lineOf("pass", "core", "", ""))
			send.Close()
		}()
		var out strings.Builder
		newReport(&out).follow(events)
		const want = "...       20 s  compiling\n...       40 s  core TestA TestB\n...       60 s  core TestB\n" +
			"ok       1.2 s  core\n"
		if out.String() != want {
			t.Errorf("it printed\n%s\nwant\n%s", &out, want)
		}
	})
}

// A failure of go test is one of testring.
func TestRun(t *testing.T) {
	var out strings.Builder
	err := run(exec.Command("go", "test", "-json", "no/such/package"), &out)
	if failed := (*exec.ExitError)(nil); !errors.As(err, &failed) {
		t.Errorf("%v; it printed\n%s", err, &out)
	}
	if err := run(exec.Command("go", "test", "-json", "-run", "TestReport", "."), &out); err != nil {
		t.Errorf("%v; it printed\n%s", err, &out)
	}
	if !regexp.MustCompile(`(?m)^ok .*\.ci/testring$`).MatchString(out.String()) {
		t.Errorf("it printed\n%s", &out)
	}
}
