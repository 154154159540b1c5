// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"encoding/json"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/addrspan"
	"github.com/weft-net/weft/internal/model"
)

// minBlocksPerNode is how many blocks a range must have per node for each node to claim a spare one in advance.
const minBlocksPerNode = 4

// Expect sets the configurations (plugin objects) that pods may use, in a cluster of so many nodes. Where a range is
// large enough, a block is claimed before the first pod needs it. Blocks that are no longer expected are released in
// time.
func (e *Engine) Expect(confs []json.RawMessage, nodes int) {
	var wants []want
	var cluster []clusterConf
	for _, conf := range confs {
		if typeOf(conf) == TypeCalico {
			if c, err := e.poolSelector.clusterSettings(ipam.Request{Conf: conf}); err == nil {
				cluster = append(cluster, c)
			}
			continue
		}
		if s, err := e.poolSelector.settings(ipam.Request{Conf: conf}); err == nil {
			wants = append(wants, s.wants...)
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
	var wants []want
	for _, c := range ps.cluster {
		for _, f := range c.families {
			var some []want
			var err error
			if words := c.pools[f]; len(words) > 0 {
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

func typeOf(conf json.RawMessage) string {
	var c struct{ IPAM struct{ Type string } }
	_ = json.Unmarshal(conf, &c) // invalid JSON has no type
	return c.IPAM.Type
}

// expectLocked adds demands for wants that may come.
func (ps *poolSelector) expectLocked(wants []want, nodes int) {
	for _, w := range wants {
		size := model.BlockSize(w.network, addrspan.Count(w.spans))
		if r, known := ps.regionLocked(w); known {
			size = r.BlockSize
		}
		if addrspan.Count(w.spans)>>(w.network.Addr().BitLen()-size) < minBlocksPerNode*max(nodes, 1) {
			continue
		}
		p := ps.state.poolLocked(w.pool)
		p.expected[w.id()] = w
		if d := p.demands[w.id()]; d != nil {
			d.last = ps.clock.now()
			continue
		}
		p.demands[w.id()] = &demand{want: w, last: ps.clock.now()}
		ps.kick.Notify()
	}
}

// regionLocked returns the region that a want begins in, where that is known.
func (ps *poolSelector) regionLocked(w want) (model.AddressRegion, bool) {
	if len(w.spans) == 0 {
		return model.AddressRegion{}, false
	}
	p := ps.state.pools[w.pool]
	if p == nil || len(p.spec.Regions) == 0 {
		p = &pool{spec: ps.state.catalog.pools[w.pool]}
	}
	return p.region(w.spans[0].From)
}

// PoolConfigs returns the plugin objects of networks whose addresses come from pools.
func PoolConfigs(networks []model.NetworkAttachment) []json.RawMessage {
	var out []json.RawMessage
	for _, n := range networks {
		var list struct {
			Plugins []json.RawMessage `json:"plugins"`
		}
		if json.Unmarshal([]byte(n.Config), &list) != nil {
			continue // an ADD reports the error
		}
		if len(list.Plugins) == 0 {
			list.Plugins = []json.RawMessage{json.RawMessage(n.Config)}
		}
		for _, p := range list.Plugins {
			switch typeOf(p) {
			case TypeWeft, TypeWhereabouts, TypeCalico:
				out = append(out, p)
			}
		}
	}
	return out
}
