package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
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
	Others   float64           `json:"others"` // the share of the machine that others had meanwhile
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
	s.Others = r.began.others(cpuTime())
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Replace == nil {
				s.Versions[m.Path] = m.Version
			}
		}
	}
	return s
}

// ticks are processor time in the kernel's units: the machine's, and of them
// those in which it did something, for us or for anybody.
type ticks struct{ all, busy, ours float64 }

// cpuTime is all zero where there is no /proc. Ours are also those of Redis,
// once it has ended.
func cpuTime() (t ticks) {
	machine, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(machine), "\n")
	for i, f := range strings.Fields(line) {
		n, err := strconv.ParseFloat(f, 64)
		if err != nil || i > 8 { // a guest's time is in the user's already
			continue
		}
		t.all += n
		if i != 4 && i != 5 { // idle, and waiting for a disk
			t.busy += n
		}
	}
	process, _ := os.ReadFile("/proc/self/stat")
	_, rest, _ := strings.Cut(string(process), ") ") // a name may have anything in it
	if f := strings.Fields(rest); len(f) > 14 {
		for _, own := range f[11:15] {
			n, _ := strconv.ParseFloat(own, 64)
			t.ours += n
		}
	}
	return t
}

// others is the share of the machine that others have had since.
func (t ticks) others(now ticks) float64 {
	if now.all == t.all {
		return 0
	}
	return max(0, (now.busy-t.busy-now.ours+t.ours)/(now.all-t.all))
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
	text, err := os.ReadFile(filepath.Join(dir, "results", name))
	if err != nil {
		return nil, err
	}
	r := new(results)
	return r, json.Unmarshal(text, r)
}

// write leaves the results where people look for them.
func (r *results) write(dir string) error {
	text, err := r.json()
	if err != nil {
		return err
	}
	files := map[string][]byte{"results/latest.json": text}
	for _, c := range charts(r) {
		if files["charts/"+c.File], err = c.svg(); err != nil {
			return err
		}
	}
	if files["README.md"], err = r.readme(filepath.Join(dir, "README.md")); err != nil {
		return err
	}
	return writeFiles(dir, files)
}

func (r *results) json() ([]byte, error) {
	text, err := json.MarshalIndent(r, "", "\t")
	return append(text, '\n'), err
}

func writeFiles(dir string, files map[string][]byte) error {
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

// readme returns the file at path with new results between its two marks.
func (r *results) readme(path string) ([]byte, error) {
	return replaced(path, "results", r.machine()+"\n"+r.participants()+r.text())
}

// machine is what has run, and where.
func (r *results) machine() string {
	return fmt.Sprintf("%s, `%s`: %d cores of %s (%s), which Redis and its clients share, "+
		"and of which others took %.0f %%. Go %s, Redis %s, go-redis %s.\n",
		r.Date, r.Command, r.Cores, r.CPU, r.System, 100*r.Others,
		r.Go, r.Redis, r.Versions["github.com/redis/go-redis/v9"])
}

// text is all tables.
func (r *results) text() string {
	var b strings.Builder
	for _, t := range r.Tables {
		b.WriteString("\n" + t.text())
	}
	return b.String()
}

// replaced returns the file at path with another text between the two marks of this name.
func replaced(path, name, text string) ([]byte, error) {
	begin, end := "<!-- "+name+" -->\n", "<!-- end of "+name+" -->"
	old, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	before, rest, ok := bytes.Cut(old, []byte(begin))
	_, after, also := bytes.Cut(rest, []byte(end))
	if !ok || !also {
		return nil, fmt.Errorf("%s has no marks for %s", path, name)
	}
	return slices.Concat(before, []byte(begin+text+end), after), nil
}

// participants are the modules that take part.
func (r *results) participants() string {
	var b strings.Builder
	b.WriteString("| | version | what it keeps of a key | exact |\n|---|---|---|---|\n")
	seen := make(map[string]bool)
	all := append(inRedis(nil), inMemory()...)
	for _, f := range frameworks {
		all = append(all, contestant{peer: f.other})
	}
	for _, c := range all {
		if seen[c.module] || c.kind == floor {
			continue
		}
		seen[c.module] = true
		is := "no"
		if c.kind == exact {
			is = "yes"
		}
		version := cmp.Or(strings.TrimPrefix(r.Versions[c.module], "v"), "this one")
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", c.name, version, c.keeps, is)
	}
	return b.String()
}
