// SPDX-License-Identifier: Apache-2.0

package printer

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Result is what a command shows, for each format of -o.
type Result struct {
	// Document is printed for programs.
	Document any
	// Same is compared instead of Document, if it is not nil: the document without what changes by itself.
	Same any
	// Tables are printed to read, and then the lines.
	Tables []Table
	Lines  []Line
	// Warnings go to stderr.
	Warnings []string
}

// Line is a line of text, or several, without the last line break.
type Line struct {
	// Key identifies the line; empty is the text itself. --watch prints a line again if its text changes.
	Key, Text string
	// Gone is printed by --watch when the line is no longer there; empty prints nothing.
	Gone string
}

// watchPause is the time between an answer and the next query. A query may ask all agents of a cluster.
const watchPause = 2 * time.Second

// Watch shows the result of a command and, with --watch, what changes of it.
type Watch struct {
	format *Format
	on     bool
	// Pause is the time between an answer and the next query.
	Pause time.Duration

	sheet *sheet
	// rows has the rows of each table by their keys, lines the lines by theirs; document is the last one.
	rows     map[string]map[string][]string
	lines    map[string]Line
	document []byte
	warnings []string
}

// Watch adds -w to a command whose results have this format.
func (f *Format) Watch(fs *pflag.FlagSet) *Watch {
	w := &Watch{
		format: f, Pause: watchPause, sheet: newSheet(f),
		rows: map[string]map[string][]string{}, lines: map[string]Line{},
	}
	fs.BoolVarP(&w.on, "watch", "w", false, "keep running, and print what changes, until Ctrl-C")
	return w
}

// On reports whether changes were asked for. The command then ends with exit code 0, whatever it shows.
func (w *Watch) On() bool { return w.on }

// Show prints the result of the query and, with --watch, rows, lines or documents that changed, until the context ends,
// which is no error. A row that is no longer there is printed as deleted. With --watch only the first query must
// succeed: a later error is a line on errs, once, because what is watched may be restarted.
func (w *Watch) Show(ctx context.Context, out, errs io.Writer, query func(context.Context) (Result, error)) error {
	fault := ""
	for first := true; ; first = false {
		r, err := query(ctx)
		switch {
		case w.on && ctx.Err() != nil:
			return nil //nolint:nilerr // interrupted, which is how --watch ends
		case err != nil && first:
			return err
		case err != nil:
			if text := err.Error(); text != fault {
				fault = text
				fmt.Fprintf(errs, "weft: %s\n", text)
			}
		default:
			if fault != "" {
				fault = ""
				fmt.Fprintln(errs, "weft: available again")
			}
			if err := w.print(out, errs, r, first); err != nil {
				return err
			}
		}
		if !w.on {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(w.Pause):
		}
	}
}

// print prints what is different from the last result.
func (w *Watch) print(out, errs io.Writer, r Result, first bool) error {
	for _, text := range r.Warnings {
		if !slices.Contains(w.warnings, text) {
			fmt.Fprintf(errs, "weft: %s\n", text)
		}
	}
	w.warnings = r.Warnings
	if w.format.Document() {
		return w.printDocument(out, r, first)
	}
	if first && w.format.value != Name && len(r.Tables) > 0 {
		if t := visible(r.Tables)[0]; len(t.rows) == 0 {
			w.sheet.add(0, &t, nil) // its header
		}
	}
	for i := range r.Tables {
		w.printTable(i, &r.Tables[i])
	}
	if w.format.value != Name {
		w.printLines(r.Lines)
	}
	return w.sheet.flush(out)
}

// printDocument prints the document if it is another one.
func (w *Watch) printDocument(out io.Writer, r Result, first bool) error {
	compared := r.Same
	if compared == nil {
		compared = r.Document
	}
	var now bytes.Buffer
	if err := w.format.Print(&now, compared); err != nil {
		return err
	}
	if !first && bytes.Equal(now.Bytes(), w.document) {
		return nil
	}
	w.document = now.Bytes()
	if !first && w.format.value == YAML {
		if _, err := io.WriteString(out, "---\n"); err != nil {
			return fmt.Errorf("output: %w", err)
		}
	}
	return w.format.Print(out, r.Document)
}

// printTable lays out the rows that are new or changed, and those that are deleted.
func (w *Watch) printTable(at int, t *Table) {
	name := title(at, t)
	before, now := w.rows[name], map[string][]string{}
	var rows [][]string
	var names []string
	for i, row := range t.rows {
		key := strings.Join(t.keys(row), "\x00")
		for n := 2; now[key] != nil; n++ { // its first columns are those of another row
			key = strings.Join(t.keys(row), "\x00") + "\x00" + strconv.Itoa(n)
		}
		now[key] = row
		if old := before[key]; old == nil || !t.same(w.format, old, row) {
			rows, names = append(rows, row), append(names, t.names[i])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(before)) {
		if old := before[key]; now[key] == nil {
			gone := make([]string, len(old))
			// A value of a list without a header is not deleted: it is not known.
			if n := copy(gone, t.keys(old)); n < len(gone) && len(t.Header) > 0 {
				gone[n] = "deleted"
			}
			rows = append(rows, gone)
		}
	}
	w.rows[name] = now
	switch {
	case w.format.value == Name:
		w.sheet.listNames(names)
	case len(rows) > 0:
		w.sheet.add(at, t, rows)
	}
}

// printLines lays out the lines that are new or changed, and the ends of those that are not there any more.
func (w *Watch) printLines(all []Line) {
	now := map[string]Line{}
	for _, l := range all {
		if l.Key == "" {
			l.Key = l.Text
		}
		now[l.Key] = l
		if old, had := w.lines[l.Key]; !had || old.Text != l.Text {
			w.sheet.out.WriteString(l.Text + "\n")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(w.lines)) {
		if _, is := now[key]; !is && w.lines[key].Gone != "" {
			w.sheet.out.WriteString(w.lines[key].Gone + "\n")
		}
	}
	w.lines = now
}
