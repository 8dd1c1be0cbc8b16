package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// accuracyChart draws how many each trailing window holds, for each contestant in the trace in which it is worst. Of
// sash it has the log alone. It can be read at the width of a phone: 390 px.
func accuracyChart(trials []*trial) ([]byte, error) {
	const (
		width  = 480
		side   = 12  // margin
		names  = 168 // at the left of the curves
		size   = 14  // of letters
		line   = 40  // of a contestant
		height = 34  // of its curve
		top    = 102
	)
	var shown [][]*trial
	for of := range slices.Chunk(trials, len(traces(accuracyLimit))) {
		if !strings.HasPrefix(of[0].name, "sash, ") {
			shown = append(shown, of)
		}
	}
	title := fmt.Sprintf("Admitted in the trailing %.0f s, with a quota of %d",
		accuracyLimit.window.Seconds(), accuracyLimit.quota)
	p := newCanvas(width, top+line*vg.Length(len(shown))+8, title)
	p.text(side, 24, title, bold(16, ink))
	p.text(side, 44, "Each in its worst of six patterns. The line is the quota.", plain(size, dim))
	p.legend(side, 54, size, legendEntry{blue, "exact"}, legendEntry{ochre, "windows"},
		legendEntry{grey, "GCRA or token bucket"})
	p.legend(side, 76, size, legendEntry{red, "above the quota"}, legendEntry{violet, "denied with room"})
	for i, of := range shown {
		worst, denied := worstOf(of)
		y := top + line*vg.Length(i)
		name := plain(size, ink)
		if worst.kind == exact {
			name = bold(size, ink)
		}
		p.text(side, y+14, worst.name, name)
		p.text(side, y+31, fmt.Sprintf("%d above, %d denied", worst.score.over, denied), plain(size, dim))
		drawn, err := worst.plot(width - 2*side - names)
		if err != nil {
			return nil, err
		}
		drawn.Draw(p.part(side+names, y, width-2*side-names, height))
	}
	return p.bytes()
}

// worstOf returns the trial with the most above the quota, of those with as much the one with the most denied falsely,
// and of those the one with the most requests; and how many requests were denied falsely in all.
func worstOf(of []*trial) (worst *trial, denied int) {
	worst = slices.MaxFunc(of, func(a, b *trial) int {
		return cmp.Or(cmp.Compare(a.score.over, b.score.over),
			cmp.Compare(len(a.score.denied), len(b.score.denied)), cmp.Compare(len(a.asked), len(b.asked)))
	})
	for _, t := range of {
		denied += len(t.score.denied)
	}
	return worst, denied
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
