// SPDX-License-Identifier: Apache-2.0

// Package layout computes the names, addresses and links of a lab's nodes and wires from its specification.
package layout

import (
	"fmt"
	"math/big"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-net/weft/internal/flow"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// LeafSpine is the fabric of two racks, each with a router (leaf), and of two routers between these (spines).
const LeafSpine = "leaf-spine"

// Limits of a lab.
const (
	MaxNodes = 200 // a wire has a /24
	MaxWires = 8
)

// Spec is the specification of a lab.
type Spec struct {
	Name string `json:"name"`
	// Nodes is the number of nodes that the lab was created with: it divides the cluster prefixes.
	Nodes        int            `json:"nodes"`
	Wires        int            `json:"wires"`
	ClusterCIDRs []netip.Prefix `json:"clusterCIDRs"` // at most one of each family
	// Encapsulation is the agents' backend: host-gw (the default), vxlan, udp, ipip or wireguard, or a custom backend of
	// the agent, DOMAIN/NAME.
	Encapsulation string `json:"encapsulation,omitempty"`
	// Fabric is LeafSpine for a fabric of routers between the nodes, which then speak BGP.
	Fabric string `json:"fabric,omitempty"`
	// Design is how pods are attached to their node: routed (the default) or bridge.
	Design string `json:"design,omitempty"`
	// Addresses is how pod addresses are allocated: from podCIDRs (the default), one prefix for each node, or from pools,
	// blocks of the ClusterCIDRs.
	Addresses string `json:"addresses,omitempty"`
	// Observe is the agents' observe.level: off (the default), denied or flows.
	Observe string `json:"observe,omitempty"`
}

// UsesPools reports whether pods get addresses from blocks.
func (s Spec) UsesPools() bool { return s.Addresses == "pools" }

// wireMTU is the MTU of the wires, in bytes.
const wireMTU = 1500

// PodMTU returns the MTU of pods with a tunneling backend, or 0 without a tunnel.
func (s Spec) PodMTU() int {
	family := 4
	if slices.ContainsFunc(s.ClusterCIDRs, func(p netip.Prefix) bool { return p.Addr().Is6() }) {
		family = 6
	}
	if overhead := mesh.Overhead(s.Encapsulation, family); overhead > 0 {
		return wireMTU - overhead
	}
	return 0
}

// Layout is a lab with all names and addresses: a pure function of the spec.
type Layout struct {
	Spec  Spec   `json:"spec"`
	Wires []Wire `json:"wires"`
	Nodes []Node `json:"nodes"`
}

// Wire is an Ethernet segment that every node is connected to.
type Wire struct {
	Name     string         `json:"name"`
	Prefixes []netip.Prefix `json:"prefixes"`
}

// Node is a node of the lab.
type Node struct {
	Name string `json:"name"`
	// Addrs are the node's addresses on each wire (eth0, eth1, …), IPv4 then IPv6.
	Addrs    [][]netip.Prefix `json:"addrs"`
	PodCIDRs []netip.Prefix   `json:"podCIDRs"`
}

// wirePrefixes returns the prefixes of the wires' addresses, which the cluster CIDRs must not overlap.
func wirePrefixes() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("172.18.0.0/16"), netip.MustParsePrefix("fd18::/32")}
}

// Layout computes the layout, or returns an error about an invalid field of the spec.
func (s Spec) Layout() (Layout, error) {
	if err := s.check(); err != nil {
		return Layout{}, err
	}
	l := Layout{Spec: s}
	for w := range s.Wires {
		l.Wires = append(l.Wires, Wire{Name: fmt.Sprintf("wire%d", w), Prefixes: []netip.Prefix{
			netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 18, byte(w), 0}), 24),
			netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x18, 7: byte(w)}), 64),
		}})
	}
	for i := range s.Nodes {
		n, err := l.node(fmt.Sprintf("node%d", i+1), i)
		if err != nil {
			return Layout{}, err
		}
		l.Nodes = append(l.Nodes, n)
	}
	return l, nil
}

// node returns the node with a number, which begins with 0.
func (l Layout) node(name string, number int) (Node, error) {
	n := Node{Name: name}
	for _, w := range l.Wires {
		n.Addrs = append(n.Addrs, []netip.Prefix{nthAddr(w.Prefixes[0], number+1), nthAddr(w.Prefixes[1], number+1)})
	}
	for _, c := range l.Spec.ClusterCIDRs {
		if l.Spec.UsesPools() {
			break
		}
		p, err := nodeCIDR(c, number, l.Spec.Nodes)
		if err != nil {
			return Node{}, err
		}
		n.PodCIDRs = append(n.PodCIDRs, p)
	}
	return n, nil
}

// maxNodeName is the length of the longest name of a node, in bytes: the kernel's limit of a link's name is 15, and the
// name of a node's port on a wire ends with the number of the wire.
const maxNodeName = 13

// With returns the layout with one more node, the last. Its number, and with it its addresses, is that of its name if
// that is free (node4), otherwise the lowest free one. Errors name the node.
func (l Layout) With(name string) (Layout, error) {
	if err := model.CheckName("node", name); err != nil {
		return l, err
	}
	switch {
	case l.Spec.Fabric != "":
		return l, model.Errorf(model.CodeInvalidConf, "take the lab up again with more --nodes",
			"node %s: a lab with --fabric %s keeps its nodes", name, l.Spec.Fabric)
	case l.Has(name):
		return l, model.Errorf(model.CodeExists, "choose another name", "node %s exists already", name)
	case len(name) > maxNodeName:
		return l, model.Errorf(model.CodeInvalidConf, "for example node4", "node %q: the name is longer than %d bytes", name, maxNodeName)
	case name == "wires" || slices.ContainsFunc(l.Wires, func(w Wire) bool { return w.Name == name }):
		return l, model.Errorf(model.CodeInvalidConf, "for example node4", "node %q: the name is that of a wire", name)
	}
	number, err := l.freeNumber(name)
	if err != nil {
		return l, err
	}
	n, err := l.node(name, number)
	if err != nil {
		return l, err
	}
	l.Nodes = append(slices.Clone(l.Nodes), n)
	return l, nil
}

// freeNumber returns the number for a new node.
func (l Layout) freeNumber(name string) (int, error) {
	free := func(number int) bool {
		addr := nthAddr(l.Wires[0].Prefixes[0], number+1)
		return !slices.ContainsFunc(l.Nodes, func(n Node) bool { return slices.Contains(n.Addrs[0], addr) })
	}
	if text, ok := strings.CutPrefix(name, "node"); ok {
		if n, err := strconv.Atoi(text); err == nil && n >= 1 && n <= MaxNodes && free(n-1) {
			return n - 1, nil
		}
	}
	for number := range MaxNodes {
		if free(number) {
			return number, nil
		}
	}
	return 0, model.Errorf(model.CodeExhausted, "remove one with `weft lab remove-node`", "node %s: a lab has at most %d nodes", name, MaxNodes)
}

// Without returns the layout without a node.
func (l Layout) Without(name string) Layout {
	l.Nodes = slices.DeleteFunc(slices.Clone(l.Nodes), func(n Node) bool { return n.Name == name })
	return l
}

func (s Spec) check() error {
	if err := model.CheckName("--name", s.Name); err != nil {
		return err
	}
	if s.Nodes < 1 || s.Nodes > MaxNodes {
		return model.OutOfRange("--nodes", s.Nodes, fmt.Sprintf("1 to %d", MaxNodes), 3)
	}
	if s.Wires < 1 || s.Wires > MaxWires {
		return model.OutOfRange("--wires", s.Wires, fmt.Sprintf("1 to %d", MaxWires), 2)
	}
	if !slices.Contains([]string{"", "host-gw", "vxlan", "udp", "ipip", "wireguard"}, s.Encapsulation) &&
		!model.IsCustomBackend(s.Encapsulation) {
		return model.NotOneOf("--encapsulation", s.Encapsulation, "host-gw", "vxlan", "udp", "ipip", "wireguard",
			"DOMAIN/NAME, a custom backend of --agent")
	}
	switch {
	case !slices.Contains([]string{"", LeafSpine}, s.Fabric):
		return model.NotOneOf("--fabric", s.Fabric, LeafSpine)
	case s.Fabric != "" && !slices.Contains([]string{"", "host-gw"}, s.Encapsulation):
		return model.Errorf(model.CodeInvalidConf, "leave --encapsulation out",
			"--fabric %s has no encapsulation, and --encapsulation is %s", s.Fabric, s.Encapsulation)
	case s.Fabric != "" && s.Nodes < 2:
		return model.Errorf(model.CodeInvalidConf, "choose 2 or more",
			"--fabric %s has two racks, and --nodes is %d", s.Fabric, s.Nodes)
	case !slices.Contains([]string{"", "routed", "bridge"}, s.Design):
		return model.NotOneOf("--design", s.Design, "routed", "bridge")
	case !slices.Contains([]string{"", "podCIDRs", "pools"}, s.Addresses):
		return model.NotOneOf("--addresses", s.Addresses, "podCIDRs", "pools")
	case !slices.Contains([]string{"", flow.LevelOff, flow.LevelDenied, flow.LevelFlows}, s.Observe):
		return model.NotOneOf("--observe", s.Observe, flow.LevelOff, flow.LevelDenied, flow.LevelFlows)
	case s.Encapsulation == "ipip" && s.hasFamily(6):
		return model.Errorf(model.CodeInvalidConf, "choose IPv4 only, for example --cluster-cidr 10.42.0.0/16",
			"encapsulation ipip supports IPv4 only, but the cluster CIDR has IPv6")
	case s.UsesPools() && s.Design == "bridge":
		return model.Errorf(model.CodeInvalidConf, "use design routed, or addresses podCIDRs",
			"design bridge does not support addresses from pools")
	}
	if len(s.ClusterCIDRs) == 0 {
		return model.Errorf(model.CodeInvalidConf, "for example 10.42.0.0/16,fd42::/48", "cluster CIDR is empty")
	}
	for i, c := range s.ClusterCIDRs {
		if c != c.Masked() {
			return model.Errorf(model.CodeInvalidConf, fmt.Sprintf("write %s", c.Masked()),
				"cluster CIDR %s has bits set after the prefix length", c)
		}
		for _, d := range s.ClusterCIDRs[:i] {
			if c.Addr().Is4() == d.Addr().Is4() {
				return model.Errorf(model.CodeInvalidConf, "use at most one IPv4 and one IPv6 prefix",
					"cluster CIDRs %s and %s are of the same family", d, c)
			}
		}
		for _, w := range wirePrefixes() {
			if c.Overlaps(w) {
				return model.Errorf(model.CodeInvalidConf, "choose another, for example 10.42.0.0/16,fd42::/48",
					"cluster CIDR %s overlaps %s, the range of the lab's wires", c, w)
			}
		}
	}
	return nil
}

// nthAddr returns the nth address of a prefix.
func nthAddr(p netip.Prefix, n int) netip.Prefix {
	b := p.Addr().AsSlice()
	b[len(b)-1] = byte(n)
	a, _ := netip.AddrFromSlice(b)
	return netip.PrefixFrom(a, p.Bits())
}

// nodeCIDR returns node i's part of a cluster prefix: a /24 or /64 if n of them fit, else an nth part. Numbering starts at
// 1 if there is space for one more, so that node1 has 10.42.1.0/24. Nodes that are added to the n have the following parts,
// and the last one the first, if it is not used.
func nodeCIDR(c netip.Prefix, i, n int) (netip.Prefix, error) {
	size, smallest := 24, 29
	if c.Addr().Is6() {
		size, smallest = 64, 125
	}
	need := 0 // bits of the node's number
	for 1<<need < n {
		need++
	}
	bits := max(size, c.Bits()+need)
	if bits > smallest {
		return c, model.Errorf(model.CodeInvalidConf, fmt.Sprintf("choose a /%d or shorter", smallest-need),
			"cluster CIDR %s is too small for %d nodes", c, n)
	}
	parts := 1 << min(bits-c.Bits(), 16)
	if i >= parts {
		return c, model.Errorf(model.CodeExhausted, "remove a node, or take up a lab with more --nodes or a larger --cluster-cidr",
			"cluster CIDR %s is divided into %d parts, and has none for one more node", c, parts)
	}
	if parts > n {
		i = (i + 1) % parts
	}
	whole := c.Addr().BitLen()
	sum := new(big.Int).SetBytes(c.Addr().AsSlice())
	sum.Add(sum, new(big.Int).Lsh(big.NewInt(int64(i)), uint(whole-bits)))
	a, _ := netip.AddrFromSlice(sum.FillBytes(make([]byte, whole/8)))
	return netip.PrefixFrom(a, bits), nil
}

// Has reports whether the layout has a node.
func (l Layout) Has(name string) bool {
	return slices.ContainsFunc(l.Nodes, func(n Node) bool { return n.Name == name })
}

// Find returns the node with a name, or a node without addresses.
func (l Layout) Find(name string) Node {
	for _, n := range l.Nodes {
		if n.Name == name {
			return n
		}
	}
	return Node{Name: name, Addrs: [][]netip.Prefix{nil}}
}

// AllAddrs returns the node's addresses on all wires, beginning with those on the first, which peers use.
func (n Node) AllAddrs() []netip.Addr {
	var out []netip.Addr
	for w := range n.Addrs {
		out = append(out, n.AddrsOn(w)...)
	}
	return out
}

// AddrsOn returns the node's addresses on a wire.
func (n Node) AddrsOn(wire int) []netip.Addr {
	var out []netip.Addr
	for _, p := range n.Addrs[wire] {
		out = append(out, p.Addr())
	}
	return out
}
