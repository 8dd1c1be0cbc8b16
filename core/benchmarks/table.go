package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Table is what was measured of some contestants in one respect.
type Table struct {
	Name      string   `json:"name"`
	Title     string   `json:"title"`
	Columns   []string `json:"columns"`
	Reference string   `json:"reference,omitempty"` // the row that all ratios are to
	Rows      []*Row   `json:"rows"`
}

// Row is one contestant.
type Row struct {
	Name  string           `json:"name"`
	Kind  kind             `json:"kind"`
	Cells map[string]*Cell `json:"cells"`

	table *Table
}

// Cell has a number of each round, or says why it has none.
type Cell struct {
	Rounds []float64 `json:"rounds"`
	Fault  string    `json:"fault,omitempty"`
}

func (t *Table) row(c contestant) *Row { return t.named(c.name, c.kind) }

func (t *Table) named(name string, k kind) *Row {
	for _, r := range t.Rows {
		if r.Name == name {
			return r
		}
	}
	r := &Row{name, k, make(map[string]*Cell), t}
	t.Rows = append(t.Rows, r)
	return r
}

// cell returns a cell of a column, which is the table's last if it is new.
func (r *Row) cell(column string) *Cell {
	if !slices.Contains(r.table.Columns, column) {
		r.table.Columns = append(r.table.Columns, column)
	}
	if r.Cells[column] == nil {
		r.Cells[column] = new(Cell)
	}
	return r.Cells[column]
}

func (r *Row) add(column string, value float64) {
	c := r.cell(column)
	value, _ = strconv.ParseFloat(strconv.FormatFloat(value, 'g', 5, 64), 64) // the others are chance
	c.Rounds = append(c.Rounds, value)
}

func (r *Row) fault(column string, err error) { *r.cell(column) = Cell{Fault: err.Error()} }

// put adds a number unless measuring it has failed.
func (r *Row) put(column string, value float64, err error) {
	if err != nil {
		r.fault(column, err)
	} else {
		r.add(column, value)
	}
}

// rounds are nil where there is no number.
func (t *Table) rounds(row, column string) []float64 {
	for _, r := range t.Rows {
		if c := r.Cells[column]; r.Name == row && c != nil && c.Fault == "" {
			return c.Rounds
		}
	}
	return nil
}

// value is the median of the rounds.
func (t *Table) value(row, column string) (float64, bool) {
	all := t.rounds(row, column)
	return median(all), all != nil
}

// ratio is the median of the ratios within each round: what slows down the machine for a while slows down both sides of
// a ratio.
func (t *Table) ratio(row, column string) (float64, bool) {
	a, b := t.rounds(row, column), t.rounds(t.Reference, column)
	var each []float64
	for i := range min(len(a), len(b)) {
		each = append(each, a[i]/b[i])
	}
	return median(each), each != nil
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
		for _, column := range t.Columns {
			cell := ""
			if v, ok := t.value(r.Name, column); ok {
				cell = number(v)
				if ratio, ok := t.ratio(r.Name, column); ok {
					cell += " (" + times(ratio) + ")"
				}
			} else if c := r.Cells[column]; c != nil {
				cell = "–"
				faults = append(faults, fmt.Sprintf("%s (%s): %s.", r.Name, column, c.Fault))
			}
			line = append(line, cell)
		}
		lines = append(lines, line)
	}
	text := markdown(t.Title, lines)
	if len(faults) > 0 {
		text += "\nNo number (–), because it did other work: " + strings.Join(faults, " ") + "\n"
	}
	return text
}

// markdown is a table. Its first line are the names of its columns.
func markdown(title string, lines [][]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "### %s\n\n", title)
	for i, line := range lines {
		b.WriteString("| " + strings.Join(line, " | ") + " |\n")
		if i == 0 {
			b.WriteString("|---|" + strings.Repeat("---:|", len(line)-1) + "\n")
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

func median(all []float64) float64 {
	n := len(all)
	if n == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
