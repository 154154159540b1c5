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
	"github.com/weft-net/weft/internal/ipam/poolconf"
	"github.com/weft-net/weft/internal/ipam/static"
	"github.com/weft-net/weft/internal/plan/plugin"
)

// planners returns the plugins that are built into the agent. Over another vendor's network Calico's are excluded:
// Calico's own daemon manages what its plugin creates. In mode policy there are none: the other vendor's plugins are
// executed.
func planners(cfg Config) map[string]plugin.Planner {
	if cfg.Network.Mode == config.ModePolicy {
		return map[string]plugin.Planner{}
	}
	all := plugin.InAgent()
	delete(all, plugin.MacvtapType) // with devices of macvtap-cni; weft's own have another type
	if cfg.Network.Mode == config.ModeMultus {
		delete(all, plugin.CalicoType)
	}
	return all
}

// allocators returns the IPAM plugins; over another vendor's network Calico's is excluded, too, and in mode policy all.
func allocators(cfg Config, leases *lease.Manager, engine *blocks.Engine) map[string]ipam.Allocator {
	if cfg.Network.Mode == config.ModePolicy {
		return map[string]ipam.Allocator{}
	}
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
		delete(table, poolconf.TypeCalico)
	}
	return table
}

// builtinNames returns the plugins under whose names weft-cni may be executed: those for which this agent does not
// execute another program, which may be a link to weft-cni.
func builtinNames(planners map[string]plugin.Planner, allocators map[string]ipam.Allocator) []string {
	return slices.DeleteFunc(wire.AgentPlugins(), func(name string) bool {
		return planners[name] == nil && allocators[name] == nil
	})
}
