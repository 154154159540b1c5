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

// Input is what is known of a cluster.
type Input struct {
	// Network is the network whose addresses connect: empty for the cluster's, else "namespace/name". On a further network
	// only MultiNetworkPolicies that name it apply, and the pods are those to which an endpoint has an address there.
	Network    string
	Endpoints  []model.WorkloadEndpoint
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
	network  string
}

// node is the name of the node at which the index enforces all policies.
const node = "node"

// New computes the groups.
func New(in Input) *Reach {
	in.Policies = slices.DeleteFunc(slices.Clone(in.Policies), func(p model.Policy) bool {
		return (p.Kind == model.KindMultiNetworkPolicy) != (in.Network != "") || in.Network != "" && !slices.Contains(p.Networks, in.Network)
	})
	if in.Network != "" {
		in.Pods = podsOn(in.Network, in.Pods, in.Endpoints)
	}
	s := newSelectors(in)
	r := &Reach{
		Groups: newGroups(in, s), index: policy.New(policy.Config{Node: node}), policies: in.Policies,
		known: map[[2]*Group]Connection{}, slices: in.Slices, network: in.Network,
	}
	r.Groups = append(r.Groups, &Group{Outside: true, addrs: outside(s.blocks, in.Pods)})
	for _, n := range in.Namespaces {
		r.index.SetNamespace(n)
	}
	for _, p := range in.Policies {
		r.index.SetPolicy(p)
	}
	in.fill(r.index.Calico())
	for i, g := range r.Groups {
		for j, p := range g.examples {
			r.add(p, fmt.Sprintf("link%d-%d", i, j))
		}
	}
	r.subjects = make([]map[*Group]bool, len(in.Policies))
	for i, p := range in.Policies {
		r.subjects[i] = map[*Group]bool{}
		one := selectors{pods: []model.PodPeer{p.Subject}, namespaces: s.namespaces, accounts: s.accounts}
		for _, g := range r.Groups {
			if !g.Outside && one.matching(g.examples[0]) != "" {
				r.subjects[i][g] = true
			}
		}
	}
	return r
}

// podsOn returns the pods that have addresses on a further network, with these. A published endpoint with another UID is
// of an earlier pod of that name.
func podsOn(network string, pods []model.Pod, endpoints []model.WorkloadEndpoint) (out []model.Pod) {
	addrs := map[[2]string][]model.WorkloadEndpoint{}
	for _, e := range endpoints {
		if e.Network == network && !e.Standby {
			of := [2]string{e.Pod.Namespace, e.Pod.Name}
			addrs[of] = append(addrs[of], e)
		}
	}
	for _, p := range pods {
		p.IPs = nil
		for _, e := range addrs[[2]string{p.Namespace, p.Name}] {
			if e.Pod.UID == "" || p.UID == "" || e.Pod.UID == p.UID {
				p.IPs = append(p.IPs, e.Addrs...)
			}
		}
		if len(p.IPs) > 0 {
			out = append(out, p)
		}
	}
	return out
}

// add lets the index enforce policies at a pod, which has its addresses on the network.
func (r *Reach) add(p model.Pod, link string) {
	addrs := oneOfEach(p.IPs)
	p.Node = node
	if r.network != "" {
		p.IPs = nil // those of the status are of the cluster's network
	}
	r.index.SetPod(p)
	r.index.SetEndpoint(model.WorkloadEndpoint{
		Pod: model.PodRef{Namespace: p.Namespace, Name: p.Name, UID: p.UID}, Node: node, Network: r.network, IfName: "eth0", HostLink: link,
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
	src, dst := from.end(0), to.end(0)
	if from == to {
		dst = to.end(1)
	}
	var pair policy.Flow
	for _, a := range src.addrs {
		i := slices.IndexFunc(dst.addrs, func(b netip.Addr) bool { return a.Is4() == b.Is4() })
		if i >= 0 && !(from.Outside && to.Outside) {
			pair, ok = policy.Flow{Src: a, Dst: dst.addrs[i]}, true
			break
		}
	}
	if !ok {
		return Connection{}, false
	}
	if c, known := r.known[[2]*Group{from, to}]; known {
		return c, true
	}
	q := policy.Query{Network: r.network, From: policy.ConnectionEnd{Pod: src.pod, Addr: pair.Src}, To: policy.ConnectionEnd{Pod: dst.pod, Addr: pair.Dst}}
	c = r.connection(q, r.segments(from, to))
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
func (r *Reach) connection(q policy.Query, all []segment) Connection {
	var allowed []segment
	denied := 0
	for _, s := range all {
		q.Protocol, q.Port = s.protocol, s.first
		if !r.allows(q) {
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

// allows reports whether the policies of both ends allow a connection between the addresses of q.
func (r *Reach) allows(q policy.Query) bool {
	if r.network == "" {
		f := policy.Flow{Src: q.From.Addr, Dst: q.To.Addr, Protocol: q.Protocol, DstPort: q.Port}
		return !slices.ContainsFunc(r.index.Decide("", f), func(s policy.Side) bool { return !s.Allowed })
	}
	answers, err := r.index.Why(q) // by pods: those of several nodes may have the same address on a further network
	i := slices.IndexFunc(answers, func(a policy.Answer) bool { return a.Flow.Src == q.From.Addr && a.Flow.Dst == q.To.Addr })
	return err == nil && i >= 0 && answers[i].Allowed // the index knows all examples
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
