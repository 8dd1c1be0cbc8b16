package nethttp_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/store"
	"github.com/sashlimit/sash/nethttp"
)

// A pause that one process is asked for holds for all others within a second, to its end and no longer, and also if
// another server's answer that comes later asks for less.
func TestTransportPausesAFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var sent []time.Duration // after the first refusal
		var refused time.Time
		base := tripper(func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			if r.URL.Host != "example.com" {
				return httptest.NewRecorder().Result(), nil
			}
			switch sent = append(sent, time.Since(refused)); r.URL.Path {
			case "/refused":
				refused, sent = time.Now(), nil
				return refusal("5", http.NoBody), nil
			case "/less":
				return refusal("2", http.NoBody), nil
			}
			return httptest.NewRecorder().Result(), nil
		})
		logs := struct{ store.Full }{core.NewMemoryStore()}
		fleet := make([]*nethttp.Transport, 50)
		for i := range fleet {
			l := newLimiter(t, core.PerSecond(10_000), core.ByText(), core.WithStore(logs), core.WithName("upstream"),
				core.WithOverrides())
			fleet[i] = &nethttp.Transport{Limiter: l, Base: base}
		}
		ask := func(tr *nethttp.Transport, url string) error {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			response, err := tr.RoundTrip(httptest.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody))
			if err == nil {
				response.Body.Close()
			}
			return err
		}
		var wg sync.WaitGroup
		for i, tr := range fleet {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				for n := range 200 {
					path := "/"
					switch {
					case i == 7 && n == 40:
						path = "/refused"
					case i == 8 && n == 41: // as it does not know of the pause yet
						path = "/less"
					}
					err := ask(tr, "http://example.com"+path)
					if err != nil && !errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
					}
					if err := ask(tr, "http://example.net/"); err != nil {
						t.Errorf("another host: %v", err)
					}
					time.Sleep(40 * time.Millisecond)
				}
			})
		}
		wg.Wait()
		early, late := 0, 0
		for _, after := range sent {
			switch {
			case after > time.Second && after < 5*time.Second:
				t.Errorf("a request was sent %v after the pause had begun", after)
			case after <= time.Second:
				early++
			default:
				late++
			}
		}
		if early == 0 || late == 0 {
			t.Errorf("%d requests were sent before the pause was known, %d after it: this shows nothing", early, late)
		}
		t.Logf("%d requests before the pause was known in all processes, %d after it", early, late)
	})
}

// Where the pause cannot be shared, as in an outage, it still holds for this process.
func TestTransportPausesAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(coretest.FakeStore)
		l := newLimiter(t, core.PerSecond(100), core.ByText(), core.WithStore(s), core.WithOverrides())
		sent := 0
		tr := &nethttp.Transport{Limiter: l, Base: tripper(func(*http.Request) (*http.Response, error) {
			if sent++; sent == 1 {
				s.Fail(errors.New("down"))
				return refusal("60", http.NoBody), nil
			}
			return httptest.NewRecorder().Result(), nil
		})}
		for _, want := range []bool{true, false} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			r := httptest.NewRequestWithContext(ctx, http.MethodPost, "http://example.com", http.NoBody)
			response, err := tr.RoundTrip(r)
			if err == nil {
				response.Body.Close()
			}
			if (err == nil) != want || sent != 1 {
				t.Errorf("%v, %d sent; want only the first", err, sent)
			}
		}
		s.Fail(nil)
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Where more hosts ask for pauses than can be shared, the log says so once in ten seconds.
func TestTransportTooManyPauses(t *testing.T) {
	var lines strings.Builder
	usual := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&lines, nil)))
	defer slog.SetDefault(usual)
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, core.PerSecond(10_000), core.ByText(), core.WithOverrides())
		tr := &nethttp.Transport{Limiter: l, Base: tripper(func(*http.Request) (*http.Response, error) {
			return refusal("3600", http.NoBody), nil
		})}
		for i := range 2*store.MaxPauses + 1 {
			if i == 2*store.MaxPauses {
				time.Sleep(10 * time.Second)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			url := fmt.Sprintf("http://host%d.example/", i)
			for _, want := range []bool{true, false} { // the second one is paused here in any case
				_, err := tr.RoundTrip(httptest.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody))
				if (err == nil) != want {
					t.Fatalf("host %d: %v", i, err)
				}
			}
			cancel()
		}
		if n := strings.Count(lines.String(), "\n"); n != 2 {
			t.Errorf("%d lines, want 2", n)
		}
	})
}
