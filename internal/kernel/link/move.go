// SPDX-License-Identifier: Apache-2.0

package link

import (
	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/rtnl"
)

// Move requests moving a link to the namespace of the descriptor under a new name, in one change, so that it never has
// another name there. The kernel takes it down, and removes it from its master, and with that its addresses and routes.
// It keeps its index if that is free.
func Move(index int, name string, ns int, newName string) *rtnl.Message {
	m := rtnl.New(unix.RTM_NEWLINK, 0, "move link", rtnl.Name(name), ifinfo(index, 0, 0))
	m.Uint32(unix.IFLA_NET_NS_FD, uint32(ns))
	m.String(unix.IFLA_IFNAME, newName)
	return m
}

// Unmark removes a link's alias.
func Unmark(index int, name string) *rtnl.Message {
	m := rtnl.New(unix.RTM_NEWLINK, 0, "take alias off link", rtnl.Name(name), ifinfo(index, 0, 0)).Forgiving(unix.ENODEV)
	m.Attr(unix.IFLA_IFALIAS, nil)
	return m
}

// Rename requests another name. Older kernels refuse to rename a link that is up, so it goes down first.
func Rename(index int, name, newName string) []*rtnl.Message {
	return []*rtnl.Message{SetUp(index, name, false), Set(index, name, Change{Name: newName})}
}
