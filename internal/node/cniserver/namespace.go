// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/cni/wire"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
)

const netnsHint = "CNI_NETNS names the network namespace of the container"

// namespace returns the container's namespace, nil if the verb needs none or, on DEL, if it is gone. A DEL must always
// be possible: a path that is no container's namespace means that the container is gone.
func (vs *verbs) namespace(c *call, r wire.Request, call *cni.Call) (*netns.NS, error) {
	fd, path := c.netns, call.Request.Netns
	c.netns = 0
	if call.Command == cni.GC || call.Command == cni.Status {
		if fd != 0 {
			_ = unix.Close(fd)
		}
		return nil, nil
	}
	if fd == 0 {
		if call.Command == cni.Del {
			return nil, nil
		}
		return nil, model.Errorf(model.CodeInvalidNetns, netnsHint, "CNI_NETNS %q: %w", path, unix.Errno(r.Errno))
	}
	ns, err := netns.FromFD(fd, path)
	if err == nil {
		err = vs.refuseNodeNamespace(ns)
	}
	if err != nil && call.Command == cni.Del {
		call.Request.Netns = "" // a foreign plugin must not use it either
		return nil, nil
	}
	if err != nil {
		return nil, model.Errorf(model.CodeInvalidNetns, netnsHint, "CNI_NETNS %q: %w", path, err)
	}
	return ns, nil
}

// refuseNodeNamespace refuses, and closes, a namespace that is the node's.
func (vs *verbs) refuseNodeNamespace(ns *netns.NS) error {
	id, err := ns.ID()
	if err == nil && slices.Contains(vs.own, id) {
		err = model.Errorf(model.CodeInvalidNetns, "", "this is the network namespace of the node itself")
	}
	if err != nil {
		_ = ns.Close()
	}
	return err
}
