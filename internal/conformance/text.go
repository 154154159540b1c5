// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// group is a set of rows of an item with the same outcome.
type group struct {
	outcome  Outcome
	seen     string
	subjects []string
}

// groups groups an item's rows by outcome.
func groups(rows []Row) []group {
	var out []group
	for _, o := range []Outcome{Fail, Pass, Unsupported, NotApplied} {
	rows:
		for _, r := range rows {
			if r.Outcome != o {
				continue
			}
			for i := range out { // reasons for unsupported are printed once for all items
				if out[i].outcome == o && (out[i].seen == r.Seen || o == Unsupported) {
					out[i].subjects = append(out[i].subjects, r.Subject)
					continue rows
				}
			}
			out = append(out, group{o, r.Seen, []string{r.Subject}})
		}
	}
	return out
}

// unsupportedReasons returns the reasons for unsupported rows, each with its plugins.
func unsupportedReasons(rows []Row) []group {
	var out []group
	for _, r := range rows {
		if r.Outcome != Unsupported {
			continue
		}
		i := slices.IndexFunc(out, func(g group) bool { return g.seen == r.Seen })
		if i < 0 {
			i = len(out)
			out = append(out, group{outcome: Unsupported, seen: r.Seen})
		}
		if !slices.Contains(out[i].subjects, r.Subject) {
			out[i].subjects = append(out[i].subjects, r.Subject)
		}
	}
	return out
}

// byItem splits rows, which are sorted by item, by item.
func byItem(rows []Row) [][]Row {
	var out [][]Row
	for i, r := range rows {
		if i == 0 || rows[i-1].Number != r.Number {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], r)
	}
	return out
}

// Text prints the report as text: a line for each item, followed by the outcomes of its subjects.
func (r *Report) Text(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "plugins of %s, kernel %s\n", r.BinDir, r.Kernel)
	for _, typ := range r.Plugins {
		fmt.Fprintf(&b, "  %-12s speaks %s\n", typ, r.Versions[typ])
	}
	for _, l := range unsupportedReasons(r.Rows) {
		fmt.Fprintf(&b, "  not supported here: %s: %s\n", strings.Join(l.subjects, " "), l.seen)
	}
	fmt.Fprintf(&b, "\n%4s %s %-8s %-11s %s\n", "item", "s", "word", "outcome", "claim")
	for _, rows := range byItem(r.Rows) {
		item, found := rows[0].Item, groups(rows)
		fmt.Fprintf(&b, "%4d %s %-8s %-11s %s\n", item.Number, item.Side, item.Word, found[0].outcome, item.Claim)
		for _, g := range found {
			if g.outcome == NotApplied && found[0].outcome != NotApplied {
				continue
			}
			line := fmt.Sprintf("%-19s%-11s %s", "", g.outcome, strings.Join(g.subjects, " "))
			if g.seen != "" && g.outcome != Unsupported {
				line += ": " + g.seen
			}
			fmt.Fprintln(&b, line)
		}
	}
	_, required := r.Failures()
	fmt.Fprintf(&b, "\n%d pass, %d fail (%d required), %d not supported here, %d not applicable\n",
		r.Totals[Pass], r.Totals[Fail], required, r.Totals[Unsupported], r.Totals[NotApplied])
	_, err := io.WriteString(w, b.String())
	return err
}
