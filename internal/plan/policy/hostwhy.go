// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/policy/hostendpoint"
)

// HostPacket is the first packet of a connection at this node.
type HostPacket struct {
	// In and Out are the interfaces where it comes in and leaves; empty: a process of the node has sent it, or receives it.
	In, Out string
	Flow    Flow
	// Translated is what becomes of it by DNAT; zero: the same.
	Translated Flow
}

// SelectsHosts reports whether a policy selects a host endpoint, of any node.
func (f CalicoFacts) SelectsHosts(key model.PolicyKey) bool {
	f.index.update()
	p := f.index.cluster.policies[key]
	return p != nil && key.Kind == model.KindGlobalNetworkPolicy && p.subject.endpoints != nil &&
		slices.ContainsFunc(f.index.cluster.hosts, func(h model.HostEndpoint) bool { return p.subject.endpoints.Matches(hostView(h)) })
}

// AtHost returns what the policies of this node's host endpoints decide about a packet, in their order, until one denies it.
func (f CalicoFacts) AtHost(p HostPacket) []Side {
	f.index.update()
	return f.index.hosts.decide(f.index.explainer.walker(), p)
}

// hostDecider decides about one packet.
type hostDecider struct {
	*hosts
	walker *walker
	sides  []Side
}

func (h *hosts) decide(w *walker, p HostPacket) []Side {
	d := hostDecider{hosts: h, walker: w}
	d.packet(p)
	return d.sides
}

func (d *hostDecider) packet(p HostPacket) {
	final := p.Translated
	if !final.Src.IsValid() {
		final = p.Flow
	}
	if p.In == "" {
		if p.Out != "" && d.at(p.Out, stageUntracked, egress, p.Flow) == "" && !slices.Contains(d.links, p.Out) {
			d.at(p.Out, stageLocal, egress, final)
		}
		return
	}
	decided := d.at(p.In, stageUntracked, ingress, p.Flow)
	if decided == verdictAccept {
		final = p.Flow // not tracked, and not translated
	} else if decided == "" {
		decided = d.at(p.In, stagePreDNAT, ingress, p.Flow)
	}
	switch {
	case decided == verdictDrop:
	case p.Out != "":
		if decided == verdictAccept || d.at(p.In, stageForward, ingress, final) != verdictDrop {
			d.at(p.Out, stageForward, egress, final)
		}
	case decided == verdictAccept:
	case slices.Contains(d.links, p.In):
		if d.effective.EndpointToHost == model.EndpointToHostDrop {
			d.sides = append(d.sides, Side{
				Direction: ingress.String(), Local: true, Rule: -1, Interface: p.In,
				Decided: []model.PolicyKey{{Kind: model.KindFelixConfiguration, Name: endpointToHostName}},
			})
		}
	default:
		d.at(p.In, stageLocal, ingress, final)
	}
}

// placedAt returns the host endpoint of an interface.
func (h *hosts) placedAt(link string) (hostendpoint.Placed, bool) {
	for _, p := range h.placed { // that of all others is the last
		if p.Interface == link || p.Interface == "" {
			return p, true
		}
	}
	return hostendpoint.Placed{}, false
}

// at evaluates the policies of one stage at an interface: accept or drop if one decides, or a port stays open for a process
// of the node.
func (d *hostDecider) at(link string, s stage, dir direction, f Flow) string {
	p, is := d.placedAt(link)
	if !is || s == stageUntracked && p.Interface == "" {
		return ""
	}
	side := Side{
		Direction: dir.String(), HostEndpoint: p.Name, Interface: p.Interface, Local: true, Allowed: true, Rule: -1,
		Selected: d.cluster.hostCombination(p.HostEndpoint, s, dir).selected(),
	}
	c := d.hostChain(p, s, dir, acceptAt(s))
	if c == nil {
		if s == stageLocal {
			d.sides = append(d.sides, side)
		}
		return ""
	}
	found := d.walker.walk(d.tables.at(EnforcementPoint{}), c.name, f, dir)
	side.setDecision(found)
	if found.rule.from == (model.PolicyKey{}) && found.verdict == verdictAccept && s != stageLocal {
		return "" // a port that stays open: later stages say the same
	}
	if found.verdict != "" || s == stageLocal || s == stageForward {
		d.sides = append(d.sides, side)
	}
	return found.verdict
}

// whyHost returns the sides of this node's host endpoints in a connection. By which interface a packet comes or leaves is
// known by the node's own address in it; if no host endpoint has that, by the only one that the node has.
func (x *explainer) whyHost(f Flow) []Side {
	own := func(a netip.Addr) bool {
		n := x.cluster.nodes[x.hosts.node]
		return slices.Contains(x.tables.self, a) || n != nil && slices.Contains(n.addrs, a)
	}
	pod := func(a netip.Addr) string {
		for _, e := range x.endpoints.byAddr[a] {
			if e.Network == "" {
				return e.HostLink
			}
		}
		return ""
	}
	uplink := func(a netip.Addr) (string, bool) {
		for _, p := range x.hosts.placed {
			if slices.Contains(p.Addrs, a) {
				return p.Interface, true
			}
		}
		for _, i := range x.hosts.interfaces {
			if slices.Contains(i.Addrs, a) {
				return i.Name, true
			}
		}
		if len(x.hosts.placed) == 1 {
			return x.hosts.placed[0].Interface, true
		}
		return "", false
	}
	p := HostPacket{Flow: f}
	var known bool
	switch in, out := pod(f.Src), pod(f.Dst); {
	case len(x.hosts.used) == 0, own(f.Src) && own(f.Dst), in == "" && out == "" && !own(f.Src) && !own(f.Dst):
		return nil // of others, or by the loopback
	case own(f.Src):
		p.Out = out
		if known = out != ""; !known {
			p.Out, known = uplink(f.Src)
		}
	case own(f.Dst):
		p.In = in
		if known = in != ""; !known {
			p.In, known = uplink(f.Dst)
		}
	default:
		p.In, p.Out, known = in, out, true
		if in == "" {
			p.In, known = uplink(netip.Addr{})
		} else if out == "" {
			p.Out, known = uplink(netip.Addr{})
		}
	}
	if !known {
		return nil
	}
	if p.In == "" && !own(f.Src) {
		p.In = anyInterface
	}
	if p.Out == "" && !own(f.Dst) {
		p.Out = anyInterface
	}
	return x.hosts.decide(x.walker(), p)
}

// anyInterface stands for an interface without a host endpoint of its own. No interface has the name.
const anyInterface = "*"
