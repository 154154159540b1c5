// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// Backend is one way to carry packets from node to node: a row of the table in Config.Backends. A custom backend is
// such a row; its configuration is in its closures. All functions are pure; any of them may be nil.
type Backend struct {
	// Name is the type in the configuration, and in the nodes' annotations.
	Name string
	// Check validates the configuration. It is called only if the backend is used.
	Check func(cfg Config) error
	// Observe returns the kernel queries that the backend needs in addition to the underlay's.
	Observe func(cfg Config, self model.Node) []state.Query
	// Node plans what self needs regardless of the peers.
	Node func(p *Planner) BackendState
	// Peer plans the route to one prefix of a peer, or returns why it cannot be reached.
	Peer func(p *Planner, peer model.Node, cidr netip.Prefix) (BackendState, *Problem)
	// Publish returns what peers need to reach self over a family, as JSON; empty for nothing.
	Publish func(p *Planner, family int) string
}

// BackendState is what a backend adds to the plan: state of the node's network namespace, tunnels and the MTU.
type BackendState struct {
	// Host is the desired state of the node's own namespace.
	Host state.Space
	// Untracked are UDP ports that bypass connection tracking: those of a tunnel's outer packets.
	Untracked []uint16
	// Effects are done after Host was reconciled.
	Effects []state.Effect
	// Tunnels are run by a process in user space. A peer's part identifies the tunnel by its link and adds to its peers.
	Tunnels []Tunnel
	// MTU is the size of the largest packet of a pod that fits, in bytes; 0 is the underlay's.
	MTU int
	// encapsulations are the tunnel protocols that are accepted from peers only.
	encapsulations []encapsulation
	// Problems are reported; the part is used in spite of them.
	Problems []Problem
}

// Backends returns weft's own backends; the first is the default.
func Backends() []Backend {
	return []Backend{
		{Name: "host-gw", Node: enableForwarding, Peer: gateway},
		vxlanRow(), udpRow(), ipipRow(), wireguardRow(), allocRow(), bgpRow(), extensionRow(),
	}
}

// Overhead returns how many bytes one of weft's own backends adds to a packet over a family.
func Overhead(backend string, family int) int {
	switch backend {
	case "vxlan":
		return VXLANOverhead(family)
	case "udp":
		return udpOverhead(family)
	case "ipip":
		return ipipOverhead
	case "wireguard":
		return wireguardOverhead
	}
	return 0
}

// unsupported returns the backends of flannel that weft does not have: they need other programs or a cloud's API.
func unsupported() []string { return []string{"ipsec", "aws-vpc", "gce", "ali-vpc", "tencent-vpc"} }

// table returns the configured backends, or weft's own.
func (c Config) table() []Backend {
	if len(c.Backends) > 0 {
		return c.Backends
	}
	return Backends()
}

// Find returns the backend of a name in Backends, or among weft's own; the empty name is the first. The error lists the
// known names.
func (c Config) Find(name string) (Backend, error) {
	table := c.table()
	if name == "" {
		return table[0], nil
	}
	if i := slices.IndexFunc(table, func(b Backend) bool { return b.Name == name }); i >= 0 {
		return table[i], nil
	}
	if slices.Contains(unsupported(), name) {
		return Backend{}, model.Errorf(model.CodeUnsupportedField, "use wireguard",
			"mesh: backend %q is not supported", name)
	}
	known := make([]string, 0, len(table))
	for _, b := range table {
		known = append(known, b.Name)
	}
	return Backend{}, model.Errorf(model.CodeInvalidConf, "known: "+strings.Join(known, ", "),
		"mesh: backend %q is not known", name)
}

// backendOf returns the name of the backend to reach a node: the one that it publishes, else the configured one.
func (c Config) backendOf(n model.Node) string {
	if n.Published != nil && n.Published.Backend != "" {
		return n.Published.Backend
	}
	return c.Backend
}

// used returns the backends that a plan for self uses, its own first, the others in the order of the table. An unknown
// backend of a peer is omitted; it is a problem of this peer only.
func (c Config) used(nodes []model.Node, self string, held pools) ([]Backend, error) {
	own, err := c.Find(c.Backend)
	if err != nil {
		return nil, err
	}
	out, named := []Backend{own}, map[string]bool{}
	for _, n := range nodes {
		if n.Name != self {
			named[c.backendOf(n)] = true
		}
	}
	delete(named, "wireguard") // without it here such a peer is not reached, and no device is needed
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
