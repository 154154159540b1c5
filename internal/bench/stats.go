// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"slices"
	"sync"
)

// samples collects values by implementation, cell and metric.
type samples struct {
	mu     sync.Mutex
	values map[key][]float64
}

type key struct {
	impl   string
	cell   Cell
	metric string
	unit   string
}

func newSamples() *samples { return &samples{values: map[key][]float64{}} }

func (s *samples) add(impl string, cell Cell, metric, unit string, value float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := key{impl, cell, metric, unit}
	s.values[k] = append(s.values[k], value)
}

// percentile returns the nearest-rank percentile of sorted values.
func percentile(sorted []float64, p float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(p/100*float64(len(sorted))+0.999999) - 1
	return sorted[min(max(rank, 0), len(sorted)-1)]
}

// rows returns the report rows, sorted by cell, metric and implementation.
func (s *samples) rows(chain Chain, order []string) []Row {
	s.mu.Lock()
	defer s.mu.Unlock()
	rows := make([]Row, 0, len(s.values))
	for k, v := range s.values {
		sorted := slices.Sorted(slices.Values(v))
		rows = append(rows, Row{
			Impl: k.impl, Chain: chain.withNetworks(k.cell.Networks).reportName(), Concurrency: k.cell.Concurrency,
			Pods: k.cell.Pods,
			N:    len(v), Metric: k.metric,
			P50: percentile(sorted, 50), P95: percentile(sorted, 95), P99: percentile(sorted, 99), Unit: k.unit,
		})
	}
	slices.SortFunc(rows, func(a, b Row) int { return compareRows(a, b, order) })
	return rows
}
