package examples_test

import (
	"bytes"
	"io"
	"log"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"
)

// window is that of the limit in every example: 3 requests in any 2 seconds.
const window = 2 * time.Second

// built is where compile puts the programs.
var built struct {
	once sync.Once
	dir  string
}

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "examples")
	if err != nil {
		log.Fatal(err)
	}
	built.dir = dir
	m.Run()
	os.RemoveAll(dir)
}

// goBuild compiles packages, given as patterns from this directory.
func goBuild(t *testing.T, dir string, args ...string) {
	t.Helper()
	// Without tables for a debugger the linker takes half the time.
	args = append([]string{"build", "-ldflags=-s -w", "-o", dir + string(filepath.Separator)}, args...)
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		t.Fatalf("go %q: %v\n%s", args, err, out)
	}
}

// run starts an example on a free port and gives its address, and what it prints.
// It ends with the test.
func run(t *testing.T, path string, env ...string) (url string, out *printed) {
	t.Helper()
	return start(t, exec.Command(path), env...)
}

// start is run for a command.
func start(t *testing.T, c *exec.Cmd, env ...string) (url string, out *printed) {
	t.Helper()
	c.Env = append(os.Environ(), append([]string{"PORT=0", "REDIS_URL="}, env...)...)
	if c.Stderr == nil {
		c.Stderr = os.Stderr
	}
	out = new(printed)
	c.Stdout = out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Process.Kill()
		c.Wait() // that it was killed is no news
	})
	until(t, "it prints its address", func() bool {
		url = regexp.MustCompile(`http://(127\.0\.0\.1|localhost):[1-9]\d*\b`).FindString(out.String())
		return url != ""
	})
	return url, out
}

func get(t *testing.T, url string) (*http.Response, string) {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r, string(body)
}

func TestExamples(t *testing.T) {
	for _, name := range []string{"gin", "echo", "chi", "fiber", "nethttp"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // each waits for its own Retry-After
			source, err := os.ReadFile(filepath.Join(name, "main.go"))
			if err != nil {
				t.Fatal(err)
			}
			if n := bytes.Count(source, []byte("\n")); n >= 40 {
				t.Errorf("%d lines, want less than 40", n)
			}

			url, _ := run(t, compile(t, name))
			begin, ok := time.Now(), 0
			r, body := get(t, url)
			for ; r.StatusCode == http.StatusOK && body == "Hello!\n"; r, body = get(t, url) {
				ok++
			}
			// More than 3 fit only if they took longer than the window.
			took := time.Since(begin)
			if r.StatusCode != http.StatusTooManyRequests || ok < 3 || ok > 3 && took < window {
				t.Fatalf("%d times 200 in %v, then status %d, body %q; want 3 times, then 429",
					ok, took, r.StatusCode, body)
			}
			seconds, err := strconv.Atoi(r.Header.Get("Retry-After"))
			if err != nil || seconds < 1 || seconds > 2 {
				t.Fatalf("Retry-After %q", r.Header.Get("Retry-After"))
			}
			<-time.After(time.Duration(seconds) * time.Second)
			if r, _ := get(t, url); r.StatusCode != http.StatusOK {
				t.Errorf("status %d after waiting for Retry-After: %d s", r.StatusCode, seconds)
			}
		})
	}
}
