// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"path/filepath"

	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/node/cri/deviceplugin"
)

// runMacvtaps starts the kubelet's device plugin of macvtaps, if it is configured and weft attaches pods.
func (a *agent) runMacvtaps(g group) {
	cfg := a.cfg
	if cfg.VirtualMachines.Macvtaps == "" || cfg.Network.Mode == config.ModePolicy {
		return
	}
	c := deviceplugin.Config{
		Node: cfg.Node, File: cfg.VirtualMachines.Macvtaps, Dir: filepath.Join(cfg.Install.HostRoot, deviceplugin.Directory),
		Events: a.own.events, Log: cfg.Log.With("component", "macvtap"), After: cfg.After,
	}
	c.Report = a.nodeEvent()
	g.add(deviceplugin.New(c).Run)
}
