// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"context"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
)

// ipamPlugin handles a call of an IPAM plugin, which has no state but its own files.
type ipamPlugin struct {
	alloc ipam.Allocator
}

func (p ipamPlugin) do(ctx context.Context, call cni.Call) ([]byte, error) {
	network, prev, err := cni.ParsePlugin(call.Conf)
	if err != nil && (call.Command != cni.Del || len(network.Plugins) == 0) { // DEL continues without prevResult
		return nil, err
	}
	if err := refuseOwn(call); err != nil {
		return nil, err
	}
	r := call.Request
	ask := ipam.Request{
		Conf: network.Plugins[0].Raw, Network: r.Network, ContainerID: r.ContainerID, IfName: r.IfName, Args: r.Args,
		Netns: r.Netns,
	}
	switch call.Command {
	case cni.Add:
		result, err := p.alloc.Add(ctx, ask)
		if err != nil {
			return nil, err
		}
		return cni.FormatResult(result, r.CNIVersion)
	case cni.Del:
		return nil, p.alloc.Del(ctx, ask)
	case cni.Check:
		if prev == nil {
			return nil, model.Errorf(model.CodeInvalidConf, "CHECK needs the result of the ADD", "prevResult is missing")
		}
		return nil, p.alloc.Check(ctx, ask, *prev)
	case cni.Status:
		return nil, p.alloc.Status(ctx, ask)
	case cni.GC:
		return nil, p.alloc.GC(ctx, ask, call.Valid)
	}
	return nil, model.Errorf(model.CodeInvalidEnv, "", "environment: CNI_COMMAND %q is unknown", call.Command)
}

// refuseOwn rejects the caller's own network namespace. A missing namespace is no error: IPAM does not enter it.
func refuseOwn(call cni.Call) error {
	if call.Request.Netns == "" || call.NetnsOverride {
		return nil
	}
	ns, err := netns.Open(call.Request.Netns)
	if err != nil {
		return nil
	}
	defer func() { _ = ns.Close() }()
	own, err := netns.Current()
	if err != nil {
		return err
	}
	defer func() { _ = own.Close() }()
	same, err := netns.Same(ns, own)
	if err != nil || !same {
		return err
	}
	return model.Errorf(model.CodeInvalidNetns, "name the container's namespace, or set CNI_NETNS_OVERRIDE=1",
		"CNI_NETNS %q is the namespace of the node itself", call.Request.Netns)
}
