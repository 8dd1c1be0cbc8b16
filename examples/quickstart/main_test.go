package main

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sashlimit/sash/core/coretest/redistest"
)

// build compiles the program as a newcomer would.
func build(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "quickstart")
	if out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// run starts the program and gives its address, and what it has printed once it
// has ended.
func run(t *testing.T, path string, env ...string) (url string, stop func() string) {
	t.Helper()
	c := exec.Command(path)
	c.Env = append(os.Environ(), append([]string{"PORT=0", "REDIS_URL="}, env...)...)
	c.Stderr = os.Stderr
	pipe, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	out := bufio.NewReader(pipe)
	first, err := out.ReadString('\n')
	url = regexp.MustCompile(`http://[^ :]+:\d+`).FindString(first)
	if err != nil || url == "" {
		t.Fatalf("it begins with %q, %v", first, err)
	}
	stop = sync.OnceValue(func() string {
		c.Process.Signal(os.Interrupt)
		rest, _ := io.ReadAll(out)
		if err := c.Wait(); err != nil {
			t.Errorf("it ended with %v", err)
		}
		return first + string(rest)
	})
	t.Cleanup(func() { stop() })
	return url, stop
}

func get(t *testing.T, url string) *http.Response {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, r.Body)
	r.Body.Close()
	return r
}

func TestFirstRun(t *testing.T) {
	url, stop := run(t, build(t))
	for i := range 7 {
		r := get(t, url)
		if want := map[bool]int{true: 200, false: 429}[i < 5]; r.StatusCode != want {
			t.Errorf("request %d: status %d, want %d", i+1, r.StatusCode, want)
		}
		if i < 5 {
			continue
		}
		seconds, err := strconv.Atoi(r.Header.Get("Retry-After"))
		if err != nil || seconds < 1 || seconds > 10 {
			t.Errorf("request %d: Retry-After %q", i+1, r.Header.Get("Retry-After"))
		}
	}
	printed := stop()
	for _, want := range []string{
		"curl -i " + url, "REDIS_URL=redis://", "127.0.0.1        allowed, 4 left\n", "allowed, 0 left\n",
		"denied, free in ",
	} {
		if !strings.Contains(printed, want) {
			t.Errorf("it printed\n%s\nwant %q in it", printed, want)
		}
	}
	if n := strings.Count(printed, "\n"); n > 24+1 {
		t.Errorf("%d lines do not fit on a screen", n)
	}
}

func TestTwoProcessesShareOneQuota(t *testing.T) {
	server := redistest.Start(t)
	path := build(t)
	one, _ := run(t, path, "REDIS_URL="+server.URL())
	two, _ := run(t, path, "REDIS_URL="+server.URL())
	admitted := make(chan bool, 60)
	var wg sync.WaitGroup
	for _, url := range []string{one, two} {
		for range 30 {
			wg.Go(func() { admitted <- get(t, url).StatusCode == http.StatusOK })
		}
	}
	wg.Wait()
	close(admitted)
	n := 0
	for ok := range admitted {
		if ok {
			n++
		}
	}
	if n != 5 {
		t.Errorf("two processes admitted %d of 60 together, want exactly 5", n)
	}
	r := get(t, two)
	seconds, err := strconv.Atoi(r.Header.Get("Retry-After"))
	if r.StatusCode != http.StatusTooManyRequests || err != nil {
		t.Fatalf("status %d, Retry-After %v", r.StatusCode, err)
	}
	<-time.After(time.Duration(seconds) * time.Second)
	if r := get(t, one); r.StatusCode != http.StatusOK {
		t.Errorf("status %d after waiting for Retry-After: %d s", r.StatusCode, seconds)
	}
}

func TestPlainMessages(t *testing.T) {
	path := build(t)
	for _, c := range []struct{ env, want string }{
		{"REDIS_URL=localhost", "write it as redis://"},
		{"REDIS_URL=redis://127.0.0.1:1", "no Redis answers at 127.0.0.1:1"},
		{"PORT=999999", "PORT=999999"},
	} {
		cmd := exec.Command(path)
		cmd.Env = append(os.Environ(), "PORT=0", "REDIS_URL=", c.env)
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), c.want) {
			t.Errorf("%s: %v, %s; want %q", c.env, err, out, c.want)
		}
	}
	url, _ := run(t, path)
	cmd := exec.Command(path)
	cmd.Env = append(os.Environ(), "PORT="+url[strings.LastIndex(url, ":")+1:], "REDIS_URL=")
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "is taken: choose another") {
		t.Errorf("a port in use: %v, %s", err, out)
	}
}
