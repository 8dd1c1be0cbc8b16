package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Table is what was measured of some contestants in one respect.
type Table struct {
	Name      string            `json:"name"`
	Title     string            `json:"title"`
	Columns   []string          `json:"columns"`
	Reference map[string]string `json:"reference,omitempty"` // the row that a column's ratios are to
	Rows      []*Row            `json:"rows"`
}

// Row is one contestant.
type Row struct {
	Name  string           `json:"name"`
	Kind  kind             `json:"kind"`
	Cells map[string]*Cell `json:"cells"`
}

// Cell has a number of each round, or says why it has none.
type Cell struct {
	Median float64 `json:"median"`
	Rounds series  `json:"rounds"`
	Fault  string  `json:"fault,omitempty"`
}

func (t *Table) row(c contestant) *Row { return t.named(c.name, c.kind) }

func (t *Table) named(name string, k kind) *Row {
	for _, r := range t.Rows {
		if r.Name == name {
			return r
		}
	}
	r := &Row{name, k, make(map[string]*Cell)}
	t.Rows = append(t.Rows, r)
	return r
}

func (r *Row) cell(column string) *Cell {
	c := r.Cells[column]
	if c == nil {
		c = new(Cell)
		r.Cells[column] = c
	}
	return c
}

func (r *Row) add(column string, value float64) {
	c := r.cell(column)
	value, _ = strconv.ParseFloat(strconv.FormatFloat(value, 'g', 5, 64), 64) // the others are chance
	c.Rounds = append(c.Rounds, value)
	c.Median = c.Rounds.median()
}

func (r *Row) fault(column string, err error) { r.cell(column).Fault = err.Error() }

// against makes a row the one that all ratios are to.
func (t *Table) against(row string) {
	for _, column := range t.Columns {
		t.Reference[column] = row
	}
}

// fastest is the row with the least in a column.
func (t *Table) fastest(column string, k kind) (name string) {
	least := math.Inf(1)
	for _, r := range t.Rows {
		if v, ok := t.value(r.Name, column); ok && r.Kind == k && v < least {
			name, least = r.Name, v
		}
	}
	return name
}

// value is the median of the rounds.
func (t *Table) value(row, column string) (float64, bool) {
	for _, r := range t.Rows {
		if c := r.Cells[column]; r.Name == row && c != nil && c.Fault == "" && len(c.Rounds) > 0 {
			return c.Median, true
		}
	}
	return 0, false
}

// ratio is the median of the ratios within each round: what slows down the
// machine for a while slows down both sides of a ratio.
func (t *Table) ratio(row, column string) (float64, bool) {
	reference := t.Reference[column]
	_, ok := t.value(row, column)
	_, also := t.value(reference, column)
	if !ok || !also {
		return 0, false
	}
	of := func(row string) series {
		i := slices.IndexFunc(t.Rows, func(r *Row) bool { return r.Name == row })
		return t.Rows[i].Cells[column].Rounds
	}
	a, b := of(row), of(reference)
	var each series
	for i := range min(len(a), len(b)) {
		each = append(each, a[i]/b[i])
	}
	return each.median(), true
}

// text is the table as Markdown whose columns line up.
func (t *Table) text() string {
	lines := [][]string{append([]string{""}, t.Columns...)}
	var faults []string
	for _, r := range t.Rows {
		if len(r.Cells) == 0 {
			continue
		}
		line := []string{r.Name}
		var faulty []string
		fault := ""
		for _, column := range t.Columns {
			cell := ""
			if v, ok := t.value(r.Name, column); ok {
				cell = number(v)
				if ratio, ok := t.ratio(r.Name, column); ok {
					cell += " (" + times(ratio) + ")"
				}
			} else if c := r.Cells[column]; c != nil {
				cell = "–"
				faulty = append(faulty, column)
				fault = cmp.Or(fault, c.Fault)
			}
			line = append(line, cell)
		}
		if fault != "" {
			faults = append(faults, fmt.Sprintf("%s (%s): %s.", r.Name, strings.Join(faulty, "; "), fault))
		}
		lines = append(lines, line)
	}
	text := markdown(t.Title, lines)
	if len(faults) > 0 {
		text += "\nNo number (–), because it did other work: " + strings.Join(faults, " ") + "\n"
	}
	return text
}

// markdown is a table whose columns line up. Its first line are their names.
func markdown(title string, lines [][]string) string {
	widths := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell), 3)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "### %s\n\n", title)
	for i, line := range lines {
		for j, cell := range line {
			pad := strings.Repeat(" ", widths[j]-utf8.RuneCountInString(cell))
			if j == 0 {
				b.WriteString("| " + cell + pad + " |")
			} else {
				b.WriteString(" " + pad + cell + " |")
			}
		}
		b.WriteByte('\n')
		if i == 0 {
			b.WriteString("|" + strings.Repeat("-", widths[0]+2) + "|")
			for _, w := range widths[1:] {
				b.WriteString(strings.Repeat("-", w+1) + ":|")
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// number keeps three digits that mean something.
func number(f float64) string {
	if math.Abs(f) < 0.005 {
		return "0"
	}
	if math.Abs(f) >= 999_500 {
		return number(f/1e6) + " M"
	}
	digits := 2 - int(math.Floor(math.Log10(math.Abs(f))))
	if digits > 0 {
		s := strconv.FormatFloat(f, 'f', min(digits, 2), 64)
		whole, part, _ := strings.Cut(s, ".")
		if strings.Trim(part, "0") == "" {
			return whole
		}
		return s
	}
	unit := math.Pow(10, float64(-digits))
	s := strconv.FormatFloat(math.Round(f/unit)*unit, 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		if s[i-1] != '-' {
			s = s[:i] + "," + s[i:]
		}
	}
	return s
}

// times is a ratio.
func times(f float64) string {
	if f < 10 {
		return strconv.FormatFloat(f, 'f', 2, 64)
	}
	return number(f)
}

// series are the values of one cell, one of each round.
type series []float64

func (s series) median() float64 {
	sorted := slices.Sorted(slices.Values(s))
	n := len(sorted)
	if n == 0 {
		return 0
	}
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
