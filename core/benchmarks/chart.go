package main

import (
	"bytes"
	_ "embed"
	"strings"
	"text/template"
)

// chart is a picture of some tables: panels of bars, each panel on a scale of
// its own.
type chart struct {
	File, Title, Note string
	panels            []panel
}

type panel struct {
	title string
	bars  []bar
}

type bar struct {
	name  string
	kind  kind
	value float64
	tail  float64 // a thin line goes on to here; 0 is none
	text  string
	ratio string
}

func charts(r *results) []chart {
	checks := r.chart("redis-checks", "Checks a second in Redis", "More is better. Beside it: times redis_rate.")
	latency := r.chart("redis-latency", "µs that a check in Redis takes its caller",
		"Less is better. The bar is the median, the line goes on to the 99th percentile.")
	for _, at := range []struct{ column, title string }{
		{"1", "1 goroutine, 10 keys"},
		{"16", "16 goroutines, 1,000 keys"},
		{"64", "64 goroutines, 1,000 keys"},
		{"256", "256 goroutines, 1,000 keys"},
		{"256, one key", "256 goroutines, one key"},
		{"256, denied", "256 goroutines, repeated denials"},
	} {
		checks.panel(at.title, r.bars("redis-checks", at.column, ""))
		latency.panel(at.title, r.bars("redis-p50", at.column, "redis-p99"))
	}

	cost := r.chart("redis-cost", "µs of Redis that a check takes, one at a time",
		"Less is better. All of its main thread, the network included. Beside it: times redis_rate.")
	for _, at := range []struct{ column, title string }{
		{"allow 100", "allowed, quota 100"},
		{"allow 10,000", "allowed, quota 10,000"},
		{"deny 100", "denied, quota 100"},
		{"deny 10,000", "denied, quota 10,000"},
	} {
		cost.panel(at.title, r.bars("redis-thread", at.column, ""))
	}

	size := r.chart("bytes", "Bytes that a key takes",
		"Less is better. An exact answer needs each admission; the others keep a number or two.")
	size.panel("in Redis, a quota of 100 used up", r.bars("redis-bytes", "a key of 100", ""))
	size.panel("in Redis, a quota of 1,000 used up", r.bars("redis-bytes", "a key of 1,000", ""))
	size.panel("in memory, one admission", r.bars("memory-keys", "bytes", ""))

	memory := r.chart("memory-checks", "ns from one check in memory to the next",
		"Less is better. Beside it: times the fastest peer that keeps windows.")
	for _, at := range []struct{ column, title string }{
		{"one key", "one key"},
		{"100,000 even", "100,000 keys"},
		{"1,000,000 zipf", "1,000,000 keys, some far busier"},
	} {
		memory.panel(at.title+", 1 goroutine", r.bars("memory-1", at.column, ""))
		memory.panel(at.title+", 64 goroutines", r.bars("memory-64", at.column, ""))
	}

	requests := r.chart("requests", "ns that a limiter adds to a request", "Less is better. In memory, one client.")
	for _, f := range frameworks {
		var bars []bar
		for _, column := range []string{"added ns", "denied: added ns"} {
			for _, b := range r.bars("request", column, "") {
				if name, ok := strings.CutPrefix(b.name, f.name+": "); ok {
					if b.name = name; strings.HasPrefix(column, "denied") {
						b.name += ", denied"
					}
					bars = append(bars, b)
				}
			}
		}
		requests.panel(f.name, bars)
	}
	return []chart{*checks, *latency, *cost, *size, *memory, *requests}
}

func (r *results) chart(file, title, note string) *chart {
	return &chart{File: file + ".svg", Title: title, Note: note}
}

func (c *chart) panel(title string, bars []bar) {
	if len(bars) > 0 {
		c.panels = append(c.panels, panel{title, bars})
	}
}

// bars are a column of a table, and of a second one that they go on to.
func (r *results) bars(table, column, tail string) (bars []bar) {
	t, to := r.named(table), r.named(tail)
	for _, row := range t.Rows {
		value, ok := t.value(row.Name, column)
		if !ok {
			continue
		}
		b := bar{name: row.Name, kind: row.Kind, value: value, text: number(value)}
		if ratio, ok := t.ratio(row.Name, column); ok && row.Kind != floor && tail == "" {
			b.ratio = times(ratio) + "×"
		}
		if further, ok := to.value(row.Name, column); ok {
			b.tail, b.ratio = further, "to "+number(further)
		}
		bars = append(bars, b)
	}
	return bars
}

func (r *results) named(name string) *Table {
	for _, t := range r.Tables {
		if t.Name == name {
			return t
		}
	}
	return new(Table)
}

//go:embed chart.svg.tmpl
var chartText string

var chartTemplate = template.Must(template.New("chart").Parse(chartText))

// mark is one thing that is drawn. Y is where its text stands, Top where its
// box begins.
type mark struct {
	X, Y, Top, Width, Tail float64
	Class                  kind
	Name, Text, Ratio      string
}

// svg draws two panels beside each other, row by row.
func (c chart) svg() ([]byte, error) {
	const (
		margin, gap = 28.0, 40.0
		width       = 880.0
		panelWidth  = (width - 2*margin - gap) / 2
		nameWidth   = 150.0
		longest     = 134.0 // bar
		line        = 22.0
	)
	picture := struct {
		chart
		Width, Height  float64
		Legend         []mark
		Headings, Bars []mark
	}{chart: c, Width: width}

	says := map[kind]string{
		exact: "exact", window: "fixed or weighed windows",
		bucket: "GCRA or token bucket", floor: "the least it can cost",
	}
	used := make(map[kind]bool)
	y := 136.0
	for i := 0; i < len(c.panels); i += 2 {
		rows := 0
		for j, p := range c.panels[i:min(i+2, len(c.panels))] {
			x := margin + float64(j)*(panelWidth+gap)
			picture.Headings = append(picture.Headings, mark{X: x, Y: y, Width: panelWidth, Name: p.title})
			most := 0.0
			for _, b := range p.bars {
				most = max(most, b.value, b.tail)
			}
			for k, b := range p.bars {
				used[b.kind] = true
				at := y + 30 + line*float64(k)
				picture.Bars = append(picture.Bars, mark{
					X: x + nameWidth, Y: at, Top: at - 11, Class: b.kind,
					Width: max(1.5, longest*b.value/most), Tail: longest * b.tail / most,
					Name: b.name, Text: b.text, Ratio: b.ratio,
				})
			}
			rows = max(rows, len(p.bars))
		}
		y += 30 + line*float64(rows) + 30
	}
	picture.Height = y - 22

	x := margin
	for _, k := range []kind{exact, window, bucket, floor} {
		if used[k] {
			picture.Legend = append(picture.Legend, mark{X: x, Y: 98, Top: 88, Class: k, Name: says[k]})
			x += 40 + 6.8*float64(len(says[k]))
		}
	}
	var b bytes.Buffer
	err := chartTemplate.Execute(&b, picture)
	return b.Bytes(), err
}
