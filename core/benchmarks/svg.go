package main

import (
	"fmt"
	"html"
	"slices"
	"strings"
)

// colours are classes of what is drawn, on light pages and on dark ones.
var colours = []struct{ class, light, dark string }{
	{"paper", "#ffffff", "#0d1117"}, {"ink", "#1f2328", "#e6edf3"}, {"dim", "#59636e", "#9198a1"},
	{"rule", "#d8dee4", "#30363d"}, {"above", "#cf222e", "#f85149"}, {"denied", "#8250df", "#a371f7"},
	{string(exact), "#0969da", "#4493f8"}, {string(window), "#c69026", "#bb8009"},
	{string(bucket), "#8c959f", "#767e87"}, {string(floor), "#d0d7de", "#3d444d"},
}

// picture is an SVG in the colours of the page that shows it, in px from its upper left corner.
type picture struct {
	title         string
	width, height float64
	body          strings.Builder
}

func (p *picture) rect(class string, x, y, width, height float64) {
	fmt.Fprintf(&p.body, "<rect class=%q x=\"%.5g\" y=\"%.5g\" width=\"%.5g\" height=\"%.5g\"/>\n",
		class, x, y, width, height)
}

func (p *picture) text(class string, size int, x, y float64, s string) {
	const format = "<text class=%q style=\"font-size:%dpx\" x=\"%.5g\" y=\"%.5g\">%s</text>\n"
	fmt.Fprintf(&p.body, format, class, size, x, y, html.EscapeString(s))
}

// steps fills the area between a base line and tops that are a px wide.
func (p *picture) steps(class string, x, base float64, tops []float64) {
	fmt.Fprintf(&p.body, "<path class=%q d=\"M%.5g %.5g", class, x, base)
	last := base
	for i, y := range append(tops, base) {
		if y != last {
			fmt.Fprintf(&p.body, "H%.5gV%.5g", x+float64(i), y)
			last = y
		}
	}
	p.body.WriteString("Z\"/>\n")
}

// legend names classes, from left to right.
func (p *picture) legend(x, y float64, size int, entries ...[2]string) {
	side := float64(size)
	for _, e := range entries {
		p.rect(e[0], x, y, side, side)
		p.text("ink", size, x+1.5*side, y+side-2, e[1])
		x += side * (3 + 0.5*float64(len(e[1])))
	}
}

func (p *picture) bytes() []byte {
	var light, dark strings.Builder
	for _, c := range colours {
		fmt.Fprintf(&light, ".%s{fill:%s}", c.class, c.light)
		fmt.Fprintf(&dark, ".%s{fill:%s}", c.class, c.dark)
	}
	return fmt.Appendf(nil, `<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="%s" `+
		`width="%.5g" height="%.5g" viewBox="0 0 %[2]g %[3]g">
<style>text{font-family:"Liberation Sans",Arial,Helvetica,sans-serif}.bold{font-weight:bold}.end{text-anchor:end}
%[4]s
@media (prefers-color-scheme:dark){%[5]s}</style>
<rect class="paper" width="100%%" height="100%%"/>
%[6]s</svg>
`, html.EscapeString(p.title), p.width, p.height, &light, &dark, &p.body)
}

// chart is a picture of some tables: panels of bars, each panel on a scale of its own.
type chart struct {
	file, title, note string
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
	text  string
}

// panel adds the bars of a column of a table.
func (r *results) panel(c *chart, title, table, column string) {
	p := panel{title: title}
	for _, t := range r.Tables {
		for _, row := range t.Rows {
			value, ok := t.value(row.Name, column)
			if t.Name != table || !ok {
				continue
			}
			b := bar{row.Name, row.Kind, value, number(value)}
			if ratio, ok := t.ratio(row.Name, column); ok && row.Kind != floor {
				b.text += " (" + times(ratio) + "×)"
			}
			p.bars = append(p.bars, b)
		}
	}
	if p.bars != nil {
		c.panels = append(c.panels, p)
	}
}

// svg draws two panels beside each other, row by row.
func (c *chart) svg() []byte {
	const (
		margin, names, longest = 28, 150, 134
		gap, width             = 40, (880 - 2*margin - 40) / 2
		head, line             = 30, 22 // of a panel, of a bar
	)
	p := &picture{title: c.title, width: 880}
	p.text("bold ink", 18, margin, 42, c.title)
	p.text("dim", 12, margin, 66, c.note)
	p.legend(margin, 88, 12, c.legend()...)
	y := 136.0
	for i := 0; i < len(c.panels); i += 2 {
		rows := 0
		for j, panel := range c.panels[i:min(i+2, len(c.panels))] {
			x, most := float64(margin+j*(width+gap)), 0.0
			p.text("bold ink", 13, x, y, panel.title)
			p.rect("rule", x, y+8, width, 1)
			for _, b := range panel.bars {
				most = max(most, b.value)
			}
			for k, b := range panel.bars {
				middle, length := y+head+float64(k*line), longest*b.value/most
				class := "end ink"
				if b.kind == exact {
					class += " bold"
				}
				p.text(class, 12, x+names-8, middle+4, b.name)
				p.rect(string(b.kind), x+names, middle-7, max(length, 1), 14)
				p.text("ink", 12, x+names+length+6, middle+4, b.text)
			}
			rows = max(rows, len(panel.bars))
		}
		y += float64(2*head + rows*line)
	}
	p.height = y - head
	return p.bytes()
}

func (c *chart) legend() (entries [][2]string) {
	for _, e := range [][2]string{
		{string(exact), "exact"}, {string(window), "fixed or weighed windows"},
		{string(bucket), "GCRA or token bucket"}, {string(floor), "the least it can cost"},
	} {
		isUsed := func(p panel) bool {
			return slices.ContainsFunc(p.bars, func(b bar) bool { return string(b.kind) == e[0] })
		}
		if slices.ContainsFunc(c.panels, isUsed) {
			entries = append(entries, e)
		}
	}
	return entries
}
