// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"slices"

	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/cni/wire"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/blocks"
	"github.com/weft-net/weft/internal/ipam/dhcp/lease"
	"github.com/weft-net/weft/internal/ipam/hostlocal"
	"github.com/weft-net/weft/internal/ipam/static"
	"github.com/weft-net/weft/internal/plan/plugin"
)

// planners are the plugins that the agent plans itself. Over another vendor's network Calico's are Calico's: its daemon
// looks after what its plugin makes.
func planners(cfg Config) map[string]plugin.Planner {
	all := plugin.InAgent()
	if cfg.Network.Mode == config.ModeMultus {
		delete(all, plugin.CalicoType)
	}
	return all
}

// allocators give addresses; over another vendor's network Calico's are Calico's, too.
func allocators(cfg Config, leases *lease.Keeper, engine *blocks.Engine) map[string]ipam.Allocator {
	all := []ipam.Allocator{
		hostlocal.New(hostlocal.Config{DataDir: cfg.AddressDir, CallerKnows: true}), static.New(), leases,
	}
	if engine != nil {
		all = append(all, engine.Allocators()...)
	}
	table := map[string]ipam.Allocator{}
	for _, one := range all {
		table[one.Type()] = one
	}
	if cfg.Network.Mode == config.ModeMultus {
		delete(table, blocks.TypeCalico)
	}
	return table
}

// alone are the plugins in whose name weft-cni may be executed: those of which this agent does not have another program
// executed, which may be a link to weft-cni.
func alone(planners map[string]plugin.Planner, allocators map[string]ipam.Allocator) []string {
	return slices.DeleteFunc(wire.AgentPlugins(), func(name string) bool {
		return planners[name] == nil && allocators[name] == nil
	})
}
