// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/netlink"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/netns"
)

// Attributes of RTM_GETNSID and RTM_NEWNSID (linux/net_namespace.h).
const netnsaNSID, netnsaFD = 1, 3

// NamespaceID returns the id by which the Conn's namespace refers to ns, and the kernel in events. It assigns an id if
// there is none, and reports that: no event of ns was received before. An id does not keep a namespace alive.
func (c *Conn) NamespaceID(ctx context.Context, ns *netns.NS) (id int, assigned bool, err error) {
	for assigned := range 2 {
		id, err := c.namespaceID(ctx, ns)
		if err != nil || id >= 0 {
			return id, assigned > 0, err
		}
		const any = ^uint32(0) // the kernel chooses
		m := namespaceMessage(unix.RTM_NEWNSID, "assign an id to", ns).Forgiving(unix.EEXIST)
		m.Uint32(netnsaNSID, any)
		if err := c.rtnl.Send(ctx, []*rtnl.Message{m}); err != nil {
			return -1, false, err
		}
	}
	return -1, false, fmt.Errorf("namespace %s has no id", ns.Path())
}

// namespaceID returns the id, -1 if there is none.
func (c *Conn) namespaceID(ctx context.Context, ns *netns.NS) (int, error) {
	id := -1
	err := c.rtnl.Query(ctx, []*rtnl.Message{namespaceMessage(unix.RTM_GETNSID, "read the id of", ns)},
		func(_ int, body []byte) {
			const head = 4 // struct rtgenmsg, aligned
			for kind, data := range netlink.Attrs(body[min(head, len(body)):]) {
				if kind == netnsaNSID && len(data) == 4 {
					id = int(int32(binary.NativeEndian.Uint32(data)))
				}
			}
		})
	return id, err
}

func namespaceMessage(kind uint16, verb string, ns *netns.NS) *rtnl.Message {
	m := rtnl.New(kind, 0, verb, rtnl.Name("namespace "+ns.Path()), make([]byte, 4))
	m.Uint32(netnsaFD, uint32(ns.Fd()))
	return m
}

// LinkPort returns the netlink port of the Conn's rtnetlink socket: the sender of this Conn's changes.
func (c *Conn) LinkPort() (uint32, error) { return c.rtnl.Port() }
