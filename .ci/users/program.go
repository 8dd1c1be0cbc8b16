package main

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// program is a program of testdata, which sends four requests to itself and prints the statuses, with a limiter that
// admits three of them, or without one.
type program struct {
	name     string
	frame    string   // a folder of testdata
	imports  []string // in addition
	line     string   // in place of "// limiter"
	compared bool     // it is in the table of docs/compare.md
}

// usesSash reports whether the limiter is one of this repository.
func (p *program) usesSash() bool { return strings.Contains(p.line, "core.PerMinute") }

var programs = []program{
	{name: "net/http", frame: "nethttp", compared: true},
	{
		name: "net/http, sash", frame: "nethttp", compared: true,
		imports: []string{root + "/core", root + "/nethttp"},
		line:    `handler = nethttp.New(core.PerMinute(3), core.ByIP())(handler)`,
	},
	{
		name: "net/http, httprate", frame: "nethttp", compared: true,
		imports: []string{"time", "github.com/go-chi/httprate"},
		line:    `handler = httprate.LimitByIP(3, time.Minute)(handler)`,
	},
	{
		name: "net/http, tollbooth", frame: "nethttp", compared: true,
		imports: []string{"github.com/didip/tollbooth/v7"},
		line:    `handler = tollbooth.LimitHandler(tollbooth.NewLimiter(3, nil), handler)`,
	},
	{
		name: "net/http, ulule/limiter", frame: "nethttp", compared: true,
		imports: []string{
			"time", "github.com/ulule/limiter/v3", "github.com/ulule/limiter/v3/drivers/middleware/stdlib",
			"github.com/ulule/limiter/v3/drivers/store/memory",
		},
		line: `rate := limiter.Rate{Period: time.Minute, Limit: 3}
			handler = stdlib.NewMiddleware(limiter.New(memory.NewStore(), rate)).Handler(handler)`,
	},
	{name: "net/http and go-redis", frame: "redis", compared: true},
	{
		name: "net/http and go-redis, sash", frame: "redis", compared: true,
		imports: []string{root + "/core", root + "/core/redisstore", root + "/nethttp"},
		line:    `handler = nethttp.New(core.PerMinute(3), core.ByIP(), core.WithStore(redisstore.New(rdb)))(handler)`,
	},
	{
		name: "net/http and go-redis, redis_rate", frame: "redis", compared: true,
		imports: []string{"github.com/go-redis/redis_rate/v10"},
		line: `hello, rate := handler, redis_rate.NewLimiter(rdb)
			handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				result, err := rate.Allow(r.Context(), r.RemoteAddr, redis_rate.PerMinute(3))
				if err != nil {
					log.Fatal(err)
				}
				if result.Allowed == 0 {
					w.WriteHeader(http.StatusTooManyRequests)
					return
				}
				hello.ServeHTTP(w, r)
			})`,
	},
	{
		name: "net/http and go-redis, ulule/limiter", frame: "redis", compared: true,
		imports: []string{
			"time", "github.com/ulule/limiter/v3", "github.com/ulule/limiter/v3/drivers/middleware/stdlib",
			`store "github.com/ulule/limiter/v3/drivers/store/redis"`,
		},
		line: `counts, err := store.NewStore(rdb)
			if err != nil {
				log.Fatal(err)
			}
			rate := limiter.Rate{Period: time.Minute, Limit: 3}
			handler = stdlib.NewMiddleware(limiter.New(counts, rate)).Handler(handler)`,
	},
	{name: "gin", frame: "gin", compared: true},
	{
		name: "gin, sash", frame: "gin", compared: true,
		imports: []string{root + "/core", root + "/ginlimit"},
		line:    `r.Use(ginlimit.New(core.PerMinute(3), core.ByIP()))`,
	},
	{
		name: "gin, gin-rate-limit", frame: "gin", compared: true,
		imports: []string{"time", `ratelimit "github.com/JGLTechnologies/gin-rate-limit"`},
		line: `r.Use(ratelimit.RateLimiter(
				ratelimit.InMemoryStore(&ratelimit.InMemoryOptions{Rate: time.Minute, Limit: 3}),
				&ratelimit.Options{KeyFunc: func(c *gin.Context) string { return c.ClientIP() }}))`,
	},
	{
		name: "gin, ulule/limiter", frame: "gin", compared: true,
		imports: []string{
			"time", "github.com/ulule/limiter/v3", `middleware "github.com/ulule/limiter/v3/drivers/middleware/gin"`,
			"github.com/ulule/limiter/v3/drivers/store/memory",
		},
		line: `rate := limiter.Rate{Period: time.Minute, Limit: 3}
			r.Use(middleware.NewMiddleware(limiter.New(memory.NewStore(), rate)))`,
	},
	{name: "fiber v3", frame: "fiberv3", compared: true},
	{
		name: "fiber v3, sash", frame: "fiberv3", compared: true,
		imports: []string{root + "/core", root + "/fiberlimit/v3"},
		line:    `app.Use(fiberlimit.New(core.PerMinute(3), core.ByIP()))`,
	},
	{
		name: "fiber v3, fiber's own", frame: "fiberv3", compared: true,
		imports: []string{"time", "github.com/gofiber/fiber/v3/middleware/limiter"},
		line:    `app.Use(limiter.New(limiter.Config{Max: 3, Expiration: time.Minute}))`,
	},
	{
		name: "chi, sash", frame: "chi",
		imports: []string{root + "/core", root + "/chilimit"},
		line:    `r.Use(chilimit.New(core.PerMinute(3), core.ByIP()))`,
	},
	{
		name: "echo v4, sash", frame: "echo",
		imports: []string{root + "/core", root + "/echolimit"},
		line:    `e.Use(echolimit.New(core.PerMinute(3), core.ByIP()))`,
	},
	{
		name: "echo v5, sash", frame: "echov5",
		imports: []string{root + "/core", root + "/echolimit/v5"},
		line:    `e.Use(echolimit.New(core.PerMinute(3), core.ByIP()))`,
	},
	{
		name: "fiber v2, sash", frame: "fiber",
		imports: []string{root + "/core", root + "/fiberlimit"},
		line:    `app.Use(fiberlimit.New(core.PerMinute(3), core.ByIP()))`,
	},
	{
		name: "grpc-go, sash", frame: "grpc",
		imports: []string{root + "/core", root + "/core/grpclimit"},
		line: `limits, err := core.New(core.PerMinute(3), core.ByIP())
			if err != nil {
				log.Fatal(err)
			}
			options = append(options, grpc.ChainUnaryInterceptor(grpclimit.Unary(limits)))`,
	},
}

//go:embed testdata
var frames embed.FS

// source returns the file of the program.
func (p *program) source() ([]byte, error) {
	text, err := fs.ReadFile(frames, "testdata/"+p.frame+"/main.go")
	if err != nil {
		return nil, err
	}
	imports := []byte("import (\n")
	for _, path := range p.imports {
		if !strings.Contains(path, `"`) {
			path = strconv.Quote(path)
		}
		imports = fmt.Appendln(imports, path)
	}
	text = bytes.Replace(text, []byte("import (\n"), imports, 1)
	return format.Source(bytes.Replace(text, []byte("// limiter"), []byte(p.line), 1))
}

// write writes the program to a new module in dir, and gets the packages that it imports. Of a program with sash these
// are only those of sash: the versions of all others are those that sash requires.
func (p *proxy) write(user *program, dir string) error {
	text, err := user.source()
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "main.go"), text, 0o600); err != nil {
		return err
	}
	if _, err := command(dir, p.env, "go", "mod", "init", "demo"); err != nil {
		return err
	}
	file, err := parser.ParseFile(token.NewFileSet(), "main.go", text, parser.ImportsOnly)
	if err != nil {
		return err
	}
	get := []string{"get"}
	for _, spec := range file.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return err
		}
		first, _, _ := strings.Cut(path, "/")
		if !strings.Contains(first, ".") || user.usesSash() && !strings.HasPrefix(path, root) {
			continue
		}
		query, err := p.query(path)
		if err != nil {
			return err
		}
		get = append(get, query)
	}
	if len(get) == 1 {
		return nil
	}
	_, err = command(dir, p.env, "go", get...)
	return err
}

// build builds the program in dir, and returns its path.
func (p *proxy) build(dir string) (string, error) {
	path := filepath.Join(dir, "demo")
	_, err := command(dir, p.env, "go", "build", "-o", path)
	return path, err
}

// figures are what a program needs.
type figures struct {
	modules int // of which the go command knows, as go list -m all prints them
	linked  int // modules with packages in the binary
	sums    int // lines of go.sum
	bytes   int64
}

// figuresOf makes a program in dir, and runs go mod tidy as its author does.
func (p *proxy) figuresOf(user *program, dir string) (f figures, err error) {
	if err := p.write(user, dir); err != nil {
		return f, err
	}
	if _, err := command(dir, p.env, "go", "mod", "tidy"); err != nil {
		return f, err
	}
	path, err := p.build(dir)
	if err != nil {
		return f, err
	}
	if user.line != "" && user.frame != "redis" { // which needs a server
		if err := run(path); err != nil {
			return f, fmt.Errorf("%s: %w", user.name, err)
		}
	}
	info, err := os.Stat(path)
	if err != nil {
		return f, err
	}
	f.bytes = info.Size()
	sums, err := os.ReadFile(filepath.Join(dir, "go.sum")) //nolint:gosec // in a folder made for it
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	f.sums = bytes.Count(sums, []byte("\n"))
	modules, err := command(dir, p.env, "go", "list", "-m", "all")
	if err != nil {
		return f, err
	}
	f.modules = strings.Count(modules, "\n")
	deps, err := command(dir, p.env, "go", "version", "-m", path)
	if err != nil {
		return f, err
	}
	f.linked = len(regexp.MustCompile(`(?m)^\tdep\t`).FindAllString(deps, -1))
	return f, nil
}

// run runs a program that was built, and fails unless the fourth request alone is denied.
func run(path string, env ...string) error {
	out, err := command("", env, path)
	if err != nil {
		return err
	}
	if out != "200\n200\n200\n429\n" {
		return fmt.Errorf("its four requests are answered with %q", out)
	}
	return nil
}
