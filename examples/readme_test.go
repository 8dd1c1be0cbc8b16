package examples_test

import (
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

// given are what README's other blocks take as being there.
const given = `
var (
	ctx     context.Context
	store   core.Store
	mux     *http.ServeMux
	limiter *core.Limiter
)
`

// imports are the packages that README's blocks and the programs here may use. A name that
// is missing here, or among what is given, fails the build and so the test.
var imports = map[string]string{
	"chi":        "github.com/go-chi/chi/v5",
	"context":    "context",
	"echo":       "github.com/labstack/echo/v4",
	"fiber":      "github.com/gofiber/fiber/v2",
	"fmt":        "fmt",
	"gin":        "github.com/gin-gonic/gin",
	"http":       "net/http",
	"httptest":   "net/http/httptest",
	"net":        "net",
	"redis":      "github.com/redis/go-redis/v9",
	"time":       "time",
	"chilimit":   "github.com/sashlimit/sash/chilimit",
	"core":       "github.com/sashlimit/sash/core",
	"echolimit":  "github.com/sashlimit/sash/echolimit",
	"fiberlimit": "github.com/sashlimit/sash/fiberlimit",
	"ginlimit":   "github.com/sashlimit/sash/ginlimit",
	"nethttp":    "github.com/sashlimit/sash/nethttp",
	"redisstore": "github.com/sashlimit/sash/core/redisstore",
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

// function makes a block of README the body of a function, by three rules:
// "{ ... }" stands for a body that is left out; a value on a line of its own, such as
// core.Limit{...}, is there to be looked at; and what the block declares need not be used.
func function(t *testing.T, block string) string {
	t.Helper()
	const head = "package p\nfunc _() error {\n"
	block = strings.ReplaceAll(block, "{ ... }", `{ panic("left out") }`)
	parsed, err := parser.ParseFile(token.NewFileSet(), "", head+block+"}", parser.SkipObjectResolution)
	if err != nil {
		t.Fatalf("a block of README does not parse: %v\n%s", err, block)
	}
	end := ""
	statements := parsed.Decls[0].(*ast.FuncDecl).Body.List
	for _, s := range slices.Backward(statements) {
		switch s := s.(type) {
		case *ast.ExprStmt:
			if _, ok := s.X.(*ast.CallExpr); !ok {
				at := int(s.Pos()) - 1 - len(head) // a Pos counts bytes from 1
				block = block[:at] + "_ = " + block[at:]
			}
		case *ast.AssignStmt:
			for _, name := range s.Lhs {
				if name, ok := name.(*ast.Ident); ok && s.Tok == token.DEFINE && name.Name != "_" {
					end += "_ = " + name.Name + "\n"
				}
			}
		}
	}
	return "func _() error {\n" + block + end + "return nil\n}\n"
}

func oneLiner(line string) int {
	for i, o := range oneLiners {
		if strings.HasPrefix(line, o.begins) {
			return i
		}
	}
	return -1
}

// TestReadme compiles every block of Go in README. Of blocks of one-liners every line runs.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(string(readme), -1)
	if n := strings.Count(string(readme), "```go"); n != len(blocks) || n == 0 {
		t.Fatalf("found %d blocks of Go, of %d", len(blocks), n)
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
		lines := strings.Split(strings.TrimSpace(block[1]), "\n")
		if slices.ContainsFunc(lines, func(line string) bool { return oneLiner(line) < 0 }) {
			dir := fmt.Sprintf("block%d", i+1)
			add(dir, file("block", given+function(t, block[1])))
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
		t.Errorf("blocks of README do not compile: %v\n%s", err, out)
	}
	dir := goBuild(t, patterns(programs)...)
	for _, name := range programs {
		c := exec.Command(filepath.Join(dir, name))
		c.Stderr = os.Stderr
		if out, err := c.Output(); err != nil || !strings.HasSuffix(string(out), "map[200:100 429:1]") {
			t.Errorf("%s answered %s, %v; want 100 of 101", name, out, err)
		}
	}
}
