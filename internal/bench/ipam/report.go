// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// Row is one metric.
type Row struct {
	Metric string `json:"metric"`
	// Concurrency is the number of concurrent calls or agents.
	Concurrency int     `json:"atATime"`
	Unit        string  `json:"unit"`
	N           int     `json:"n"`
	P50         float64 `json:"p50"`
	P99         float64 `json:"p99"`
	Min         float64 `json:"min"`
	Max         float64 `json:"max"`
}

// Report is the result of Run.
type Report struct {
	Rows  []Row    `json:"rows"`
	Notes []string `json:"notes"`

	values map[Row][]float64
}

func (r *Report) add(metric string, concurrency int, unit string, values ...float64) {
	if r.values == nil {
		r.values = map[Row][]float64{}
	}
	k := Row{Metric: metric, Concurrency: concurrency, Unit: unit}
	r.values[k] = append(r.values[k], values...)
}

func (r *Report) finish(cfg Config) {
	for row, values := range r.values {
		if len(values) == 0 {
			continue
		}
		slices.Sort(values)
		at := func(p float64) float64 { return values[min(int(p*float64(len(values))), len(values)-1)] }
		row.N, row.P50, row.P99, row.Min, row.Max = len(values), at(0.5), at(0.99), values[0], values[len(values)-1]
		r.Rows = append(r.Rows, row)
	}
	slices.SortFunc(r.Rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Metric, b.Metric), cmp.Compare(a.Concurrency, b.Concurrency))
	})
	if cfg.N > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf(
			"each sample allocates %d addresses; each was in the ledger's file when its call returned, and the file was opened again and compared", cfg.Count))
	}
	if cfg.Open == nil {
		r.Notes = append(r.Notes, "claims were not measured: give --kubeconfig")
	}
}

// Text prints the report.
func (r Report) Text(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "METRIC\tCONCURRENCY\tP50\tP99\tMIN\tMAX\tUNIT\tN")
	for _, x := range r.Rows {
		fmt.Fprintf(t, "%s\t%d\t%.1f\t%.1f\t%.1f\t%.1f\t%s\t%d\n", x.Metric, x.Concurrency, x.P50, x.P99, x.Min,
			x.Max, x.Unit, x.N)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	for _, note := range r.Notes {
		fmt.Fprintln(w, "note:", note)
	}
	return nil
}
