// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"encoding/json"
	"net/netip"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
	"github.com/weft-net/weft/internal/vm/phase1"
)

// addHostTap creates the tap on the node that replaces the pod's veth pair. It has no source guard, like the veth pairs
// of the other designs.
func (w *world) addHostTap(ctx context.Context) (phase1.Network, error) {
	var n phase1.Network
	s := kernel.Spaces{PodNS: w.pod}
	var err error
	if s.Host, err = kernel.Dial(w.node); err != nil {
		return n, err
	}
	defer func() { _ = s.Host.Close() }()
	if s.Pod, err = kernel.Dial(w.pod); err != nil {
		return n, err
	}
	defer func() { _ = s.Pod.Close() }()
	const mtu = 1500
	conf := model.PluginConf{
		Type: plugin.CalicoType,
		Raw:  json.RawMessage(`{"type":"calico","mtu":1500,"host_tap":{},"ipam":{"type":"host-local"}}`),
	}
	in := plugin.Input{
		Conf: conf, Request: model.Request{Network: "bench", ContainerID: "vm", IfName: "eth0", Netns: w.pod.Path()},
		IPAM: &model.Result{IPs: []model.IP{{Address: netip.PrefixFrom(vmAddr(), 32)}}},
	}
	planner := plugin.Calico{}
	queries, err := planner.Observe(in)
	if err != nil {
		return n, err
	}
	if in.Answers, err = s.Observe(ctx, queries); err != nil {
		return n, err
	}
	step, err := planner.Plan(in)
	if err != nil {
		return n, err
	}
	step.Fragment.Host.Tables = nil
	links := step.Result.Interfaces
	w.hostLink = links[0].Name
	n.Device = model.VMDevice{Target: w.hostLink, MAC: links[1].MAC, MTU: mtu}
	return n, s.Apply(ctx, step.Fragment)
}
