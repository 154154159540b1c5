// SPDX-License-Identifier: Apache-2.0

package hostendpoint

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// Interface is an interface of the node with its addresses.
type Interface struct {
	Name string
	// Master is the bridge whose port it is; empty: none.
	Master string
	Addrs  []netip.Addr
}

// Placed is a host endpoint at an interface.
type Placed struct {
	// Interface is empty for all interfaces that have no host endpoint of their own.
	Interface string
	model.HostEndpoint
}

// Place returns which host endpoint each interface of a node has, sorted by interface, that for all others last. If several
// claim one, it is the first by name. One without an interface's name is at those that have one of its addresses.
func Place(all []model.HostEndpoint, node string, interfaces []Interface) (out []Placed) {
	mine := slices.DeleteFunc(slices.Clone(all), func(h model.HostEndpoint) bool { return h.Node != node })
	slices.SortFunc(mine, func(a, b model.HostEndpoint) int { return strings.Compare(a.Name, b.Name) })
	add := func(name string, h model.HostEndpoint) {
		if !slices.ContainsFunc(out, func(p Placed) bool { return p.Interface == name }) {
			out = append(out, Placed{name, h})
		}
	}
	for _, h := range mine {
		switch h.Interface {
		case model.AllInterfaces:
			add("", h)
		case "":
			for _, i := range interfaces {
				if slices.ContainsFunc(i.Addrs, func(a netip.Addr) bool { return slices.Contains(h.Addrs, a) }) {
					add(i.Name, h)
				}
			}
		default:
			add(h.Interface, h)
		}
	}
	slices.SortFunc(out, func(a, b Placed) int {
		if (a.Interface == "") != (b.Interface == "") {
			return len(b.Interface) - len(a.Interface)
		}
		return strings.Compare(a.Interface, b.Interface)
	})
	return out
}
