package examples_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// oneLiners are the lines that README offers, by the framework that their comments name, and the program that runs
// each as written. It serves what the line is mounted on to 101 requests. A module is that of the framework's package,
// if it is another one, with what it imports.
var oneLiners = []struct {
	name, module string
	imports      map[string]string
	program      string
}{
	{"gin", "", nil, `
	r := gin.New()
	LINE
	r.GET("/", func(c *gin.Context) { c.String(200, "served") })
	listen(r)`},
	{"echo v4", "", nil, `
	e := echo.New()
	LINE
	e.GET("/", func(c echo.Context) error { return c.String(200, "served") })
	listen(e)`},
	{"echo v5", "echolimit/v5", map[string]string{
		"echo":      "github.com/labstack/echo/v5",
		"echolimit": "github.com/sashlimit/sash/echolimit/v5",
	}, `
	e := echo.New()
	LINE
	e.GET("/", func(c *echo.Context) error { return c.String(200, "served") })
	listen(e)`},
	{"chi v5", "", nil, `
	r := chi.NewRouter()
	LINE
	r.Get("/", func(http.ResponseWriter, *http.Request) {})
	listen(r)`},
	{"fiber v2", "", nil, `
	app := fiber.New(fiber.Config{DisableStartupMessage: true})
	LINE
	app.Get("/", func(c *fiber.Ctx) error { return c.SendString("served") })
	onListener(app.Listener)`},
	{"fiber v3", "fiberlimit/v3", map[string]string{
		"fiber":      "github.com/gofiber/fiber/v3",
		"fiberlimit": "github.com/sashlimit/sash/fiberlimit/v3",
	}, `
	app := fiber.New()
	LINE
	app.Get("/", func(c fiber.Ctx) error { return c.SendString("served") })
	onListener(func(l net.Listener) error {
		return app.Listener(l, fiber.ListenConfig{DisableStartupMessage: true})
	})`},
	// Here http is a stand-in, so that the line runs where port 8080 is taken.
	{"net/http", "", nil, `
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(http.ResponseWriter, *http.Request) {})
	{
		http := standIn{}
		LINE
	}`},
}

// program is what the programs of one-liners have in common.
const program = `
func listen(h http.Handler) {
	server := httptest.NewServer(h)
	defer server.Close()
	ask(server.URL)
}

func onListener(serve func(net.Listener) error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go serve(l)
	ask("http://" + l.Addr().String())
}

type standIn struct{}

func (standIn) ListenAndServe(_ string, h http.Handler) { listen(h) }

// ask prints how many of 101 requests were answered with each status.
func ask(url string) {
	answers := map[int]int{}
	for range 101 {
		r, err := http.Get(url)
		if err != nil {
			panic(err)
		}
		answers[r.StatusCode]++
		r.Body.Close()
	}
	fmt.Print(answers)
}
`

// given are the variables that the other blocks may use without declaring them.
var given = map[string]string{
	"admin":         "*gin.RouterGroup",
	"adminsOnly":    "func(http.Handler) http.Handler",
	"app":           "*fiber.App",
	"board":         "dashboard.Board",
	"costOf":        "func(string) int",
	"ctx":           "context.Context",
	"customerOf":    "func(context.Context, string) (string, error)",
	"e":             "*echo.Echo",
	"limiter":       "*core.Limiter",
	"loginHandler":  "http.Handler",
	"mux":           "*http.ServeMux",
	"n":             "int",
	"quota":         "int",
	"r":             "*gin.Engine",
	"rdb":           "*redis.Client",
	"searchHandler": "http.Handler",
	"secret":        "[]byte",
	"set":           "*rules.Set",
	"store":         "core.Store",
}

// imports are the packages that blocks may use without importing them. A name that is
// missing here, or among what is given, fails the build and so the test.
var imports = map[string]string{
	"chi":             "github.com/go-chi/chi/v5",
	"context":         "context",
	"coretest":        "github.com/sashlimit/sash/core/coretest",
	"dashboard":       "github.com/sashlimit/sash/core/dashboard",
	"cors":            "github.com/gofiber/fiber/v2/middleware/cors",
	"echo":            "github.com/labstack/echo/v4",
	"errors":          "errors",
	"fasthttpadapter": "github.com/sashlimit/sash/core/fasthttpadapter",
	"fiber":           "github.com/gofiber/fiber/v2",
	"fmt":             "fmt",
	"gin":             "github.com/gin-gonic/gin",
	"grpc":            "google.golang.org/grpc",
	"grpclimit":       "github.com/sashlimit/sash/core/grpclimit",
	"http":            "net/http",
	"httptest":        "net/http/httptest",
	"io":              "io",
	"json":            "encoding/json",
	"jwtkey":          "github.com/sashlimit/sash/core/jwtkey",
	"log":             "log",
	"math":            "math",
	"middleware":      "github.com/labstack/echo/v4/middleware",
	"net":             "net",
	"rand":            "math/rand/v2",
	"redis":           "github.com/redis/go-redis/v9",
	"slog":            "log/slog",
	"synctest":        "testing/synctest",
	"testing":         "testing",
	"time":            "time",
	"otel":            "go.opentelemetry.io/otel",
	"proxy":           "github.com/gofiber/fiber/v2/middleware/proxy",
	"prometheus":      "github.com/prometheus/client_golang/prometheus",
	"chilimit":        "github.com/sashlimit/sash/chilimit",
	"core":            "github.com/sashlimit/sash/core",
	"echolimit":       "github.com/sashlimit/sash/echolimit",
	"fiberlimit":      "github.com/sashlimit/sash/fiberlimit",
	"ginlimit":        "github.com/sashlimit/sash/ginlimit",
	"nethttp":         "github.com/sashlimit/sash/nethttp",
	"otelmetrics":     "github.com/sashlimit/sash/core/otelmetrics",
	"prommetrics":     "github.com/sashlimit/sash/core/prommetrics",
	"redisstore":      "github.com/sashlimit/sash/core/redisstore",
	"rules":           "github.com/sashlimit/sash/core/rules",
}

// importsBefore are those of blocks below the heading "Before" in docs/from, where they differ: such a block shows
// another limiter, whose names of packages may be those of sash's. The name of a page comes first if only that page
// means it.
var importsBefore = map[string]string{
	"httprate":                    "github.com/go-chi/httprate",
	"ratelimit":                   "github.com/JGLTechnologies/gin-rate-limit",
	"redis_rate":                  "github.com/go-redis/redis_rate/v10",
	"throttled":                   "github.com/throttled/throttled/v2",
	"memstore":                    "github.com/throttled/throttled/v2/store/memstore",
	"tollbooth":                   "github.com/didip/tollbooth/v7",
	"stdlib":                      "github.com/ulule/limiter/v3/drivers/middleware/stdlib",
	"fiber-limiter.md limiter":    "github.com/gofiber/fiber/v2/middleware/limiter",
	"httprate.md middleware":      "github.com/go-chi/chi/v5/middleware",
	"tollbooth.md limiter":        "github.com/didip/tollbooth/v7/limiter",
	"ulule-limiter.md limiter":    "github.com/ulule/limiter/v3",
	"ulule-limiter.md redisstore": "github.com/ulule/limiter/v3/drivers/store/redis",
}

// file is a Go file of body with the imports that it needs, of which some may be others.
func file(name, body string, others map[string]string) string {
	all := maps.Clone(imports)
	maps.Copy(all, others)
	var b strings.Builder
	fmt.Fprintf(&b, "package %s\n\n", name)
	for _, ident := range slices.Sorted(maps.Keys(all)) {
		if regexp.MustCompile(`\b` + ident + `\.[A-Z]`).MatchString(body) {
			fmt.Fprintf(&b, "import %s %q\n", ident, all[ident])
		}
	}
	return b.String() + body
}

// block is the code of one block of Go, and where it is.
type block struct {
	path   string
	line   int
	before bool // below the heading "Before" in docs/from
	code   string
}

// module is the folder of the module that has what the block imports.
func (b *block) module() string {
	if b.before {
		return "core/benchmarks" // which requires the other limiters
	}
	if strings.Contains(b.code, "grpclimit.") {
		return "core/grpclimit"
	}
	for _, o := range oneLiners {
		if o.module != "" && strings.Contains(b.code, `"github.com/sashlimit/sash/`+o.module+`"`) {
			return o.module
		}
	}
	return ""
}

// others are the imports of the block that differ from imports.
func (b *block) others() map[string]string {
	others := map[string]string{}
	if b.before {
		for name, path := range importsBefore {
			if page, ident, ok := strings.Cut(name, " "); ok && page == filepath.Base(b.path) {
				others[ident] = path
			} else if !ok {
				others[name] = path
			}
		}
	}
	return others
}

// blocksOf finds the blocks of Go in a document. A block in a list is indented.
func blocksOf(t *testing.T, path string) (blocks []block) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?ms)^( *)```go\n(.*?)^ *```$").FindAllSubmatchIndex(text, -1)
	if n := bytes.Count(bytes.ToLower(text), []byte("```go")); n != len(found) {
		t.Fatalf("%s: found %d blocks of Go, of %d", path, len(found), n)
	}
	for _, at := range found {
		indent, code := string(text[at[2]:at[3]]), string(text[at[4]:at[5]])
		code = strings.TrimPrefix(strings.ReplaceAll("\n"+code, "\n"+indent, "\n"), "\n")
		var heading []byte
		if i := bytes.LastIndex(text[:at[0]], []byte("\n## ")); i >= 0 {
			heading, _, _ = bytes.Cut(text[i+4:], []byte("\n"))
		}
		line := bytes.Count(text[:at[4]], []byte("\n")) + 1
		blocks = append(blocks, block{path, line, string(heading) == "Before", code})
	}
	return blocks
}

// source is a Go file of the block, which is a whole file, declarations, or the body of a function. Compilers report
// the line of the document.
func (b *block) source(t *testing.T) string {
	t.Helper()
	if code, whole := strings.CutPrefix(b.code, "package main\n"); whole {
		return fmt.Sprintf("package block\n//line %s:%d\n%s", b.path, b.line+1, code) // go build does not link it
	}
	code := b.code
	var before strings.Builder
	if _, err := parser.ParseFile(token.NewFileSet(), "", "package p\n"+code, parser.SkipObjectResolution); err != nil {
		code = b.function(t, code)
	}
	others := b.others()
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if others[name] == "" && regexp.MustCompile(`\b`+name+`\b`).MatchString(code) {
			fmt.Fprintf(&before, "var %s %s\n", name, given[name])
		}
	}
	return file("block", fmt.Sprintf("%s//line %s:%d\n%s", &before, b.path, b.line, code), others)
}

// function makes code the body of a function, by three rules:
// "{ ... }" stands for a body that is left out; a value on a line of its own, such as
// core.Limit{...}, is there to be looked at; and what the code declares need not be used.
func (b *block) function(t *testing.T, code string) string {
	t.Helper()
	const head = "package p\nfunc _() error {"
	code = strings.ReplaceAll(code, "{ ... }", `{ panic("left out") }`)
	parsed, err := parser.ParseFile(token.NewFileSet(), "", head+code+"}", parser.SkipObjectResolution)
	if err != nil {
		t.Fatalf("%s:%d: the block does not parse: %v\n%s", b.path, b.line, err, code)
	}
	end := ""
	statements := parsed.Decls[0].(*ast.FuncDecl).Body.List
	for _, s := range slices.Backward(statements) {
		switch s := s.(type) {
		case *ast.ExprStmt:
			if _, ok := s.X.(*ast.CallExpr); !ok {
				at := int(s.Pos()) - 1 - len(head) // a Pos counts bytes from 1
				code = code[:at] + "_ = " + code[at:]
			}
		case *ast.AssignStmt:
			for _, name := range s.Lhs {
				if name, ok := name.(*ast.Ident); ok && s.Tok == token.DEFINE && name.Name != "_" {
					end += "_ = " + name.Name + "\n"
				}
			}
		}
	}
	return "func _() error {" + code + end + "return nil\n}\n"
}

// oneLiner is the index of the line among oneLiners, or -1.
func oneLiner(line string) int {
	_, comment, _ := strings.Cut(line, " // ")
	for i, o := range oneLiners {
		if strings.TrimSpace(comment) == o.name && strings.Contains(line, "core.PerMinute(100), core.ByIP())") {
			return i
		}
	}
	return -1
}

// overlay has files for the compiler alone, in the folder readme of a module, so that it finds what they import.
type overlay struct {
	dir, temp string
	replace   map[string]string
}

func newOverlay(t *testing.T, dir string) *overlay {
	t.Helper()
	dir, err := filepath.Abs(dir)
	if err != nil {
		t.Fatal(err)
	}
	return &overlay{dir, t.TempDir(), map[string]string{}}
}

func (o *overlay) add(t *testing.T, dir, source string) {
	t.Helper()
	path := filepath.Join(o.temp, fmt.Sprint(len(o.replace), ".go"))
	if err := os.WriteFile(path, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	o.replace[filepath.Join(o.dir, "readme", dir, "main.go")] = path
}

// build builds packages that were added. The flags come first.
func (o *overlay) build(t *testing.T, dirs []string, flags ...string) error {
	t.Helper()
	text, err := json.Marshal(struct{ Replace map[string]string }{o.replace})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(o.temp, "overlay.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"build", "-overlay", path}, flags...)
	for _, dir := range dirs {
		args = append(args, "./readme/"+dir)
	}
	c := exec.Command("go", args...)
	c.Dir = o.dir
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// pages are README and all documentation.
func pages(t *testing.T) []string {
	t.Helper()
	all := []string{"../README.md"}
	for _, pattern := range []string{"../docs/*.md", "../docs/*/*.md"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, paths...)
	}
	return all
}

// TestReadme compiles every block of Go in README and docs. Of README's blocks of one-liners every line runs.
func TestReadme(t *testing.T) { checkBlocks(t, "") }

// The first block of docs/without-http.md is a whole program.
func TestWithoutHTTP(t *testing.T) {
	files := newOverlay(t, ".")
	files.add(t, "program", blocksOf(t, "../docs/without-http.md")[0].code)
	path := filepath.Join(t.TempDir(), "program")
	if err := files.build(t, []string{"program"}, "-o", path); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(path).CombinedOutput(); err != nil || string(out) != "tokens: 12\n" {
		t.Errorf("%s, %v", out, err)
	}
}

// TestReadmeModules does the same with the blocks and lines that need other modules: those about echo v5, fiber v3 and
// grpc-go, and those that show other limiters.
func TestReadmeModules(t *testing.T) {
	if testing.Short() {
		t.Skip("it compiles other modules: make test-long runs it")
	}
	for _, module := range []string{"core/benchmarks", "core/grpclimit", "echolimit/v5", "fiberlimit/v3"} {
		t.Run(module, func(t *testing.T) { checkBlocks(t, module) })
	}
}

// checkBlocks checks the blocks and lines of one module, named by its folder.
func checkBlocks(t *testing.T, module string) {
	t.Helper()
	folder := "."
	if module != "" {
		folder = "../" + module
	}
	files := newOverlay(t, folder)
	mounted := map[string]int{} // how many programs each framework has
	var programs, fragments []string
	for _, path := range pages(t) {
		if path == "../docs/cookbook.md" { // it shows code of programs: see TestCookbook
			continue
		}
		for _, block := range blocksOf(t, path) {
			lines := strings.Split(strings.TrimSpace(block.code), "\n")
			if slices.ContainsFunc(lines, func(line string) bool { return oneLiner(line) < 0 }) {
				if block.module() == module {
					dir := fmt.Sprintf("block%d", len(fragments)+1)
					files.add(t, dir, block.source(t))
					fragments = append(fragments, dir)
				}
				continue
			}
			for _, line := range lines {
				o := oneLiners[oneLiner(line)]
				if mounted[o.name]++; o.module != module {
					continue
				}
				dir := fmt.Sprintf("program%d", len(programs)+1)
				body := "\nfunc main() {" + strings.Replace(o.program, "LINE", line, 1) + "\n}\n" + program
				files.add(t, dir, file("main", body, o.imports))
				programs = append(programs, dir)
			}
		}
	}
	for _, o := range oneLiners {
		if mounted[o.name] == 0 {
			t.Errorf("README has no line for %s", o.name)
		}
	}
	if len(fragments) == 0 {
		t.Fatal("no block is of this module")
	}
	if err := files.build(t, fragments); err != nil {
		t.Errorf("blocks of README or docs do not compile: %v", err)
	}
	if len(programs) == 0 {
		return
	}
	dir := t.TempDir()
	if err := files.build(t, programs, "-o", dir+string(filepath.Separator)); err != nil {
		t.Fatal(err)
	}
	for _, name := range programs {
		c := exec.Command(filepath.Join(dir, name))
		c.Stderr = os.Stderr
		if out, err := c.Output(); err != nil || !strings.HasSuffix(string(out), "map[200:100 429:1]") {
			t.Errorf("%s answered %s, %v; want 100 of 101", name, out, err)
		}
	}
}
