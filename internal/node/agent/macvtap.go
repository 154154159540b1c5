// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
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
	if api := a.data.kube; api != nil {
		c.Report = func(ctx context.Context, e model.Event) error {
			// kubectl describe node looks for events by the node's name instead of its UID, as the kubelet writes them.
			node, err := store.NewObject(fmt.Appendf(nil,
				`{"apiVersion":"v1","kind":"Node","metadata":{"name":%q,"uid":%q}}`, cfg.Node, cfg.Node))
			if err != nil {
				return err
			}
			return api.EventOn(ctx, store.Nodes(), node, e)
		}
	}
	g.add(deviceplugin.New(c).Run)
}
