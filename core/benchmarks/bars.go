package main

import (
	"errors"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
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

// svg draws two panels beside each other, row by row.
func (c chart) svg() ([]byte, error) {
	const (
		gap   = 40
		width = (pictureWidth - 2*margin - gap) / 2
		head  = 30 // of a panel
		line  = 22 // of a bar
	)
	height := vg.Length(pictureHead + 40)
	for i := 0; i < len(c.panels); i += 2 {
		height += 2*head + line*vg.Length(rows(c.panels[i:]))
	}
	p := newPicture(height-8, c.Title, c.Note)
	p.legend(margin, pictureHead+4, 12, c.legend()...)
	y := vg.Length(pictureHead + 52)
	for i := 0; i < len(c.panels); i += 2 {
		for j, panel := range c.panels[i:min(i+2, len(c.panels))] {
			x := margin + vg.Length(j)*(width+gap)
			p.text(x, y, panel.title, bold(13, ink))
			p.StrokeLine2(draw.LineStyle{Color: rule, Width: 1}, x, p.Max.Y-y-8, x+width, p.Max.Y-y-8)
			drawn, names, err := panel.plot(width)
			if err != nil {
				return nil, err
			}
			left := nameWidth - names
			drawn.Draw(p.part(x+left, y+head-15, width-left, line*vg.Length(len(panel.bars))))
		}
		y += 2*head + line*vg.Length(rows(c.panels[i:]))
	}
	return p.bytes()
}

// rows is how many bars are below each other in the first two panels.
func rows(panels []panel) (n int) {
	for _, p := range panels[:min(2, len(panels))] {
		n = max(n, len(p.bars))
	}
	return n
}

func (c chart) legend() (entries []legendEntry) {
	says := map[kind]string{
		exact: "exact", window: "fixed or weighed windows",
		bucket: "GCRA or token bucket", floor: "the least it can cost",
	}
	used := make(map[kind]bool)
	for _, p := range c.panels {
		for _, b := range p.bars {
			used[b.kind] = true
		}
	}
	for _, k := range []kind{exact, window, bucket, floor} {
		if used[k] {
			entries = append(entries, legendEntry{colours[k], says[k]})
		}
	}
	return entries
}

// nameWidth is the space at the left of all bars.
const nameWidth = 150

// plot has bars below each other, with names at the left and numbers at the right. Its bars begin at the given width of
// the names.
func (p panel) plot(width vg.Length) (drawn *plot.Plot, names vg.Length, err error) {
	const longest = 134
	drawn = plot.New()
	drawn.BackgroundColor = nil
	drawn.HideAxes()
	most := 0.0
	for i, b := range p.bars {
		most = max(most, b.value, b.tail)
		labels, err := b.add(drawn, float64(len(p.bars)-1-i)) // from below
		if err != nil {
			return nil, 0, err
		}
		names = max(names, labels)
	}
	drawn.X.Min, drawn.X.Max = 0, most*float64((width-nameWidth)/longest)
	drawn.Y.Min, drawn.Y.Max = -0.5, float64(len(p.bars))-0.5
	drawn.X.Padding, drawn.Y.Padding = 0, 0
	return drawn, names, nil
}

// add draws the bar at a height, and returns the width of its name.
func (b bar) add(p *plot.Plot, y float64) (vg.Length, error) {
	box, err := plotter.NewBarChart(plotter.Values{b.value}, 14)
	if err != nil {
		return 0, err
	}
	// The least of all bars is a line.
	box.Horizontal, box.XMin, box.Color = true, y, colours[b.kind]
	box.LineStyle = draw.LineStyle{Color: colours[b.kind], Width: 1}
	begin, end := plotter.XY{Y: y}, plotter.XY{X: max(b.value, b.tail), Y: y}
	line, err := plotter.NewLine(plotter.XYs{begin, end})
	if err != nil {
		return 0, err
	}
	line.Color, line.Width = colours[b.kind], 2
	p.Add(box, line)

	name, number := plain(12, ink), plain(12, ink)
	if b.kind == exact {
		name = bold(12, ink)
	}
	name.XAlign = draw.XRight
	const wider = 0.15 // by which other fonts may be wider than that of the measures
	after, room := number.Width(b.text+" ")*(1+wider), 8+name.Width(b.name)*wider
	return name.Width(b.name) + room, errors.Join(
		label(p, begin, -room, b.name, name),
		label(p, end, 6, b.text, number),
		label(p, end, 6+after, b.ratio, plain(12, dim)),
	)
}

// label writes beside a point.
func label(p *plot.Plot, at plotter.XY, right vg.Length, s string, style text.Style) error {
	l, err := plotter.NewLabels(plotter.XYLabels{XYs: plotter.XYs{at}, Labels: []string{s}})
	if err != nil {
		return err
	}
	style.YAlign = draw.YCenter
	l.TextStyle[0], l.Offset = style, vg.Point{X: right, Y: 1}
	p.Add(l)
	return nil
}
