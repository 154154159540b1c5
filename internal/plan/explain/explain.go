// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// State is the judgment of a hop.
type State string

// The states. Unknown is never ok.
const (
	OK      State = "ok"
	Unknown State = "unknown" // there is no answer, or what decides cannot be read
	Suspect State = "suspect" // some packets are lost, or may be
	Blocked State = "blocked" // the packet is lost here
)

// Hop is a step of the path with its judgment.
type Hop struct {
	// ID names the step: source, guard, egress, service, route, filter, host, tunnel, wire, ingress, neighbor, target,
	// listener, limits.
	ID    string `json:"id"`
	Where string `json:"where"` // "node1", or "shop/web on node1"
	State State  `json:"state"`
	// Cause is why the state is not ok, in a sentence; Object is what is to blame.
	Cause  string `json:"cause,omitempty"`
	Object string `json:"object,omitempty"`
	Hint   string `json:"hint,omitempty"`
	// Evidence are the facts on which the judgment is based.
	Evidence []string `json:"evidence,omitempty"`
}

// Input is a connection, and what is known.
type Input struct {
	From, To End
	// Protocol and Port are those of the destination; without a protocol it is ping.
	Protocol model.Protocol
	Port     uint16
	Nodes    map[string]Node
	Answers  Answers
	// OneWay leaves out the way back.
	OneWay bool
}

// Report is the explanation.
type Report struct {
	From     End            `json:"from"`
	To       End            `json:"to"`
	Protocol model.Protocol `json:"protocol,omitempty"`
	Port     uint16         `json:"port,omitempty"`
	State    State          `json:"state"`
	Forward  []Hop          `json:"forward"`
	Back     []Hop          `json:"back,omitempty"`
	// Recorded is nil if the agents have answered just now.
	Recorded *Recorded `json:"recorded,omitempty"`
}

// TimeLayout is the format of times in a Record, in UTC, for package time. Later times are greater strings.
const TimeLayout = "2006-01-02T15:04:05.000Z"

// Recorded is the age of what an explanation from records consists of. Its times have the format TimeLayout.
type Recorded struct {
	// OldestAnswer is the time of the oldest answer that was used; empty: none was.
	OldestAnswer string `json:"oldestAnswer,omitempty"`
	// Facts is the time of the oldest facts about the nodes.
	Facts string `json:"facts,omitempty"`
}

// Hops returns the hops of both ways.
func (r Report) Hops() []Hop { return slices.Concat(r.Forward, r.Back) }

// Faults returns the hops that are blocked or suspect. A fault that both ways meet is returned once.
func (r Report) Faults() []Hop {
	var out []Hop
	for _, h := range r.Hops() {
		if h.State != Blocked && h.State != Suspect {
			continue
		}
		if !slices.ContainsFunc(out, func(o Hop) bool { return o.Object == h.Object && o.Cause == h.Cause }) {
			out = append(out, h)
		}
	}
	return out
}

// Explain checks the path of a connection, and returns the questions whose answers it misses. Without questions the
// report is final; otherwise what depends on them is unknown.
func Explain(in Input) (Report, []Question) {
	r := Report{From: in.From, To: in.To, Protocol: in.Protocol, Port: in.Port}
	w := &walk{in: in}
	to, port, ok := w.service()
	r.Forward, w.hops = w.hops, nil
	if ok {
		w.leg(leg{src: in.From, dst: to, protocol: in.Protocol, port: port})
		r.Forward = append(r.Forward, w.hops...)
		if !in.OneWay {
			w.hops = nil
			w.back(to, port)
			r.Back = w.hops
		}
	}
	r.State = worst(r.Hops())
	r.Recorded = w.recorded()
	return r, w.missing
}

// back walks the way of the answers.
func (w *walk) back(from End, port uint16) {
	to := w.in.From
	if from.translated() {
		if len(from.Backends) == 0 {
			return
		}
		node := from.plain()
		if from.Masquerade {
			w.leg(leg{src: from.Backends[0], dst: node, protocol: w.in.Protocol, port: from.BackendPort, reply: true})
			w.leg(leg{src: node, dst: to, protocol: w.in.Protocol, port: port, reply: true})
			return
		}
		from, port = from.Backends[0], from.BackendPort
	}
	w.leg(leg{src: from, dst: to, protocol: w.in.Protocol, port: port, reply: true})
}

// recorded returns the age of what was used; nil: it has no times.
func (w *walk) recorded() *Recorded {
	r := Recorded{OldestAnswer: w.oldest}
	for _, n := range w.in.Nodes {
		r.Facts = older(r.Facts, n.Time)
	}
	if r == (Recorded{}) {
		return nil
	}
	return &r
}

// older returns the older one of two times; an empty one is not a time.
func older(a, b string) string {
	if a == "" || b != "" && b < a {
		return b
	}
	return a
}

// worst returns the worst state: blocked, suspect, unknown, ok. Without hops nothing is known.
func worst(hops []Hop) State {
	for _, s := range []State{Blocked, Suspect, Unknown} {
		if slices.ContainsFunc(hops, func(h Hop) bool { return h.State == s }) {
			return s
		}
	}
	if len(hops) == 0 {
		return Unknown
	}
	return OK
}

// leg is one way of the connection. The port is that of the server in both directions.
type leg struct {
	src, dst End
	protocol model.Protocol
	port     uint16
	reply    bool
	// arrived is what a port of the node has made of the packet; nil: nothing.
	arrived *arrival
}

// arrival is a packet before its destination, and maybe its source, was translated.
type arrival struct {
	in  string
	src netip.Addr
	dst netip.AddrPort
}

// packet is the leg's packet for rules.
func (l leg) packet(in, out string) packet {
	p := packet{in: in, out: out, src: l.src.Addr, dst: l.dst.Addr, state: "new"}
	switch l.protocol {
	case model.TCP:
		p.protocol = "tcp"
	case model.UDP:
		p.protocol = "udp"
	case model.SCTP:
		p.protocol = "sctp"
	default:
		p.protocol, p.icmpType = "icmp", 8 // echo request
		if l.dst.Addr.Is6() {
			p.protocol, p.icmpType = "ipv6-icmp", 128
		}
	}
	p.sport, p.dport = ephemeral, int(l.port)
	if l.reply {
		p.sport, p.dport, p.state = int(l.port), ephemeral, "established"
		p.icmpType = map[int]int{8: 0, 128: 129}[p.icmpType] // an echo reply
	}
	return p
}

// walk is one pass over the path.
type walk struct {
	in      Input
	hops    []Hop
	missing []Question
	oldest  string // time of the answers that were used
}

// ask returns the answer to a question; ok is false if there is none, or if it is an error. The hop then is unknown.
func (w *walk) ask(h *Hop, q Question) (Answer, bool) {
	a, answered := w.in.Answers[q]
	w.oldest = older(w.oldest, a.Time)
	switch {
	case !answered:
		if !slices.Contains(w.missing, q) {
			w.missing = append(w.missing, q)
		}
		h.unknown("no answer yet: "+q.String(), "")
		return a, false
	case a.Error != "":
		h.unknown(q.String()+": "+a.Error, "")
		return a, false
	case !a.has(q.Kind):
		h.unknown(q.String()+": the answer is empty", "")
		return a, false
	}
	return a, true
}

// add appends a hop; one without a judgment is ok.
func (w *walk) add(h *Hop) {
	if h.State == "" {
		h.State = OK
	}
	w.hops = append(w.hops, *h)
}

// split begins a further hop of the same name if something was found at this one: a hop has one cause.
func (w *walk) split(h *Hop) {
	if h.State != "" && h.State != OK {
		w.add(h)
		*h = Hop{ID: h.ID, Where: h.Where}
	}
}

// unknown makes the hop unknown unless it is checked worse.
func (h *Hop) unknown(cause, object string) {
	if h.State == "" || h.State == OK {
		h.State, h.Cause, h.Object = Unknown, cause, object
		h.Hint = "weft trace sends a packet and shows what becomes of it"
	}
}

// suspect makes the hop suspect unless it is blocked.
func (h *Hop) suspect(cause, object, hint string) {
	if h.State != Blocked && h.State != Suspect {
		h.State, h.Cause, h.Object, h.Hint = Suspect, cause, object, hint
	}
}

// blocked makes the hop blocked. The first cause stays.
func (h *Hop) blocked(cause, object, hint string) {
	if h.State != Blocked {
		h.State, h.Cause, h.Object, h.Hint = Blocked, cause, object, hint
	}
}

func (h *Hop) evidence(text string) { h.Evidence = append(h.Evidence, text) }

// service returns the end to which the destination is translated, and its port.
func (w *walk) service() (End, uint16, bool) {
	to := w.in.To
	if to.Kind != ServiceEnd {
		return to, w.in.Port, true
	}
	h := &Hop{ID: "service", Where: w.in.From.Node}
	defer w.add(h)
	if len(to.Backends) == 0 {
		cause := "the service has no ready endpoint"
		if to.Policy != "" {
			cause += " for this client: " + to.Policy
		}
		h.blocked(cause, "service "+to.Name, "see kubectl get endpointslices, and whether its pods are ready")
		return End{}, 0, false
	}
	backend := to.Backends[0]
	h.evidence("ready endpoints: " + endsText(to.Backends))
	h.evidence("explained for " + backend.String())
	return backend, to.BackendPort, true
}

func endsText(ends []End) string {
	out := ""
	for i, e := range ends {
		if i == 5 {
			return out + " …"
		}
		if i > 0 {
			out += ", "
		}
		out += e.Name + " (" + e.Addr.String() + ")"
	}
	return out
}

// leg walks one way.
func (w *walk) leg(l leg) {
	switch l.src.Kind {
	case PodEnd:
		in, ok := w.source(l)
		w.policy(l, l.src, "egress")
		if ok {
			w.forward(l, l.src.Node, in)
		}
	case NodeEnd:
		w.forward(l, l.src.Node, "")
	default:
		h := &Hop{ID: "source", Where: l.src.Addr.String()}
		h.unknown("the way from "+l.src.Addr.String()+" to the cluster is not weft's", "")
		w.add(h)
		if l.dst.Node == "" {
			return
		}
		entry := &Hop{ID: "route", Where: l.dst.Node}
		a, ok := w.ask(entry, Question{Node: l.dst.Node, Kind: AskRoute, To: l.src.Addr})
		if !ok || a.Route.Errno != "" {
			entry.unknown("over which interface packets from "+l.src.Addr.String()+" arrive is not known", "")
			w.add(entry)
			return
		}
		w.forward(l, l.dst.Node, a.Route.Out)
	}
}

// policy adds what policies decide at an end. Replies of an allowed connection are not checked.
func (w *walk) policy(l leg, at End, direction string) {
	if l.reply || at.Kind != PodEnd {
		return
	}
	node, known := w.in.Nodes[at.Node]
	h := &Hop{ID: direction, Where: at.Name + " on " + at.Node}
	if known && !node.Policy {
		h.evidence("the node's agent enforces no network policies")
		w.add(h)
		return
	}
	a, ok := w.ask(h, Question{
		Node: at.Node, Kind: AskPolicy, From: l.src.Addr, To: l.dst.Addr, Protocol: l.protocol, Port: l.port,
		Network: at.Interface.Network,
	})
	if ok {
		for _, answer := range a.Policy {
			for _, s := range answer.Sides {
				if s.Direction != direction || s.AtHost() {
					continue // host is about the others
				}
				by := keysText(s.Decided)
				if s.Allowed {
					h.evidence("allowed" + by)
					continue
				}
				h.blocked(strings.TrimSuffix("network policy denies it:"+by, ":"), "policy"+by, "weft policy why "+w.in.From.Name+" "+w.in.To.Name)
				if s.Text != "" {
					h.evidence("rule: " + s.Text)
				}
			}
			if answer.Note != "" {
				h.evidence(answer.Note)
			}
		}
	}
	w.add(h)
}

func keysText(keys []model.PolicyKey) string {
	out := ""
	for i, k := range keys {
		if i > 0 {
			out += ","
		}
		out += " " + k.String()
	}
	return out
}

// sameFamily reports whether two addresses are of one family.
func sameFamily(a, b netip.Addr) bool { return a.Is4() == b.Is4() }
