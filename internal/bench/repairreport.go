// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// repairKey identifies a value of the report.
type repairKey struct {
	Extent string `json:"extent,omitempty"` // one object, or all pods
	What   string `json:"what"`
	Metric string `json:"metric"`
	Unit   string `json:"unit"`
}

// RepairRow is one value of the report.
type RepairRow struct {
	repairKey
	N   int     `json:"n"`
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	Min float64 `json:"min"`
	Max float64 `json:"max"`
}

// RepairReport is the result of Repair.
type RepairReport struct {
	Pods  int         `json:"pods"`
	Idle  string      `json:"idle"`
	Rows  []RepairRow `json:"rows"`
	Notes []string    `json:"notes"`
}

func (b *repairBench) report() RepairReport {
	r := RepairReport{Pods: len(b.pods), Idle: b.cfg.Idle.String(), Rows: []RepairRow{}, Notes: []string{
		"time: from before the first object is removed until the last one is restored, as seen by another netlink library than weft's; it includes the 100 ms for which the agent batches changes",
		"cpu: user and system time of the agent's process; softirq time is not counted",
	}}
	all := make([]float64, 0, 4*b.cfg.N)
	const total = "all of these"
	for k, v := range b.values {
		r.Rows = append(r.Rows, repairRow(k, v))
		if k.Extent == "one object" {
			all = append(all, v...)
		}
	}
	if len(all) > 0 {
		r.Rows = append(r.Rows, repairRow(repairKey{Extent: "one object", What: total, Metric: "time", Unit: "ms"}, all))
	}
	isTotal := func(x RepairRow) int {
		if x.What == total {
			return 1
		}
		return 0
	}
	slices.SortFunc(r.Rows, func(a, b RepairRow) int {
		return cmp.Or(-cmp.Compare(a.Extent, b.Extent), cmp.Compare(isTotal(a), isTotal(b)), cmp.Compare(a.What, b.What),
			-cmp.Compare(a.Unit, b.Unit))
	})
	return r
}

func repairRow(k repairKey, v []float64) RepairRow {
	sorted := slices.Sorted(slices.Values(v))
	return RepairRow{
		repairKey: k, N: len(v), P50: percentile(sorted, 50), P95: percentile(sorted, 95), Min: sorted[0],
		Max: sorted[len(sorted)-1],
	}
}

// Text prints the report as a table.
func (r RepairReport) Text(w io.Writer) error {
	fmt.Fprintf(w, "%d pods, idle for %s\n", r.Pods, r.Idle)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SCOPE\tWHAT\tMETRIC\tP50\tP95\tMIN\tMAX\tUNIT\tN")
	for _, x := range r.Rows {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\n", cmp.Or(x.Extent, "-"), x.What, x.Metric, figure(x.P50),
			figure(x.P95), figure(x.Min), figure(x.Max), x.Unit, x.N)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	for _, note := range r.Notes {
		fmt.Fprintln(w, "note:", note)
	}
	return nil
}

// figure formats a number with three significant digits.
func figure(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.3f", v)
}
