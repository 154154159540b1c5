// SPDX-License-Identifier: Apache-2.0

// Package summary puts the results of several measurements in one table and one chart: what weft takes compared with a
// peer that was measured in the same run, and the limit that the project has set itself.
package summary

import (
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
)

// QuietEmpty is the longest run of an empty Go program, in ms, on a host that is quiet enough for limits to count.
const QuietEmpty = 1.5

// FewestSamples is the number of samples with which limits of times count.
const FewestSamples = 15

// Row is one figure.
type Row struct {
	// Group is the heading of related figures, and Name the figure: "ADD, realistic pod, one at a time".
	Group string `json:"group"`
	Name  string `json:"name"`
	Unit  string `json:"unit,omitempty"`
	N     int    `json:"n"`
	// Weft is weft's median, Peer that of the peer with the name PeerName; 0 if there is none.
	Weft     float64 `json:"weft"`
	Peer     float64 `json:"peer,omitempty"`
	PeerName string  `json:"peerName,omitempty"`
	// Ratio is weft's share of the peer, Low and High its spread; 0 if it is not known.
	Ratio float64 `json:"ratio,omitempty"`
	Low   float64 `json:"low,omitempty"`
	High  float64 `json:"high,omitempty"`
	// Limit is that of Ratio, or of Weft if there is no ratio; 0 is none. AtLeast: it is the least value, not the
	// greatest.
	Limit   float64 `json:"limit,omitempty"`
	AtLeast bool    `json:"atLeast,omitempty"`
	// Counted: the value is a count, which does not depend on the host's load.
	Counted bool `json:"counted,omitempty"`
}

// Report is the result of all measurements.
type Report struct {
	// Host describes the host: processors and kernel.
	Host string `json:"host"`
	// Empty is the time that an empty static Go program takes, in ms; 0 if it was not measured.
	Empty float64  `json:"empty"`
	Rows  []Row    `json:"rows"`
	Notes []string `json:"notes"`
}

// Quiet reports whether the limits of times count: where it takes long to start a process the ratios are others.
func (r Report) Quiet() bool { return r.Empty > 0 && r.Empty <= QuietEmpty }

// Verdicts of Verdict.
const (
	Held         = "held"
	Missed       = "missed"
	NotEvaluated = "not evaluated"
)

// Verdict returns whether a row keeps its limit; empty without one.
func (r Report) Verdict(x Row) string {
	value := x.value()
	switch {
	case x.Limit == 0 || value == 0 && !x.Counted:
		return ""
	case !x.Counted && (!r.Quiet() || x.N < FewestSamples):
		return NotEvaluated
	case x.AtLeast == (value >= x.Limit) || value == x.Limit:
		return Held
	}
	return Missed
}

// value returns what the limit is about.
func (x Row) value() float64 {
	if x.Ratio != 0 {
		return x.Ratio
	}
	return x.Weft
}

// Warning returns what to know about the ratios of this host.
func (r Report) Warning() string {
	warning := "Ratios move with the host. Where starting a process is slow the reference plugins, which start up to 43, lose " +
		"more than weft: with an empty program at 5 ms instead of 1 the realistic chain's ADD was 1/49 to 1/62 of theirs, not 1/27."
	if !r.Quiet() {
		warning += fmt.Sprintf(" Limits of times count only where an empty Go program takes at most %.1f ms, and with %d samples.",
			QuietEmpty, FewestSamples)
	}
	return warning
}

// Text prints the report.
func (r Report) Text(w io.Writer) error {
	fmt.Fprintln(w, r.Host)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	group := ""
	for _, x := range r.Rows {
		if x.Group != group {
			if group != "" {
				fmt.Fprintln(t, "\t\t\t\t\t\t\t")
			}
			group = x.Group
			fmt.Fprintln(t, r.heading(group)+"\tWEFT\tPEER\tRATIO\tSPREAD\tLIMIT\tN\t")
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\n", x.Name, withUnit(x.Weft, x.Unit), x.peer(), Ratio(x.Ratio), x.spread(),
			x.limit(), x.N, r.Verdict(x))
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	for _, note := range append([]string{r.Warning()}, r.Notes...) {
		fmt.Fprintln(w, "note:", note)
	}
	return nil
}

// Markdown prints the report as tables of Markdown.
func (r Report) Markdown(w io.Writer) error {
	group := ""
	var err error
	line := func(format string, args ...any) {
		if err == nil {
			_, err = fmt.Fprintf(w, format+"\n", args...)
		}
	}
	line("%s\n", r.Host)
	for _, x := range r.Rows {
		if x.Group != group {
			if group != "" {
				line("")
			}
			group = x.Group
			line("| %s | weft | peer | ratio | spread | limit | n | |\n|---|---|---|---|---|---|---|---|", r.heading(group))
		}
		verdict := r.Verdict(x)
		if verdict == Missed {
			verdict = "**missed**"
		}
		line("| %s | %s | %s | %s | %s | %s | %d | %s |", x.Name, withUnit(x.Weft, x.Unit), x.peer(), Ratio(x.Ratio), x.spread(),
			x.limit(), x.N, verdict)
	}
	line("\n%s", r.Warning())
	for _, note := range r.Notes {
		line("\n%s", note)
	}
	return err
}

// Sort sorts the figures by group. Those of a group stay in their order.
func (r *Report) Sort() {
	groups := []string{GroupCalls, GroupCounts, GroupMesh, GroupPath, GroupPolicy, GroupRepairs}
	slices.SortStableFunc(r.Rows, func(a, b Row) int {
		return slices.Index(groups, a.Group) - slices.Index(groups, b.Group)
	})
}

// heading returns a group's heading; with what an empty program takes, if processes are started.
func (r Report) heading(group string) string {
	if group == GroupCalls && r.Empty > 0 {
		return fmt.Sprintf("%s (an empty Go program: %.2f ms)", group, r.Empty)
	}
	return group
}

func (x Row) peer() string {
	if x.Peer == 0 {
		return "–"
	}
	return withUnit(x.Peer, x.Unit) + " (" + x.PeerName + ")"
}

func (x Row) spread() string {
	if x.High == 0 {
		return "–"
	}
	return Ratio(x.Low) + " to " + Ratio(x.High)
}

func (x Row) limit() string {
	if x.Limit == 0 {
		return "–"
	}
	text := withUnit(x.Limit, x.Unit)
	if x.Ratio != 0 {
		text = Ratio(x.Limit)
	}
	if x.AtLeast {
		return "≥ " + text
	}
	return "≤ " + text
}

// Ratio formats a ratio: a small one as a fraction.
func Ratio(v float64) string {
	switch {
	case v == 0:
		return "–"
	case v < 0.195:
		return fmt.Sprintf("1/%.0f", 1/v)
	}
	return fmt.Sprintf("%.2f", v)
}

// withUnit formats a value with three digits.
func withUnit(v float64, unit string) string {
	digits := 2
	for _, most := range []float64{10, 100} {
		if math.Abs(v) >= most {
			digits--
		}
	}
	if v == math.Trunc(v) {
		digits = 0
	}
	if unit != "" {
		unit = " " + unit
	}
	return fmt.Sprintf("%.*f%s", digits, v, unit)
}
