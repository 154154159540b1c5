// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"encoding/json"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/addrspan"
	"github.com/weft-net/weft/internal/ipam/poolconf"
	"github.com/weft-net/weft/internal/model"
)

// minBlocksPerNode is how many blocks a range must have per node for each node to claim a spare one in advance.
const minBlocksPerNode = 4

// Expect sets the configurations (plugin objects) that pods may use, in a cluster of so many nodes. Where a range is
// large enough, a block is claimed before the first pod needs it. Blocks that are no longer expected are released in
// time.
func (e *Engine) Expect(confs []json.RawMessage, nodes int) {
	var wants []poolconf.Want
	var cluster []poolconf.Cluster
	for _, conf := range confs {
		if poolconf.TypeOf(conf) == poolconf.TypeCalico {
			if c, err := e.confs.ClusterSettings(ipam.Request{Conf: conf}); err == nil {
				cluster = append(cluster, c)
			}
			continue
		}
		if s, err := e.confs.Settings(ipam.Request{Conf: conf}); err == nil {
			wants = append(wants, s.Wants...)
		}
	}
	e.state.mu.Lock()
	e.poolSelector.cluster, e.poolSelector.nodes = cluster, nodes
	for _, p := range e.state.pools {
		clear(p.expected)
	}
	e.poolSelector.expectLocked(wants, nodes)
	if len(cluster) > 0 && !e.state.used { // load the pools
		e.state.used = true
		e.kick.Notify()
	}
	e.state.mu.Unlock()
	e.poolSelector.expectCluster()
}

// expectCluster expects the configurations of the cluster's network, with the current pools.
func (ps *poolSelector) expectCluster() {
	ps.state.mu.Lock()
	defer ps.state.mu.Unlock()
	if len(ps.cluster) == 0 || !ps.state.catalog.known {
		return
	}
	var wants []poolconf.Want
	for _, c := range ps.cluster {
		for _, f := range c.Families {
			var some []poolconf.Want
			var err error
			if words := c.Pools[f]; len(words) > 0 {
				some, err = ps.named(f, words, "", model.UseWorkload)
			} else {
				some, err = ps.automatic(f, ipam.Request{})
			}
			if err == nil {
				wants = append(wants, some[0])
			}
		}
	}
	for name := range ps.state.catalog.pools {
		if p := ps.state.pools[name]; p != nil {
			clear(p.expected)
		}
	}
	ps.expectLocked(wants, ps.nodes)
}

// expectLocked adds demands for wants that may come.
func (ps *poolSelector) expectLocked(wants []poolconf.Want, nodes int) {
	for _, w := range wants {
		size := model.BlockSize(w.Network, addrspan.Count(w.Spans))
		if r, known := ps.regionLocked(w); known {
			size = r.BlockSize
		}
		if addrspan.Count(w.Spans)>>(w.Network.Addr().BitLen()-size) < minBlocksPerNode*max(nodes, 1) {
			continue
		}
		p := ps.state.poolLocked(w.Pool)
		p.expected[w.ID()] = w
		if d := p.demands[w.ID()]; d != nil {
			d.last = ps.clock.now()
			continue
		}
		p.demands[w.ID()] = &demand{want: w, last: ps.clock.now()}
		ps.kick.Notify()
	}
}

// regionLocked returns the region that a want begins in, where that is known.
func (ps *poolSelector) regionLocked(w poolconf.Want) (model.AddressRegion, bool) {
	if len(w.Spans) == 0 {
		return model.AddressRegion{}, false
	}
	p := ps.state.pools[w.Pool]
	if p == nil || len(p.spec.Regions) == 0 {
		p = &pool{spec: ps.state.catalog.pools[w.Pool]}
	}
	return p.region(w.Spans[0].From)
}
