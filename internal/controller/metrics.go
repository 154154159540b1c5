// SPDX-License-Identifier: Apache-2.0

package controller

import "github.com/weft-net/weft/internal/node/metrics"

// RegisterMetrics adds a controller's metrics.
func RegisterMetrics(m *metrics.Metrics, c *Controller) {
	m.Gauge("weft_controller_leader", "1 if this controller is the elected leader.", func() float64 {
		if _, leads := c.Report(); leads {
			return 1
		}
		return 0
	})
	of := func(value func(PoolReport) float64) func() map[string]float64 {
		return func() map[string]float64 {
			out := map[string]float64{}
			r, _ := c.Report()
			for _, p := range r.Pools {
				out[p.Name] = value(p)
			}
			return out
		}
	}
	m.Gauges("weft_pool_allocatable", "1 if addresses can be allocated from the pool, otherwise 0.", "pool", of(func(p PoolReport) float64 {
		if p.Allocatable {
			return 1
		}
		return 0
	}))
	m.Gauges("weft_pool_addresses", "Addresses of the pool.", "pool",
		of(func(p PoolReport) float64 { return p.Addresses }))
	m.Gauges("weft_pool_blocks", "Blocks of the pool with an affinity to a node.", "pool",
		of(func(p PoolReport) float64 { return float64(p.Blocks) }))
	m.Gauges("weft_pool_addresses_in_blocks", "Addresses in blocks with an affinity to a node.", "pool",
		of(func(p PoolReport) float64 { return p.Claimed }))
	m.Gauges("weft_pool_addresses_reserved", "Addresses that are reserved individually.", "pool",
		of(func(p PoolReport) float64 { return float64(p.Reserved) }))
	m.Gauges("weft_pool_findings", "Findings of the last audit of blocks, reservations, nodes and pods.", "pool",
		func() map[string]float64 {
			out := map[string]float64{}
			r, _ := c.Report()
			for _, p := range r.Pools {
				out[p.Name] = 0
			}
			for _, f := range r.Findings {
				out[f.Pool]++
			}
			return out
		})
}
