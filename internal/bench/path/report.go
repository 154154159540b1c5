// SPDX-License-Identifier: Apache-2.0

package path

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/weft-net/weft/internal/bench/rounds"
)

// Row is one test of one way.
type Row struct {
	way
	Test   string  `json:"test"`
	Unit   string  `json:"unit"`
	N      int     `json:"n"`
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	// Flannel is the ratio to flannel's design with the same backend, Wire the ratio to the bare wire: medians of the
	// rounds' ratios, with minimum and maximum. 0 if there is none.
	Flannel    float64 `json:"flannel,omitempty"`
	FlannelMin float64 `json:"flannelMin,omitempty"`
	FlannelMax float64 `json:"flannelMax,omitempty"`
	Wire       float64 `json:"wire,omitempty"`
	// Unguarded is the ratio to the same design without source guards.
	Unguarded    float64 `json:"unguarded,omitempty"`
	UnguardedMin float64 `json:"unguardedMin,omitempty"`
	UnguardedMax float64 `json:"unguardedMax,omitempty"`
	// Slow is the ratio to the same design without the fast path.
	Slow    float64 `json:"slow,omitempty"`
	SlowMin float64 `json:"slowMin,omitempty"`
	SlowMax float64 `json:"slowMax,omitempty"`
	// Unselected is the ratio of a design with policies to the same one without.
	Unselected    float64 `json:"unselected,omitempty"`
	UnselectedMin float64 `json:"unselectedMin,omitempty"`
	UnselectedMax float64 `json:"unselectedMax,omitempty"`
	// Unfiltered is the ratio to the same design without any rule.
	Unfiltered    float64 `json:"unfiltered,omitempty"`
	UnfilteredMin float64 `json:"unfilteredMin,omitempty"`
	UnfilteredMax float64 `json:"unfilteredMax,omitempty"`
}

// Report is the result of Run.
type Report struct {
	Rows  []Row    `json:"rows"`
	Notes []string `json:"notes"`
}

func (b *bench) report() Report {
	r := Report{Notes: append(b.notes,
		"values are per second; client and server are pinned to a CPU each; every round runs every way in a new order",
		"ratios are the medians of the rounds' ratios, with minimum and maximum; connections of the test connect end with a reset")}
	for _, w := range b.ways {
		for _, test := range b.cfg.Tests {
			values := b.values[test][w]
			row := Row{way: *w, Test: test, Unit: "1/s", N: len(values)}
			if test == TestStream {
				row.Unit = "Gbit/s"
			}
			row.Median, row.Min, row.Max = rounds.Spread(values)
			row.Flannel, row.FlannelMin, row.FlannelMax = rounds.Spread(
				rounds.Quotients(values, b.peer(test, w.Where, w.Backend, "flannel")),
			)
			to := func(design string) (median, least, most float64) {
				return rounds.Spread(rounds.Quotients(values, b.peer(test, w.Where, w.Backend, design)))
			}
			row.Unguarded, row.UnguardedMin, row.UnguardedMax = to(w.Design + unguarded)
			if strings.Contains(w.Design, fast) {
				row.Slow, row.SlowMin, row.SlowMax = to(strings.Replace(w.Design, fast, "", 1))
			}
			design := w.Design
			if b.cfg.Policies > 0 {
				var is bool
				if design, is = strings.CutSuffix(design, withPolicies(b.cfg.Policies)); is {
					row.Unselected, row.UnselectedMin, row.UnselectedMax = to(design)
				}
			}
			row.Unfiltered, row.UnfilteredMin, row.UnfilteredMax = to(design + unfiltered)
			row.Wire, _, _ = rounds.Spread(rounds.Quotients(values, b.peer(test, "across", "", "wire")))
			r.Rows = append(r.Rows, row)
		}
	}
	return r
}

func (b *bench) peer(test, where, backend, design string) []float64 {
	for _, w := range b.ways {
		if w.Where == where && w.Backend == backend && w.Design == design {
			return b.values[test][w]
		}
	}
	return nil
}

// Text prints a table of values and tables of ratios.
func (r Report) Text(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	var tests []string
	for _, x := range r.Rows {
		if !slices.Contains(tests, x.Test) {
			tests = append(tests, x.Test)
		}
	}
	header := "WHERE\tBACKEND\tDESIGN\t" + strings.ToUpper(strings.Join(tests, "\t")) + "\tN"
	table := func(title string, cell func(Row) string) {
		fmt.Fprintf(t, "%s\n%s", title, header)
		for i, x := range r.Rows {
			if i%len(tests) == 0 {
				fmt.Fprintf(t, "\n%s\t%s\t%s", x.Where, x.Backend, x.Design)
			}
			fmt.Fprintf(t, "\t%s", cell(x))
			if i%len(tests) == len(tests)-1 {
				fmt.Fprintf(t, "\t%d", x.N)
			}
		}
		fmt.Fprintln(t)
		fmt.Fprintln(t)
	}
	table("per second", func(x Row) string { return fmt.Sprintf("%.4g", x.Median) })
	if slices.ContainsFunc(r.Rows, func(x Row) bool { return x.Unguarded > 0 }) {
		table("ratio to the same without guards", func(x Row) string {
			return rounds.Ratio(x.Unguarded, x.UnguardedMin, x.UnguardedMax)
		})
	} else {
		table("ratio to flannel", func(x Row) string { return rounds.Ratio(x.Flannel, x.FlannelMin, x.FlannelMax) })
	}
	if slices.ContainsFunc(r.Rows, func(x Row) bool { return x.Slow > 0 }) {
		table("ratio to the same without the fast path", func(x Row) string {
			return rounds.Ratio(x.Slow, x.SlowMin, x.SlowMax)
		})
	}
	if slices.ContainsFunc(r.Rows, func(x Row) bool { return x.Unselected > 0 }) {
		table("ratio to the same without policies", func(x Row) string {
			return rounds.Ratio(x.Unselected, x.UnselectedMin, x.UnselectedMax)
		})
	}
	if slices.ContainsFunc(r.Rows, func(x Row) bool { return x.Unfiltered > 0 }) {
		table("ratio to the same without any rule", func(x Row) string {
			return rounds.Ratio(x.Unfiltered, x.UnfilteredMin, x.UnfilteredMax)
		})
	}
	table("ratio to the wire", func(x Row) string { return rounds.Ratio(x.Wire, 0, 0) })
	if err := t.Flush(); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	for _, note := range r.Notes {
		fmt.Fprintln(w, "note:", note)
	}
	return nil
}
