// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"encoding/json"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/addressclaims"
	"github.com/weft-net/weft/internal/ipam/addrspan"
	"github.com/weft-net/weft/internal/ipam/poolconf"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/notify"
)

// clusterPools loads the pools of the cluster's network, and expects the configurations that request their addresses.
type clusterPools struct {
	cfg   *Config
	kick  notify.Chan
	clock *clock
	state *nodeState

	// cluster are the expected configurations of the cluster's network; nodes is the cluster's number of nodes. The
	// state's mutex protects these and serving.
	cluster []poolconf.Cluster
	nodes   int
	serving bool // an address of the cluster's network was requested
}

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
	e.clusterPools.cluster, e.clusterPools.nodes = cluster, nodes
	for _, p := range e.state.pools {
		clear(p.expected)
	}
	e.clusterPools.expectLocked(wants, nodes)
	if len(cluster) > 0 && !e.state.used { // load the pools
		e.state.used = true
		e.kick.Notify()
	}
	e.state.mu.Unlock()
	e.clusterPools.expectCluster()
}

// expectCluster expects the configurations of the cluster's network, with the current pools.
func (cp *clusterPools) expectCluster() {
	cp.state.mu.Lock()
	defer cp.state.mu.Unlock()
	if len(cp.cluster) == 0 || !cp.state.catalog.Known() {
		return
	}
	var wants []poolconf.Want
	for _, c := range cp.cluster {
		wants = append(wants, cp.state.catalog.Expected(c)...)
	}
	for _, spec := range cp.state.catalog.All() {
		if p := cp.state.pools[spec.Name]; p != nil {
			clear(p.expected)
		}
	}
	cp.expectLocked(wants, cp.nodes)
}

// expectLocked adds demands for wants that may come.
func (cp *clusterPools) expectLocked(wants []poolconf.Want, nodes int) {
	for _, w := range wants {
		size := model.BlockSize(w.Network, addrspan.Count(w.Spans))
		if r, known := cp.regionLocked(w); known {
			size = r.BlockSize
		}
		if addrspan.Count(w.Spans)>>(w.Network.Addr().BitLen()-size) < minBlocksPerNode*max(nodes, 1) {
			continue
		}
		p := cp.state.poolLocked(w.Pool)
		p.expected[w.ID()] = w
		if d := p.demands[w.ID()]; d != nil {
			d.last = cp.clock.now()
			continue
		}
		p.demands[w.ID()] = &demand{want: w, last: cp.clock.now()}
		cp.kick.Notify()
	}
}

// regionLocked returns the region that a want begins in, where that is known.
func (cp *clusterPools) regionLocked(w poolconf.Want) (model.AddressRegion, bool) {
	if len(w.Spans) == 0 {
		return model.AddressRegion{}, false
	}
	p := cp.state.pools[w.Pool]
	if p == nil || len(p.spec.Regions) == 0 {
		spec, _ := cp.state.catalog.Get(w.Pool)
		p = &pool{spec: spec}
	}
	return p.region(w.Spans[0].From)
}

// loadPools makes sure that the pools of the cluster's network are known. Only the first call lists them.
func (cp *clusterPools) loadPools(ctx context.Context) error {
	cp.state.mu.Lock()
	known := cp.state.catalog.Known()
	cp.serving = true
	if !cp.state.used {
		cp.state.used = true
		cp.kick.Notify()
	}
	cp.state.mu.Unlock()
	if known {
		return nil
	}
	if cp.cfg.Objects == nil {
		return model.Errorf(model.CodeNotAvailable, "start the agent with --store-dir or with a cluster",
			"addresses of a pool need a datastore, and this agent has none")
	}
	all, err := store.WithTimeout(ctx, func(ctx context.Context) ([]store.Object, error) {
		return cp.cfg.Objects.List(ctx, store.AddressPools())
	})
	if err != nil {
		return store.Unreachable("list of pools", err)
	}
	cp.state.mu.Lock()
	defer cp.state.mu.Unlock()
	cp.state.catalog.AddListed(all)
	cp.state.unsaved = true
	cp.kick.Notify()
	return nil
}

// wants returns the wants of an attachment, by its claim if it has one. The pools must have been loaded.
func (cp *clusterPools) wants(
	conf poolconf.Cluster, req ipam.Request, claim addressclaims.Claim,
) ([][]poolconf.Want, error) {
	cp.state.mu.Lock()
	defer cp.state.mu.Unlock()
	return cp.state.catalog.Wants(conf, req, claim)
}
