// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"io"
	"strings"
)

// Column is the report of one vendor.
type Column struct {
	Name   string
	Report *Report
}

// Markdown prints a table of several vendors, and a list of failures.
func Markdown(w io.Writer, columns []Column) error {
	var b strings.Builder
	if len(columns) > 0 {
		fmt.Fprintf(&b, "Seen on kernel %s.\n\n", strings.SplitN(columns[0].Report.Kernel, "-", 2)[0])
	}
	countTable(&b, columns)
	itemTable(&b, columns)
	for _, c := range columns {
		failureList(&b, c)
	}
	runtimeRows(&b, columns)
	_, err := io.WriteString(w, b.String())
	return err
}

func countTable(b *strings.Builder, columns []Column) {
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

// itemTable prints, for each item, how many plugins pass and which fail.
func itemTable(b *strings.Builder, columns []Column) {
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
			b.WriteString(" " + itemCell(c.Report.rowsOf(item.Number)) + " |")
		}
		b.WriteString("\n")
	}
}

func (r *Report) rowsOf(item int) []Row {
	var out []Row
	for _, row := range r.Rows {
		if row.Number == item {
			out = append(out, row)
		}
	}
	return out
}

func itemCell(rows []Row) string {
	n := map[Outcome]int{}
	var failed []string
	for _, r := range rows {
		n[r.Outcome]++
		if r.Outcome == Fail {
			failed = append(failed, r.Subject)
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

// failureList lists the failed rows.
func failureList(b *strings.Builder, c Column) {
	fmt.Fprintf(b, "\n### What was seen: %s\n\n", c.Name)
	anyFailed := false
	for _, rows := range byItem(c.Report.Rows) {
		for _, g := range groups(rows) {
			if g.outcome == Fail && rows[0].Side != "R" {
				anyFailed = true
				fmt.Fprintf(b, "- %d, %s: %s\n", rows[0].Number, strings.Join(g.subjects, ", "), escape(g.seen))
			}
		}
	}
	if !anyFailed {
		b.WriteString("Nothing failed.\n")
	}
	for _, l := range unsupportedReasons(c.Report.Rows) {
		fmt.Fprintf(b, "- not supported here, %s: %s\n", strings.Join(l.subjects, ", "), escape(l.seen))
	}
}

// runtimeRows prints the rows of weft's callers, which are the same for all vendors.
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
		b.WriteString("\n### Runtime items\n\n| item | word | claim | subject | outcome |\n|---|---|---|---|---|\n")
		for _, r := range rows {
			outcome := string(r.Outcome)
			if r.Seen != "" {
				outcome += ": " + escape(r.Seen)
			}
			fmt.Fprintf(b, "| %d | %s | %s | %s | %s |\n", r.Number, r.Word, r.Claim, r.Subject, outcome)
		}
		return
	}
}

// escape escapes Markdown.
func escape(s string) string {
	return strings.NewReplacer("|", "\\|", "<", "\\<", "*", "\\*", "_", "\\_").Replace(s)
}
