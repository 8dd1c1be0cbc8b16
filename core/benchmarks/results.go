package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// results are a run, and all that one must know to repeat it.
type results struct {
	Date     string            `json:"date"`
	Command  string            `json:"command"`
	CPU      string            `json:"cpu"`
	Cores    int               `json:"cores"`
	System   string            `json:"system"`
	Go       string            `json:"go"`
	Redis    string            `json:"redis,omitempty"`
	Versions map[string]string `json:"versions"`
	Tables   []*Table          `json:"tables"`
}

func (r *run) results() *results {
	s := &results{
		Date:     time.Now().UTC().Format(time.DateOnly),
		Command:  strings.Join(append([]string{"go run ."}, os.Args[1:]...), " "),
		CPU:      cpu(),
		Cores:    runtime.NumCPU(),
		System:   runtime.GOOS + "/" + runtime.GOARCH,
		Go:       strings.TrimPrefix(runtime.Version(), "go"),
		Versions: make(map[string]string),
		Tables:   r.tables,
	}
	if r.redis != nil {
		s.Redis = r.redis.version()
		r.redis.end()
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Replace == nil {
				s.Versions[m.Path] = m.Version
			}
		}
	}
	return s
}

func cpu() string {
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(info)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

func lastResults(dir, name string) (*results, error) {
	text, err := os.ReadFile(filepath.Join(dir, "results", name+".json"))
	if err != nil {
		return nil, err
	}
	r := new(results)
	return r, json.Unmarshal(text, r)
}

// write leaves the results where people look for them: in a file, in charts and in README.md.
func (r *results) write(dir, name string) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	lines := bytes.ReplaceAll(text, []byte(`{"name"`), []byte("\n{\"name\"")) // one for each row
	files := map[string][]byte{"results/" + name + ".json": append(lines, '\n')}
	for _, c := range r.charts() {
		files["charts/"+c.file+".svg"] = c.svg()
	}
	return write(dir, name, r.markdown(), files)
}

// charts are those of the tables that there are.
func (r *results) charts() (drawn []*chart) {
	checks := &chart{
		file: "redis-checks", title: "Checks a second in Redis", note: "More is better. Beside it: times redis_rate.",
	}
	for _, l := range loads {
		r.panel(checks, l.title, "redis-checks", l.column)
	}
	size := &chart{file: "bytes", title: "Bytes that a key takes",
		note: "Less is better. An exact answer needs each admission; the others keep a number or two."}
	r.panel(size, "in Redis, a quota of 100 used up", "redis-bytes", "a key of 100")
	r.panel(size, "in Redis, a quota of 1,000 used up", "redis-bytes", "a key of 1,000")
	r.panel(size, "in memory, one admission", "memory-keys", "bytes")

	leases := &chart{
		file: "leases", title: fmt.Sprintf("Processes that share %s in any second", number(sharedQuota)),
		note: "As APISIX does: each process counts, and they exchange counts. In brackets: times redis_rate.",
	}
	r.panel(leases, "above the quota, %: 3 processes, 150 % load", "leases-over", "150 % by 3")
	r.panel(leases, "above the quota, %: 8 processes, 150 % load", "leases-over", "150 % by 8")
	r.panel(leases, "denied with room left, %: 3 processes, 100 % load", "leases-denied", "100 % by 3")
	r.panel(leases, "denied with room left, %: 8 processes, 100 % load", "leases-denied", "100 % by 8")
	r.panel(leases, "checks a second: 256 goroutines, one key", "leases-checks", "256, one key")
	r.panel(leases, "checks a second: 64 goroutines, 1,000 uneven keys", "leases-checks", "64, zipf")
	return slices.DeleteFunc([]*chart{checks, size, leases}, func(c *chart) bool { return c.panels == nil })
}

// markdown is what ran, where, and all tables.
func (r *results) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, `%s`: %d cores of %s (%s), which Redis and its clients share. Go %s, Redis %s, go-redis %s.\n",
		r.Date, r.Command, r.Cores, r.CPU, r.System, r.Go, r.Redis, r.Versions["github.com/redis/go-redis/v9"])
	return b.String() + r.text()
}

// text is all tables.
func (r *results) text() string {
	var b strings.Builder
	for _, t := range r.Tables {
		b.WriteString("\n" + t.text())
	}
	return b.String()
}

// write writes files to a folder, and a text between the two marks of this name in its README.md.
func write(dir, name, text string, files map[string][]byte) error {
	begin, end := "<!-- "+name+" -->\n", "<!-- end of "+name+" -->"
	old, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		return err
	}
	before, rest, ok := bytes.Cut(old, []byte(begin))
	_, after, also := bytes.Cut(rest, []byte(end))
	if !ok || !also {
		return fmt.Errorf("README.md of %s has no marks for %s", dir, name)
	}
	files["README.md"] = slices.Concat(before, []byte(begin+text+end), after)
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
