package main

import (
	"errors"
	"fmt"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// accuracyChart draws how many each trailing window holds: a panel for each contestant, with a part for each trace.
func accuracyChart(trials []*trial) ([]byte, error) {
	const (
		names  = 150
		gap    = 10
		line   = 58 // of a panel
		height = 46 // of its curves
	)
	all := traces(accuracyLimit)
	width := (pictureWidth - 2*margin - names - gap*vg.Length(len(all)-1)) / vg.Length(len(all))
	top := vg.Length(pictureHead + 64)
	p := newPicture(top+line*vg.Length(len(trials)/len(all))+14,
		fmt.Sprintf("Admitted in the trailing %.0f s, with a quota of %d",
			accuracyLimit.window.Seconds(), accuracyLimit.quota),
		fmt.Sprintf("Over %d windows of each trace. The line is the quota.", traceWindows))
	p.legend(pictureHead+4, legendEntry{blue, "exact"}, legendEntry{ochre, "fixed or weighed windows"},
		legendEntry{grey, "GCRA or token bucket"}, legendEntry{red, "above the quota"},
		legendEntry{violet, "denied although there was room"})
	for i, t := range trials {
		row, column := i/len(all), i%len(all)
		x, y := margin+names+vg.Length(column)*(width+gap), top+line*vg.Length(row)
		if row == 0 {
			p.text(x, top-8, t.trace.name, bold(12, ink))
		}
		if column == 0 {
			p.names(margin, y, trials[i:i+len(all)])
		}
		drawn, err := t.plot(int(width))
		if err != nil {
			return nil, err
		}
		drawn.Draw(p.part(x, y, width, height))
	}
	return p.bytes()
}

// names writes who the panel is about, and how exact it was in all traces.
func (p *picture) names(x, y vg.Length, of []*trial) {
	worst, all := 0, 0
	for _, t := range of {
		worst, all = max(worst, t.score.over), all+len(t.score.denied)
	}
	name := plain(13, ink)
	if of[0].kind == exact {
		name = bold(13, ink)
	}
	p.text(x, y+16, of[0].name, name)
	p.text(x, y+30, fmt.Sprintf("%d above the quota,", worst), plain(11, dim))
	p.text(x, y+43, fmt.Sprintf("%d denied falsely", all), plain(11, dim))
}

// plot draws the trial in so many steps.
func (t *trial) plot(steps int) (*plot.Plot, error) {
	quota, span := float64(accuracyLimit.quota), traceWindows*accuracyLimit.window
	p := plot.New()
	p.BackgroundColor = nil
	p.HideAxes()
	p.X.Min, p.X.Max, p.X.Padding = 0, float64(steps), 0
	p.Y.Min, p.Y.Max, p.Y.Padding = -0.25*quota, 2*quota, 0

	below, above := area{tone: colours[t.kind]}, area{base: quota, tone: red}
	denied := area{base: -0.1 * quota, tone: violet}
	for _, n := range fullest(t.asked, accuracyLimit.window, span, steps) {
		below.tops = append(below.tops, min(float64(n), quota))
		above.tops = append(above.tops, max(float64(n), quota))
		denied.tops = append(denied.tops, denied.base)
	}
	for _, at := range t.score.denied {
		denied.tops[int(at*time.Duration(steps)/span)] = -0.25 * quota
	}
	return p, errors.Join(below.add(p), above.add(p), denied.add(p), across(p, 0, rule), across(p, quota, ink))
}

// across draws a line.
func across(p *plot.Plot, y float64, t tone) error {
	l, err := plotter.NewLine(plotter.XYs{{X: p.X.Min, Y: y}, {X: p.X.Max, Y: y}})
	if err != nil {
		return err
	}
	l.LineStyle = draw.LineStyle{Color: t, Width: 1}
	p.Add(l)
	return nil
}

// area is filled from its base to the tops of its steps.
type area struct {
	base float64
	tops []float64
	tone tone
}

func (a area) add(p *plot.Plot) error {
	outline, last := plotter.XYs{{Y: a.base}}, a.base
	for i, y := range a.tops {
		if y != last {
			outline = append(outline, plotter.XY{X: float64(i), Y: last}, plotter.XY{X: float64(i), Y: y})
			last = y
		}
	}
	if len(outline) == 1 {
		return nil
	}
	right := float64(len(a.tops))
	outline = append(outline, plotter.XY{X: right, Y: last}, plotter.XY{X: right, Y: a.base})
	polygon, err := plotter.NewPolygon(outline)
	if err != nil {
		return err
	}
	polygon.Color, polygon.LineStyle.Width = a.tone, 0
	p.Add(polygon)
	return nil
}

// fullest divides the span into steps. For each it returns what the fullest window holds that ends in it.
func fullest(all []asked, window, span time.Duration, steps int) []int {
	most := make([]int, steps)
	for i := range most {
		most[i] = held(all, span*time.Duration(i)/time.Duration(steps), window)
	}
	for _, r := range all {
		if i := int(r.at * time.Duration(steps) / span); r.allowed && i < steps {
			most[i] = max(most[i], held(all, r.at, window))
		}
	}
	return most
}
