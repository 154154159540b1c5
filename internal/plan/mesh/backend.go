// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// Backend is one way to bring packets from node to node: a row of the table in Config.Backends. One of one's own is
// such a row and a planner; what it must be told it carries in its closures. All functions are pure; those that are nil
// ask, need and say nothing.
type Backend struct {
	// Name is the type in the configuration, and in what nodes publish.
	Name string
	// Check says what is wrong with the configuration. It is asked only where the back end is used.
	Check func(cfg Config) error
	// Observe says what must be known of the kernel beside the underlay.
	Observe func(cfg Config, self model.Node) []state.Query
	// Node plans what self needs for any peer at all.
	Node func(p *Planner) Part
	// Peer plans what one prefix of a peer needs, or says why it cannot be reached.
	Peer func(p *Planner, peer model.Node, cidr netip.Prefix) (Part, *Problem)
	// Publish is what other nodes must know of self to reach it over a family: JSON; empty is nothing.
	Publish func(p *Planner, family int) string
}

// Part is what a back end adds to the plan.
type Part struct {
	// Host is what the node's own namespace should hold.
	Host state.Space
	// Untracked are UDP ports whose packets connection tracking need not see: the outer ones of a tunnel.
	Untracked []uint16
	// Effects are done after Host was brought to the plan.
	Effects []state.Effect
	// Tunnels are what a process in user space must keep. A peer's part names the tunnel by its link and adds to its
	// peers.
	Tunnels []Tunnel
	// MTU is the largest packet of a pod that fits through, in bytes; 0 is any that the underlay takes.
	MTU int
	// encapsulations are whose packets are accepted from peers alone.
	encapsulations []encapsulation
	// Problems do not keep the part from being used.
	Problems []Problem
}

// Backends are weft's own back ends; the first is the one that is used when none is named.
func Backends() []Backend {
	return []Backend{
		{Name: "host-gw", Node: forwarding, Peer: gateway},
		vxlanRow(), udpRow(), ipipRow(), wireguardRow(), allocRow(), extensionRow(),
	}
}

// Overhead is what one of weft's own back ends adds to a packet over a family, in bytes.
func Overhead(backend string, family int) int {
	switch backend {
	case "vxlan":
		return VxlanOverhead(family)
	case "udp":
		return udpOverhead(family)
	case "ipip":
		return ipipOverhead
	case "wireguard":
		return wireguardOverhead
	}
	return 0
}

// unsupported are back ends that flannel has or had, and weft has not: they need programs or clouds of others.
func unsupported() []string { return []string{"ipsec", "aws-vpc", "gce", "ali-vpc", "tencent-vpc"} }

// table is the table in use: that of the configuration, else weft's own.
func (c Config) table() []Backend {
	if len(c.Backends) > 0 {
		return c.Backends
	}
	return Backends()
}

// Find finds the back end of a name in Backends, or among weft's own; empty is the first. The error names those that
// there are.
func (c Config) Find(name string) (Backend, error) {
	table := c.table()
	if name == "" {
		return table[0], nil
	}
	if i := slices.IndexFunc(table, func(b Backend) bool { return b.Name == name }); i >= 0 {
		return table[i], nil
	}
	if slices.Contains(unsupported(), name) {
		return Backend{}, model.Faultf(model.CodeUnsupportedField, "use wireguard",
			"mesh: back end %q is not supported", name)
	}
	known := make([]string, 0, len(table))
	for _, b := range table {
		known = append(known, b.Name)
	}
	return Backend{}, model.Faultf(model.CodeInvalidConf, "known: "+strings.Join(known, ", "),
		"mesh: back end %q is not known", name)
}

// of is the name of the back end that reaches a node: what it publishes, else what the configuration says.
func (c Config) of(n model.Node) string {
	if n.Published != nil && n.Published.Backend != "" {
		return n.Published.Backend
	}
	return c.Backend
}

// used are the rows of the back ends that a plan for self uses, its own first, the others in the order of the table. A
// peer's that is not known is left out; that is a problem of this peer alone.
func (c Config) used(nodes []model.Node, self string, held pools) ([]Backend, error) {
	own, err := c.Find(c.Backend)
	if err != nil {
		return nil, err
	}
	out, named := []Backend{own}, map[string]bool{}
	for _, n := range nodes {
		if n.Name != self {
			named[c.of(n)] = true
		}
	}
	for _, kind := range held.kinds() {
		named[kind] = true
	}
	for _, b := range c.table() {
		if named[b.Name] && b.Name != own.Name {
			out = append(out, b)
		}
	}
	for _, b := range out {
		if b.Check == nil {
			continue
		}
		if err := b.Check(c); err != nil {
			return nil, err
		}
	}
	return slices.Clip(out), nil
}
