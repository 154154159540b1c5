// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"math/big"
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// What a lab may be.
const (
	MaxNodes = 200 // so that a wire's /24 numbers them
	MaxWires = 8
)

// Spec is what a lab is asked to be.
type Spec struct {
	Name         string         `json:"name"`
	Nodes        int            `json:"nodes"`
	Wires        int            `json:"wires"`
	ClusterCIDRs []netip.Prefix `json:"clusterCIDRs"` // at most one a family
	// Encapsulation is the agents' back end: host-gw, which it also is when empty, vxlan, udp, ipip or wireguard, or one
	// of an agent that somebody has added it to, DOMAIN/NAME.
	Encapsulation string `json:"encapsulation,omitempty"`
	// Design is how pods are joined to their node: routed, which it also is when empty, or bridge.
	Design string `json:"design,omitempty"`
	// Addresses is what pods are numbered from: podCIDRs, a prefix a node, which it also is when empty, or pools, blocks
	// of the whole ClusterCIDRs.
	Addresses string `json:"addresses,omitempty"`
}

// pools tells whether pods are numbered from blocks.
func (s Spec) pools() bool { return s.Addresses == "pools" }

// wireMTU is that of the wires, in bytes.
const wireMTU = 1500

// podMTU is what fits through the tunnels, in bytes; 0: there are none.
func (s Spec) podMTU() int {
	family := 4
	if slices.ContainsFunc(s.ClusterCIDRs, func(p netip.Prefix) bool { return p.Addr().Is6() }) {
		family = 6
	}
	if overhead := mesh.Overhead(s.Encapsulation, family); overhead > 0 {
		return wireMTU - overhead
	}
	return 0
}

// Layout is a lab with everything numbered: a pure function of the spec.
type Layout struct {
	Spec  Spec   `json:"spec"`
	Wires []Wire `json:"wires"`
	Nodes []Node `json:"nodes"`
}

// Wire is an Ethernet segment that every node is on.
type Wire struct {
	Name     string         `json:"name"`
	Prefixes []netip.Prefix `json:"prefixes"`
}

// Node is a machine of the lab.
type Node struct {
	Name string `json:"name"`
	// Addrs are the node's addresses on each wire (eth0, eth1, …), IPv4 then IPv6.
	Addrs    [][]netip.Prefix `json:"addrs"`
	PodCIDRs []netip.Prefix   `json:"podCIDRs"`
}

// wiresRange is where the wires are numbered from; the cluster must stay out of it.
func wiresRange() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("172.18.0.0/16"), netip.MustParsePrefix("fd18::/32")}
}

// Lay numbers the lab, or says which field of the spec makes no sense.
func (s Spec) Lay() (Layout, error) {
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
		n := Node{Name: fmt.Sprintf("node%d", i+1)}
		for _, w := range l.Wires {
			n.Addrs = append(n.Addrs, []netip.Prefix{host(w.Prefixes[0], i+1), host(w.Prefixes[1], i+1)})
		}
		for _, c := range s.ClusterCIDRs {
			if s.pools() {
				break
			}
			p, err := cut(c, i, s.Nodes)
			if err != nil {
				return Layout{}, err
			}
			n.PodCIDRs = append(n.PodCIDRs, p)
		}
		l.Nodes = append(l.Nodes, n)
	}
	return l, nil
}

func (s Spec) check() error {
	if err := model.CheckName("name of the lab", s.Name); err != nil {
		return err
	}
	if s.Nodes < 1 || s.Nodes > MaxNodes {
		return fault("choose 1 to %d", "number of nodes %d cannot be", MaxNodes, s.Nodes)
	}
	if s.Wires < 1 || s.Wires > MaxWires {
		return fault("choose 1 to %d", "number of wires %d cannot be", MaxWires, s.Wires)
	}
	if !slices.Contains([]string{"", "host-gw", "vxlan", "udp", "ipip", "wireguard"}, s.Encapsulation) &&
		!model.OwnBackend(s.Encapsulation) {
		return model.Faultf(
			model.CodeInvalidConf,
			"host-gw, vxlan, udp, ipip or wireguard; with --agent also DOMAIN/NAME, a back end of your own",
			"encapsulation %q is not known", s.Encapsulation,
		)
	}
	switch {
	case !slices.Contains([]string{"", "routed", "bridge"}, s.Design):
		return model.Faultf(model.CodeInvalidConf, "routed or bridge", "design %q is not known", s.Design)
	case !slices.Contains([]string{"", "podCIDRs", "pools"}, s.Addresses):
		return model.Faultf(model.CodeInvalidConf, "podCIDRs or pools", "addresses %q are not known", s.Addresses)
	case s.Encapsulation == "ipip" && s.has(6):
		return model.Faultf(model.CodeInvalidConf, "choose IPv4 alone, for example --cluster-cidr 10.42.0.0/16",
			"encapsulation ipip carries IPv4 only, and the cluster CIDR has IPv6")
	case s.pools() && s.Design == "bridge":
		return model.Faultf(model.CodeInvalidConf, "a bridge's pods are of one prefix a node",
			"addresses from pools cannot be with design bridge")
	}
	if len(s.ClusterCIDRs) == 0 {
		return model.Faultf(model.CodeInvalidConf, "for example 10.42.0.0/16,fd42::/48", "cluster CIDR is empty")
	}
	for i, c := range s.ClusterCIDRs {
		if c != c.Masked() {
			return model.Faultf(model.CodeInvalidConf, fmt.Sprintf("write %s", c.Masked()),
				"cluster CIDR %s has bits set behind the prefix length", c)
		}
		for _, d := range s.ClusterCIDRs[:i] {
			if c.Addr().Is4() == d.Addr().Is4() {
				return model.Faultf(model.CodeInvalidConf, "give at most one IPv4 and one IPv6 prefix",
					"cluster CIDRs %s and %s are of one family", d, c)
			}
		}
		for _, w := range wiresRange() {
			if c.Overlaps(w) {
				return model.Faultf(model.CodeInvalidConf, "choose another, for example 10.42.0.0/16,fd42::/48",
					"cluster CIDR %s overlaps %s, which numbers the lab's wires", c, w)
			}
		}
	}
	return nil
}

func fault(hint, msg string, limit, have int) error {
	return model.Faultf(model.CodeInvalidConf, fmt.Sprintf(hint, limit), msg, have)
}

// host is the nth address of the prefix.
func host(p netip.Prefix, n int) netip.Prefix {
	b := p.Addr().AsSlice()
	b[len(b)-1] = byte(n)
	a, _ := netip.AddrFromSlice(b)
	return netip.PrefixFrom(a, p.Bits())
}

// cut is node i's part of a cluster prefix: a /24 or /64 where n of them fit, else an nth part. A /24 counts from 1
// when there is room, so that node1 has 10.42.1.0/24.
func cut(c netip.Prefix, i, n int) (netip.Prefix, error) {
	size, smallest := 24, 29
	if c.Addr().Is6() {
		size, smallest = 64, 125
	}
	need := 0 // bits that tell the nodes apart
	for 1<<need < n {
		need++
	}
	bits := max(size, c.Bits()+need)
	if bits > smallest {
		return c, model.Faultf(model.CodeInvalidConf, fmt.Sprintf("choose a /%d or shorter", smallest-need),
			"cluster CIDR %s is too small for %d nodes", c, n)
	}
	if 1<<min(bits-c.Bits(), 16) > n {
		i++
	}
	whole := c.Addr().BitLen()
	sum := new(big.Int).SetBytes(c.Addr().AsSlice())
	sum.Add(sum, new(big.Int).Lsh(big.NewInt(int64(i)), uint(whole-bits)))
	a, _ := netip.AddrFromSlice(sum.FillBytes(make([]byte, whole/8)))
	return netip.PrefixFrom(a, bits), nil
}
