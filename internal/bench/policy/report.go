// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/weft-net/weft/internal/bench/rounds"
)

// Row is one test of one engine in one cell.
type Row struct {
	Engine string `json:"engine"`
	Cell
	Test   string  `json:"test"`
	Unit   string  `json:"unit"`
	N      int     `json:"n"`
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	// Routed is the ratio to the baseline without an engine, Few the ratio to the same engine with the same number of
	// policies and the fewest peers: medians of the rounds' ratios, with minimum and maximum. 0 if there is none.
	Routed    float64 `json:"routed,omitempty"`
	RoutedMin float64 `json:"routedMin,omitempty"`
	RoutedMax float64 `json:"routedMax,omitempty"`
	Few       float64 `json:"few,omitempty"`
	FewMin    float64 `json:"fewMin,omitempty"`
	FewMax    float64 `json:"fewMax,omitempty"`
}

// Report is the result of Run.
type Report struct {
	Rows  []Row    `json:"rows"`
	Notes []string `json:"notes"`
}

func (b *bench) report() Report {
	r := Report{Notes: []string{
		"values are per second, or milliseconds; client and server are pinned to a CPU each; every round runs every world in a new order",
		"ratios are the medians of the rounds' ratios, with minimum and maximum; connections end with a reset",
		"iptables, calico and kube-router are programmed by iptables-restore and ipset restore, as their agents do; the times include the start of these programs",
	}}
	cells := b.cfg.cells()
	for _, test := range append(slices.Clone(b.cfg.Tests), testProgram, testOneMore) {
		measured := cells
		if test == testProgram || test == testOneMore {
			measured = []Cell{{Policies: 1, Peers: b.cfg.Program}, {Policies: 1, Peers: b.cfg.Program, Blocks: true}}
		}
		for _, c := range measured {
			for _, name := range b.cfg.Engines {
				if v := b.values[key{name, test, c}]; len(v) > 0 {
					r.Rows = append(r.Rows, b.row(name, test, c, v))
				}
			}
		}
	}
	return r
}

func (b *bench) row(name, test string, c Cell, v []float64) Row {
	row := Row{Engine: name, Cell: c, Test: test, Unit: "1/s", N: len(v)}
	row.Median, row.Min, row.Max = rounds.Spread(v)
	if test == testProgram || test == testOneMore {
		row.Unit = "ms"
		return row
	}
	fewest := c
	for _, other := range b.cfg.cells() {
		if other.Policies == c.Policies && other.Peers < fewest.Peers {
			fewest = other
		}
	}
	row.Few, row.FewMin, row.FewMax = rounds.Spread(rounds.Quotients(v, b.values[key{name, test, fewest}]))
	row.Routed, row.RoutedMin, row.RoutedMax = rounds.Spread(
		rounds.Quotients(v, b.values[key{"routed", test, b.cfg.cells()[0]}]),
	)
	return row
}

// Text prints the report as a table.
func (r Report) Text(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TEST\tPOLICIES\tENTRIES\tKIND\tENGINE\tMEDIAN\tMIN\tMAX\tUNIT\tVS ROUTED\tVS FEWEST PEERS\tN")
	for _, x := range r.Rows {
		kind := "pods"
		if x.Blocks {
			kind = "ipBlock"
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t%s\t%s\t%.4g\t%.4g\t%.4g\t%s\t%s\t%s\t%d\n", x.Test, x.Policies, x.Peers, kind, x.Engine,
			x.Median, x.Min, x.Max, x.Unit,
			rounds.Ratio(x.Routed, x.RoutedMin, x.RoutedMax), rounds.Ratio(x.Few, x.FewMin, x.FewMax), x.N)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	for _, note := range r.Notes {
		fmt.Fprintln(w, "note:", note)
	}
	return nil
}
