// SPDX-License-Identifier: Apache-2.0

package observer

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/flow"
	"github.com/weft-net/weft/internal/kernel/conntrack"
	"github.com/weft-net/weft/internal/kernel/drops"
	"github.com/weft-net/weft/internal/kernel/nflog"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/policy"
	compiled "github.com/weft-net/weft/internal/plan/policy"
	"github.com/weft-net/weft/internal/state"
)

// errStopped ends streams whose source ended, errSlow those whose reader is too slow.
var (
	errStopped = errors.New("events of connection tracking are not received any more")
	errSlow    = errors.New("stream is not read in time")
)

// names turns events into flows. It is not safe for concurrent use.
type names struct {
	cfg     Config
	nodes   map[netip.Addr]string
	holders *holders
	gone    map[place]flow.Identity // pods of other nodes, as they were seen last
	// conversations are valid for these versions of the records and of policies.
	conversations conversations
	own           identity
	// exports are the agent's connections by which flows are exported, until their ends are reported.
	exports  map[state.Connection]bool
	labels   podLabels
	version  uint64
	policies uint64
	known    bool // the records were read
	why      bool // the rules that decide are wanted
	named    bool // other nodes were known
}

func newNames(cfg Config) *names {
	return &names{cfg: cfg, holders: newHolders(), gone: map[place]flow.Identity{}, conversations: conversations{}, exports: map[state.Connection]bool{}}
}

// setNodes names the addresses of nodes, of which some are this one's.
func (n *names) setNodes(own identity) {
	n.own, n.nodes = own, map[netip.Addr]string{}
	clear(n.conversations)
	if n.cfg.Nodes != nil {
		for _, node := range n.cfg.Nodes() {
			n.named = true
			for _, a := range node.Addrs {
				n.nodes[a] = node.Name
			}
			if node.Published != nil {
				for _, a := range node.Published.Addrs {
					n.nodes[a] = node.Name
				}
			}
		}
	}
	for _, a := range own.addrs {
		n.nodes[a] = n.cfg.Node
	}
}

// setWhy sets whether the rules that decide are wanted.
func (n *names) setWhy(why bool) {
	if n.why != why {
		n.why = why
		clear(n.conversations)
	}
}

// refresh follows changes of policies, of the records and of labels, and returns the latter.
func (n *names) refresh() []flow.Line {
	if n.cfg.Policies != nil {
		if v := n.cfg.Policies.Version(); v != n.policies {
			n.policies = v
			clear(n.conversations)
		}
	}
	relabeled := n.labels.read(n.cfg)
	v := n.cfg.Records.Version()
	if n.known && v == n.version && !relabeled {
		return nil
	}
	records, err := n.cfg.Records.List() // some may be unreadable
	if err != nil {
		n.cfg.Log.Warn("names of some endpoints are not known", "err", err)
	}
	n.version, n.known = v, true
	clear(n.conversations)
	var out []flow.Line
	for _, h := range n.holders.set(n.cfg.Node, records, n.labels, n.cfg.Now()) {
		out = append(out, flow.Line{Holder: &h})
	}
	return out
}

// maxExports is how many of the agent's connections are known until their ends.
const maxExports = 256

// isOwn reports whether an event is about a connection by which flows are exported.
func (n *names) isOwn(e *conntrack.Event) bool {
	switch {
	case n.cfg.Own == nil:
		return false
	case n.exports[e.Connection]:
		if e.Kind == conntrack.End {
			delete(n.exports, e.Connection)
		}
		return true
	case e.Kind == conntrack.End || !e.Src.Addr().IsLoopback() && !slices.Contains(n.own.addrs, e.Src.Addr()),
		!n.cfg.Own(e.Proto, e.Src.Port(), e.Dst):
		return false
	}
	if len(n.exports) >= maxExports {
		clear(n.exports)
	}
	n.exports[e.Connection] = true
	return true
}

// endpoint names an end of a connection; here reports an endpoint of this node, and passing a name that it has only for a
// while.
func (n *names) endpoint(at netip.AddrPort, network string, when moment) (e flow.Endpoint, here, passing bool) {
	e = flow.Endpoint{Addr: at.Addr(), Port: at.Port()}
	if id, ok, passing := n.holders.of(network, at.Addr(), when); ok {
		e.Identity = id
		return e, true, passing
	}
	e.Kind = flow.OutsideEnd
	switch node := n.nodes[at.Addr()]; {
	case node != "":
		e.Kind, e.Name, e.Node = flow.NodeEnd, node, node
	case at.Addr().IsLoopback():
		e.Kind, e.Name, e.Node = flow.NodeEnd, n.cfg.Node, n.cfg.Node
	default:
		if id, ok := n.remote(place{network, at.Addr()}, when); ok {
			e.Identity = id
		}
	}
	return e, false, false
}

// remote returns the pod of another node that has an address, or had it last if a connection began earlier.
func (n *names) remote(at place, when moment) (flow.Identity, bool) {
	if n.cfg.Policies == nil {
		return flow.Identity{}, false
	}
	pod, node, ok := n.cfg.Policies.Holder(at.network, at.addr)
	if !ok || node == n.cfg.Node { // its own endpoints are known by their records
		id, had := n.gone[at]
		return id, had && when.earlier
	}
	id := flow.Identity{Kind: flow.PodEnd, Name: pod.String(), Node: node, Network: at.network}
	if n.gone[at] != id {
		if len(n.gone) >= maxPast {
			clear(n.gone)
		}
		n.gone[at] = id
	}
	return id, true
}

// ends names the ends, and the direction between them.
func (n *names) ends(r *flow.Record, from, to netip.AddrPort, network string, when moment) (passing bool) {
	var fromHere, toHere, fromPassing, toPassing bool
	r.From, fromHere, fromPassing = n.endpoint(from, network, when)
	r.To, toHere, toPassing = n.endpoint(to, network, when)
	switch {
	case fromHere && toHere:
		r.Direction = flow.Local
	case fromHere:
		r.Direction = flow.Egress
	case toHere:
		r.Direction = flow.Ingress
	default:
		r.Direction = flow.Transit
	}
	return fromPassing || toPassing
}

// decide adds what policies decide, and reports whether that depends on the source's port.
func (n *names) decide(r *flow.Record) (byPort bool) {
	if n.cfg.Policies == nil || r.Direction == flow.Transit {
		return false
	}
	network := r.From.Network
	if r.Direction == flow.Ingress {
		network = r.To.Network
	}
	sides, known := n.cfg.Policies.Decide(network, flowOf(r))
	if !known {
		r.Reason = flow.ReasonPoliciesUnknown
	}
	for _, s := range sides {
		r.Decisions = append(r.Decisions, n.decision(s))
		byPort = byPort || s.BySourcePort
		if !s.Allowed {
			r.Verdict = flow.DeniedVerdict
		}
	}
	return byPort
}

// flowOf returns the flow as policies see it.
func flowOf(r *flow.Record) compiled.Flow {
	f := compiled.Flow{Src: r.From.Addr, Dst: r.To.Addr}
	switch r.Protocol {
	case "tcp", "udp", "sctp":
		f.Protocol = model.Protocol(strings.ToUpper(r.Protocol))
		f.SrcPort, f.DstPort = r.From.Port, r.To.Port
	default:
		f.Number = flow.ProtocolNumber(r.Protocol)
	}
	return f
}

func (n *names) decision(s compiled.Side) flow.Decision {
	d := flow.Decision{
		Direction: s.Direction, HostEndpoint: s.HostEndpoint, Allowed: s.Allowed, Policies: s.Decided, Rule: s.Rule,
	}
	if n.why {
		d.Text, d.Chain, d.Set, d.Element = s.Text, s.Chain, s.Set, s.Element
	}
	return d
}

// decideAtHosts adds the host endpoint that denies the flow, if one does; unknown is why that is not known.
func (n *names) decideAtHosts(r *flow.Record) (unknown string) {
	if n.cfg.Policies == nil {
		return ""
	}
	sides, unknown := n.cfg.Policies.DecideAtHosts(flowOf(r))
	for _, s := range sides {
		if !s.Allowed {
			r.Decisions, r.Verdict = append(r.Decisions, n.decision(s)), flow.DeniedVerdict
		}
	}
	return unknown
}

// dropped returns the flow of a packet that the kernel has dropped; false if it is another host's.
func (n *names) dropped(d drops.Drop) (r flow.Record, ok bool) {
	p, ok := nflog.ParsePacket(d.Packet)
	if !ok || n.foreign(d) {
		return r, false
	}
	r = flow.Record{
		Time: n.cfg.Now(), Node: n.cfg.Node, Kind: flow.Dropped, Protocol: flow.Protocol(p.Proto), Verdict: flow.DroppedVerdict,
	}
	n.ends(&r, p.From, p.To, "", moment{at: r.Time})
	if d.Namespace == 0 && r.From.Node != n.cfg.Node { // packets that are just sent are at no interface yet
		return r, false
	}
	if d.Reason == flow.NetfilterDrop && d.Mark == compiled.DenyMark {
		r.Kind = flow.Denied
		if n.decide(&r); r.Verdict == flow.DeniedVerdict {
			return r, true
		}
		unknown := n.decideAtHosts(&r)
		switch {
		case r.Verdict == flow.DeniedVerdict:
		case unknown != "":
			r.Decisions, r.Verdict, r.Reason = nil, flow.DeniedVerdict, unknown
		default: // a reply, or policies have changed since
			r.Decisions, r.Verdict, r.Reason = nil, flow.DeniedVerdict, flow.ReasonNotAllowed
		}
		return r, true
	}
	// Another packet filter may drop what policies would deny, too.
	r.Verdict, r.Reason = flow.DroppedVerdict, d.Reason
	if d.Interface != "" {
		r.Reason += " at " + d.Interface
	}
	return r, true
}

// maxDrops is how many dropped packets are named in a second. The sender of packets that are dropped decides how many
// there are: the others are counted as lost.
const maxDrops = 2000

// limit counts the dropped packets of a second.
type limit struct {
	second int64
	count  int
}

// admits reports whether another packet is to be named.
func (l *limit) admits(at time.Time) bool {
	if second := at.Unix(); second != l.second {
		*l = limit{second: second}
	}
	l.count++
	return l.count <= maxDrops
}

// foreign reports whether a packet was dropped in a namespace that is neither the node's nor an endpoint's.
func (n *names) foreign(d drops.Drop) bool {
	return d.Namespace != 0 && d.Namespace != n.own.space && !n.holders.spaces[d.Namespace]
}

// denied returns the flow of a denied packet.
func (n *names) denied(p policy.DeniedPacket) flow.Record {
	r := flow.Record{
		Time: n.cfg.Now(), Node: n.cfg.Node, Kind: flow.Denied, Protocol: flow.Protocol(p.Proto),
		Verdict:   flow.DeniedVerdict,
		Decisions: []flow.Decision{{Direction: p.Direction, Policies: p.Policies, Rule: -1}},
	}
	n.ends(&r, p.From, p.To, p.Network, moment{at: r.Time})
	if sides, _ := n.cfg.Policies.DecideAtHosts(flowOf(&r)); p.Network == "" {
		for _, s := range sides { // the log has the policies of the chain that denied it
			if !s.Allowed && s.Direction == p.Direction && slices.Equal(s.Decided, p.Policies) {
				r.Decisions[0] = n.decision(s)
			}
		}
	}
	return r
}
