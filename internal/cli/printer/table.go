// SPDX-License-Identifier: Apache-2.0

package printer

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/duration"
)

// Formats of commands that list objects.
const (
	Name = "name" // one name a line, as the arguments of other commands accept it
	Wide = "wide" // text with further columns
)

// Objects adds -o and --no-headers to a command that lists objects. Wide is offered only if the command has further
// columns. A command may have further formats of its own.
func Objects(fs *pflag.FlagSet, wide bool, further ...string) *Format {
	values := []string{Text, Name, JSON}
	if wide {
		values = []string{Text, Wide, Name, JSON}
	}
	f := Flag(fs, append(values, further...)...)
	fs.BoolVar(&f.noHeaders, "no-headers", false, "print tables without their headers")
	return f
}

// Table is a table of objects.
type Table struct {
	// Header names the columns. A table without a header is a list of names and values.
	Header []string
	// Wide is how many of the last columns are printed with -o wide only.
	Wide int
	// Keys is how many of the first columns identify a row, for --watch; 0 is one.
	Keys int
	// Ages is the header of a column that changes by itself: --watch does not print a row again for it.
	Ages string

	names []string
	rows  [][]string
}

// Row adds an object with its cells and its name, which -o name prints; a row without a name is not an object. An empty
// cell is printed as a dash, so that each line has the same number of columns.
func (t *Table) Row(name string, cells ...string) {
	t.names, t.rows = append(t.names, name), append(t.rows, cells)
}

// columns is how many columns of a row are printed.
func (t *Table) columns(f *Format, row []string) int {
	if f.value == Wide {
		return len(row)
	}
	return len(row) - t.Wide
}

// same reports whether two rows differ in no column that is printed and does not change by itself.
func (t *Table) same(f *Format, a, b []string) bool {
	n := t.columns(f, b)
	if t.columns(f, a) != n {
		return false
	}
	for i := range n {
		if a[i] != b[i] && (t.Ages == "" || i >= len(t.Header) || t.Header[i] != t.Ages) {
			return false
		}
	}
	return true
}

// keys returns the cells that identify a row.
func (t *Table) keys(row []string) []string { return row[:max(t.Keys, 1)] }

// Tables prints tables with a blank line between two. A table without rows is left out; if
// none has rows, the first one's header is printed.
func (f *Format) Tables(w io.Writer, tables ...Table) error {
	s := newSheet(f)
	if f.value == Name {
		for _, t := range tables {
			s.listNames(t.names)
		}
	} else {
		for i, t := range visible(tables) {
			s.add(i, &t, t.rows)
		}
	}
	return s.flush(w)
}

// visible returns the tables that have rows, or the first one.
func visible(tables []Table) []Table {
	filled := slices.DeleteFunc(slices.Clone(tables), func(t Table) bool { return len(t.rows) == 0 })
	if len(filled) == 0 {
		return tables[:min(len(tables), 1)]
	}
	return filled
}

// sheet lays out rows of tables, which come at different times: a table's columns keep their width, and its header is
// repeated after rows of another one.
type sheet struct {
	format *Format
	widths map[string][]int
	// last is the table of the last row.
	last string
	out  strings.Builder
}

func newSheet(f *Format) *sheet { return &sheet{format: f, widths: map[string][]int{}} }

// title identifies a table by its header or, without one, by its index.
func title(i int, t *Table) string {
	if len(t.Header) == 0 {
		return strconv.Itoa(i)
	}
	return strings.Join(t.Header, " ")
}

// add lays out rows of the table at index i.
func (s *sheet) add(i int, t *Table, rows [][]string) {
	name := title(i, t)
	var lines [][]string
	if s.last != name {
		if s.last != "" {
			s.out.WriteString("\n")
		}
		if s.last = name; !s.format.noHeaders && len(t.Header) > 0 {
			lines = append(lines, t.Header[:t.columns(s.format, t.Header)])
		}
	}
	for _, row := range rows {
		lines = append(lines, dashed(row[:t.columns(s.format, row)]))
	}
	widths := s.widths[name]
	for _, line := range lines {
		for len(widths) < len(line) {
			widths = append(widths, 0)
		}
		for i, cell := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	s.widths[name] = widths
	for _, line := range lines {
		for i, cell := range line {
			s.out.WriteString(cell)
			if i < len(line)-1 {
				s.out.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+gap))
			}
		}
		s.out.WriteString("\n")
	}
}

// gap is the number of blanks between two columns.
const gap = 2

// listNames lays out the names of all rows that have one.
func (s *sheet) listNames(names []string) {
	for _, name := range names {
		if name != "" {
			s.out.WriteString(name + "\n")
		}
	}
}

// flush writes what is laid out.
func (s *sheet) flush(w io.Writer) error {
	_, err := io.WriteString(w, s.out.String())
	s.out.Reset()
	if err != nil {
		return fmt.Errorf("output: %w", err)
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
