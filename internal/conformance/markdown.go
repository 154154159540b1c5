// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"io"
	"strings"
)

// Column is a vendor of the table.
type Column struct {
	Name   string
	Report *Report
}

// Markdown prints one table of several vendors, and below it what failed.
func Markdown(w io.Writer, columns []Column) error {
	var b strings.Builder
	if len(columns) > 0 {
		fmt.Fprintf(&b, "Seen on kernel %s.\n\n", strings.SplitN(columns[0].Report.Kernel, "-", 2)[0])
	}
	counts(&b, columns)
	cells(&b, columns)
	for _, c := range columns {
		failures(&b, c)
	}
	runtimeRows(&b, columns)
	_, err := io.WriteString(w, b.String())
	return err
}

func counts(b *strings.Builder, columns []Column) {
	b.WriteString("| | plugins | pass | fail | not supported here | not applicable |\n|---|---|---|---|---|---|\n")
	for _, c := range columns {
		n := map[Outcome]int{}
		for _, r := range c.Report.Rows {
			if r.Side != "R" {
				n[r.Outcome]++
			}
		}
		fmt.Fprintf(b, "| %s | %s | %d | %d | %d | %d |\n", c.Name, strings.Join(c.Report.Plugins, " "), n[Pass], n[Fail],
			n[Unsupported], n[NotApplied])
	}
}

// cells: how many of the plugins that can be judged on an item pass, and who does not.
func cells(b *strings.Builder, columns []Column) {
	b.WriteString("\n| item | | claim |")
	for _, c := range columns {
		b.WriteString(" " + c.Name + " |")
	}
	b.WriteString("\n|---|---|---|" + strings.Repeat("---|", len(columns)) + "\n")
	for _, item := range Items() {
		if item.Side == "R" {
			continue
		}
		fmt.Fprintf(b, "| %d | %s %s | %s |", item.Number, item.Side, item.Word, item.Claim)
		for _, c := range columns {
			b.WriteString(" " + cell(c.Report.of(item.Number)) + " |")
		}
		b.WriteString("\n")
	}
}

func (r *Report) of(item int) []Row {
	var out []Row
	for _, row := range r.Rows {
		if row.Number == item {
			out = append(out, row)
		}
	}
	return out
}

func cell(rows []Row) string {
	n := map[Outcome]int{}
	var failed []string
	for _, r := range rows {
		n[r.Outcome]++
		if r.Outcome == Fail {
			failed = append(failed, r.Judged)
		}
	}
	switch {
	case n[Fail] > 0 && n[Pass] == 0:
		return "**fail** (all " + fmt.Sprint(n[Fail]) + ")"
	case n[Fail] > 0:
		return fmt.Sprintf("%d pass, **fail:** %s", n[Pass], strings.Join(failed, " "))
	case n[Pass] > 0:
		return fmt.Sprintf("%d pass", n[Pass])
	case n[Unsupported] > 0:
		return "not supported here"
	}
	return "n/a"
}

// failures lists what was seen of each row that failed.
func failures(b *strings.Builder, c Column) {
	fmt.Fprintf(b, "\n### What was seen: %s\n\n", c.Name)
	some := false
	for _, rows := range byItem(c.Report.Rows) {
		for _, g := range groups(rows) {
			if g.outcome == Fail && rows[0].Side != "R" {
				some = true
				fmt.Fprintf(b, "- %d, %s: %s\n", rows[0].Number, strings.Join(g.judged, ", "), escaped(g.seen))
			}
		}
	}
	if !some {
		b.WriteString("Nothing failed.\n")
	}
	for _, l := range lacking(c.Report.Rows) {
		fmt.Fprintf(b, "- not supported here, %s: %s\n", strings.Join(l.judged, ", "), escaped(l.seen))
	}
}

// runtimeRows are about weft's caller, whoever's plugins it calls.
func runtimeRows(b *strings.Builder, columns []Column) {
	for _, c := range columns {
		var rows []Row
		for _, r := range c.Report.Rows {
			if r.Side == "R" {
				rows = append(rows, r)
			}
		}
		if len(rows) == 0 {
			continue
		}
		b.WriteString("\n### The runtime's side\n\n| item | word | claim | judged | outcome |\n|---|---|---|---|---|\n")
		for _, r := range rows {
			outcome := string(r.Outcome)
			if r.Seen != "" {
				outcome += ": " + escaped(r.Seen)
			}
			fmt.Fprintf(b, "| %d | %s | %s | %s | %s |\n", r.Number, r.Word, r.Claim, r.Judged, outcome)
		}
		return
	}
}

// escaped keeps a text from being markup.
func escaped(s string) string {
	return strings.NewReplacer("|", "\\|", "<", "\\<", "*", "\\*", "_", "\\_").Replace(s)
}
