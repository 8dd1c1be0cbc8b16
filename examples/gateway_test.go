package examples_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const sample = "gateway/limits.yaml"

// printed is what a program prints while it runs.
type printed struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (p *printed) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func (p *printed) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// until waits for an event in another process, which gives no signal, so it looks again and again.
func until(t *testing.T, what string, happened func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !happened(); {
		if time.Now().After(end) {
			t.Fatalf("in a minute it did not happen: %s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// rulesFile writes a file of rules that can be changed.
func rulesFile(t *testing.T, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "limits.yaml")
	writeRules(t, path, text)
	return path
}

func writeRules(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// exited runs a program that ends by itself, and returns its status and what it prints.
func exited(t *testing.T, path string, args ...string) (status int, text string) {
	t.Helper()
	out, err := exec.Command(path, args...).CombinedOutput()
	if failed := (*exec.ExitError)(nil); err != nil && !errors.As(err, &failed) {
		t.Fatal(err)
	} else if err != nil {
		status = failed.ExitCode()
	}
	return status, string(out)
}

// mistakes is a file of rules with two mistakes, and what programs print of it.
const (
	mistakes = "rules:\n- name: all\n  kye: ip\n  key: ip\n  limits: [5/fortnight]\n"
	told     = "%[1]s:3:3: rules[0].kye: "
	toldToo  = "%[1]s:5:12: rules[0].limits[0]: "
)

// startsWrongly checks what programs that take -rules do if they cannot start.
func startsWrongly(t *testing.T, path string, more ...string) {
	t.Helper()
	bad := rulesFile(t, mistakes)
	for _, c := range []struct {
		args   []string
		status int
		want   []string
	}{
		{nil, 2, []string{"-rules FILE"}},
		{more, 2, []string{"-rules FILE"}},
		{append([]string{"-rules", sample, "more"}, more...), 2, []string{"-rules FILE"}},
		{append([]string{"-rules", sample, "-unknown"}, more...), 2, []string{"-unknown"}},
		{append([]string{"-rules", bad}, more...), 1, []string{fmt.Sprintf(told, bad), fmt.Sprintf(toldToo, bad)}},
		{append([]string{"-rules", bad + "x"}, more...), 1, []string{bad + "x"}},
		{append([]string{"-rules", sample, "-listen", "192.0.2.1:http:x"}, more...), 1, []string{"192.0.2.1"}},
	} {
		status, text := exited(t, path, c.args...)
		for _, want := range c.want {
			if status != c.status || !strings.Contains(text, want) {
				t.Errorf("%q: exit status %d, want %d and %q:\n%s", c.args, status, c.status, want, text)
			}
		}
		if c.status == 1 && strings.Count(text, "\n") != len(c.want) {
			t.Errorf("%q: more than the mistakes is printed:\n%s", c.args, text)
		}
	}
}

// forged are fields that services believe a proxy to have written, as a client sends them.
var forged = []string{
	"X-Forwarded-For: 6.6.6.6", "X-Forwarded-Host: forged", "X-Forwarded-Port: 1", "X_Forwarded_For: 6.6.6.6",
	"Forwarded: for=6.6.6.6", "X-Real-IP: 6.6.6.6", "x_real_ip: 6.6.6.6", "X-Client-IP: 6.6.6.6",
	"X-Cluster-Client-IP: 6.6.6.6", "True-Client-IP: 6.6.6.6", "CF-Connecting-IP: 6.6.6.6",
	"Fastly-Client-IP: 6.6.6.6", "X-Original-URL: /healthz", "X-Rewrite-URL: /healthz",
}

func TestGateway(t *testing.T) {
	behind := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Header.Del("Accept-Encoding")
		r.Header.Del("User-Agent")
		r.Header.Del("Content-Length")
		fmt.Fprintf(w, "%s %s %s %q", r.Method, r.URL, body, r.Header)
	}))
	defer behind.Close()
	path := compile(t, "gateway")
	startsWrongly(t, path, "-to", behind.URL)
	for _, to := range []string{"localhost:9000", "ftp://localhost", "http://", "%"} {
		status, text := exited(t, path, "-rules", sample, "-to", to)
		if status != 2 || !strings.Contains(text, "-to URL") {
			t.Errorf("-to %s: exit status %d, %s", to, status, text)
		}
	}
	at, _ := start(t, exec.Command(path, "-rules", sample, "-to", behind.URL+"/base", "-listen", "127.0.0.1:0"))
	for i := range 7 {
		w, body := ask(t, http.MethodPost, at+"/login?x=1", "name=ann", append(forged, "X-Request-Id: 7")...)
		want := fmt.Sprintf("POST /base/login?x=1 name=ann %q", http.Header{
			"X-Forwarded-For": {"127.0.0.1"}, "X-Forwarded-Host": {strings.TrimPrefix(at, "http://")},
			"X-Forwarded-Proto": {"http"}, "X-Request-Id": {"7"},
		})
		status, left := http.StatusOK, fmt.Sprintf(`"login-5-per-minute";r=%d;`, 4-i)
		if i >= 5 {
			status, left, want = http.StatusTooManyRequests, `"login-5-per-minute";r=0;`, "There were too many attempts"
		}
		if w.StatusCode != status || !strings.Contains(body, want) ||
			!strings.HasPrefix(w.Header.Get("RateLimit"), left) {
			t.Errorf("%d: status %d, %v, %s; want %d, %s, %s", i, w.StatusCode, w.Header, body, status, left, want)
		}
	}
	w, body := ask(t, http.MethodPost, at+"/upload", "a body", "Expect: 100-continue")
	if w.Header.Get("RateLimit-Policy") == "" || !strings.Contains(body, "/base/upload a body") {
		t.Errorf("a body that was asked for: status %d, %v, %s", w.StatusCode, w.Header, body)
	}
	for path, policy := range map[string]string{
		"/healthz": "", "/login": `"other-300-per-minute";q=300;w=60`, "/LOGIN/": `"other-300-per-minute";q=300;w=60`,
	} {
		w, _ := get(t, at+path)
		if got := w.Header.Get("RateLimit-Policy"); w.StatusCode != http.StatusOK || got != policy {
			t.Errorf("%s: status %d, RateLimit-Policy %s, want %s", path, w.StatusCode, got, policy)
		}
	}
	behind.Close()
	if w, _ := get(t, at+"/elsewhere"); w.StatusCode != http.StatusBadGateway {
		t.Errorf("without the service behind it: status %d", w.StatusCode)
	}
}

// sharedRules refuse a request while Redis is too busy to answer.
const sharedRules = "{failure: closed, rules: [{name: all, key: ip, limits: [4/hour]}]}"

// shared uses up a quota at one server, and checks that the others deny then.
func shared(t *testing.T, servers ...func() (status int)) {
	t.Helper()
	answer := func(ask func() int) (status int) {
		until(t, "Redis answers", func() bool {
			status = ask()
			return status != http.StatusServiceUnavailable
		})
		return status
	}
	admitted := 0
	for answer(servers[0]) == http.StatusOK {
		admitted++
	}
	if admitted < 1 || admitted > 4 { // less than 4 if answers of Redis came too late
		t.Errorf("%d requests are admitted, want 4", admitted)
	}
	for i, ask := range servers {
		if status := answer(ask); status != http.StatusTooManyRequests {
			t.Errorf("server %d: status %d, want 429", i, status)
		}
	}
}

// A changed file is taken over, with what was used; a bad one is not, and is told again after a SIGHUP.
func TestGatewayReloads(t *testing.T) {
	behind := onHandler(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	file := rulesFile(t, "rules: [{name: all, key: ip, limits: [1000000/day]}]")
	c := exec.Command(compile(t, "gateway"), "-rules", file, "-to", behind, "-listen", "127.0.0.1:0")
	errs := new(printed)
	c.Stderr = errs
	at, _ := start(t, c)
	policy := func() string {
		w, _ := get(t, at)
		return w.Header.Get("RateLimit-Policy")
	}
	if got := policy(); got != `"all-1000000-per-day";q=1000000;w=86400` {
		t.Fatalf("the policy is %s", got)
	}
	if err := c.Process.Signal(syscall.SIGHUP); err != nil { // of the same file, at any time
		t.Fatal(err)
	}
	writeRules(t, file, mistakes)
	reports := func() int { return strings.Count(errs.String(), "rules[0].kye") }
	until(t, "the mistakes are told", func() bool { return reports() > 0 })
	before := reports()
	if got := policy(); !strings.Contains(got, "1000000") {
		t.Errorf("after a bad file the policy is %s", got)
	}
	if err := c.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	until(t, "a SIGHUP tells the mistakes again", func() bool { return reports() > before })
	// In place, and then as editors and ConfigMaps do it.
	writeRules(t, file, "rules: [{name: all, key: ip, limits: [2000000/day]}]")
	until(t, "the file is taken over", func() bool { return strings.Contains(policy(), "2000000") })
	writeRules(t, file+".new", "rules: [{name: all, key: ip, limits: [2/day]}]")
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
	until(t, "what was used is kept", func() bool {
		w, _ := get(t, at)
		return w.StatusCode == http.StatusTooManyRequests
	})
}

// SIGTERM lets a request end, and then the process.
func TestGatewayShutsDown(t *testing.T) {
	begun, end := make(chan struct{}), make(chan struct{})
	behind := onHandler(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(begun)
			<-end
			io.WriteString(w, "done")
		}
	}))
	c := exec.Command(compile(t, "gateway"), "-rules", sample, "-to", behind, "-listen", "127.0.0.1:0")
	at, _ := start(t, c)
	answered := make(chan string, 1)
	go func() {
		w, err := http.Get(at + "/slow")
		if err != nil {
			answered <- err.Error()
			return
		}
		defer w.Body.Close()
		body, err := io.ReadAll(w.Body)
		answered <- fmt.Sprint(string(body), " ", err)
	}()
	<-begun
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	fresh := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	until(t, "it listens no longer", func() bool {
		w, err := fresh.Get(at)
		if err == nil {
			w.Body.Close()
		}
		return err != nil
	})
	close(end)
	if got := <-answered; got != "done <nil>" {
		t.Errorf("the request in flight got %s", got)
	}
	if err := c.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}
