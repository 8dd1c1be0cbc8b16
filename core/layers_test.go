package core_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const (
	module = "github.com/sashlimit/sash/"
	below  = module + "core/"
	inside = below + "internal/"
)

// The packages of core, each with those below it.
var (
	layersOfKeys   = []string{below + "adapter", below + "store", inside + "clientip"}
	layersOfLimits = []string{below + "store", inside + "calendar"}
	layersOfMemory = []string{below + "store", inside + "counter", inside + "slide"}
	layersOfGuard  = append([]string{
		below + "event", inside + "denycache", inside + "errtypes", inside + "lease", inside + "logname",
		inside + "memory", inside + "permits", inside + "within",
	}, layersOfMemory...)
	layersOfEngine = slices.Concat([]string{
		inside + "guard", inside + "keys", inside + "limittext", inside + "queue", inside + "spread",
	}, layersOfKeys, layersOfLimits, layersOfGuard)
	layersOfGate = append([]string{inside + "engine"}, layersOfEngine...)
	layersOfCore = append([]string{inside + "gate", inside + "refusal", inside + "sharing"}, layersOfGate...)
)

// layers lists which packages outside the standard library a package may depend on, directly or through others. Users
// choose their framework and their store, so core depends on neither. The engine knows no requests: of core/adapter it
// has what keys are written in.
var layers = []struct {
	pkg string
	may []string
}{
	{below + "adapter", nil},
	{below + "event", nil},
	{below + "store", nil},
	{inside + "calendar", nil},
	{inside + "lease", nil},
	{inside + "queue", nil},
	{inside + "slide", nil},
	{inside + "sharing", nil},
	{inside + "spread", nil},
	{inside + "within", nil},
	{inside + "clientip", []string{below + "adapter"}},
	{inside + "refusal", []string{below + "adapter", below + "store", inside + "errtypes"}},
	{inside + "counter", []string{below + "store"}},
	{inside + "denycache", []string{below + "store"}},
	{inside + "errtypes", []string{below + "store"}},
	{inside + "permits", []string{below + "store", inside + "logname"}},
	{inside + "logname", []string{below + "store"}},
	{inside + "limittext", layersOfLimits},
	{inside + "keys", layersOfKeys},
	{inside + "memory", layersOfMemory},
	{inside + "guard", layersOfGuard},
	{inside + "engine", layersOfEngine},
	{inside + "gate", layersOfGate},
	{module + "core", layersOfCore},
	{below + "rules", append([]string{module + "core", "go.yaml.in/yaml/v4"}, layersOfCore...)},
	{inside + "metricsum", append([]string{module + "core"}, layersOfCore...)},
	// Only those who import these have Prometheus or OpenTelemetry in their programs. Newer versions of these need
	// goautoneg and xxhash as well.
	{below + "prommetrics", append([]string{
		module + "core", inside + "metricsum",
		"github.com/prometheus", "github.com/beorn7/perks", "github.com/cespare/xxhash",
		"github.com/munnerz/goautoneg", "google.golang.org/protobuf", "golang.org/x/sys",
	}, layersOfCore...)},
	{below + "otelmetrics", append([]string{
		module + "core", inside + "metricsum",
		"go.opentelemetry.io/otel", "github.com/cespare/xxhash", "github.com/go-logr",
	}, layersOfCore...)},
	{below + "dashboard", append([]string{module + "core", inside + "metricsum"}, layersOfCore...)},
	// Newer versions of go-redis need x/sys as well.
	{inside + "redisclient", []string{
		below + "store", inside + "within", "github.com/redis/go-redis/v9",
		"github.com/cespare/xxhash", "github.com/dgryski/go-rendezvous", "go.uber.org/atomic", "golang.org/x/sys",
	}},
	{below + "redisstore", []string{
		below + "store", inside + "redisclient", inside + "within", "github.com/redis/go-redis/v9",
		"github.com/cespare/xxhash", "github.com/dgryski/go-rendezvous", "go.uber.org/atomic", "golang.org/x/sys",
	}},
	// Newer versions of fasthttp need go-brrr in place of brotli.
	{below + "fasthttpadapter", []string{
		below + "adapter", "github.com/valyala/fasthttp", "github.com/valyala/bytebufferpool",
		"github.com/andybalholm/brotli", "github.com/klauspost/compress", "github.com/molecule-man/go-brrr",
	}},
	// Users of an adapter need no package that reads files.
	{module + "nethttp", append([]string{module + "core", "github.com/felixge/httpsnoop"}, layersOfCore...)},
}

func TestLayers(t *testing.T) {
	args := []string{"list", "-f", `{{.ImportPath}}{{range .Deps}} {{.}}{{end}}`}
	for _, layer := range layers {
		args = append(args, layer.pkg)
	}
	out, err := exec.CommandContext(t.Context(), "go", args...).Output()
	must(t, err)
	deps := make(map[string][]string)
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		deps[words[0]] = words[1:]
	}
	for _, layer := range layers {
		if len(deps[layer.pkg]) == 0 {
			t.Errorf("go list names no dependencies of %s", layer.pkg)
		}
		for _, dep := range deps[layer.pkg] {
			host, _, _ := strings.Cut(dep, "/")
			may := func(known string) bool {
				return dep == known || !strings.HasPrefix(known, module) && strings.HasPrefix(dep, known+"/")
			}
			if strings.Contains(host, ".") && !slices.ContainsFunc(layer.may, may) {
				t.Errorf("%s depends on %s", layer.pkg, dep)
			}
		}
	}
}
