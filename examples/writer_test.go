package examples_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
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

// abilities is what a writer can do, and what those that it wraps can: its types and
// the optional interfaces of net/http and io.
func abilities(w http.ResponseWriter) (all []string) {
	for {
		all = append(all, fmt.Sprintf("%T", w))
		for _, ability := range []struct {
			name string
			has  bool
		}{
			{"Flusher", can[http.Flusher](w)},
			{"FlushError", can[interface{ FlushError() error }](w)},
			{"Hijacker", can[http.Hijacker](w)},
			{"Pusher", can[http.Pusher](w)},
			{"ReaderFrom", can[io.ReaderFrom](w)},
			{"StringWriter", can[io.StringWriter](w)},
			{"CloseNotifier", can[interface{ CloseNotify() <-chan bool }](w)},
			{"SetReadDeadline", can[interface{ SetReadDeadline(time.Time) error }](w)},
			{"SetWriteDeadline", can[interface{ SetWriteDeadline(time.Time) error }](w)},
			{"EnableFullDuplex", can[interface{ EnableFullDuplex() error }](w)},
		} {
			if ability.has {
				all = append(all, ability.name)
			}
		}
		inner, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return all
		}
		w = inner.Unwrap()
	}
}

func can[Ability any](w http.ResponseWriter) bool {
	_, ok := w.(Ability)
	return ok
}

// The handler sees the very writer that it would see without the limiter, so http.ResponseController finds in it what
// it would find, and a file copied to it arrives. Where somebody looks at the status, net/http and chi put another one
// in front of it, which can do the same.
func TestWriterAbilities(t *testing.T) {
	gin.SetMode(gin.ReleaseMode) // else gin prints its routes
	path := filepath.Join(t.TempDir(), "file")
	content := strings.Repeat("sash\n", 100_000)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, router := range routers {
		seen := func(limited bool, opts ...core.Option) (writers []string) {
			url := onHandler(t, router.serve(limited, func(w http.ResponseWriter, _ *http.Request) {
				if set := strings.HasPrefix(w.Header().Get("RateLimit"), `"100-per-minute";r=`); set != limited {
					t.Errorf("%s: the handler begins with %v", router.name, w.Header())
				}
				writers = abilities(w)
				file, err := os.Open(path)
				if err != nil {
					t.Error(err)
					return
				}
				defer file.Close()
				if n, err := io.Copy(w, file); n != int64(len(content)) || err != nil {
					t.Errorf("%s: copied %d bytes, %v", router.name, n, err)
				}
			}, opts...))
			if r, body := get(t, url); r.StatusCode != http.StatusOK || body != content {
				t.Errorf("%s: status %d, %d bytes; want %d", router.name, r.StatusCode, len(body), len(content))
			}
			return writers
		}
		free, limited := seen(false), seen(true)
		// All of them have net/http's own writer at the bottom, which can do all but push.
		if !slices.Equal(limited, free) || !slices.Contains(free, "ReaderFrom") || !slices.Contains(free, "Hijacker") {
			t.Errorf("%s:\nlimited %v\nfree    %v", router.name, limited, free)
		}
		watching := seen(true, core.WithRefund(func(context.Context, int) bool { return false }))
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
