package examples_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v4"

	"github.com/sashlimit/sash/chilimit"
	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/echolimit"
	"github.com/sashlimit/sash/ginlimit"
	"github.com/sashlimit/sash/nethttp"
)

// maxWait bounds waits that end at once unless something is broken.
const maxWait = time.Minute

// A handler gets the writer that its framework gives, behind the limiter or without it.
var routers = []struct {
	name  string
	serve func(limited bool, h http.HandlerFunc, opts ...core.Option) http.Handler
}{
	{"gin", func(limited bool, h http.HandlerFunc, opts ...core.Option) http.Handler {
		r := gin.New()
		if limited {
			r.Use(ginlimit.New(core.PerMinute(100), core.ByIP(), opts...))
		}
		r.Any("/", func(c *gin.Context) { h(c.Writer, c.Request) })
		return r
	}},
	{"echo", func(limited bool, h http.HandlerFunc, opts ...core.Option) http.Handler {
		e := echo.New()
		if limited {
			e.Use(echolimit.New(core.PerMinute(100), core.ByIP(), opts...))
		}
		e.Any("/", func(c echo.Context) error { h(c.Response(), c.Request()); return nil })
		return e
	}},
	{"chi", func(limited bool, h http.HandlerFunc, opts ...core.Option) http.Handler {
		r := chi.NewRouter()
		if limited {
			r.Use(chilimit.New(core.PerMinute(100), core.ByIP(), opts...))
		}
		r.HandleFunc("/", h)
		return r
	}},
	{"nethttp", func(limited bool, h http.HandlerFunc, opts ...core.Option) http.Handler {
		if limited {
			return nethttp.New(core.PerMinute(100), core.ByIP(), opts...)(h)
		}
		return h
	}},
}

// eachRouter runs f without the limiter, with it, and with one that refunds by the status: a handler that works
// without must work with it. The RateLimit field is set before the handler has written a byte.
func eachRouter(t *testing.T, f func(t *testing.T, serve func(http.HandlerFunc) *httptest.Server)) {
	gin.SetMode(gin.ReleaseMode) // else gin prints its routes
	for _, router := range routers {
		for desc, opts := range map[string][]core.Option{
			"limited":  nil,
			"watching": {core.WithRefund(func(context.Context, int) bool { return false })},
			"free":     nil,
		} {
			limited := desc != "free"
			t.Run(router.name+"/"+desc, func(t *testing.T) {
				f(t, func(h http.HandlerFunc) *httptest.Server {
					server := httptest.NewServer(router.serve(limited, func(w http.ResponseWriter, r *http.Request) {
						set := strings.HasPrefix(w.Header().Get("RateLimit"), `"100-per-minute";r=`)
						if set != limited {
							t.Errorf("the handler begins with %v", w.Header())
						}
						h(w, r)
					}, opts...))
					t.Cleanup(server.Close)
					return server
				})
			})
		}
	}
}

// abilities is what a writer can do, and what those that it wraps can: its types and
// the optional interfaces of net/http and io.
func abilities(w http.ResponseWriter) []string {
	var all []string
	note := func(can bool, name string) {
		if can {
			all = append(all, name)
		}
	}
	for {
		all = append(all, fmt.Sprintf("%T", w))
		_, ok := w.(http.Flusher)
		note(ok, "Flusher")
		_, ok = w.(interface{ FlushError() error })
		note(ok, "FlushError")
		_, ok = w.(http.Hijacker)
		note(ok, "Hijacker")
		_, ok = w.(http.Pusher)
		note(ok, "Pusher")
		_, ok = w.(io.ReaderFrom)
		note(ok, "ReaderFrom")
		_, ok = w.(io.StringWriter)
		note(ok, "StringWriter")
		_, ok = w.(interface{ CloseNotify() <-chan bool })
		note(ok, "CloseNotifier")
		_, ok = w.(interface {
			SetReadDeadline(deadline time.Time) error
		})
		note(ok, "SetReadDeadline")
		_, ok = w.(interface {
			SetWriteDeadline(deadline time.Time) error
		})
		note(ok, "SetWriteDeadline")
		_, ok = w.(interface{ EnableFullDuplex() error })
		note(ok, "EnableFullDuplex")
		inner, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return all
		}
		w = inner.Unwrap()
	}
}

// The handler sees the very writer that it would see without the limiter, and a file copied
// to it arrives. Where somebody looks at the status, net/http and chi put another one in front of it, which
// can do the same.
func TestWriterAbilities(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(strings.Repeat("sash\n", 100_000)), 0o600); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string][]string{}
	eachRouter(t, func(t *testing.T, serve func(http.HandlerFunc) *httptest.Server) {
		server := serve(func(w http.ResponseWriter, _ *http.Request) {
			seen[t.Name()] = abilities(w)
			file, err := os.Open(path)
			if err != nil {
				t.Error(err)
				return
			}
			defer file.Close()
			if n, err := io.Copy(w, file); n != int64(len(content)) || err != nil {
				t.Errorf("copied %d bytes, %v", n, err)
			}
		})
		if r, body := get(t, server.URL); r.StatusCode != http.StatusOK || body != string(content) {
			t.Errorf("status %d, %d bytes; want %d", r.StatusCode, len(body), len(content))
		}
	})
	for _, router := range routers {
		limited, free := seen[t.Name()+"/"+router.name+"/limited"], seen[t.Name()+"/"+router.name+"/free"]
		// All of them have net/http's own writer at the bottom, which can do all but push.
		if !slices.Equal(limited, free) || !slices.Contains(free, "ReaderFrom") || !slices.Contains(free, "Hijacker") {
			t.Errorf("%s:\nlimited %v\nfree    %v", router.name, limited, free)
		}
		watching := seen[t.Name()+"/"+router.name+"/watching"]
		if in := len(watching) - len(free); in > 0 && (router.name == "chi" || router.name == "nethttp") {
			front := watching[:in]
			for _, ability := range []string{"Flusher", "Hijacker", "ReaderFrom", "CloseNotifier"} {
				if !slices.Contains(front, ability) {
					t.Errorf("%s, watching: %v in front of %v", router.name, front, free)
				}
			}
			watching = watching[in:]
		}
		if !slices.Equal(watching, free) {
			t.Errorf("%s:\nwatching %v\nfree     %v", router.name, watching, free)
		}
	}
}

// The controller reaches the connection: the handler answers before it has
// read the whole request, and a deadline that has passed stops it.
func TestWriterController(t *testing.T) {
	eachRouter(t, func(t *testing.T, serve func(http.HandlerFunc) *httptest.Server) {
		late := make(chan error, 1)
		t.Cleanup(func() { // after the server, and so after the handler
			select {
			case err := <-late:
				if !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("the handler ended with %v, want that its deadline has passed", err)
				}
			default:
				t.Error("the handler did not end")
			}
		})
		server := serve(func(w http.ResponseWriter, r *http.Request) {
			c := http.NewResponseController(w)
			end := time.Now().Add(maxWait)
			if err := errors.Join(c.EnableFullDuplex(), c.SetReadDeadline(end), c.SetWriteDeadline(end)); err != nil {
				late <- err
				return
			}
			in := bufio.NewReader(r.Body)
			for range 2 {
				word, err := in.ReadString('\n')
				io.WriteString(w, word)
				if err := errors.Join(err, c.Flush()); err != nil {
					late <- err
					return
				}
			}
			if err := c.SetWriteDeadline(time.Now().Add(-time.Second)); err != nil {
				late <- err
				return
			}
			_, err := w.Write(make([]byte, 1<<20))
			late <- err
		})
		ctx, cancel := context.WithTimeout(t.Context(), maxWait)
		defer cancel()
		body, out := io.Pipe()
		defer out.Close()
		context.AfterFunc(ctx, func() { out.CloseWithError(ctx.Err()) }) // the client waits for its body's end
		q, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, body)
		if err != nil {
			t.Fatal(err)
		}
		first := make(chan error, 1)
		go func() {
			_, err := io.WriteString(out, "one\n")
			first <- err
		}()
		r, err := http.DefaultClient.Do(q)
		if err := errors.Join(err, <-first); err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		in := bufio.NewReader(r.Body)
		if word, err := in.ReadString('\n'); word != "one\n" {
			t.Fatalf("it answered %q, %v", word, err)
		}
		io.WriteString(out, "two\n")
		if word, err := in.ReadString('\n'); word != "two\n" {
			t.Errorf("it answered %q, %v", word, err)
		}
	})
}
