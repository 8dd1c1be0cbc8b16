package examples_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/nethttp"
)

// findNginx gives the path of nginx or ends the test.
func findNginx(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"nginx", "/usr/sbin/nginx", "/usr/local/sbin/nginx"} { // not on everybody's PATH
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	const missing = "nginx is not on PATH. Install it (apt-get install nginx) or run `make test INSTALL=1`, which does."
	if os.Getenv("SASH_REQUIRE_NGINX") == "1" {
		t.Fatal(missing)
	}
	t.Skip(missing)
	return ""
}

// startNginx runs nginx until the test ends and returns its address. The server has these locations.
func startNginx(t *testing.T, locations string) string {
	t.Helper()
	binary, dir := findNginx(t), t.TempDir()
	// nginx inherits the socket, so no other process can take its port, and requests wait until it serves them.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	socket, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	config := filepath.Join(dir, "nginx.conf")
	user := ""
	if os.Getuid() == 0 {
		user = "user root;" // else its worker becomes another user, who may not read the test's directories
	}
	text := fmt.Sprintf(`
%[4]s
daemon off;
worker_processes 1;
pid %[1]s/nginx.pid;
error_log stderr warn;
events {}
http {
	access_log off;
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;
	server {
		listen %[2]s;
		%[3]s
	}
}`, dir, l.Addr(), locations, user)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	output, err := os.Create(filepath.Join(dir, "output"))
	if err != nil {
		t.Fatal(err)
	}
	defer output.Close()
	c := exec.Command(binary, "-p", dir, "-c", config, "-e", "stderr")
	c.Env = append(os.Environ(), "NGINX=3;")
	c.ExtraFiles = []*os.File{socket}
	c.Stdout, c.Stderr = output, output
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM} // which ends its worker too
	started, done := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread() // the kernel takes the end of the thread that forked for the death of the parent
		defer runtime.UnlockOSThread()
		err := c.Start()
		started <- err
		if err == nil {
			c.Wait()
			close(done)
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Process.Signal(syscall.SIGTERM)
		select {
		case <-done:
		case <-time.After(3 * time.Second):
			c.Process.Kill()
			<-done
		}
		if t.Failed() {
			said, _ := os.ReadFile(output.Name())
			t.Logf("nginx said:\n%s", said)
		}
	})
	return l.Addr().String()
}

// fromAddr asks for url as a client with that address and those forged values, one after the other, and returns the
// statuses.
func fromAddr(t *testing.T, addr, url string, forged ...string) (statuses []int) {
	t.Helper()
	for _, value := range forged {
		w, _ := askFrom(t, addr, http.MethodGet, url, "X-Forwarded-For: "+value)
		statuses = append(statuses, w.StatusCode)
	}
	return statuses
}

// The rows of docs/proxies.md for nginx and for Unix sockets hold behind a real nginx, and without them goes wrong what
// they say.
func TestNginx(t *testing.T) {
	const directive = "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;"
	if row := rowOf(t, "nginx on the same host"); !strings.Contains(row, "`"+directive+"`") ||
		!strings.Contains(row, "`core.ByForwardedIP(\"127.0.0.1\", \"::1\")`") {
		t.Errorf("the row for nginx is not what this tests:\n%s", row)
	}
	if row := rowOf(t, "a Unix socket"); !strings.Contains(row, "`core.ByForwardedIP(\"unix\")`") {
		t.Errorf("the row for Unix sockets is not what this tests:\n%s", row)
	}
	// Each key has a server and a location of its own, so the order of the cases does not matter.
	local, onSocket := core.ByForwardedIP("127.0.0.1", "::1"), core.ByForwardedIP("unix")
	cases := []struct {
		desc      string
		key       core.Key
		unix      bool
		directive string
		want      []int // four requests with forged values from 127.0.0.2, then two from 127.0.0.3
	}{
		{"as the page says", local, false, directive, []int{200, 200, 200, 429, 200, 200}},
		{"overwriting", local, false, "proxy_set_header X-Forwarded-For $remote_addr;",
			[]int{200, 200, 200, 429, 200, 200}},
		{"proxy_pass alone", local, false, "", []int{200, 200, 200, 200, 200, 200}},
		{"ByIP", core.ByIP(), false, directive, []int{200, 200, 200, 429, 429, 429}},
		{"a Unix socket", onSocket, true, directive, []int{200, 200, 200, 429, 200, 200}},
		{"a Unix socket under ByIP", core.ByIP(), true, directive, []int{400, 400, 400, 400, 400, 400}},
	}
	var locations strings.Builder
	sockets := t.TempDir()
	for i, c := range cases {
		served := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "served") })
		server := httptest.NewUnstartedServer(nethttp.New(core.PerHour(3), c.key)(served))
		to := server.Listener.Addr().String()
		if c.unix {
			server.Listener.Close()
			to = "unix:" + filepath.Join(sockets, fmt.Sprint(i))
			l, err := net.Listen("unix", strings.TrimPrefix(to, "unix:"))
			if err != nil {
				t.Fatal(err)
			}
			server.Listener = l
		}
		server.Start()
		t.Cleanup(server.Close)
		fmt.Fprintf(&locations, "location /%d { proxy_pass http://%s; %s }\n", i, to, c.directive)
	}
	addr := startNginx(t, locations.String())
	for i, c := range cases {
		url := fmt.Sprintf("http://%s/%d", addr, i)
		got := slices.Concat(
			fromAddr(t, "127.0.0.2", url, "6.6.6.1", "6.6.6.2", "6.6.6.3, 127.0.0.1", "6.6.6.4"),
			fromAddr(t, "127.0.0.3", url, "6.6.6.1", "6.6.6.5"),
		)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: statuses %v, want %v", c.desc, got, c.want)
		}
	}
	// That is why docs/proxies.md has the check made from another machine.
	got := fromAddr(t, "127.0.0.1", "http://"+addr+"/0", "6.6.6.11", "6.6.6.12", "6.6.6.13", "6.6.6.14")
	if slices.Contains(got, 429) {
		t.Errorf("from localhost, which is trusted: statuses %v, want none denied", got)
	}
}
