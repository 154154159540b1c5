// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/policy/hostendpoint"
)

// HostPacket is the first packet of a connection at this node, or the first answer.
type HostPacket struct {
	// In and Out are the interfaces where it comes in and leaves; empty: a process of the node has sent it, or receives it.
	In, Out string
	Flow    Flow
	// Translated is what becomes of it by DNAT; zero: the same.
	Translated Flow
	// Reply: the packet answers Flow reversed, which came the other way. Only where connections are not tracked do policies
	// decide about answers.
	Reply bool
}

// SelectsHosts reports whether a policy selects a host endpoint, of any node.
func (f CalicoFacts) SelectsHosts(key model.PolicyKey) bool {
	f.index.update()
	p := f.index.cluster.policies[key]
	return p != nil && key.Kind == model.KindGlobalNetworkPolicy && p.subject.endpoints != nil &&
		slices.ContainsFunc(f.index.cluster.hosts, func(h model.HostEndpoint) bool { return p.subject.endpoints.Matches(hostView(h)) })
}

// DecideAtHosts reports whether this node's host endpoints decide about packets.
func (f CalicoFacts) DecideAtHosts() bool {
	f.index.update()
	return len(f.index.hosts.used) > 0
}

// AtHost returns what the policies of this node's host endpoints decide about a packet, in their order, until one denies it.
func (f CalicoFacts) AtHost(p HostPacket) []Side {
	f.index.update()
	return f.index.hosts.decide(f.index.explainer.walker(), p)
}

// Through returns what this node's host endpoints decide about a flow, as far as its addresses tell by which interfaces
// it passes; otherwise why not.
func (f CalicoFacts) Through(flow Flow) (sides []Side, unknown string) {
	f.index.update()
	if !f.index.hosts.any() {
		return nil, ""
	}
	return f.index.explainer.hostPath(f.index.node, flow).decide()
}

// hostDecider decides about one packet at the interfaces of a node.
type hostDecider struct {
	*hosts
	walker *walker
	// scratch is the table where chains of another node are compiled; nil: the node is this one, whose table has them.
	scratch *table
	sides   []Side
}

func (h *hosts) decide(w *walker, p HostPacket) []Side {
	d := hostDecider{hosts: h, walker: w}
	d.decide(p)
	return d.sides
}

func (d *hostDecider) decide(p HostPacket) {
	if !p.Reply || d.untracked(p) {
		d.packet(p)
		return
	}
	if p.In != "" {
		d.at(p.In, stageUntracked, ingress, p.Flow)
	} else if p.Out != "" {
		d.at(p.Out, stageUntracked, egress, p.Flow)
	}
}

// untracked reports whether the packet that an answer belongs to was not tracked: then the answer is a new connection.
func (d *hostDecider) untracked(reply HostPacket) bool {
	f := reply.Flow
	f.Src, f.Dst, f.SrcPort, f.DstPort = f.Dst, f.Src, f.DstPort, f.SrcPort
	there := hostDecider{hosts: d.hosts, walker: d.walker, scratch: d.scratch}
	if reply.Out != "" {
		return there.at(reply.Out, stageUntracked, ingress, f) == verdictAccept
	}
	return reply.In != "" && there.at(reply.In, stageUntracked, egress, f) == verdictAccept
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
				Direction: ingress.String(), Local: d.scratch == nil, Rule: -1, Interface: p.In,
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
		Direction: dir.String(), HostEndpoint: p.Name, Interface: p.Interface, Local: d.scratch == nil, Allowed: true,
		Rule: -1, Selected: d.cluster.hostCombination(p.HostEndpoint, s, dir).selected(),
	}
	c := d.hostChain(p, s, dir, acceptAt(s))
	if c == nil {
		if s == stageLocal {
			d.sides = append(d.sides, side)
		}
		return ""
	}
	side.BySourcePort = slices.ContainsFunc(side.Selected, func(k model.PolicyKey) bool {
		return d.cluster.policies[k].bySourcePort(dir)
	})
	t := d.scratch
	if t == nil {
		t = d.tables.at(EnforcementPoint{})
	} else {
		t.useChain(c)
		defer t.dropChain(c.name)
	}
	found := d.walker.walk(t, c.name, f, dir)
	side.setDecision(found)
	if found.rule.from == (model.PolicyKey{}) && found.verdict == verdictAccept && s != stageLocal {
		return "" // a port that stays open: later stages say the same
	}
	if found.verdict != "" || s == stageLocal || s == stageForward {
		d.sides = append(d.sides, side)
	}
	return found.verdict
}
