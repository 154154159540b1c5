// SPDX-License-Identifier: Apache-2.0

package controller

import "github.com/weft-net/weft/internal/node/metrics"

// Measure adds what a controller knows.
func Measure(m *metrics.Metrics, c *Controller) {
	m.Gauge("weft_controller_leads", "1 where the cluster's pools are looked after.", func() float64 {
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
	m.Gauges("weft_pool_allocatable", "1 when addresses can be had of the pool.", "pool", of(func(p PoolReport) float64 {
		if p.Allocatable {
			return 1
		}
		return 0
	}))
	m.Gauges("weft_pool_addresses", "All addresses of the pool.", "pool",
		of(func(p PoolReport) float64 { return p.Addresses }))
	m.Gauges("weft_pool_blocks", "Blocks of the pool that nodes have.", "pool",
		of(func(p PoolReport) float64 { return float64(p.Blocks) }))
	m.Gauges("weft_pool_addresses_claimed", "Addresses in blocks that nodes have.", "pool",
		of(func(p PoolReport) float64 { return p.Claimed }))
	m.Gauges("weft_pool_addresses_reserved", "Addresses that are reserved one by one.", "pool",
		of(func(p PoolReport) float64 { return float64(p.Reserved) }))
	m.Gauges("weft_pool_findings", "What the last comparison of blocks, reservations, nodes and pods found.", "pool",
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
