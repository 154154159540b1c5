// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// meshKey identifies a value of the report.
type meshKey struct {
	Backend string `json:"backend"`
	Peers   int    `json:"peers"`
	Op      string `json:"op"`
	Way     string `json:"way"`
	Metric  string `json:"metric"`
	Unit    string `json:"unit,omitempty"`
}

// MeshRow is one value of the report: the median, minimum and maximum of n samples.
type MeshRow struct {
	meshKey
	N      int     `json:"n"`
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	// Ratio is weft's median divided by this one; 0 if there is none.
	Ratio float64 `json:"ratio,omitempty"`
}

// MeshReport is the result of Mesh.
type MeshReport struct {
	Rows  []MeshRow `json:"rows"`
	Notes []string  `json:"notes"`
}

func (m *meshBench) report() MeshReport {
	r := MeshReport{Notes: []string{
		"time: from the cluster's state to the last route; weft's includes the plan, the reads before and after, and the search for stale objects",
		"messages: rtnetlink messages in both directions; for the other ways they are computed from the calls",
		"nft: requests and answers; the other ways protect no tunnels",
	}}
	for k, v := range m.values {
		sorted := slices.Sorted(slices.Values(v))
		row := MeshRow{meshKey: k, N: len(v), Median: percentile(sorted, 50), Min: sorted[0], Max: sorted[len(sorted)-1]}
		own := k
		own.Way = wayWeft
		if k.Way != wayWeft && row.Median > 0 {
			row.Ratio = percentile(slices.Sorted(slices.Values(m.values[own])), 50) / row.Median
		}
		r.Rows = append(r.Rows, row)
	}
	ops, ways := []string{"up", "join", "new MAC", "leave"}, []string{wayWeft, waySequential, wayListed}
	slices.SortFunc(r.Rows, func(a, b MeshRow) int {
		return cmp.Or(cmp.Compare(a.Backend, b.Backend), cmp.Compare(slices.Index(ops, a.Op), slices.Index(ops, b.Op)),
			cmp.Compare(a.Peers, b.Peers),
			-cmp.Compare(a.Metric, b.Metric), cmp.Compare(slices.Index(ways, a.Way), slices.Index(ways, b.Way)))
	})
	return r
}

// Text prints the report as a table.
func (r MeshReport) Text(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "BACKEND\tOP\tPEERS\tMETRIC\tWAY\tMEDIAN\tMIN\tMAX\tUNIT\tN\tWEFT/THIS")
	for _, x := range r.Rows {
		ratio := ""
		if x.Ratio > 0 {
			ratio = fmt.Sprintf("%.3f (1/%.0f)", x.Ratio, 1/x.Ratio)
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\t%.2f\t%.2f\t%.2f\t%s\t%d\t%s\n", x.Backend, x.Op, x.Peers, x.Metric, x.Way,
			x.Median, x.Min, x.Max, x.Unit, x.N, ratio)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	for _, note := range r.Notes {
		fmt.Fprintln(w, "note:", note)
	}
	return nil
}
