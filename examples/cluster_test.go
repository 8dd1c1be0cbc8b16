package examples_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sashlimit/sash/core/coretest/redistest"
)

// runCluster runs the program to its end, which Ctrl-C may bring about, and checks that it leaves nothing behind.
func runCluster(t *testing.T, interrupt bool) (status int, stdout, stderr string) {
	t.Helper()
	redistest.Start(t) // is not used: without redis-server this skips the test
	dir := t.TempDir()
	c := exec.Command(compile(t, "cluster"))
	out, errs := new(printed), new(printed)
	c.Env, c.Stdout, c.Stderr = append(os.Environ(), "TMPDIR="+dir), out, errs
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Process.Kill() }) // it has ended, unless the test failed
	if interrupt {
		until(t, "it prints its ports", func() bool { return strings.Contains(out.String(), "\n") })
		c.Process.Signal(os.Interrupt)
	}
	c.Wait() // the status tells more
	ports := regexp.MustCompile(`\b\d{4,5}\b`).FindAllString(out.String(), -1)
	if len(ports) != 3 {
		t.Errorf("ports %v", ports)
	}
	for _, port := range ports {
		if conn, err := net.Dial("tcp", "127.0.0.1:"+port); err == nil {
			conn.Close()
			t.Errorf("a server still listens on port %s", port)
		}
	}
	if files, err := filepath.Glob(dir + "/*"); err != nil || len(files) > 0 {
		t.Errorf("it has left %v, %v", files, err)
	}
	return c.ProcessState.ExitCode(), out.String(), errs.String()
}

const clusterPrints = `A Redis Cluster on ports PORT, PORT and PORT. Each client may send 10 requests in any minute.

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
	status, out, errs := runCluster(t, false)
	out = regexp.MustCompile(`\b\d{4,5}\b`).ReplaceAllString(out, "PORT")
	out = regexp.MustCompile(`\d+\.\d s`).ReplaceAllString(out, "N s")
	if status != 0 || out != clusterPrints || errs != "" {
		t.Errorf("exit status %d, it printed\n%s%s\nwant\n%s", status, out, errs, clusterPrints)
	}
}

func TestClusterInterrupted(t *testing.T) {
	status, _, errs := runCluster(t, true)
	if status != 1 || errs != "cluster: interrupted; all nodes are stopped\n" {
		t.Errorf("exit status %d, %s", status, errs)
	}
}

func TestClusterWithoutRedis(t *testing.T) {
	path := compile(t, "cluster")
	t.Setenv("PATH", t.TempDir())
	const remedy = "cluster: redis-server is not on PATH: install Redis ("
	if status, text := exited(t, path); status != 1 || !strings.HasPrefix(text, remedy) {
		t.Errorf("exit status %d, %s", status, text)
	}
}
