//go:build next

package core_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/sashlimit/sash/"

var layersOfCore = []string{
	module + "core/adapter",
	module + "core/event",
	module + "core/internal/ban",
	module + "core/internal/bridge",
	module + "core/internal/guard",
	module + "core/internal/memory",
	module + "core/internal/clientip",
	module + "core/internal/calendar",
	module + "core/internal/counter",
	module + "core/internal/deadline",
	module + "core/internal/denycache",
	module + "core/internal/inflight",
	module + "core/internal/keys",
	module + "core/internal/lease",
	module + "core/internal/lifetime",
	module + "core/internal/override",
	module + "core/internal/limittext",
	module + "core/internal/plan",
	module + "core/internal/question",
	module + "core/internal/queue",
	module + "core/internal/refusal",
	module + "core/internal/setup",
	module + "core/internal/slide",
	module + "core/internal/slots",
	module + "core/store",
}

// layers lists which packages outside the standard library a package may depend on, directly or through others. Users
// choose their framework and their store, so core depends on neither.
var layers = []struct {
	pkg string
	may []string
}{
	{module + "core/internal/calendar", nil},
	{module + "core/internal/clientip", []string{module + "core/adapter"}},
	{module + "core/internal/deadline", nil},
	{module + "core/internal/inflight", nil},
	{module + "core/internal/keys", []string{
		module + "core/adapter", module + "core/store", module + "core/internal/clientip",
		module + "core/internal/setup",
	}},
	{module + "core/internal/lease", nil},
	{module + "core/internal/lifetime", []string{module + "core/adapter"}},
	{module + "core/internal/limittext", []string{
		module + "core/store", module + "core/internal/plan", module + "core/internal/calendar",
	}},
	{module + "core/internal/override", []string{module + "core/store"}},
	{module + "core/internal/queue", nil},
	{module + "core/internal/refusal", []string{
		module + "core/adapter", module + "core/store", module + "core/internal/clientip",
		module + "core/internal/setup", module + "core/internal/keys",
	}},
	{module + "core/internal/slide", nil},
	{module + "core/internal/setup", []string{module + "core/adapter"}},
	{module + "core/internal/slots", []string{module + "core/store"}},
	{module + "core/internal/denycache", []string{module + "core/store"}},
	{module + "core/adapter", nil},
	{module + "core/store", nil},
	{module + "core/internal/bridge", []string{
		module + "core/adapter", module + "core/store", module + "core/internal/plan",
		module + "core/internal/calendar",
	}},
	{module + "core/internal/ban", []string{
		module + "core/store", module + "core/internal/plan", module + "core/internal/calendar",
	}},
	{module + "core/internal/counter", []string{module + "core/store"}},
	{module + "core/internal/memory", []string{
		module + "core/store", module + "core/internal/slide", module + "core/internal/counter",
	}},
	{module + "core/internal/plan", []string{module + "core/store", module + "core/internal/calendar"}},
	{module + "core/internal/guard", []string{
		module + "core/event", module + "core/store", module + "core/internal/memory", module + "core/internal/slide",
		module + "core/internal/counter", module + "core/internal/deadline", module + "core/internal/denycache",
		module + "core/internal/slots", module + "core/internal/lease",
	}},
	{module + "core/internal/question", []string{
		module + "core/event", module + "core/store", module + "core/internal/memory", module + "core/internal/slide",
		module + "core/internal/counter", module + "core/internal/deadline", module + "core/internal/denycache",
		module + "core/internal/slots", module + "core/internal/lease", module + "core/internal/guard",
		module + "core/internal/plan", module + "core/internal/calendar", module + "core/internal/limittext",
	}},
	{module + "core", layersOfCore},
	{module + "core/rules", append([]string{
		module + "core", "go.yaml.in/yaml/v4",
	}, layersOfCore...)},
	{module + "internal/errclass", []string{module + "core/adapter", module + "core/store"}},
	{module + "internal/metricsum", append([]string{module + "core", module + "internal/errclass"}, layersOfCore...)},
	// Only those who import these have Prometheus or OpenTelemetry in their programs. Newer versions of these need
	// goautoneg and xxhash as well.
	{module + "core/prommetrics", append([]string{
		module + "core", module + "internal/errclass", module + "internal/metricsum",
		"github.com/prometheus", "github.com/beorn7/perks", "github.com/cespare/xxhash",
		"github.com/munnerz/goautoneg", "google.golang.org/protobuf", "golang.org/x/sys",
	}, layersOfCore...)},
	{module + "core/otelmetrics", append([]string{
		module + "core", module + "internal/errclass", module + "internal/metricsum",
		"go.opentelemetry.io/otel", "github.com/cespare/xxhash", "github.com/go-logr",
	}, layersOfCore...)},
	{module + "core/dashboard", append([]string{
		module + "core", module + "internal/errclass", module + "internal/metricsum",
		"github.com/go-kratos/aegis", "github.com/twmb/murmur3",
	}, layersOfCore...)},
	// Newer versions of go-redis need x/sys as well.
	{module + "core/internal/redisclient", []string{
		module + "core/store", module + "core/internal/deadline", "github.com/redis/go-redis/v9",
		"github.com/cespare/xxhash", "github.com/dgryski/go-rendezvous", "go.uber.org/atomic", "golang.org/x/sys",
	}},
	{module + "core/redisstore", []string{
		module + "core/store", module + "core/internal/deadline", module + "core/internal/redisclient",
		"github.com/redis/go-redis/v9", "github.com/cespare/xxhash", "github.com/dgryski/go-rendezvous",
		"go.uber.org/atomic", "golang.org/x/sys",
	}},
	{module + "core/redisstream", []string{
		module + "core/store", module + "core/internal/deadline", module + "core/internal/redisclient",
		"github.com/redis/go-redis/v9", "github.com/cespare/xxhash", "github.com/dgryski/go-rendezvous",
		"go.uber.org/atomic", "golang.org/x/sys",
	}},
	// Newer versions of fasthttp need go-brrr in place of brotli.
	{module + "core/fasthttpadapter", []string{
		module + "core/adapter", "github.com/valyala/fasthttp", "github.com/valyala/bytebufferpool",
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
	if err != nil {
		t.Fatal(err)
	}
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
