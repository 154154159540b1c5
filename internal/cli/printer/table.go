// SPDX-License-Identifier: Apache-2.0

package printer

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/duration"
)

// Formats of commands that list objects.
const (
	Name = "name" // one name a line, as the arguments of other commands accept it
	Wide = "wide" // text with further columns
)

// Objects adds -o and --no-headers to a command that lists objects. Wide is offered only if the command has further
// columns.
func Objects(fs *pflag.FlagSet, wide bool) *Format {
	values := []string{Text, Name, JSON}
	if wide {
		values = []string{Text, Wide, Name, JSON}
	}
	f := Flag(fs, values...)
	fs.BoolVar(&f.noHeaders, "no-headers", false, "print tables without their headers")
	return f
}

// Table is a table of objects.
type Table struct {
	Header []string
	// Wide is how many of the last columns are printed with -o wide only.
	Wide int

	names []string
	rows  [][]string
}

// Row adds an object with its cells and its name, which -o name prints; a row without a name is not an object. An empty
// cell is printed as a dash, so that each line has the same number of columns.
func (t *Table) Row(name string, cells ...string) {
	t.names, t.rows = append(t.names, name), append(t.rows, cells)
}

// Tables prints tables with a blank line between two. A table without rows is left out; if
// none has rows, the first one's header is printed.
func (f *Format) Tables(w io.Writer, tables ...Table) error {
	if f.value == Name {
		return printNames(w, tables)
	}
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	filled := slices.DeleteFunc(slices.Clone(tables), func(t Table) bool { return len(t.rows) == 0 })
	if len(filled) == 0 {
		filled = tables[:1]
	}
	for i, t := range filled {
		if i > 0 {
			fmt.Fprintln(out)
		}
		columns := len(t.Header)
		if f.value != Wide {
			columns -= t.Wide
		}
		if !f.noHeaders {
			fmt.Fprintln(out, strings.Join(t.Header[:columns], "\t"))
		}
		for _, cells := range t.rows {
			fmt.Fprintln(out, strings.Join(dashed(cells[:columns]), "\t"))
		}
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("output: %w", err)
	}
	return nil
}

// printNames prints the names of all rows that have one.
func printNames(w io.Writer, tables []Table) error {
	for _, t := range tables {
		for _, name := range t.names {
			if name == "" {
				continue
			}
			if _, err := fmt.Fprintln(w, name); err != nil {
				return fmt.Errorf("output: %w", err)
			}
		}
	}
	return nil
}

// dashed returns the cells with a dash for each empty one.
func dashed(cells []string) []string {
	out := make([]string, len(cells))
	for i, c := range cells {
		if out[i] = c; c == "" {
			out[i] = "-"
		}
	}
	return out
}

// Age returns how long ago something was, as kubectl prints it: 90s, 5m3s, 3h, 12d.
func Age(d time.Duration) string { return duration.HumanDuration(d) }

// Count returns a number with its noun, which is in the plural unless the number is one: 1 pod, 2 pods.
func Count(n int, singular, plural string) string {
	if n == 1 {
		return "1 " + singular
	}
	return fmt.Sprintf("%d %s", n, plural)
}
