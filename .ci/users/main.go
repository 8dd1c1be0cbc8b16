// Users makes programs that use sash, as users will once the next release is tagged: each in an empty folder, without a
// replace, from a module proxy on disk that has the commit HEAD under the tags of docs/releasing.md. It prints what a
// limiter adds to a program: the modules that the go command knows, those with packages in the binary, the lines of
// go.sum and the size of the binary. It runs in the root of the module.
//
// The tests run such a program for each package that is mounted, and test the modules that are released already with
// the root of HEAD.
package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"text/tabwriter"
)

func main() {
	if err := printFigures(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "users:", err)
		os.Exit(1)
	}
}

// printFigures prints a table in Markdown.
func printFigures(out io.Writer) error {
	dir, err := os.MkdirTemp("", "users")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	p, err := newProxy(".", dir)
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 1, ' ', 0)
	fmt.Fprint(table, "|\t| modules\t| linked\t| go.sum\t| MB\t|\n|---\t|---:\t|---:\t|---:\t|---:\t|\n")
	for i := range programs {
		user := &programs[i]
		if !user.compared {
			continue
		}
		f, err := p.figuresOf(user, filepath.Join(dir, strconv.Itoa(i)))
		if err != nil {
			return err
		}
		size := float64(f.bytes) / 1e6
		fmt.Fprintf(table, "| %s\t| %d\t| %d\t| %d\t| %.1f\t|\n", user.name, f.modules, f.linked, f.sums, size)
	}
	return table.Flush()
}
