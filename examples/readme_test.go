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

// oneLiners are the lines that README offers, by how they begin, and the program that
// runs each as written. It serves what the line is mounted on to 101 requests.
var oneLiners = []struct{ name, begins, program string }{
	{"gin", "r.Use(ginlimit.", `
	r := gin.New()
	LINE
	r.GET("/", func(c *gin.Context) { c.String(200, "served") })
	listen(r)`},
	{"echo", "e.Use(echolimit.", `
	e := echo.New()
	LINE
	e.GET("/", func(c echo.Context) error { return c.String(200, "served") })
	listen(e)`},
	{"chi", "r.Use(chilimit.", `
	r := chi.NewRouter()
	LINE
	r.Get("/", func(http.ResponseWriter, *http.Request) {})
	listen(r)`},
	{"fiber", "app.Use(fiberlimit.", `
	app := fiber.New(fiber.Config{DisableStartupMessage: true})
	LINE
	app.Get("/", func(c *fiber.Ctx) error { return c.SendString("served") })
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go app.Listener(listener)
	ask("http://" + listener.Addr().String())`},
	// Here http is a stand-in, so that the line runs where port 8080 is taken.
	{"nethttp", "http.ListenAndServe(", `
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
	"set":           "*rules.Set",
	"store":         "core.Store",
}

// imports are the packages that blocks may use without importing them. A name that is
// missing here, or among what is given, fails the build and so the test.
var imports = map[string]string{
	"chi":         "github.com/go-chi/chi/v5",
	"context":     "context",
	"coretest":    "github.com/sashlimit/sash/core/coretest",
	"dashboard":   "github.com/sashlimit/sash/core/dashboard",
	"cors":        "github.com/gofiber/fiber/v2/middleware/cors",
	"echo":        "github.com/labstack/echo/v4",
	"errors":      "errors",
	"fiber":       "github.com/gofiber/fiber/v2",
	"fmt":         "fmt",
	"gin":         "github.com/gin-gonic/gin",
	"http":        "net/http",
	"httptest":    "net/http/httptest",
	"io":          "io",
	"log":         "log",
	"middleware":  "github.com/labstack/echo/v4/middleware",
	"net":         "net",
	"rand":        "math/rand/v2",
	"redis":       "github.com/redis/go-redis/v9",
	"slog":        "log/slog",
	"synctest":    "testing/synctest",
	"testing":     "testing",
	"time":        "time",
	"otel":        "go.opentelemetry.io/otel",
	"prometheus":  "github.com/prometheus/client_golang/prometheus",
	"chilimit":    "github.com/sashlimit/sash/chilimit",
	"core":        "github.com/sashlimit/sash/core",
	"echolimit":   "github.com/sashlimit/sash/echolimit",
	"fiberlimit":  "github.com/sashlimit/sash/fiberlimit",
	"ginlimit":    "github.com/sashlimit/sash/ginlimit",
	"nethttp":     "github.com/sashlimit/sash/nethttp",
	"otelmetrics": "github.com/sashlimit/sash/core/otelmetrics",
	"prommetrics": "github.com/sashlimit/sash/core/prommetrics",
	"redisstore":  "github.com/sashlimit/sash/core/redisstore",
	"rules":       "github.com/sashlimit/sash/core/rules",
}

// file is a Go file of body with the imports that it needs.
func file(name, body string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "package %s\n\n", name)
	for _, ident := range slices.Sorted(maps.Keys(imports)) {
		if regexp.MustCompile(`\b` + ident + `\.[A-Z]`).MatchString(body) {
			fmt.Fprintf(&b, "import %s %q\n", ident, imports[ident])
		}
	}
	return b.String() + body
}

// block is the code of one block of Go, and where it is.
type block struct {
	path string
	line int
	code string
}

// blocksOf finds the blocks of Go in a document. A block in a list is indented.
func blocksOf(t *testing.T, path string) (blocks []block) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?ms)^( *)```go\n(.*?)^ *```$").FindAllSubmatchIndex(text, -1)
	if n := bytes.Count(text, []byte("```go")); n != len(found) {
		t.Fatalf("%s: found %d blocks of Go, of %d", path, len(found), n)
	}
	for _, at := range found {
		indent, code := string(text[at[2]:at[3]]), string(text[at[4]:at[5]])
		code = strings.TrimPrefix(strings.ReplaceAll("\n"+code, "\n"+indent, "\n"), "\n")
		blocks = append(blocks, block{path, bytes.Count(text[:at[4]], []byte("\n")) + 1, code})
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
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if regexp.MustCompile(`\b` + name + `\b`).MatchString(code) {
			fmt.Fprintf(&before, "var %s %s\n", name, given[name])
		}
	}
	return file("block", fmt.Sprintf("%s//line %s:%d\n%s", &before, b.path, b.line, code))
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

func oneLiner(line string) int {
	for i, o := range oneLiners {
		if strings.HasPrefix(line, o.begins) {
			return i
		}
	}
	return -1
}

// TestReadme compiles every block of Go in README and docs. Of README's blocks of one-liners every line runs.
func TestReadme(t *testing.T) {
	docs, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	var blocks []block
	for _, path := range append([]string{"../README.md"}, docs...) {
		blocks = append(blocks, blocksOf(t, path)...)
	}

	// The files exist for the compiler alone, in the module, so that it finds what they import.
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	temp := t.TempDir()
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	add := func(dir, source string) {
		path := filepath.Join(temp, fmt.Sprint(len(overlay.Replace), ".go"))
		if err := os.WriteFile(path, []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
		overlay.Replace[filepath.Join(here, "readme", dir, "main.go")] = path
	}

	mounted := map[string]int{} // how many programs each framework has
	var programs, fragments []string
	for i, block := range blocks {
		lines := strings.Split(strings.TrimSpace(block.code), "\n")
		if slices.ContainsFunc(lines, func(line string) bool { return oneLiner(line) < 0 }) {
			dir := fmt.Sprintf("block%d", i+1)
			add(dir, block.source(t))
			fragments = append(fragments, dir)
			continue
		}
		for _, line := range lines {
			o := oneLiners[oneLiner(line)]
			mounted[o.name]++
			dir := fmt.Sprintf("%s%d", o.name, mounted[o.name])
			add(dir, file("main", "\nfunc main() {"+strings.Replace(o.program, "LINE", line, 1)+"\n}\n"+program))
			programs = append(programs, dir)
		}
	}
	for _, o := range oneLiners {
		if mounted[o.name] == 0 {
			t.Errorf("README has no line that begins with %s", o.begins)
		}
	}

	text, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(temp, "overlay.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	patterns := func(dirs []string) []string {
		args := []string{"-overlay", path}
		for _, dir := range dirs {
			args = append(args, "./readme/"+dir)
		}
		return args
	}
	out, err := exec.Command("go", append([]string{"build"}, patterns(fragments)...)...).CombinedOutput()
	if err != nil {
		t.Errorf("blocks of README or docs do not compile: %v\n%s", err, out)
	}
	dir := t.TempDir()
	goBuild(t, dir, patterns(programs)...)
	for _, name := range programs {
		c := exec.Command(filepath.Join(dir, name))
		c.Stderr = os.Stderr
		if out, err := c.Output(); err != nil || !strings.HasSuffix(string(out), "map[200:100 429:1]") {
			t.Errorf("%s answered %s, %v; want 100 of 101", name, out, err)
		}
	}
}
