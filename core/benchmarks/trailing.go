package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// accuracyChart draws how many each trailing window holds, for each contestant in the trace in which it is worst. Of
// sash it has the log alone. It can be read at the width of a phone: 390 px.
func accuracyChart(trials []*trial) []byte {
	const (
		side, names, size = 12, 168, 14 // margin, room at the left of the curves, letters
		top, line, height = 102, 40, 34 // of the first contestant, of each, of its curve
		left, width       = side + names, 480 - 2*side - names
	)
	p := &picture{width: 480, height: top + 8}
	p.title = fmt.Sprintf("Admitted in the trailing %.0f s, with a quota of %d",
		accuracyLimit.window.Seconds(), accuracyLimit.quota)
	p.text("bold ink", 16, side, 24, p.title)
	p.text("dim", size, side, 44, "Each in its worst of six patterns. The line is the quota.")
	p.legend(side, 54, size, [2]string{string(exact), "exact"}, [2]string{"window", "windows"},
		[2]string{string(bucket), "GCRA or token bucket"})
	p.legend(side, 76, size, [2]string{"above", "above the quota"}, [2]string{"denied", "denied with room"})
	for of := range slices.Chunk(trials, len(traces(accuracyLimit))) {
		if strings.HasPrefix(of[0].name, "sash, ") {
			continue
		}
		worst, denied := worstOf(of)
		y, class := p.height-8, "ink"
		if worst.kind == exact {
			class = "bold ink"
		}
		p.text(class, size, side, y+14, worst.name)
		p.text("dim", size, side, y+31, fmt.Sprintf("%d above, %d denied", worst.score.over, denied))
		worst.draw(p, left, y, width, height)
		p.height += line
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

// draw draws the trial, a step for each px. Twice the quota is at the top.
func (t *trial) draw(p *picture, x, y float64, width int, height float64) {
	quota, span := accuracyLimit.quota, traceWindows*accuracyLimit.window
	at := func(share float64) float64 { return y + height*(2-share)/2.25 }
	var below, above []float64
	denied := slices.Repeat([]float64{at(-0.1)}, width)
	for _, n := range fullest(t.asked, accuracyLimit.window, span, width) {
		below = append(below, at(float64(min(n, quota))/float64(quota)))
		above = append(above, at(float64(max(n, quota))/float64(quota)))
	}
	for _, d := range t.score.denied {
		denied[int(d*time.Duration(width)/span)] = at(-0.25)
	}
	p.steps(string(t.kind), x, at(0), below)
	p.steps("above", x, at(1), above)
	p.steps("denied", x, at(-0.1), denied)
	p.rect("rule", x, at(0), float64(width), 1)
	p.rect("ink", x, at(1), float64(width), 1)
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
