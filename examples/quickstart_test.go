package examples_test

import (
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sashlimit/sash/core/coretest/redistest"
)

func TestQuickstart(t *testing.T) {
	c := exec.Command(compile(t, "quickstart"))
	url, out := start(t, c)
	for i := range 7 {
		status := http.StatusOK
		if i >= 5 {
			status = http.StatusTooManyRequests
		}
		w, _ := get(t, url)
		seconds, err := strconv.Atoi(w.Header.Get("Retry-After"))
		if w.StatusCode != status || i >= 5 && (err != nil || seconds < 1 || seconds > 10) {
			t.Errorf("request %d: status %d, %v; want %d", i+1, w.StatusCode, w.Header, status)
		}
	}
	c.Process.Signal(os.Interrupt)
	if err := c.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	for _, want := range []string{
		"curl -i " + url, "REDIS_URL=redis://", "127.0.0.1        allowed, 4 left\n", "allowed, 0 left\n",
		"denied, free in ",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it printed\n%s\nwant %q in it", out, want)
		}
	}
	if n := strings.Count(out.String(), "\n"); n > 24+1 {
		t.Errorf("%d lines do not fit on a screen", n)
	}
}

func TestQuickstartTwice(t *testing.T) {
	server := redistest.Start(t)
	path := compile(t, "quickstart")
	one, _ := run(t, path, "REDIS_URL="+server.URL())
	two, _ := run(t, path, "REDIS_URL="+server.URL())
	var admitted atomic.Int64
	var all sync.WaitGroup
	for _, url := range []string{one, two} {
		for range 30 {
			all.Go(func() {
				if w, _ := get(t, url); w.StatusCode == http.StatusOK {
					admitted.Add(1)
				}
			})
		}
	}
	all.Wait()
	if n := admitted.Load(); n != 5 {
		t.Errorf("two processes admitted %d of 60 together, want exactly 5", n)
	}
	w, _ := get(t, two)
	seconds, err := strconv.Atoi(w.Header.Get("Retry-After"))
	if w.StatusCode != http.StatusTooManyRequests || err != nil {
		t.Fatalf("status %d, %v", w.StatusCode, w.Header)
	}
	<-time.After(time.Duration(seconds) * time.Second)
	if w, _ := get(t, one); w.StatusCode != http.StatusOK {
		t.Errorf("status %d after waiting for Retry-After: %d s", w.StatusCode, seconds)
	}
}

func TestQuickstartMistakes(t *testing.T) {
	path := compile(t, "quickstart")
	url, _ := run(t, path)
	for _, c := range []struct{ port, redis, want string }{
		{"0", "localhost", "write it as redis://"},
		{"0", "redis://127.0.0.1:1", "no Redis answers at 127.0.0.1:1"},
		{"999999", "", "PORT=999999"},
		{url[strings.LastIndex(url, ":")+1:], "", "is taken: choose another"},
	} {
		t.Setenv("PORT", c.port)
		t.Setenv("REDIS_URL", c.redis)
		if status, text := exited(t, path); status == 0 || !strings.Contains(text, c.want) {
			t.Errorf("PORT=%s REDIS_URL=%s: exit status %d, %s; want %q", c.port, c.redis, status, text, c.want)
		}
	}
}
