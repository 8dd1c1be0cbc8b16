package examples_test

import (
	"io"
	"log"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
