package examples_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// askFrom sends a request as a client with that address, with header fields of the form "Name: value".
func askFrom(t *testing.T, addr, method, url string, fields ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range fields {
		name, value, _ := strings.Cut(field, ": ")
		r.Header.Add(name, value)
	}
	r.Host = r.Header.Get("Host")
	w, err := (&http.Transport{
		DialContext:       (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(addr)}}).DialContext,
		DisableKeepAlives: true,
	}).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Body.Close()
	body, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return w, string(body)
}

// site starts nginx in front of static files, with examples/service/nginx.conf as changed by old and new texts.
func site(t *testing.T, service string, oldnew ...string) (url string) {
	t.Helper()
	text, err := os.ReadFile("service/nginx.conf")
	if err != nil {
		t.Fatal(err)
	}
	config := string(text)
	for i := 0; i < len(oldnew); i += 2 {
		if !strings.Contains(config, oldnew[i]) {
			t.Fatalf("nginx.conf does not contain %q", oldnew[i])
		}
		config = strings.ReplaceAll(config, oldnew[i], oldnew[i+1])
	}
	config = strings.ReplaceAll(config, "127.0.0.1:8081", strings.TrimPrefix(service, "http://"))
	root := t.TempDir()
	for _, err := range []error{
		os.WriteFile(filepath.Join(root, "page.html"), []byte("a page"), 0o600),
		os.WriteFile(filepath.Join(root, "index.html"), []byte("an index"), 0o600),
		os.Mkdir(filepath.Join(root, "dir"), 0o700),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return "http://" + startNginx(t, config+fmt.Sprintf(`
root %s;
location / {}
location /again { try_files /none /; }
`, root))
}

// limitsOfSite are the rules of a service that nginx asks.
const limitsOfSite = `
rules:
- {name: form, match: {methods: [POST], path: /form}, key: ip, limits: [1/hour]}
- {name: user, match: {path: /user}, key: {header: X-User, verify: unverified}, limits: [1/hour]}
- {name: far, match: {path: /far/}, key: {forwarded: [127.0.0.5]}, limits: [1/hour]}
- {name: host, match: {host: other.example.com}, key: ip, limits: [1/hour]}
- {name: site, key: ip, limits: [4/hour], deny: [127.0.0.4]}
`

func TestNginxAsksService(t *testing.T) {
	findNginx(t)
	c := exec.Command(compile(t, "service"), "-rules", rulesFile(t, limitsOfSite), "-listen", "127.0.0.1:0")
	at, _ := start(t, c)
	const slow, open = "timeout 1s", "# error_page 502"
	closed := site(t, at, slow, "timeout 60s")
	const policy = `"site-4-per-hour";q=4;w=3600`
	forged := []string{"X-Forwarded-For: 127.0.0.9"}
	forgedNginx := []string{"X-Original-URI: /form", "X-Original-Method: POST"}
	forgedTraefik := []string{"X-Forwarded-Uri: /form", "X-Forwarded-Method: POST"}
	otherHost, far := []string{"Host: other.example.com"}, "X-Forwarded-For: 192.0.2."
	for i, c := range []struct {
		addr, ask    string
		fields       []string
		status       int
		policy, left string // RateLimit-Policy and RateLimit begin so
	}{
		{"127.0.0.2", "GET /page.html", nil, 200, policy, `"site-4-per-hour";r=3;t=`},
		{"127.0.0.2", "HEAD //page.html", nil, 200, policy, `"site-4-per-hour";r=2;t=`},
		{"127.0.0.2", "GET /missing", nil, 404, policy, `"site-4-per-hour";r=1;t=`},
		{"127.0.0.2", "GET /dir/", nil, 403, policy, `"site-4-per-hour";r=0;t=`}, // by nginx itself
		{"127.0.0.2", "GET /page.html", nil, 429, policy, `"site-4-per-hour";r=0;t=`},
		{"127.0.0.2", "GET /page.html", forged, 429, policy, `"site-4-per-hour";r=0;t=`},
		{"127.0.0.2", "GET /page.html", forgedNginx, 429, policy, `"site-4-per-hour";r=0;t=`},
		{"127.0.0.2", "GET /page.html", forgedTraefik, 429, policy, `"site-4-per-hour";r=0;t=`},
		{"127.0.0.2", "GET /page.html", otherHost, 200, `"host`, `"host-1-per-hour";r=0;t=`},
		{"127.0.0.3", "GET /page.html", nil, 200, policy, `"site-4-per-hour";r=3;t=`},
		{"127.0.0.4", "GET /page.html", nil, 403, "", ""}, // on the deny list
		{"127.0.0.2", "POST /%66orm?x=1", nil, 404, `"form`, `"form-1-per-hour";r=0;t=`},
		{"127.0.0.2", "POST /x/../form", nil, 429, `"form`, `"form-1-per-hour";r=0;t=`},
		{"127.0.0.5", "GET /far/1", []string{"X-Forwarded-For: 6.6.6.6, 192.0.2.1"}, 404, `"far`, `"far-1-per-hour";`},
		{"127.0.0.5", "GET /far/2", []string{far + "1"}, 429, `"far`, `"far-1-per-hour";`},
		{"127.0.0.5", "GET /far/3", []string{far + "2"}, 404, `"far`, `"far-1-per-hour";`},
		{"127.0.0.2", "GET /user", nil, 500, "", ""},                              // the service answers 400
		{"127.0.0.8", "GET /", nil, 200, policy, `"site-4-per-hour";r=3;t=`},      // redirected to /index.html
		{"127.0.0.8", "GET /again", nil, 200, policy, `"site-4-per-hour";r=2;t=`}, // to / and /index.html
		{"127.0.0.7", "GET /_limits", nil, 404, "", ""},                           // internal
	} {
		method, path, _ := strings.Cut(c.ask, " ")
		w, body := askFrom(t, c.addr, method, closed+path, c.fields...)
		got, left, retry := w.Header.Get("RateLimit-Policy"), w.Header.Get("RateLimit"), w.Header.Get("Retry-After")
		if w.StatusCode != c.status || !strings.HasPrefix(got, c.policy) || (got == "") != (c.policy == "") ||
			!strings.HasPrefix(left, c.left) {
			t.Errorf("%d: %s: status %d, %v, %s; want %d", i, c.ask, w.StatusCode, w.Header, body, c.status)
		}
		denied := c.status == http.StatusTooManyRequests
		if denied != (len(retry) == len("3600")) || denied != strings.Contains(body, "Too many requests.") {
			t.Errorf("%d: %s: Retry-After %q, %s", i, c.ask, retry, body)
		}
	}

	// A refusal of the service is no outage.
	opened := site(t, at, slow, "timeout 60s", open, open[2:])
	if w, _ := askFrom(t, "127.0.0.6", "GET", opened+"/page.html"); w.Header.Get("RateLimit-Policy") == "" {
		t.Errorf("with a service that answers: status %d, %v", w.StatusCode, w.Header)
	}
	if w, _ := askFrom(t, "127.0.0.6", "GET", opened+"/user"); w.StatusCode != http.StatusInternalServerError {
		t.Errorf("a request that the service refuses: status %d, want 500", w.StatusCode)
	}

	// A service that is stopped does not answer, and one that is killed refuses connections.
	outage := func(desc, at string, want int) {
		t.Helper()
		for range 6 {
			w, body := askFrom(t, "127.0.0.6", "GET", at+"/page.html")
			if w.StatusCode != want || w.Header.Get("RateLimit-Policy") != "" || (body == "a page") != (want == 200) {
				t.Errorf("%s: status %d, %v, %s; want %d", desc, w.StatusCode, w.Header, body, want)
			}
			if strings.HasPrefix(desc, "stopped") {
				break // it takes a second
			}
		}
	}
	impatient, impatientOpened := site(t, at), site(t, at, open, open[2:])
	if err := c.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if _, err := syscall.Wait4(c.Process.Pid, nil, syscall.WUNTRACED, nil); err != nil { // until then it may answer
		t.Fatal(err)
	}
	outage("stopped", impatient, http.StatusInternalServerError)
	outage("stopped, fail open", impatientOpened, http.StatusOK)
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	c.Wait()
	outage("killed", closed, http.StatusInternalServerError)
	outage("killed, fail open", opened, http.StatusOK)
}
