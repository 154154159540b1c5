// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"github.com/weft-net/weft/internal/attach"
	"github.com/weft-net/weft/internal/config"
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

// ofNode is what the cluster, or the configuration, says of this node.
func (a *agent) ofNode() attach.Node {
	n := attach.Node{PodCIDRs: a.cfg.Network.PodCIDRs, MTU: a.cfg.Network.MTU}
	if len(n.PodCIDRs) == 0 {
		n.PodCIDRs = a.podCIDRs()
	}
	return n
}
