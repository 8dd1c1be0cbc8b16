package main

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.yaml.in/yaml/v4"

	"github.com/sashlimit/sash/core/coretest/redistest"
	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/prommetrics"
)

// described is a registerer that notes the labels of each metric, by name.
type described map[string][]string

var descText = regexp.MustCompile(`fqName: "(\w+)".*variableLabels: \{(.*?)\}`)

func (d described) Register(c prometheus.Collector) error {
	descs := make(chan *prometheus.Desc, 100)
	c.Describe(descs)
	close(descs)
	for desc := range descs {
		found := descText.FindStringSubmatch(desc.String())
		d[found[1]] = strings.FieldsFunc(found[2], func(r rune) bool { return r == ',' })
	}
	return nil
}

func (d described) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		if err := d.Register(c); err != nil {
			panic(err)
		}
	}
}

func (described) Unregister(prometheus.Collector) bool { return false }

// exported returns the labels of all metrics of package prommetrics.
func exported(t *testing.T) described {
	t.Helper()
	d := make(described)
	prommetrics.Observer(d)
	prommetrics.StoreObserver(d)
	d.MustRegister(prommetrics.Collector())
	if len(d) < 20 || !slices.Equal(d["sash_decisions_total"], []string{"policy", "outcome", "source"}) {
		t.Fatalf("metrics %v", d)
	}
	return d
}

// texts returns the strings at a key anywhere in a document.
func texts(of any, key string) (found []string) {
	switch of := of.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(of)) {
			if text, ok := of[name].(string); ok && name == key {
				found = append(found, text)
			}
			found = append(found, texts(of[name], key)...)
		}
	case []any:
		for _, v := range of {
			found = append(found, texts(v, key)...)
		}
	}
	return found
}

// expressions returns those of the dashboard and of the alerts.
func expressions(t *testing.T) map[string][]string {
	t.Helper()
	all := make(map[string][]string)
	for _, path := range []string{"dashboard.json", "alerts.yaml"} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var document any
		if err := yaml.Unmarshal(text, &document); err != nil { // JSON is YAML
			t.Fatal(err)
		}
		all[path] = texts(document, "expr")
	}
	if len(all["dashboard.json"]) < 20 || len(all["alerts.yaml"]) < 5 {
		t.Fatalf("%d and %d expressions", len(all["dashboard.json"]), len(all["alerts.yaml"]))
	}
	return all
}

var (
	selector = regexp.MustCompile(`(\w+)(?:\{([^}]*)\})?(?:\[[^\]]*\])?`)
	matcher  = regexp.MustCompile(`(\w+)(?:=~|!~|!=|=)"([^"]*)"`)
	grouping = regexp.MustCompile(`\b(by|without|on|ignoring)\s*\(([^)]*)\)`)
	words    = []string{
		"sum", "max", "rate", "increase", "histogram_quantile", "and", "or", "unless",
	}
)

// values are those that a label can have.
func values() map[string][]string {
	all := map[string][]string{
		"result": {"ok", "failed"}, "state": {"closed", "open"}, "outcome": {"failed"},
		"override": {"limits", "denied", "unlimited"},
		"class":    {"ok", "callback", "config", "panic", "canceled", "other"},
	}
	for o := event.Allowed; o.IsDecision(); o++ {
		all["outcome"] = append(all["outcome"], o.String())
	}
	for s := event.None; s.String() != "unknown"; s++ {
		all["source"] = append(all["source"], s.String())
	}
	return all
}

// isHistogram reports whether the name is that of a histogram, whose series have names that end in another way.
func isHistogram(name string) bool {
	return strings.HasSuffix(name, "_seconds")
}

// check returns what an expression names that is not exported. It adds the names of the metrics to used.
func check(expr string, metrics described, used map[string]bool) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	own := []string{"instance", "job"} // Prometheus adds them
	var groups []string
	for _, g := range grouping.FindAllStringSubmatch(expr, -1) {
		groups = append(groups, strings.FieldsFunc(g[2], func(r rune) bool { return r == ',' || r == ' ' })...)
	}
	for _, found := range selector.FindAllStringSubmatch(grouping.ReplaceAllString(expr, ""), -1) {
		name, base := found[1], found[1]
		if slices.Contains(words, name) || strings.Trim(name, "0123456789") == "" {
			continue
		}
		labels, known := metrics[name]
		for _, part := range []string{"_bucket", "_sum", "_count"} {
			if cut, ok := strings.CutSuffix(name, part); ok && isHistogram(cut) {
				base = cut
				if labels, known = metrics[cut]; part == "_bucket" {
					labels = append(slices.Clone(labels), "le")
				}
			}
		}
		if !known || isHistogram(name) {
			fault("there is no metric %s", name)
			continue
		}
		used[base] = true
		for _, m := range matcher.FindAllStringSubmatch(found[2], -1) {
			if !slices.Contains(labels, m[1]) && !slices.Contains(own, m[1]) {
				fault("%s has no label %s", name, m[1])
			}
			for value := range strings.SplitSeq(m[2], "|") {
				if known := values()[m[1]]; known != nil && !slices.Contains(known, value) {
					fault("%s is never %q", m[1], value)
				}
			}
		}
		for _, g := range groups {
			if !slices.Contains(labels, g) && !slices.Contains(own, g) {
				fault("%s has no label %s", name, g)
			}
		}
	}
	return faults
}

// Each expression names metrics and labels that are exported, and each metric is on the dashboard.
func TestExpressions(t *testing.T) {
	metrics, used := exported(t), make(map[string]bool)
	for path, exprs := range expressions(t) {
		for _, expr := range exprs {
			for _, fault := range check(expr, metrics, used) {
				t.Errorf("%s: %s: %s", path, expr, fault)
			}
		}
	}
	for name := range metrics {
		if !used[name] {
			t.Errorf("%s is on no panel and in no alert", name)
		}
	}
}

// The check finds what is wrong.
func TestExpressionsWithMistakes(t *testing.T) {
	metrics := exported(t)
	for expr, mistakes := range map[string]int{
		`sum by (policy) (rate(sash_decisions_total{outcome="denied"}[5m]))`:           0,
		`histogram_quantile(0.9, sum by (le) (sash_decision_duration_seconds_bucket))`: 0,
		`sash_decisions`:                                                            1,
		`sash_decision_duration_seconds`:                                            1,
		`rate(sash_decisions_total_bucket[5m])`:                                     1,
		`sash_memory_keys{outcome="denied"}`:                                        1,
		`sash_decisions_total{outcome=~"denied|rejected"}`:                          1,
		`sum by (source) (sash_near_limit_total)`:                                   1,
		`sum by (le) (sash_decision_duration_seconds_count)`:                        1,
		`sum by (policy) (rate(shas_near_limit_total[5m])) / sum by (key) (sash_x)`: 2,
	} {
		if got := check(expr, metrics, make(map[string]bool)); len(got) != mistakes {
			t.Errorf("%s: %q, want %d mistakes", expr, got, mistakes)
		}
	}
}

// docs/metrics.md has a line for each metric, with its labels.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := make(described)
	line := regexp.MustCompile("(?m)^\\| `(sash_\\w+)` \\| \\w+ \\| (.*?) \\|")
	for _, found := range line.FindAllStringSubmatch(string(text), -1) {
		documented[found[1]] = strings.FieldsFunc(found[2], func(r rune) bool { return strings.ContainsRune("`, ", r) })
	}
	metrics := exported(t)
	for name, labels := range metrics {
		if !slices.Equal(documented[name], labels) {
			t.Errorf("%s has the labels %q, documented are %q", name, labels, documented[name])
		}
	}
	for name := range documented {
		if metrics[name] == nil {
			t.Errorf("%s is documented, and there is none", name)
		}
	}
}

// docs/metrics.md has the values that labels get from package event.
func TestDocsOfValues(t *testing.T) {
	text, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	all := slices.Concat(values()["outcome"], values()["source"])
	for o := event.Take; o.String() != "unknown"; o++ {
		all = append(all, o.String())
	}
	for _, value := range all {
		if !strings.Contains(string(text), "`"+value+"`") {
			t.Errorf("docs/metrics.md does not have %q", value)
		}
	}
}

// The files that compose.yaml mounts exist.
func TestCompose(t *testing.T) {
	text, err := os.ReadFile("compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var compose struct {
		Services map[string]struct {
			Volumes []string `yaml:"volumes"`
		} `yaml:"services"`
	}
	if err := yaml.Unmarshal(text, &compose); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"redis", "app", "prometheus", "grafana"} {
		if _, ok := compose.Services[name]; !ok {
			t.Errorf("there is no service %s", name)
		}
	}
	for name, service := range compose.Services {
		for _, volume := range service.Volumes {
			if from, _, _ := strings.Cut(volume, ":"); strings.HasPrefix(from, ".") {
				if _, err := os.Stat(from); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	}
}

// promtool accepts the rules, if it is installed.
func TestPromtool(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed")
	}
	out, err := exec.CommandContext(t.Context(), promtool, "check", "rules", "alerts.yaml").CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// The program serves, limits, and exports what it did without an identity.
func TestProgram(t *testing.T) {
	for _, redis := range []bool{false, true} {
		t.Run(fmt.Sprint("redis ", redis), func(t *testing.T) {
			t.Setenv("REDIS_URL", "")
			if redis {
				t.Setenv("REDIS_URL", "redis://"+redistest.Start(t).Addr())
			}
			registry := prometheus.NewRegistry()
			handler, err := newHandler(registry)
			if err != nil {
				t.Fatal(err)
			}
			server := httptest.NewServer(handler)
			defer server.Close()
			codes := make(map[int]int)
			for range 35 {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/login", nil)
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("X-Customer", "ident7")
				response, err := http.DefaultClient.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				response.Body.Close()
				codes[response.StatusCode]++
			}
			if codes[http.StatusOK] != 30 || codes[http.StatusTooManyRequests] != 5 {
				t.Errorf("statuses %v", codes)
			}
			response, err := http.Get(server.URL + "/metrics")
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			text, err := io.ReadAll(response.Body)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{`outcome="denied",policy="login"`, "sash_permits_in_flight{"} {
				if !strings.Contains(string(text), want) {
					t.Errorf("no %s in\n%s", want, text)
				}
			}
			if strings.Contains(string(text), "ident7") {
				t.Error("the metrics have an identity")
			}
			if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
				t.Errorf("%v, %v", problems, err)
			}
			if n, err := testutil.GatherAndCount(registry, "sash_breaker_state"); err != nil || redis != (n > 0) {
				t.Errorf("%d series of the breaker, %v", n, err)
			}
		})
	}
}
