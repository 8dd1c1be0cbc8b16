package examples_test

import (
	"io"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/sashlimit/sash/core/coretest/redistest"
)

func TestService(t *testing.T) {
	path := compile(t, "service")
	startsWrongly(t, path)
	if _, usage := exited(t, path); !strings.Contains(usage, `(default "localhost:8081")`) { // it believes its clients
		t.Errorf("it does not listen on localhost:\n%s", usage)
	}
	c := exec.Command(path, "-rules", sample, "-listen", "127.0.0.1:0")
	at, _ := start(t, c)
	w, body := postJSON(t, at+"/check", `{"method":"POST","path":"/login","ip":"192.0.2.1"}`)
	const want = `{"allowed":true,"policy":"login","remaining":4,"retry_after":0,"violated":[]}` + "\n"
	if body != want || w.Header.Get("Content-Type") != "application/json" {
		t.Errorf("status %d, %v, %s, want %s", w.StatusCode, w.Header, body, want)
	}
	w, body = ask(t, http.MethodPost, at+"/auth", "", "X-Forwarded-Method: POST", "X-Forwarded-Uri: /login",
		"X-Forwarded-Host: example.com", "X-Forwarded-For: 192.0.2.1")
	if !strings.HasPrefix(w.Header.Get("RateLimit"), `"login-5-per-minute";r=3;`) {
		t.Errorf("as Traefik asks: status %d, %v, %s", w.StatusCode, w.Header, body)
	}
	if w, body := ask(t, http.MethodPost, at+"/authz/login", ""); w.StatusCode != http.StatusOK {
		t.Errorf("as Envoy asks: status %d, %s", w.StatusCode, body)
	}
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// postJSON is ask for a denial that is no problem document.
func postJSON(t *testing.T, url, body string) (*http.Response, string) {
	t.Helper()
	w, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Body.Close()
	text, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return w, string(text)
}

// Services with one Redis share quotas, and with a gateway of the same rules.
func TestServicesWithRedis(t *testing.T) {
	server := redistest.Start(t)
	env := "REDIS_URL=" + server.URL()
	path, file := compile(t, "service"), rulesFile(t, sharedRules)
	var servers []func() int
	for range 2 {
		at, _ := start(t, exec.Command(path, "-rules", file, "-listen", "127.0.0.1:0"), env)
		servers = append(servers, func() int {
			w, _ := postJSON(t, at+"/check", `{"ip":"127.0.0.1"}`)
			return w.StatusCode
		})
	}
	behind := onHandler(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	c := exec.Command(compile(t, "gateway"), "-rules", file, "-to", behind, "-listen", "127.0.0.1:0")
	gateway, _ := start(t, c, env)
	shared(t, append(servers, func() int {
		w, _ := get(t, gateway)
		return w.StatusCode
	})...)
}
