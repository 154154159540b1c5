// SPDX-License-Identifier: Apache-2.0

// Package packettrace says what became of a packet that was traced, from the steps that the nodes saw: which rule
// dropped it, or between which places it was lost. It is pure.
package packettrace

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/explain"
)

// Step is a step of the probe or its answer: a rule that it met, or that it came to a hook (Verdict "arrived").
type Step struct {
	Node string `json:"node"`
	// Pod is the pod in whose namespace it was seen; empty: the node's.
	Pod string `json:"pod,omitempty"`
	// Micros is when the node received the report, in microseconds of its clock since 1970.
	Micros int64 `json:"micros"`
	// Packet is the same for the steps of one packet at one place.
	Packet  uint32 `json:"packet"`
	Family  string `json:"family,omitempty"`
	Table   string `json:"table,omitempty"`
	Chain   string `json:"chain"`
	Handle  uint64 `json:"handle,omitempty"`
	Verdict string `json:"verdict"`
	// Policy: the verdict is the policy of a base chain. Rule is the text of a rule that dropped the packet.
	Policy bool           `json:"policy,omitempty"`
	Rule   string         `json:"rule,omitempty"`
	In     string         `json:"in,omitempty"`
	Out    string         `json:"out,omitempty"`
	From   netip.AddrPort `json:"from,omitzero"`
	To     netip.AddrPort `json:"to,omitzero"`
	// Reset: it is a TCP segment with the flag RST.
	Reset bool `json:"reset,omitempty"`
	// Key distinguishes the packet from others between the same ends, at all places; 0: it does not.
	Key uint64 `json:"key,omitempty"`
}

const arrived = "arrived"

// State is what became of the probe.
type State string

// The states.
const (
	Arrived    State = "arrived"    // and was answered, unless it is UDP
	Unanswered State = "unanswered" // it arrived, or left the cluster, and no answer came back
	Lost       State = "lost"
	Refused    State = "refused"  // it arrived, where no process listens
	NotSent    State = "not sent" // the sender's kernel refused it
	Unknown    State = "unknown"  // of a live trace: packets cannot be distinguished, or steps are missing
)

// Drop is where the kernel dropped the probe or its answer. Tunnel: as a part of a tunnel's packet.
type Drop struct {
	Node      string `json:"node"`
	Pod       string `json:"pod,omitempty"`
	Reason    string `json:"reason"`
	Function  string `json:"function,omitempty"`
	Interface string `json:"interface,omitempty"`
	Answer    bool   `json:"answer,omitempty"`
	Tunnel    bool   `json:"tunnel,omitempty"`
	Key       uint64 `json:"key,omitempty"`
}

// String returns the drop as "IP_RPFILTER in ip_rcv_finish_core, on eth0".
func (d Drop) String() string {
	out := d.Reason
	if d.Function != "" {
		out += " in " + d.Function
	}
	if d.Interface != "" {
		out += ", on " + d.Interface
	}
	return out
}

// Counter is a counter of lost packets at a place, and by how much it rose.
type Counter struct {
	Node string `json:"node"`
	Pod  string `json:"pod,omitempty"`
	Name string `json:"name"`
	By   uint64 `json:"by"`
}

// Input is a trace.
type Input struct {
	From, To explain.End
	// Protocol and Port are of the destination; without a protocol it was an ICMP echo request.
	Protocol model.Protocol
	Port     uint16
	// TunnelPort is the UDP port of tunnels in which the probe was looked for; 0: none.
	TunnelPort uint16
	// Steps are in the order of each place. SendError is why the probe could not be sent.
	Steps     []Step
	SendError string
	// Drops are those that the kernels reported; Unwatched is why a node's kernel reported none.
	Drops     []Drop
	Unwatched string
	// Counters of lost packets are those that rose during the trace.
	Counters []Counter
	// Live: the packets are others' own. The first of each direction is followed.
	Live bool
	// Incomplete is a node that was too busy to read all steps of a live trace; empty: none was.
	Incomplete string
}

// Report is what became of a probe.
type Report struct {
	From explain.End `json:"from"`
	To   explain.End `json:"to"`
	// Service is the service, or the node with the port, whose address was translated to that of To.
	Service  string         `json:"service,omitempty"`
	Protocol model.Protocol `json:"protocol,omitempty"`
	Port     uint16         `json:"port,omitempty"`
	State    State          `json:"state"`
	// Where the packet was lost, by what (Object), and Cause in a sentence.
	Where  string `json:"where,omitempty"`
	Object string `json:"object,omitempty"`
	Cause  string `json:"cause,omitempty"`
	// Faults are the hops at fault that explain finds, where no rule dropped the packet.
	Faults []explain.Hop `json:"faults,omitempty"`
	// Passes is the size in bytes of the largest packet that passes where this one was lost; 0: not tried, or
	// none does.
	Passes int `json:"passes,omitempty"`
	// Drop is where the kernel dropped the packet; Unwatched is why that is not known.
	Drop      *Drop  `json:"drop,omitempty"`
	Unwatched string `json:"unwatched,omitempty"`
	// Counters are those of lost packets that rose meanwhile, by whatever packets, where the kernel reported no drop.
	Counters []Counter `json:"counters,omitempty"`
	Steps    []Step    `json:"steps"`

	tunnelPort uint16
	asked      string // what Service is the name of
	// begins are the hooks at which packets were seen first, at their places.
	begins map[packetAt]string
}

// packetAt is a packet at a place.
type packetAt struct {
	node, pod string
	packet    uint32
}

// checkpoint is a hook of a place that the packet must come to.
type checkpoint struct {
	node, pod string
	hook      string
	as        string // what it is called, if not by its place
}

func (c checkpoint) String() string {
	if c.as != "" {
		return c.as
	}
	if c.pod != "" {
		return c.pod + " on " + c.node
	}
	return c.node
}

// Explain returns what became of the probe.
func Explain(in Input) Report {
	r := explained(in)
	if missing := r.State == Lost || r.State == Unanswered; missing && in.Incomplete != "" && !r.ByRule() && r.Drop == nil {
		r.State, r.Where, r.Object = Unknown, placeOf(in.From), ""
		r.Cause = fmt.Sprintf("%s had more steps than it could read: what became of the packet is not known; trace again", in.Incomplete)
	}
	return r
}

func explained(in Input) Report {
	r := Report{
		From: in.From, To: in.To, Protocol: in.Protocol, Port: in.Port, Steps: slices.Clone(in.Steps),
		tunnelPort: in.TunnelPort,
	}
	if b, ok := in.backend(); ok {
		b.BackendPort = in.To.BackendPort
		r.To, r.Service, r.asked, in.To = b, in.To.Name, named(in.To), b
	}
	r.begins = map[packetAt]string{}
	for _, s := range r.Steps {
		at := packetAt{s.Node, s.Pod, s.Packet}
		if _, has := r.begins[at]; !has && s.Verdict == arrived {
			r.begins[at] = s.Chain
		}
	}
	r.sort()
	if in.Live && !r.first(&in) {
		r.State, r.Where = Unknown, placeOf(in.From)
		r.Cause = "several packets without an identification were sent: which of them came where is not known"
		return r
	}
	if in.SendError != "" {
		r.State, r.Where, r.Cause = NotSent, placeOf(in.From), in.SendError
		r.filtered(false)
		return r
	}
	if !r.follow(in.From, in.To, false) {
		r.State = Lost
		r.dropped(in, false)
		return r
	}
	r.State = Arrived
	switch {
	case in.To.Kind == explain.ServiceEnd || len(in.To.Backends) > 0:
		r.State, r.Where, r.Object = Lost, cmp.Or(in.To.Node, in.From.Node), named(in.To)
		r.Cause = "the packet came to " + r.Where + ", where its address was not translated to that of an endpoint"
	case in.To.Kind == explain.OutsideEnd && in.To.Node != "":
		r.unused(in)
	case in.To.Node == "": // only its answer shows that the packet arrived
		r.outside()
	case in.Protocol != model.UDP && !r.follow(in.To, in.From, true):
		r.State = Unanswered
		r.dropped(in, true)
	}
	if r.State == Arrived && in.Protocol != "" && r.refused(in) {
		r.State, r.Where = Refused, placeOf(in.To)
		r.Object = fmt.Sprintf("port %d/%s", in.port(), strings.ToLower(string(in.Protocol)))
		r.Cause = "no process listens on " + r.Object
	}
	return r
}

// named is an end's kind and name.
func named(e explain.End) string { return string(e.Kind) + " " + e.Name }

// port is the destination's port.
func (in Input) port() uint16 {
	if r := in.To.BackendPort; r != 0 {
		return r
	}
	return in.Port
}

// refused reports whether the end refused the packet: by a reset, or because the kernel found no socket for it.
func (r *Report) refused(in Input) bool {
	from := r.checkpoints(r.To, r.From)[0] // a reset that begins elsewhere is a firewall's
	reset := slices.ContainsFunc(r.Steps, func(s Step) bool { return s.Reset && r.isAt(s, from, true) })
	return reset || slices.ContainsFunc(in.Drops, func(d Drop) bool {
		return !d.Answer && !d.Tunnel && d.Reason == "NO_SOCKET" &&
			checkpoint{node: d.Node, pod: d.Pod}.String() == placeOf(r.To)
	})
}

// dropped finds where the kernel dropped the packet or its answer.
func (r *Report) dropped(in Input, answer bool) {
	for _, d := range in.Drops {
		if d.Answer != answer {
			continue
		}
		r.Drop = &d // a later one is of the same packet farther on
		if !r.ByRule() {
			r.Where = checkpoint{node: d.Node, pod: d.Pod}.String()
			r.Object, r.Cause = "kernel of "+d.Node, subject(answer)+" was dropped by the kernel: "+d.String()
		}
	}
	if r.Drop == nil {
		r.Unwatched, r.Counters = in.Unwatched, in.Counters
	}
}

// backend returns the endpoint to whose address that of a service, or of a node's port, was translated.
func (in Input) backend() (explain.End, bool) {
	for _, s := range in.Steps {
		for _, b := range in.To.Backends {
			if s.To.Addr() == b.Addr && s.To.Port() == in.To.BackendPort {
				return b, true
			}
		}
	}
	return explain.End{}, false
}

// outside sets what became of a packet to an address outside of the cluster.
func (r *Report) outside() {
	node := checkpoint{node: r.From.Node}
	_, left := r.left(node, false)
	switch {
	case r.answered():
	case left:
		r.State, r.Where = Unanswered, "outside of the cluster"
		r.Cause = "the packet left " + node.String() + ", and no answer came back to " + placeOf(r.From)
	default:
		r.State, r.Where, r.Object = Lost, node.String(), "routes of "+node.String()
		r.Cause = "the packet came to " + node.String() + ", which did not send it on"
	}
}

// unused sets what became of a packet to an address that no pod is known to have, which came to the node whose prefix has it.
func (r *Report) unused(in Input) {
	node := checkpoint{node: r.To.Node}
	out, left := r.left(node, false)
	switch {
	case r.answered():
		return
	case left:
		r.State, r.Where, r.Object = Unanswered, node.String(), "interface "+out+" of "+node.String()
		r.Cause = "the packet was sent to " + out + " by " + node.String() + ", and no answer came back"
	default:
		r.State, r.Where, r.Object = Lost, node.String(), "routes of "+node.String()
		r.Cause = "the packet came to " + node.String() + ", which did not send it on"
		r.dropped(in, false)
	}
	r.Cause += ": no pod that the agents know has " + r.To.Addr.String()
}

// sort sorts the steps by their places on the way, there and back: the clocks of nodes differ.
func (r *Report) sort() {
	if r.toItself() { // at one place
		return
	}
	order := map[checkpoint]int{{node: r.From.Node, pod: r.From.Name}: 0} // also a VM's pod, which is no checkpoint
	for i, c := range r.checkpoints(r.From, r.To) {
		place := checkpoint{node: c.node, pod: c.pod}
		if c.as != "" {
			place.pod = r.To.Name
		}
		order[place] = i + 1
	}
	back := len(order)
	at := func(s Step) int {
		i := order[checkpoint{node: s.Node, pod: s.Pod}]
		if r.IsAnswer(s) {
			return 2*back - i
		}
		return i
	}
	slices.SortStableFunc(r.Steps, func(a, b Step) int {
		return cmp.Or(cmp.Compare(at(a), at(b)), cmp.Compare(a.Micros, b.Micros))
	})
}

func placeOf(e explain.End) string {
	if e.Kind == explain.PodEnd {
		return e.Name + " on " + e.Node
	}
	return e.Node
}

// checkpoints are the places that a packet passes from one end to another. Packets of a guest may pass its pod without its
// packet filters, so the node's are its first and last place. A pod's packets to itself do not leave it, unless it sends them
// to a service.
func (r *Report) checkpoints(from, to explain.End) []checkpoint {
	at := func(node, pod, hook string) checkpoint { return checkpoint{node: node, pod: pod, hook: hook} }
	var out []checkpoint
	switch {
	case r.toItself() && from.Kind == explain.PodEnd:
		return append(out, at(from.Node, from.Name, "output"), at(from.Node, from.Name, "prerouting"))
	case from.Kind == explain.PodEnd && from.Interface.VM:
		out = append(out, at(from.Node, "", "prerouting"))
	case from.Kind == explain.PodEnd:
		out = append(out, at(from.Node, from.Name, "output"), at(from.Node, "", "prerouting"))
	default:
		out = append(out, at(from.Node, "", "output"))
	}
	if to.Node != "" && to.Node != from.Node {
		out = append(out, at(to.Node, "", "prerouting"))
	}
	switch {
	case to.Kind == explain.PodEnd && to.Interface.VM:
		out = append(out, checkpoint{node: to.Node, hook: "postrouting", as: "VM " + to.Name})
	case to.Kind == explain.PodEnd:
		out = append(out, at(to.Node, to.Name, "prerouting"))
	}
	return out
}

// toItself reports whether both ends are one, without a service between them.
func (r *Report) toItself() bool {
	return r.Service == "" && r.From.Kind == r.To.Kind && r.From.Node == r.To.Node && r.From.Name == r.To.Name
}

// first leaves the steps of one packet and of its answer: the packet that is seen first at the end that sends it, and the
// answer that is sent first after the packet came to the other end. What is in a tunnel has no key, and is left out. It
// reports whether the packet is known at other places: by a key, or because there was only one.
func (r *Report) first(in *Input) (known bool) {
	there, back := r.checkpoints(r.From, r.To), r.checkpoints(r.To, r.From)
	begin := func(s Step) bool { return r.isAt(s, there[0], false) }
	i := slices.IndexFunc(r.Steps, begin)
	if i < 0 { // nothing is known of its way
		r.Steps, in.Drops = nil, nil
		return true
	}
	packet := r.Steps[i]
	known = packet.Key != 0 ||
		!slices.ContainsFunc(r.Steps, func(s Step) bool { return begin(s) && s.Packet != packet.Packet })
	var answer *Step
	came := slices.IndexFunc(
		r.Steps,
		func(s Step) bool { return s.Key == packet.Key && r.isAt(s, there[len(there)-1], false) },
	)
	if came >= 0 {
		since := r.Steps[came].Micros // by the clock of the node that sends the answer
		if i := slices.IndexFunc(
			r.Steps,
			func(s Step) bool { return s.Micros >= since && r.isAt(s, back[0], true) },
		); i >= 0 {
			answer = &r.Steps[i]
		}
	}
	chosen := map[bool]map[checkpoint]uint32{false: {}, true: {}}
	var out []Step
	for _, s := range r.Steps {
		IsAnswer, place := r.IsAnswer(s), checkpoint{node: s.Node, pod: s.Pod}
		if r.isTunnel(s) || !IsAnswer && s.Key != packet.Key || IsAnswer && (answer == nil || s.Key != answer.Key) {
			continue
		}
		if _, has := chosen[IsAnswer][place]; !has {
			chosen[IsAnswer][place] = s.Packet
		}
		if chosen[IsAnswer][place] == s.Packet { // a retransmission has the same key
			out = append(out, s)
		}
	}
	in.Drops = slices.DeleteFunc(slices.Clone(in.Drops), func(d Drop) bool {
		return !d.Answer && d.Key != packet.Key || d.Answer && (answer == nil || d.Key != answer.Key)
	})
	r.Steps = out
	return known
}

// follow reports whether the packet came from one end to the other, and sets why not.
func (r *Report) follow(from, to explain.End, answer bool) bool {
	if r.filtered(answer) {
		return false
	}
	all := r.checkpoints(from, to)
	for i, c := range all {
		if r.came(c, answer) {
			continue
		}
		r.Where = c.String()
		switch {
		case i == 0 && answer:
			r.Cause = "no answer was sent by " + c.String()
		case i == 0:
			r.Cause = "the packet was not seen in " + c.String() + ", which sent it"
		default:
			r.lostAfter(all[i-1], c, answer)
		}
		return false
	}
	return true
}

// lostAfter names the place where the packet was lost that came to last, and not to next.
func (r *Report) lostAfter(last, next checkpoint, answer bool) {
	what := subject(answer)
	out, left := r.left(last, answer)
	tunnel, came := r.tunneled(next.node, answer)
	switch {
	case last.node != next.node && came:
		r.Where, r.Object = next.node, "the tunnel of "+next.node
		r.Cause = fmt.Sprintf("%s came to %s inside of a tunnel's packet (from %s), and was not unwrapped", what,
			next, tunnel.From.Addr())
	case !left:
		r.Where, r.Object = last.String(), "routes of "+last.String()
		r.Cause = fmt.Sprintf("%s came to %s, which did not send it on to %s", what, last, next)
	case last.node != next.node:
		r.Where = "between " + last.String() + " and " + next.String()
		r.Object = "the network between " + last.node + " and " + next.node
		r.Cause = fmt.Sprintf("%s was sent to %s by %s, and never came to %s", what, out, last, next)
	default:
		r.Where, r.Object = last.String(), "interface "+out+" of "+last.String()
		r.Cause = fmt.Sprintf("%s was sent to %s by %s, and never came to %s", what, out, last, next)
	}
}

// ByRule reports whether a rule, which Object names, dropped the packet or its answer.
func (r *Report) ByRule() bool {
	return r.State != Arrived && slices.ContainsFunc(r.Steps, func(s Step) bool { return s.Verdict == "drop" })
}

// filtered reports whether a packet filter dropped the packet or its answer, and if so sets where, and which rule.
func (r *Report) filtered(answer bool) bool {
	for _, s := range r.Steps {
		if s.Verdict != "drop" || r.IsAnswer(s) != answer {
			continue
		}
		chain := fmt.Sprintf("%s %s %s", s.Family, s.Table, s.Chain)
		r.Where = checkpoint{node: s.Node, pod: s.Pod}.String()
		rule := cmp.Or(s.Rule, "(its text cannot be read)")
		r.Object = fmt.Sprintf("chain %s, rule with handle %d: %s", chain, s.Handle, rule)
		if s.Policy {
			r.Object = "policy of chain " + chain + " is drop"
		}
		r.Cause = subject(answer) + " was dropped by a packet filter"
		return true
	}
	return false
}

// subject is what a cause is about.
func subject(answer bool) string {
	if answer {
		return "the answer"
	}
	return "the packet"
}

// left returns the interface through which the packet, or the tunnel's packet with it, left a place.
func (r *Report) left(place checkpoint, answer bool) (out string, left bool) {
	for _, s := range r.Steps {
		at := s.Verdict == arrived && s.Node == place.node && s.Pod == place.pod && s.Chain == "postrouting"
		if at && r.IsAnswer(s) == answer {
			out, left = s.Out, true // the tunnel's packet is later
		}
	}
	return out, left
}

// came reports whether the packet itself came to a checkpoint.
func (r *Report) came(c checkpoint, answer bool) bool {
	return slices.ContainsFunc(r.Steps, func(s Step) bool { return r.isAt(s, c, answer) })
}

// isAt reports whether a step is the packet's own, or its answer's, at a checkpoint.
func (r *Report) isAt(s Step, c checkpoint, answer bool) bool {
	return s.Verdict == arrived && s.Node == c.node && s.Pod == c.pod && s.Chain == c.hook &&
		r.IsAnswer(s) == answer && !r.isTunnel(s)
}

// answered reports whether an answer came back to the sender.
func (r *Report) answered() bool {
	at := checkpoint{node: r.From.Node, hook: "prerouting"}
	if r.From.Kind == explain.PodEnd {
		at.pod = r.From.Name
	}
	return r.came(at, true)
}

// tunneled returns the step at which a tunnel's packet with the packet inside came to a node.
func (r *Report) tunneled(node string, answer bool) (Step, bool) {
	for _, s := range r.Steps {
		at := s.Verdict == arrived && s.Node == node && s.Pod == "" && s.Chain == "prerouting"
		if at && r.isTunnel(s) && r.IsAnswer(s) == answer {
			return s, true
		}
	}
	return Step{}, false
}

// isTunnel reports whether a step is of a tunnel's packet: it goes to the tunnel's port, and not from one end to the
// other.
func (r *Report) isTunnel(s Step) bool {
	ends := []netip.Addr{r.From.Addr, r.To.Addr}
	return r.tunnelPort != 0 && s.To.Port() == r.tunnelPort &&
		(!slices.Contains(ends, s.From.Addr()) || !slices.Contains(ends, s.To.Addr()))
}

// isServer reports whether a port is the destination's, before or after its translation.
func (r *Report) isServer(port uint16) bool {
	return r.Protocol != "" && port != 0 && (port == r.Port || port == r.To.BackendPort)
}

// IsAnswer reports whether a step is of the answer: by its ports, because a Service may lead to the pod that asks, with
// addresses that are translated; by its addresses; and those of a tunnel's packet, which are the nodes', by its direction.
func (r *Report) IsAnswer(s Step) bool {
	if !r.isTunnel(s) {
		if r.Protocol == "" && r.toItself() { // of ICMP the type and the code are in the place of the first port
			const reply, reply6 = 0, 129
			kind := s.From.Port() >> 8
			return kind == reply || kind == reply6
		}
		if to, from := r.isServer(s.To.Port()), r.isServer(s.From.Port()); to != from {
			return from
		}
		switch {
		case s.From.Addr() == r.From.Addr || s.To.Addr() == r.To.Addr:
			return false
		case s.From.Addr() == r.To.Addr || s.To.Addr() == r.From.Addr:
			return true
		}
	}
	begin, has := r.begins[packetAt{s.Node, s.Pod, s.Packet}] // it has the packet's direction
	if !has {
		begin = s.Chain
	}
	return (begin == "prerouting") == (s.Node == r.From.Node)
}
