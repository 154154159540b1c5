// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// Row is one metric of one implementation in one cell.
type Row struct {
	Impl        string  `json:"impl"`
	Chain       string  `json:"chain"`
	Concurrency int     `json:"concurrency"`
	Pods        int     `json:"pods"`
	N           int     `json:"n"`
	Metric      string  `json:"metric"`
	P50         float64 `json:"p50"`
	P95         float64 `json:"p95"`
	P99         float64 `json:"p99"`
	Unit        string  `json:"unit"`
}

// Ratio is weft's median divided by the peer's median in the same cell of the same run.
type Ratio struct {
	Metric      string  `json:"metric"`
	Chain       string  `json:"chain"`
	Concurrency int     `json:"concurrency"`
	Pods        int     `json:"pods"`
	Peer        string  `json:"peer"`
	Weft        string  `json:"weft"`
	Ratio       float64 `json:"ratio"`
}

// Report is the result of a run.
type Report struct {
	Rows   []Row   `json:"rows"`
	Ratios []Ratio `json:"ratios"`
	// Notes explain the results (for example what was skipped and why).
	Notes []string `json:"notes,omitempty"`
}

func compareRows(a, b Row, order []string) int {
	return cmp.Or(
		cmp.Compare(a.Chain, b.Chain), cmp.Compare(a.Pods, b.Pods), cmp.Compare(a.Concurrency, b.Concurrency),
		cmp.Compare(a.Metric, b.Metric), cmp.Compare(slices.Index(order, a.Impl), slices.Index(order, b.Impl)))
}

// ratios compares every weft row with every peer row of the same cell and metric.
func ratios(rows []Row, isPeer func(impl string) bool) []Ratio {
	out := []Ratio{} // an empty list, not null, for readers of the JSON
	for _, w := range rows {
		if isPeer(w.Impl) {
			continue
		}
		for _, p := range rows {
			same := p.Metric == w.Metric && p.Chain == w.Chain && p.Concurrency == w.Concurrency && p.Pods == w.Pods
			if !same || !isPeer(p.Impl) || p.P50 == 0 {
				continue
			}
			out = append(out, Ratio{
				Metric: w.Metric, Chain: w.Chain, Concurrency: w.Concurrency, Pods: w.Pods,
				Peer: p.Impl, Weft: w.Impl, Ratio: w.P50 / p.P50,
			})
		}
	}
	return out
}

// Text prints the report as tables.
func (r Report) Text(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "CHAIN\tPODS\tCONCURRENCY\tMETRIC\tIMPL\tP50\tP95\tP99\tUNIT\tN")
	for _, x := range r.Rows {
		fmt.Fprintf(t, "%s\t%d\t%d\t%s\t%s\t%.2f\t%.2f\t%.2f\t%s\t%d\n",
			x.Chain, x.Pods, x.Concurrency, x.Metric, x.Impl, x.P50, x.P95, x.P99, x.Unit, x.N)
	}
	fmt.Fprintln(t, "\t\t\t\t\t\t\t\t\t")
	fmt.Fprintln(t, "CHAIN\tPODS\tCONCURRENCY\tMETRIC\tWEFT\tPEER\tRATIO\t\t\t")
	for _, x := range r.Ratios {
		fmt.Fprintf(t, "%s\t%d\t%d\t%s\t%s\t%s\t%.3f\t\t\t\n", x.Chain, x.Pods, x.Concurrency, x.Metric, x.Weft,
			x.Peer, x.Ratio)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	for _, note := range r.Notes {
		fmt.Fprintln(w, "note:", note)
	}
	return nil
}
