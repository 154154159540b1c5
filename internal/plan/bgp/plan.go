// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// Facts are what a plan is made from.
type Facts struct {
	Self  string
	Nodes []model.Node
	// Pools are the prefixes of the cluster's pools, by name.
	Pools map[string][]netip.Prefix
	// Unexported are the prefixes of pools that are not announced.
	Unexported []netip.Prefix
	// The objects of BGP.
	Configurations []model.BGPConfiguration
	Peers          []model.BGPPeer
	Filters        []model.BGPFilter
	// Passwords are those that the objects refer to.
	Passwords map[model.SecretKey]string
	// Own are this node's prefixes, which are in force: they are announced when packets to them arrive.
	Own []netip.Prefix
	// OnLink are the networks that the node is connected to.
	OnLink []netip.Prefix
	// Services are those whose addresses may be announced one by one.
	Services []model.BGPService
	// Backend: BGP is the backend of the mesh, so the prefixes of other nodes' pods are learned.
	Backend bool
}

// Problem is a contradiction in the objects. What it is about is left out.
type Problem struct {
	Message string `json:"message"`
	Hint    string `json:"hint"`
}

// String returns the message and the hint.
func (p Problem) String() string { return p.Message + " (" + p.Hint + ")" }

// planner is one plan.
type planner struct {
	Facts
	self     model.Node
	cluster  model.BGPConfiguration // "default"
	own      model.BGPConfiguration // of the node
	out      Speaker
	problems []Problem
}

// Plan returns the configuration of a node's speaker; false if the node is not in the cluster.
func Plan(f Facts) (Speaker, []Problem, bool) {
	i := slices.IndexFunc(f.Nodes, func(n model.Node) bool { return n.Name == f.Self })
	if i < 0 {
		return Speaker{}, nil, false
	}
	p := planner{Facts: f, self: f.Nodes[i]}
	for _, c := range f.Configurations {
		switch c.Name {
		case model.BGPDefault:
			p.cluster = c
		case model.BGPOfNode + f.Self:
			p.own = c
		}
	}
	p.out = Speaker{
		ASN: p.asn(p.self), RouterID: RouterID(p.self),
		Port:        cmp.Or(p.own.ListenPort, p.cluster.ListenPort, DefaultPort),
		RestartTime: DefaultRestartTime,
	}
	if p.cluster.BindNodeIP {
		p.out.Listen = slices.Clone(p.self.Addrs)
	}
	p.sameRouterIDs()
	p.sessions()
	p.announce()
	p.refuse()
	return p.out, p.problems, true
}

func (p *planner) problem(hint, format string, args ...any) {
	p.problems = append(p.problems, Problem{fmt.Sprintf(format, args...), hint})
}

// asn returns a node's AS number.
func (p *planner) asn(n model.Node) uint32 {
	if n.BGP != nil && n.BGP.ASN != 0 {
		return n.BGP.ASN
	}
	return cmp.Or(p.cluster.ASN, DefaultASN)
}

// RouterID returns a node's router ID: its IPv4 address, or a hash of its name.
func RouterID(n model.Node) netip.Addr {
	for _, a := range n.Addrs {
		if a.Is4() {
			return a
		}
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(n.Name))
	v := h.Sum32()&0x00ffffff | 1 // below 224.0.0.0
	return netip.AddrFrom4([4]byte{byte(0x0a), byte(v >> 16), byte(v >> 8), byte(v)})
}

// sameRouterIDs reports nodes that would have this node's router ID: a session between them is refused by both.
func (p *planner) sameRouterIDs() {
	for _, n := range p.Nodes {
		if n.Name != p.self.Name && RouterID(n) == p.out.RouterID {
			p.problem("correct the address in one of the Node objects, or rename one", "nodes %s and %s have the router ID %s",
				p.self.Name, n.Name, p.out.RouterID)
		}
	}
}

func clusterID(n model.Node) netip.Addr {
	if n.BGP == nil {
		return netip.Addr{}
	}
	return n.BGP.ClusterID
}

// meshed reports whether nodes have sessions with each other.
func (p *planner) meshed() bool {
	if p.cluster.Name == "" {
		return p.Backend // no object asks for it
	}
	return p.cluster.Mesh == nil || *p.cluster.Mesh
}

// sessions plans the node's sessions.
func (p *planner) sessions() {
	if p.meshed() && !clusterID(p.self).IsValid() {
		for _, n := range p.Nodes {
			if n.Name != p.self.Name && !clusterID(n).IsValid() {
				p.toNode(n, model.BGPPeer{
					Name: n.Name, NextHop: model.BGPNextHopAuto, Password: p.cluster.MeshPassword, RestartTime: p.cluster.MeshRestartTime,
				})
			}
		}
	}
	for _, o := range p.Peers {
		switch {
		case o.Node != "" && o.Node != p.self.Name, !o.NodeSelector.Empty() && !o.NodeSelector.Matches(p.self.Labels):
			toNodes := !o.Addr.IsValid() && o.Interface == ""
			if toNodes && !o.OneSided && o.PeerSelector.Matches(p.self.Labels) { // the other ends have this one, too
				p.reverse(o)
			}
		case o.Addr.IsValid():
			p.toAddr(o)
		case o.Interface != "":
			p.add(o, Peer{Interface: o.Interface, ASN: o.ASN})
		default:
			for _, n := range p.Nodes {
				if n.Name != p.self.Name && o.PeerSelector.Matches(n.Labels) {
					p.toNode(n, o)
				}
			}
			if !o.OneSided && o.PeerSelector.Matches(p.self.Labels) {
				p.reverse(o)
			}
		}
	}
	slices.SortFunc(p.out.Peers, func(a, b Peer) int {
		return cmp.Or(a.Addr.Compare(b.Addr), strings.Compare(a.Interface, b.Interface))
	})
}

// reverse plans the sessions of an object with the nodes that it is for.
func (p *planner) reverse(o model.BGPPeer) {
	for _, n := range p.Nodes {
		if n.Name != p.self.Name && (o.Node == "" || o.Node == n.Name) &&
			(o.NodeSelector.Empty() || o.NodeSelector.Matches(n.Labels)) {
			p.toNode(n, o)
		}
	}
}

// toAddr plans the session with an address.
func (p *planner) toAddr(o model.BGPPeer) {
	if slices.Contains(p.self.Addrs, o.Addr) {
		p.problem("set spec.node or spec.nodeSelector to the other nodes", "BGPPeer %s: %s is an address of node %s itself",
			o.Name, o.Addr, p.self.Name)
		return
	}
	p.add(o, Peer{Addr: o.Addr, Port: o.Port, ASN: o.ASN})
}

// toNode plans the sessions with another node, one for each family.
func (p *planner) toNode(n model.Node, o model.BGPPeer) {
	for _, six := range []bool{false, true} {
		far, ok := addrOf(n, six)
		if !ok {
			continue
		}
		own, ok := addrOf(p.self, six)
		if !ok {
			continue
		}
		s := Peer{Addr: far, ASN: p.asn(n), Port: p.portOf(n), Node: true, Passive: own.Compare(far) > 0}
		mine, theirs := clusterID(p.self), clusterID(n)
		if mine.IsValid() && mine != theirs && s.ASN == p.out.ASN {
			s.Client, s.ClusterID = true, mine
		}
		p.add(o, s)
	}
}

func (p *planner) portOf(n model.Node) int {
	for _, c := range p.Configurations {
		if c.Name == model.BGPOfNode+n.Name && c.ListenPort != 0 {
			return c.ListenPort
		}
	}
	return p.cluster.ListenPort
}

func addrOf(n model.Node, six bool) (netip.Addr, bool) {
	i := slices.IndexFunc(n.Addrs, func(a netip.Addr) bool { return a.Is6() == six })
	if i < 0 {
		return netip.Addr{}, false
	}
	return n.Addrs[i], true
}

// add adds a session with an object's settings, unless there is one with the address, or over the interface.
func (p *planner) add(o model.BGPPeer, s Peer) {
	s.Name, s.LocalASN, s.TTLSecurity, s.AllowOwnAS = o.Name, o.LocalASN, o.TTLSecurity, o.AllowOwnAS
	s.RestartTime, s.Keepalive = cmp.Or(o.RestartTime, DefaultRestartTime), o.KeepaliveTime
	s.NextHopSelf, s.NextHopKeep = o.NextHop == model.BGPNextHopSelf, o.NextHop == model.BGPNextHopKeep
	p.out.RestartTime = max(p.out.RestartTime, s.RestartTime)
	if i := slices.IndexFunc(p.out.Peers, func(e Peer) bool { return e.Where() == s.Where() }); i >= 0 {
		if e := p.out.Peers[i]; e.ASN != s.ASN {
			p.problem("delete one of them", "BGPPeers %s and %s: %s cannot be in AS %d and in AS %d", e.Name, s.Name, s.Where(), e.ASN, s.ASN)
		}
		return
	}
	if !o.AnySource && s.Interface == "" && !s.Addr.IsLinkLocalUnicast() {
		s.Source, _ = addrOf(p.self, s.Addr.Is6())
	}
	if o.Password != (model.SecretKey{}) {
		var ok bool
		if s.Password, ok = p.Passwords[o.Password]; !ok {
			p.problem("create the Secret in weft's namespace", "BGPPeer %s: the key %s of Secret %s does not exist, so there is no session",
				o.Name, o.Password.Key, o.Password.Name)
			return
		}
	}
	// Without sessions between nodes, routes to other nodes' pods can only come from others.
	s.Pods = p.Backend && (s.Node || !p.meshed())
	internal := s.Internal(p.out)
	for _, name := range o.Filters {
		i := slices.IndexFunc(p.Filters, func(f model.BGPFilter) bool { return f.Name == name })
		switch {
		case i < 0:
			p.problem("create it, or leave it out", "BGPPeer %s: BGPFilter %s does not exist", o.Name, name)
		case p.Filters[i].Broken:
			p.problem("correct it", "BGPPeer %s: BGPFilter %s is invalid, so no route passes", o.Name, name)
			s.Import, s.Export = append(s.Import, refuseAll()...), append(s.Export, refuseAll()...)
		default:
			s.Import = append(s.Import, rules(p.Filters[i].Import, internal)...)
			s.Export = append(s.Export, rules(p.Filters[i].Export, internal)...)
			s.Default = s.Default || slices.ContainsFunc(p.Filters[i].Import, acceptsDefault)
		}
	}
	p.out.Peers = append(p.out.Peers, s)
}

// acceptsDefault reports whether a rule accepts the default route by its prefix.
func acceptsDefault(r model.BGPFilterRule) bool {
	return r.Accept && r.Match == "Equal" && r.CIDR.Bits() == 0
}

// announce plans the node's own prefixes and those of Services.
func (p *planner) announce() {
	for _, own := range p.Own {
		p.announced(own)
	}
	if _, excluded := p.self.Labels["node.kubernetes.io/exclude-from-external-load-balancers"]; !excluded {
		ranges := slices.Concat(p.cluster.ServiceClusterIPs, p.cluster.ServiceExternalIPs)
		for _, r := range p.cluster.ServiceLoadBalancerIPs {
			if !p.cluster.NoAggregation && !r.IsSingleIP() {
				ranges = append(ranges, r)
			}
		}
		for _, r := range slices.Concat(ranges, p.serviceAddresses()) {
			if pool := p.poolOf(r, ""); pool != "" {
				p.problem("assign Services and pods ranges of their own", "BGPConfiguration %s: range %s of Services overlaps pool %s",
					p.cluster.Name, r, pool)
				continue
			}
			p.announced(r)
		}
	}
	slices.SortFunc(p.out.Announced, func(a, b Announced) int { return comparePrefix(a.Prefix, b.Prefix) })
	p.out.Announced = slices.CompactFunc(p.out.Announced, func(a, b Announced) bool { return a.Prefix == b.Prefix })
	for _, name := range slices.Sorted(maps.Keys(p.Pools)) { // both would be routed by whichever router learns them
		for _, r := range p.Pools[name] {
			if other := p.poolOf(r, name); other > name {
				p.problem("change the range of one of them", "pools %s and %s overlap: their blocks may be announced by two nodes",
					name, other)
			}
		}
	}
}

// serviceAddresses returns the addresses of Services that are announced by themselves: with externalTrafficPolicy Local
// those within the announced ranges, if an endpoint is on this node; with Cluster those of load balancers of which no range
// is announced.
func (p *planner) serviceAddresses() (out []netip.Prefix) {
	for _, s := range p.Services {
		if s.Local && !s.Here {
			continue
		}
		add := func(addrs []netip.Addr, ranges []netip.Prefix, single func(netip.Prefix) bool) {
			for _, a := range addrs {
				if slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(a) && (s.Local || single(r)) }) {
					out = append(out, netip.PrefixFrom(a, a.BitLen()))
				}
			}
		}
		never := func(netip.Prefix) bool { return false }
		add(s.ClusterIPs, p.cluster.ServiceClusterIPs, never)
		add(s.ExternalIPs, p.cluster.ServiceExternalIPs, never)
		add(s.LoadBalancerIPs, p.cluster.ServiceLoadBalancerIPs,
			func(r netip.Prefix) bool { return p.cluster.NoAggregation || r.IsSingleIP() })
	}
	return out
}

// poolOf returns the first pool but one that overlaps a prefix; empty if none does.
func (p *planner) poolOf(prefix netip.Prefix, but string) string {
	for _, name := range slices.Sorted(maps.Keys(p.Pools)) {
		if name != but && slices.ContainsFunc(p.Pools[name], prefix.Overlaps) {
			return name
		}
	}
	return ""
}

func (p *planner) announced(prefix netip.Prefix) {
	if slices.ContainsFunc(p.Unexported, func(o netip.Prefix) bool { return o.Overlaps(prefix) && o.Bits() <= prefix.Bits() }) {
		return
	}
	a := Announced{Prefix: prefix.Masked()}
	for _, adv := range p.cluster.Advertised {
		if adv.CIDR.Overlaps(prefix) && adv.CIDR.Bits() <= prefix.Bits() {
			a.Communities = append(a.Communities, adv.Communities...)
		}
	}
	for _, adv := range p.own.Advertised {
		if adv.CIDR.Overlaps(prefix) && adv.CIDR.Bits() <= prefix.Bits() {
			a.Communities = append(a.Communities, adv.Communities...)
		}
	}
	slices.Sort(a.Communities)
	a.Communities = slices.Compact(a.Communities)
	p.out.Announced = append(p.out.Announced, a)
}

func comparePrefix(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

// special are prefixes that are never routed to a neighbor.
func special() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"),
		netip.MustParsePrefix("224.0.0.0/3"), netip.MustParsePrefix("::/128"), netip.MustParsePrefix("::1/128"),
		netip.MustParsePrefix("::ffff:0:0/96"), netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("ff00::/8"),
	}
}

// refuse plans what no peer may announce, and what only some may.
func (p *planner) refuse() {
	all := slices.Concat(special(), p.Own, p.OnLink,
		p.cluster.ServiceClusterIPs, p.cluster.ServiceExternalIPs, p.cluster.ServiceLoadBalancerIPs)
	var pods []netip.Prefix
	for _, n := range p.Nodes {
		for _, a := range n.Addrs {
			all = append(all, netip.PrefixFrom(a, a.BitLen()))
		}
		pods = append(pods, n.PodCIDRs...)
	}
	for _, o := range p.Pools {
		pods = append(pods, o...)
	}
	p.out.Refused, p.out.Pods, p.out.Unexported = ranges(all), ranges(pods), ranges(p.Unexported)
}

// ranges returns what is within the prefixes, sorted.
func ranges(all []netip.Prefix) []Range {
	all = slices.Clone(all)
	for i := range all {
		all[i] = all[i].Masked()
	}
	slices.SortFunc(all, comparePrefix)
	var out []Range
	for _, prefix := range slices.Compact(all) {
		if prefix.Bits() > 0 { // a node on a link whose network is everything
			out = append(out, within(prefix))
		}
	}
	return out
}
