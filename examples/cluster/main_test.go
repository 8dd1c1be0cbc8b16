package main

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sashlimit/sash/core/coretest/redistest"
)

func build(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cluster")
	if out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// start runs the program with a directory of its own for what it leaves behind.
func start(t *testing.T) (c *exec.Cmd, out *bufio.Reader, stderr *strings.Builder, left func() string) {
	t.Helper()
	redistest.Start(t) // is not used: without redis-server this skips the test
	dir := t.TempDir()
	c, stderr = exec.Command(build(t)), new(strings.Builder)
	c.Env = append(os.Environ(), "TMPDIR="+dir)
	c.Stderr = stderr
	pipe, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Process.Kill() // it has ended, unless the test failed
	})
	return c, bufio.NewReader(pipe), stderr, func() string {
		files, err := filepath.Glob(dir + "/*")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(files, " ")
	}
}

const want = `A Redis Cluster on ports PORT, PORT and PORT. Each client may send 10 requests in any minute.

All nodes are up. Each client sends 4 requests:
  bob, on node 1:  4 allowed, 0 denied
  dan, on node 2:  4 allowed, 0 denied
  kim, on node 3:  4 allowed, 0 denied

Node 2 is killed. Each client sends 8 more:
  bob, on node 1:  6 allowed, 2 denied
  dan, on node 2:  8 allowed, 0 denied  (8 decided without Redis)
  kim, on node 3:  6 allowed, 2 denied
Redis still counts bob and kim. The server counts dan by itself until his node is back,
from nothing, since it cannot see what he had used before.

Node 2 is started again, and N s later Redis counts dan: what the server has admitted
is in his log now, and counts against his 10. Each client sends 4 more:
  bob, on node 1:  0 allowed, 4 denied
  dan, on node 2:  2 allowed, 2 denied
  kim, on node 3:  0 allowed, 4 denied
`

func TestCluster(t *testing.T) {
	c, out, stderr, left := start(t)
	printed, err := io.ReadAll(out)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err != nil {
		t.Errorf("it ended with %v: %s", err, stderr)
	}
	port := regexp.MustCompile(`\b\d{4,5}\b`)
	got := port.ReplaceAllString(string(printed), "PORT")
	got = regexp.MustCompile(`\d+\.\d s`).ReplaceAllString(got, "N s")
	if got != want || stderr.String() != "" {
		t.Errorf("it printed\n%s%s\nwant\n%s", got, stderr, want)
	}
	checkPorts(t, port.FindAllString(string(printed), -1))
	if files := left(); files != "" {
		t.Errorf("it has left %s", files)
	}
}

// checkPorts checks that the ports are closed.
func checkPorts(t *testing.T, ports []string) {
	t.Helper()
	if len(ports) != 3 {
		t.Errorf("ports %v", ports)
	}
	for _, port := range ports {
		if conn, err := net.Dial("tcp", "127.0.0.1:"+port); err == nil {
			conn.Close()
			t.Errorf("a server still listens on port %s", port)
		}
	}
}

// Ctrl-C stops the nodes as well.
func TestInterrupt(t *testing.T) {
	c, out, stderr, left := start(t)
	first, err := out.ReadString('\n')
	if err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
	c.Process.Signal(os.Interrupt)
	ended := make(chan error, 1)
	go func() {
		io.Copy(io.Discard, out)
		ended <- c.Wait()
	}()
	select {
	case err = <-ended:
	case <-time.After(time.Minute):
		t.Fatal("it goes on")
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 ||
		stderr.String() != "cluster: interrupted; all nodes are stopped\n" {
		t.Errorf("it ended with %v: %s", err, stderr)
	}
	checkPorts(t, regexp.MustCompile(`\b\d{4,5}\b`).FindAllString(first, -1))
	if files := left(); files != "" {
		t.Errorf("it has left %s", files)
	}
}

func TestWithoutRedis(t *testing.T) {
	c := exec.Command(build(t))
	c.Env = append(os.Environ(), "PATH="+t.TempDir())
	out, err := c.CombinedOutput()
	var exit *exec.ExitError
	const remedy = "cluster: redis-server is not on PATH: install Redis ("
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.HasPrefix(string(out), remedy) {
		t.Errorf("it ended with %v: %s", err, out)
	}
}
