// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// conditionWriter writes one rule of Calico's as nft rules: one for each family, and for each combination of what has no
// single match in nft.
type conditionWriter struct {
	*ruleWriter
	in  *model.RuleConditions
	six bool
}

// alternatives are lists of conditions: one of the lists must match, with all of its conditions.
type alternatives [][]condition

// and returns the combinations of both.
func (a alternatives) and(b alternatives) (out alternatives) {
	for _, x := range a {
		for _, y := range b {
			out = append(out, slices.Concat(x, y))
		}
	}
	return out
}

// with adds a condition to each list.
func (a alternatives) with(c condition) alternatives { return a.and(alternatives{{c}}) }

// writeConditions writes one rule of a policy: base has the verdict.
func (w *ruleWriter) writeConditions(base rule, in *model.RuleConditions) {
	families := []bool{false, true}
	if !hasFamily(in) {
		families = families[:1]
	}
	for _, six := range families {
		c := conditionWriter{w, in, six}
		if len(families) > 1 && !c.inFamily() {
			continue
		}
		for _, all := range c.all() {
			r := base
			r.conditions = all
			if len(families) > 1 && !impliesFamily(all) {
				anyOf := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
				if six {
					anyOf = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
				}
				r.conditions = append([]condition{addrCondition{addrMatch: addrMatch{six: six, prefix: anyOf}}}, all...)
			}
			w.out = append(w.out, r)
		}
	}
}

// hasFamily reports whether the rule is not the same for both families.
func hasFamily(in *model.RuleConditions) bool {
	named := func(ports []model.PolicyPort) bool {
		return slices.ContainsFunc(ports, func(p model.PolicyPort) bool { return p.Name != "" })
	}
	for _, e := range []model.EndConditions{in.Source, in.Destination} {
		if len(e.Nets)+len(e.NotNets) > 0 || e.Peer != nil || e.NotPeer != nil || e.Service != nil || named(e.Ports) || named(e.NotPorts) {
			return true
		}
	}
	return in.Family != 0 || in.ICMP != nil || in.NotICMP != nil
}

// impliesFamily reports whether only packets of one family match.
func impliesFamily(all []condition) bool {
	return slices.ContainsFunc(all, func(c condition) bool {
		switch c := c.(type) {
		case addrCondition, icmpCondition:
			return true
		case portCondition:
			return c.set != nil && c.set.hasAddress()
		}
		return false
	})
}

// inFamily reports whether the rule is about the family at all. Nets, or excluded nets, of one family only make it a rule
// for that family, as in Calico.
func (c conditionWriter) inFamily() bool {
	if c.in.Family != 0 && (c.in.Family == 6) != c.six || c.in.Protocol == model.NumberICMP && c.six ||
		c.in.Protocol == model.NumberICMPv6 && !c.six {
		return false
	}
	other := func(nets []netip.Prefix) bool {
		return len(nets) > 0 && !slices.ContainsFunc(nets, func(p netip.Prefix) bool { return p.Addr().Is6() == c.six })
	}
	for _, e := range []model.EndConditions{c.in.Source, c.in.Destination} {
		if other(e.Nets) || other(e.NotNets) {
			return false
		}
	}
	return true
}

// all returns the rule's conditions in one family.
func (c conditionWriter) all() alternatives {
	rest := c.address(ingress, c.in.Source).and(c.address(egress, c.in.Destination)).and(c.icmp()).
		and(c.ports(c.in.Source, true)).and(c.ports(c.in.Destination, false))
	for i, list := range rest {
		implied := slices.ContainsFunc(list, func(o condition) bool {
			if p, is := o.(portCondition); is {
				return p.impliesProtocol() && (p.set == nil || !p.set.hasAddress())
			}
			_, is := o.(icmpCondition)
			return is
		})
		var first []condition
		if c.in.Protocol != 0 && !implied {
			first = append(first, protocolCondition{number: c.in.Protocol})
		}
		if c.in.NotProtocol != 0 {
			first = append(first, protocolCondition{number: c.in.NotProtocol, not: true})
		}
		rest[i] = append(first, list...)
	}
	return rest
}

// address returns the conditions on the address of one end: dir is how a set of it is written.
func (c conditionWriter) address(dir direction, e model.EndConditions) alternatives {
	name := c.blocks + "/" + dir.peer()
	out := alternatives{nil}
	if len(e.Nets) > 0 {
		m, ok := c.ranges(dir, name, blocks(e.Nets))
		if !ok {
			return nil
		}
		out = out.with(addrCondition{addrMatch: m})
	}
	if e.Service != nil {
		out = out.and(c.service(dir, name+"/service", *e.Service))
	}
	if e.Peer != nil {
		out = out.and(c.selected(dir, name+"/nets", *e.Peer))
	}
	if e.NotPeer != nil {
		for _, list := range c.selected(dir, name+"/not-nets", *e.NotPeer) {
			for _, o := range list {
				if m, is := o.(addrCondition); is {
					out = out.except(m.addrMatch)
				}
			}
		}
	}
	if m, ok := c.ranges(dir, name+"/not", blocks(e.NotNets)); ok {
		out = out.except(m)
	}
	return out
}

// except adds that an address does not match. What matches every address leaves nothing.
func (a alternatives) except(m addrMatch) alternatives {
	if m.set == nil && m.prefix.Bits() == 0 {
		return nil
	}
	return a.with(addrCondition{m, true})
}

// selected returns the matches of pods, and of network sets, that a peer selects.
func (c conditionWriter) selected(dir direction, name string, p model.PodPeer) (out alternatives) {
	t := compileTerm(p)
	if t.endpoints == nil || !t.endpoints.Global {
		spec := &groupSpec{networks: c.networks, terms: []term{t}}
		spec.id = groupID(spec, p.String())
		out = alternatives{{addrCondition{addrMatch: addrMatch{dir: dir, six: c.six, set: groupSet(spec, c.six)}}}}
	}
	if m, ok := c.ranges(dir, name, c.nets(t)); ok {
		out = append(out, []condition{addrCondition{addrMatch: m}})
	}
	return out
}

// service returns the match of the endpoints of a Service.
func (c conditionWriter) service(dir direction, name string, s model.ServiceMatch) alternatives {
	var pairs []element
	var addrs []*model.IPBlock
	for _, e := range c.endpoints(s.Namespace, s.Name) {
		if e.addr.Is6() == c.six {
			pairs, addrs = append(pairs, e), append(addrs, &model.IPBlock{CIDR: netip.PrefixFrom(e.addr, e.addr.BitLen())})
		}
	}
	if !s.Ports {
		m, ok := c.ranges(dir, name, addrs)
		if !ok {
			return nil
		}
		return alternatives{{addrCondition{addrMatch: m}}}
	}
	if len(pairs) == 0 {
		return nil
	}
	set := &setSpec{name: "service" + family(c.six) + "/" + name, six: c.six, pairs: pairs}
	return alternatives{{portCondition{portMatch: portMatch{set: set}, source: dir == ingress}}}
}

// ranges returns the match of addresses in the blocks; false: there are none of the family.
func (c conditionWriter) ranges(dir direction, name string, in []*model.IPBlock) (addrMatch, bool) {
	all := rangesOf(in, c.six)
	m := addrMatch{dir: dir, six: c.six}
	if len(all) == 1 {
		if p, ok := all[0].prefix(); ok {
			m.prefix = p
			return m, true
		}
	}
	m.set = &setSpec{name: "block" + family(c.six) + "/" + name, six: c.six, ranges: all}
	return m, len(all) > 0
}

// blocks returns prefixes as blocks without exceptions.
func blocks(in []netip.Prefix) (out []*model.IPBlock) {
	for _, p := range in {
		out = append(out, &model.IPBlock{CIDR: p})
	}
	return out
}

// icmp returns the conditions on the type and the code of ICMP.
func (c conditionWriter) icmp() alternatives {
	out := alternatives{nil}
	if m := c.in.ICMP; m != nil {
		out = out.with(icmpCondition{six: c.six, value: m.Type})
		if m.Code != nil {
			out = out.with(icmpCondition{six: c.six, code: true, value: *m.Code})
		}
	}
	if m := c.in.NotICMP; m != nil {
		not := alternatives{{icmpCondition{six: c.six, value: m.Type, not: true}}}
		if m.Code != nil {
			not = append(not, []condition{
				icmpCondition{six: c.six, value: m.Type}, icmpCondition{six: c.six, code: true, value: *m.Code, not: true},
			})
		}
		out = out.and(not)
	}
	return out
}

// ports returns the conditions on the ports of one end: one of the numbers or names, none of the excluded ones.
func (c conditionWriter) ports(e model.EndConditions, source bool) alternatives {
	out := alternatives{nil}
	if len(e.Ports) > 0 {
		var any alternatives
		for _, m := range c.portMatches(e.Ports, e.Peer, source) {
			any = append(any, []condition{portCondition{m, source, false}})
		}
		out = out.and(any)
	}
	for _, m := range c.portMatches(e.NotPorts, e.Peer, source) {
		out = out.with(portCondition{m, source, true})
	}
	return out
}

// portMatches returns a match for all numbers, and one for each name, which each pod that the peer selects resolves to its
// own number; without a peer all pods do. That the address is in a network set does not give it a port of that name.
func (c conditionWriter) portMatches(in []model.PolicyPort, peer *model.PodPeer, source bool) (out []portMatch) {
	switch all := numbers(in); len(all) {
	case 0:
	case 1:
		out = append(out, portMatch{one: all[0]})
	default:
		out = append(out, portMatch{set: portsSet(all)})
	}
	for _, name := range names(in) {
		local := !c.forwards && (c.dir == ingress && !source || c.dir == egress && source)
		spec := &groupSpec{networks: c.networks, port: &name, any: peer == nil, local: local}
		selected := ""
		if peer != nil {
			spec.terms, selected = []term{compileTerm(*peer)}, peer.String()
		}
		spec.id = groupID(spec, selected)
		out = append(out, portMatch{set: groupSet(spec, c.six)})
		if at := c.hostPorts(name, peer); len(at) > 0 {
			out = append(out, portMatch{set: &setSpec{name: "hosts" + family(c.six) + "/" + spec.id[len("named/"):], six: c.six, pairs: at}})
		}
	}
	return out
}

// hostPorts returns the ports of that name of host endpoints that the peer selects; nil selects all.
func (c conditionWriter) hostPorts(name portName, peer *model.PodPeer) (out []element) {
	for _, h := range c.hosts {
		if peer != nil && (peer.Namespace != "" || !peer.Endpoints.Matches(hostView(h))) {
			continue
		}
		for _, p := range h.Ports {
			for _, a := range h.Addrs {
				if e := (element{a, p.Protocol, p.Number}); name.is(p) && a.Is6() == c.six && !slices.Contains(out, e) {
					out = append(out, e)
				}
			}
		}
	}
	slices.SortFunc(out, element.compare)
	return out
}

// logText is the text of a rule that logs a packet, and continues.
func logText(p *model.Policy, number, group int) string {
	prefix := truncate("log:"+string(p.Kind)+":"+strings.TrimPrefix(p.Namespace+"/"+p.Name, "/"), maxComment-8)
	return fmt.Sprintf("limit rate 10/second log prefix %q group %d snaplen %d", fmt.Sprint(prefix, ":", number), group, headerBytes)
}
