// SPDX-License-Identifier: Apache-2.0

// Package reach computes which pods of a cluster policies allow to connect to which, and at which ports. Pods between
// which no policy distinguishes are one group, so that thousands of pods are few questions; each is answered by the index
// that agents compile their rules with, for one pod of the group. Whether the network leads there is not considered.
package reach

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/policy"
)

// Input is what is known of a cluster. Policies of further networks are not considered.
type Input struct {
	Policies   []model.Policy
	Pods       []model.Pod
	Namespaces []model.Namespace
	// Tiers, Sets, Accounts and Slices are what only Calico's policies use.
	Tiers    []model.Tier
	Sets     []model.NetworkSet
	Accounts []model.ServiceAccount
	Slices   []model.EndpointSlice
}

// Verdict is whether policies allow connections from a group to another.
type Verdict string

// The verdicts.
const (
	All  Verdict = "all"
	Some Verdict = "some" // at the ports of a Connection
	None Verdict = "none"
)

// Connection is what policies allow from a group to another.
type Connection struct {
	Verdict Verdict
	// Ports are the allowed ports, if they are some. Other protocols are named without a port.
	Ports []string
}

// Reach answers which groups may connect. It is not safe for concurrent use.
type Reach struct {
	Groups []*Group
	index  *policy.Index
	// egress and ingress are the policies that affect the direction; ends[policy][group] are selected.
	policies []model.Policy
	subjects []map[*Group]bool
	known    map[[2]*Group]Connection
	slices   []model.EndpointSlice
}

// node is the name of the node at which the index enforces all policies.
const node = "node"

// New computes the groups.
func New(in Input) *Reach {
	in.Policies = slices.DeleteFunc(slices.Clone(in.Policies), func(p model.Policy) bool {
		return p.Kind == model.KindMultiNetworkPolicy
	})
	s := newSelectors(in)
	r := &Reach{
		Groups: newGroups(in, s), index: policy.New(policy.Config{Node: node}), policies: in.Policies,
		known: map[[2]*Group]Connection{}, slices: in.Slices,
	}
	r.Groups = append(r.Groups, &Group{Outside: true, addrs: outside(s.blocks, in.Pods)})
	for _, n := range in.Namespaces {
		r.index.SetNamespace(n)
	}
	for _, p := range in.Policies {
		r.index.SetPolicy(p)
	}
	in.fill(r.index.Calico())
	pods := map[netip.Addr]model.Pod{}
	for _, p := range in.Pods {
		if a := oneOfEach(p.IPs); len(a) > 0 && !p.HostNetwork {
			pods[a[0]] = p
		}
	}
	for i, g := range r.Groups {
		for j, addrs := range [][]netip.Addr{g.addrs, g.other} {
			if p, has := pods[firstOf(addrs)]; has && !g.Outside {
				r.add(p, addrs, fmt.Sprintf("link%d-%d", i, j))
			}
		}
	}
	r.subjects = make([]map[*Group]bool, len(in.Policies))
	for i, p := range in.Policies {
		r.subjects[i] = map[*Group]bool{}
		one := selectors{pods: []model.PodPeer{p.Subject}, namespaces: s.namespaces, accounts: s.accounts}
		for _, g := range r.Groups {
			if !g.Outside && one.matching(pods[firstOf(g.addrs)]) != "" {
				r.subjects[i][g] = true
			}
		}
	}
	return r
}

func firstOf(addrs []netip.Addr) netip.Addr {
	if len(addrs) == 0 {
		return netip.Addr{}
	}
	return addrs[0]
}

// add lets the index enforce policies at a pod.
func (r *Reach) add(p model.Pod, addrs []netip.Addr, link string) {
	p.Node = node
	r.index.SetPod(p)
	r.index.SetEndpoint(model.WorkloadEndpoint{
		Pod: model.PodRef{Namespace: p.Namespace, Name: p.Name, UID: p.UID}, Node: node, IfName: "eth0", HostLink: link,
		Addrs: addrs, HostEnd: model.HostEndRouted,
	})
}

// outside returns an address of each family that is in no block, except those of all addresses.
func outside(blocks []netip.Prefix, pods []model.Pod) (out []netip.Addr) {
	taken := map[netip.Addr]bool{}
	for _, p := range pods {
		for _, a := range p.IPs {
			taken[a] = true
		}
	}
	for _, start := range []string{"192.0.2.1", "2001:db8::1"} { // of documentation: no cluster has them
		a := netip.MustParseAddr(start)
		for range 1 << 12 {
			in := slices.IndexFunc(blocks, func(b netip.Prefix) bool { return b.Bits() > 0 && b.Contains(a) })
			if in < 0 && !taken[a] {
				out = append(out, a)
				break
			}
			if in >= 0 {
				a = last(blocks[in])
			}
			a = a.Next()
		}
	}
	return out
}

// last returns the last address of a block.
func last(b netip.Prefix) netip.Addr {
	bytes := b.Masked().Addr().AsSlice()
	for i := b.Bits(); i < len(bytes)*8; i++ {
		bytes[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(bytes)
	return a
}

// Connection returns what policies allow from a group to another; of a group to itself, between two of its pods. ok is
// false if there are no two ends with addresses of one family.
func (r *Reach) Connection(from, to *Group) (c Connection, ok bool) {
	src, dst := from.addrs, to.addrs
	if from == to {
		dst = to.other
	}
	var pair [2]netip.Addr
	for _, a := range src {
		i := slices.IndexFunc(dst, func(b netip.Addr) bool { return a.Is4() == b.Is4() })
		if i >= 0 && !(from.Outside && to.Outside) {
			pair, ok = [2]netip.Addr{a, dst[i]}, true
			break
		}
	}
	if !ok {
		return Connection{}, false
	}
	if c, known := r.known[[2]*Group{from, to}]; known {
		return c, true
	}
	c = r.connection(pair, r.segments(from, to))
	r.known[[2]*Group{from, to}] = c
	return c, true
}

// segment is a range of ports between which no policy of a pair distinguishes.
type segment struct {
	protocol    model.Protocol
	first, last uint16
}

// segments returns the ranges of all protocols. The first one has none: what has no ports, as ping.
func (r *Reach) segments(from, to *Group) []segment {
	starts := map[model.Protocol][]uint16{}
	begin := func(protocol model.Protocol, first, last uint16) {
		starts[protocol] = append(starts[protocol], first)
		if last < math.MaxUint16 {
			starts[protocol] = append(starts[protocol], last+1)
		}
	}
	for i, p := range r.policies {
		for _, d := range []struct {
			of       *Group
			affected model.PolicyDirection
		}{{from, p.Egress}, {to, p.Ingress}} {
			if !d.affected.On || !r.subjects[i][d.of] {
				continue
			}
			for _, rule := range d.affected.Rules {
				for _, port := range portsOf(rule) {
					if port.Name == "" && port.First > 0 {
						begin(port.Protocol, port.First, max(port.First, port.Last))
					}
				}
			}
		}
	}
	for _, s := range r.slices {
		for _, e := range s.Endpoints {
			if e.Port > 0 {
				begin(e.Protocol, e.Port, e.Port)
			}
		}
	}
	for _, port := range to.ports {
		begin(port.Protocol, port.Number, port.Number)
	}
	out := []segment{{}}
	for _, protocol := range []model.Protocol{model.TCP, model.UDP, model.SCTP} {
		all := append(starts[protocol], 1)
		slices.Sort(all)
		all = slices.Compact(all)
		for i, first := range all {
			end := uint16(math.MaxUint16)
			if i+1 < len(all) {
				end = all[i+1] - 1
			}
			out = append(out, segment{protocol, first, end})
		}
	}
	return out
}

// connection asks the index about each segment.
func (r *Reach) connection(pair [2]netip.Addr, all []segment) Connection {
	var allowed []segment
	denied := 0
	for _, s := range all {
		f := policy.Flow{Src: pair[0], Dst: pair[1], Protocol: s.protocol, DstPort: s.first}
		if slices.ContainsFunc(r.index.Decide("", f), func(s policy.Side) bool { return !s.Allowed }) {
			denied++
			continue
		}
		if n := len(allowed); n > 0 && allowed[n-1].protocol == s.protocol && int(allowed[n-1].last)+1 == int(s.first) {
			allowed[n-1].last = s.last
			continue
		}
		allowed = append(allowed, s)
	}
	switch {
	case denied == 0:
		return Connection{Verdict: All}
	case len(allowed) == 0:
		return Connection{Verdict: None}
	}
	c := Connection{Verdict: Some}
	for _, s := range allowed {
		c.Ports = append(c.Ports, s.String())
	}
	return c
}

// String returns the range as users write it: 80/tcp, 8000-8080/udp, all of sctp.
func (s segment) String() string {
	protocol := strings.ToLower(string(s.protocol))
	switch {
	case s.protocol == "":
		return "protocols without ports"
	case s.first == 1 && s.last == math.MaxUint16:
		return "all of " + protocol
	case s.first == s.last:
		return fmt.Sprintf("%d/%s", s.first, protocol)
	}
	return fmt.Sprintf("%d-%d/%s", s.first, s.last, protocol)
}
