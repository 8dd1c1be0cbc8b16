package examples_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sashlimit/sash/core/coretest/redistest"
)

// compile returns the program of an example. All are built by the first call.
func compile(t *testing.T, name string) string {
	t.Helper()
	built.once.Do(func() { goBuild(t, built.dir, "./...") })
	return filepath.Join(built.dir, name)
}

// Programs are short enough to be read, but for two that are there to be watched.
func TestProgramsAreShort(t *testing.T) {
	paths, err := filepath.Glob("*/main.go")
	if err != nil || len(paths) < 18 {
		t.Fatal(paths, err)
	}
	watched := []string{"quickstart/main.go", "cluster/main.go"}
	for _, path := range paths {
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(source, []byte("\n")); n >= 80 && !slices.Contains(watched, path) {
			t.Errorf("%s has %d lines, want less than 80", path, n)
		}
	}
}

// ask sends a request with header fields of the form "Name: value".
func ask(t *testing.T, method, url, body string, fields ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range fields {
		name, value, _ := strings.Cut(field, ": ")
		r.Header.Add(name, value)
	}
	return send(t, http.DefaultClient, r)
}

// send gives a response with its body, and checks what every denial has.
func send(t *testing.T, client *http.Client, r *http.Request) (*http.Response, string) {
	t.Helper()
	w, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Body.Close()
	body, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	if w.StatusCode == http.StatusTooManyRequests {
		seconds, err := strconv.Atoi(w.Header.Get("Retry-After"))
		if err != nil || seconds < 1 || seconds > 3600 || w.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("a denial with %v", w.Header)
		}
	}
	return w, string(body)
}

// logIn tries a password, and gives the status.
func logIn(t *testing.T, client *http.Client, at, name, password string) (status int, w *http.Response, body string) {
	t.Helper()
	form := url.Values{"name": {name}, "password": {password}}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, at+"/login", strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w, body = send(t, client, r)
	return w.StatusCode, w, body
}

func TestLogin(t *testing.T) {
	const policies = `"20-per-minute";q=20;w=60, "100-per-hour";q=100;w=3600`
	at, _ := run(t, compile(t, "login"))
	try := func(name, password string, want int) (w *http.Response, body string) {
		t.Helper()
		status, w, body := logIn(t, http.DefaultClient, at, name, password)
		if status != want {
			t.Errorf("%s, %s: status %d, want %d; %s", name, password, status, want, body)
		}
		return w, body
	}
	for range 30 { // more than any quota: they do not count
		try("ann", "correct horse", http.StatusOK)
	}
	for i := range 5 {
		try([]string{"ann", "Ann", "ANN"}[i%3], "guess", http.StatusUnauthorized)
	}
	for _, password := range []string{"guess", "correct horse"} {
		w, body := try("ann", password, http.StatusTooManyRequests)
		policy, retry := w.Header.Get("RateLimit-Policy"), w.Header.Get("Retry-After")
		if len(retry) > 2 || policy != policies || !strings.Contains(body, "5-per-minute") {
			t.Errorf("header %v, body %s; want denied by the name for a minute, "+
				"and only the address in RateLimit-Policy", w.Header, body)
		}
	}

	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	elsewhere := &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext}}
	if listener, err := net.Listen("tcp", "127.0.0.2:0"); err == nil { // not every system has it
		listener.Close()
		defer elsewhere.CloseIdleConnections()
		if status, _, body := logIn(t, elsewhere, at, "ann", "correct horse"); status != http.StatusOK {
			t.Errorf("the owner of the name, at another address: status %d, %s", status, body)
		}
	}

	try("", "guess", http.StatusBadRequest)
	try("bob", strings.Repeat("long ", 1000), http.StatusBadRequest)
	for i := range 15 { // neither denials nor what could not be tried have counted
		try(fmt.Sprint("user", i), "guess", http.StatusUnauthorized)
	}
	if _, body := try("one more", "guess", http.StatusTooManyRequests); !strings.Contains(body, "20-per-minute") {
		t.Errorf("body %s; want denied by the address", body)
	}
}

func TestTiers(t *testing.T) {
	at, out := run(t, compile(t, "tiers"))
	typing := commands(t, out, 2)
	token := func(i int) string {
		return regexp.MustCompile(`Bearer ([^']+)'`).FindStringSubmatch(typing[i])[1]
	}
	free, pro := token(0), token(1)
	part := func(token string, i int) string { return strings.Split(token, ".")[i] }
	for i, c := range []struct {
		desc, token string
		status      int
		header      string // RateLimit begins with
	}{
		{"free", free, 200, `"3-per-minute";r=2;`},
		{"free", free, 200, `"3-per-minute";r=1;`},
		{"free", free, 200, `"3-per-minute";r=0;`},
		{"free", free, 429, `"3-per-minute";r=0;`},
		{"upgraded", pro, 200, `"10-per-minute";r=6;`},
		{"upgraded", pro, 200, `"10-per-minute";r=5;`},
		{"as before", free, 429, `"3-per-minute";r=0;`},
		{"anonymous", "", 200, `"3-per-minute";r=2;`},
		{"anonymous", "", 200, `"3-per-minute";r=1;`},
		{"anonymous", "", 200, `"3-per-minute";r=0;`},
		{"anonymous", "", 429, `"3-per-minute";r=0;`},
		{"free token with the claims of the other", part(free, 0) + "." + part(pro, 1) + "." + part(free, 2), 401, ""},
		{"no signature", "eyJhbGciOiJub25lIn0." + part(pro, 1) + ".", 401, ""},
		{"upgraded", pro, 200, `"10-per-minute";r=4;`},
	} {
		var fields []string
		if c.token != "" {
			fields = []string{"Authorization: Bearer " + c.token}
		}
		w, body := ask(t, http.MethodGet, at, "", fields...)
		if got := w.Header.Get("RateLimit"); w.StatusCode != c.status || !strings.HasPrefix(got, c.header) {
			t.Errorf("request %d, %s: status %d, RateLimit %s, %s; want %d, %s",
				i+1, c.desc, w.StatusCode, got, body, c.status, c.header)
		}
	}
}

func TestTokens(t *testing.T) {
	at, _ := run(t, compile(t, "tokens"))
	const prompt = "what is a sash window?"
	for i, c := range []struct {
		key, model, prompt string
		status             int
		header             string
		body               string
	}{
		{"key-1", "small", prompt, 200, `"1000-tokens-per-minute";r=695;`, "WHAT IS A SASH WINDOW? \n(10 tokens)\n"},
		{"key-1", "small", prompt, 200, `"1000-tokens-per-minute";r=685;`, "WHAT IS A SASH WINDOW? \n(10 tokens)\n"},
		{"key-2", "small", prompt, 200, `"1000-tokens-per-minute";r=695;`, "(10 tokens)\n"},
		{"key-1", "small", strings.Repeat("so ", 500), 200, `"1000-tokens-per-minute";r=305;`, "(1000 tokens)\n"},
		{"key-1", "small", prompt, 429, `"1000-tokens-per-minute";r=0;t=`, "#quota-exceeded"},
		{"key-2", "small", prompt, 200, `"1000-tokens-per-minute";r=685;`, "(10 tokens)\n"},
		{"key-3", "small", prompt, 401, "", "no such API key\n"},
		{"key-1", "huge", prompt, 404, "", "no such model\n"},
		{"key-2", "small", strings.Repeat("so ", 5000), 413, "", "the prompt is too long\n"},
		{"key-2", "large", strings.Repeat("so ", 2000), 200, `"5000-tokens-per-minute";r=3200;`, "(4000 tokens)\n"},
		{"key-2", "large", prompt, 429, `"3000-tokens-per-minute";r=0;t=`, "#quota-exceeded"}, // of all customers
		{"key-2", "small", prompt, 200, `"1000-tokens-per-minute";r=675;`, "(10 tokens)\n"},
	} {
		w, body := ask(t, http.MethodPost, at+"/"+c.model, c.prompt, "X-API-Key: "+c.key)
		got := w.Header.Get("RateLimit")
		if w.StatusCode != c.status || !strings.Contains(got, c.header) || !strings.Contains(body, c.body) {
			t.Errorf("request %d: status %d, RateLimit %s, %s; want %d, %s, %s",
				i+1, w.StatusCode, got, body, c.status, c.header, c.body)
		}
		if w.StatusCode == http.StatusOK && w.ContentLength != -1 {
			t.Errorf("request %d: the answer has %d bytes, want a stream", i+1, w.ContentLength)
		}
	}
}

func TestPriority(t *testing.T) {
	out, err := exec.Command(compile(t, "priority")).Output()
	const want = `flood sent 8 jobs, then ann 2. They run in this order, so that ann hardly waits:
job  1 of flood  who had used 0
job  9 of ann    who had used 0
job  2 of flood  who had used 1
job 10 of ann    who had used 1
job  3 of flood  who had used 2
job  4 of flood  who had used 3
job  5 of flood  who had used 4
job  6 of flood  who had used 5
job  7 of flood  who had used 6
job  8 of flood  who had used 7
`
	if string(out) != want || err != nil {
		t.Errorf("it printed %v\n%s\nwant\n%s", err, out, want)
	}
}

// Two processes that share a Redis send no more calls together than one may.
func TestCalls(t *testing.T) {
	path := compile(t, "calls")
	server := redistest.Start(t)
	api := onHandler(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	begin := time.Now()
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			c := exec.Command(path, "-to", api, "-n", "6")
			c.Env = append(os.Environ(), "REDIS_URL="+server.URL())
			c.Stderr = os.Stderr
			out, err := c.Output()
			if n := strings.Count(string(out), "status 200\n"); n != 6 || err != nil {
				t.Errorf("%d calls, %v, want 6; it printed\n%s", n, err, out)
			}
		})
	}
	all.Wait()
	if took := time.Since(begin); took < 2*time.Second { // the eleventh is at least two windows after the first
		t.Errorf("12 calls of 5 a second took %v", took)
	}
}
