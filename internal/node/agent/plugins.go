// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"slices"

	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/cni/wire"
	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/blocks"
	"github.com/weft-net/weft/internal/ipam/hostlocal"
	"github.com/weft-net/weft/internal/ipam/static"
	"github.com/weft-net/weft/internal/plan/plugin"
)

// planners are the plugins that the agent plans itself. Over another vendor's network Calico's are Calico's: its daemon
// looks after what its plugin makes.
func (a *agent) planners() map[string]plugin.Planner {
	all := plugin.InAgent()
	if a.cfg.Network.Mode == config.ModeMultus {
		delete(all, plugin.CalicoType)
	}
	return all
}

// allocators give addresses; over another vendor's network Calico's are Calico's, too.
func (a *agent) allocators() map[string]ipam.Allocator {
	all := []ipam.Allocator{hostlocal.New(hostlocal.Config{DataDir: a.cfg.AddressDir, CallerKnows: true}), static.New(), a.own.leases}
	if a.blocks != nil {
		all = append(all, a.blocks.Allocators()...)
	}
	table := map[string]ipam.Allocator{}
	for _, one := range all {
		table[one.Type()] = one
	}
	if a.cfg.Network.Mode == config.ModeMultus {
		delete(table, blocks.TypeCalico)
	}
	return table
}

// alone are the plugins in whose name weft-cni may be executed: those of which this agent does not have another program executed,
// which may be a link to weft-cni.
func (a *agent) alone() []string {
	planners, allocators := a.planners(), a.allocators()
	return slices.DeleteFunc(wire.AgentPlugins(), func(name string) bool { return planners[name] == nil && allocators[name] == nil })
}

// ofNode is what the cluster, or the configuration, says of this node.
func (a *agent) ofNode() attach.Node {
	return attach.Node{PodCIDRs: a.pods.PodCIDRs(), MTU: a.overlay.MTU()}
}
