// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/flow"
)

// FlowLog has the last flows of a cluster, at most maxFlows.
type FlowLog struct {
	flows []flow.Record // the newest last
	// since is when it began.
	since time.Time
	total uint64
	notes []Note
	// nodes have reported flows.
	nodes map[string]bool
	// meters count the flows of filters, the last one that was shown last.
	meters []*meter
}

// Note is something that is missing in a log.
type Note struct {
	Text string `json:"text"`
	// Count is how often it was reported.
	Count int `json:"count"`
}

// Flows are those that were seen lately.
type Flows struct {
	// Since is when the observation began, in milliseconds since 1970; 0: it begins now.
	Since int64 `json:"since"`
	// Total flows were seen since then, and Flows are the newest of those that the filter selects, the newest first. More
	// are selected, too.
	Total uint64    `json:"total"`
	Flows []FlowRow `json:"flows"`
	More  int       `json:"more"`
	// Pairs are the sums of the last Seconds.
	Pairs   []Pair `json:"pairs"`
	Seconds int    `json:"seconds"`
	Notes   []Note `json:"notes"`
	Rates   Rates  `json:"rates"`
	// Command follows the same flows on the command line.
	Command string `json:"command"`
}

// FlowRow is a flow.
type FlowRow struct {
	Time     int64  `json:"time"` // milliseconds since 1970
	Node     string `json:"node"`
	Kind     string `json:"kind"`
	Verdict  string `json:"verdict"`
	Protocol string `json:"protocol"`
	From     string `json:"from"`
	To       string `json:"to"`
	Via      string `json:"via,omitempty"`
	Why      string `json:"why,omitempty"`
	Traffic  string `json:"traffic"`
	// FromName, ToName and Port name the connection for weft explain.
	FromName string `json:"fromName"`
	ToName   string `json:"toName"`
	Port     uint16 `json:"port,omitempty"`
}

// Pair is what was between two ends.
type Pair struct {
	From     string `json:"from"`
	To       string `json:"to"`
	Protocol string `json:"protocol"`
	Port     uint16 `json:"port,omitempty"`
	Verdict  string `json:"verdict"`
	Flows    int    `json:"flows"`
}

// FlowFilter selects flows; empty fields select all.
type FlowFilter struct{ Pod, Namespace, Port, Verdict string }

// Limits.
const (
	maxFlows = 4096
	maxShown = 150
	maxPairs = 60
	rateSpan = time.Minute
	maxNotes = 20
)

// NewFlowLog returns an empty log that begins at a time.
func NewFlowLog(since time.Time) *FlowLog {
	return &FlowLog{since: since, nodes: map[string]bool{}}
}

// Add adds a flow that has arrived now. The clock of its node may be ahead of this one: then that is its time.
func (l *FlowLog) Add(r flow.Record, now time.Time) {
	if r.Time.After(now) {
		r.Time = now
	}
	l.total++
	if len(l.flows) >= 2*maxFlows { // not at each one
		l.flows = slices.Clone(l.flows[maxFlows:])
	}
	l.flows = append(l.flows, r)
	l.nodes[r.Node] = true
	if !l.counts(r) {
		return
	}
	for _, m := range l.meters {
		m.add(r)
	}
}

// Note adds what is missing.
func (l *FlowLog) Note(text string) {
	if i := slices.IndexFunc(l.notes, func(n Note) bool { return n.Text == text }); i >= 0 {
		l.notes[i].Count++
		return
	}
	l.notes = append(l.notes[max(0, len(l.notes)+1-maxNotes):], Note{text, 1})
}

// last returns the flows, at most maxFlows.
func (l *FlowLog) last() []flow.Record { return l.flows[max(0, len(l.flows)-maxFlows):] }

// View returns what the log shows at a time. An error is about the filter.
func (l *FlowLog) View(f FlowFilter, now time.Time) (Flows, error) {
	v := Flows{Since: l.since.UnixMilli(), Total: l.total, Flows: []FlowRow{}, Notes: append([]Note{}, l.notes...)}
	filter, command, err := f.compile()
	if err != nil {
		return v, err
	}
	v.Command = command
	selected := slices.DeleteFunc(slices.Clone(l.last()), func(r flow.Record) bool { return !filter.Match(r, nil) })
	v.Pairs, v.Seconds = l.pairs(selected, now, min(rateSpan, now.Sub(l.since)))
	v.Rates = l.meter(f, filter).rates(now)
	for _, r := range slices.Backward(selected) {
		if len(v.Flows) == maxShown {
			break
		}
		v.Flows = append(v.Flows, flowRow(r))
	}
	v.More = len(selected) - len(v.Flows)
	return v, nil
}

// Pairs returns the sums of all flows of the last minute.
func (l *FlowLog) Pairs(now time.Time) []Pair {
	out, _ := l.pairs(l.last(), now, rateSpan)
	return out
}

// compile returns the filter, and the command with it.
func (f FlowFilter) compile() (filter flow.Filter, command string, err error) {
	command = "weft observe -f"
	for _, c := range []struct {
		field flow.Field
		value string
	}{
		{flow.FieldPod, f.Pod},
		{flow.FieldNamespace, f.Namespace},
		{flow.FieldPort, f.Port},
		{flow.FieldVerdict, f.Verdict},
	} {
		value := strings.TrimSpace(c.value)
		if value == "" {
			continue
		}
		if c.field == flow.FieldPod && !strings.Contains(value, "/") {
			value = "*/" + value + "*"
		}
		for one := range strings.SplitSeq(value, ",") {
			if err := filter.Add(c.field, flow.Either, false, one); err != nil {
				return filter, "", fmt.Errorf("%s: %w", c.field, err)
			}
		}
		if strings.ContainsAny(value, "*?[ ") {
			value = "'" + value + "'"
		}
		command += " --" + string(c.field) + " " + value
	}
	return filter, command, nil
}

// pairs sums flows since a time before now, the most first. Of a connection that both nodes report, one counts.
func (l *FlowLog) pairs(flows []flow.Record, now time.Time, span time.Duration) (out []Pair, seconds int) {
	sums := map[Pair]int{}
	for _, r := range flows {
		if !l.counts(r) || now.Sub(r.Time) > span {
			continue
		}
		sums[Pair{From: endName(r.From), To: endName(r.To), Protocol: r.Protocol, Port: r.To.Port, Verdict: string(r.Verdict)}]++
	}
	for p, n := range sums {
		p.Flows = n
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b Pair) int {
		return cmp.Or(cmp.Compare(b.Flows, a.Flows), cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To),
			cmp.Compare(a.Port, b.Port), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Verdict, b.Verdict))
	})
	return append([]Pair{}, out[:min(len(out), maxPairs)]...), int(span.Seconds())
}

// endName returns the name of an end for weft explain: of a VM that of its pod, outside the address.
func endName(e flow.Endpoint) string {
	switch {
	case e.Kind == flow.VMEnd:
		return cmp.Or(e.Pod, e.Name)
	case e.Kind == flow.OutsideEnd || e.Kind == flow.PoolEnd || e.Name == "":
		return e.Addr.String()
	}
	return e.Name
}

func flowRow(r flow.Record) FlowRow {
	row := FlowRow{
		Time: r.Time.UnixMilli(), Node: r.Node, Kind: string(r.Kind), Verdict: string(r.Verdict), Protocol: r.Protocol,
		From: r.From.Text(false), To: r.To.Text(false), Why: r.Why(), Traffic: r.Traffic(), FromName: endName(r.From),
		ToName: endName(r.To),
	}
	if r.Via != nil {
		row.Via = r.Via.Text(false)
	}
	switch r.Protocol {
	case "tcp", "udp", "sctp":
		row.Port = r.To.Port
	}
	return row
}

// Way is a line between two pods of the map.
type Way struct {
	Line
	Pair
	// Width is greater for more flows, 1 to 6.
	Width int `json:"width"`
}

// traffic draws the pairs of which both ends are in the picture: at their chips, or at their nodes. Those to and from one
// place are one line for each verdict.
func (m *Map) traffic(in MapInput) {
	type place struct{ x, y int }
	at := map[string]place{}
	for _, b := range m.Boxes {
		at[b.Name] = place{b.X + b.W/2, b.Y + cardHeader/2}
		for _, p := range in.Nodes[b.Name].Pods {
			at[p.Name] = place{b.X + b.W/2, b.Y + b.H - 10}
		}
		for _, c := range b.Chips {
			at[c.Name] = place{c.X + c.W/2, c.Y + c.H/2}
		}
	}
	ways := map[[4]int]map[string]*Way{}
	for _, p := range in.Pairs {
		from, here := at[p.From]
		to, there := at[p.To]
		if !here || !there || from == to {
			m.OtherFlows += p.Flows
			continue
		}
		line := [4]int{from.x, from.y, to.x, to.y}
		if ways[line] == nil {
			ways[line] = map[string]*Way{}
		}
		if w := ways[line][p.Verdict]; w != nil {
			w.Flows += p.Flows
			continue
		}
		ways[line][p.Verdict] = &Way{Line: Line{from.x, from.y, to.x, to.y}, Pair: p}
	}
	for _, byVerdict := range ways {
		for _, w := range slices.Collect(maps.Values(byVerdict)) {
			for n := w.Flows; n > 0 && w.Width < 6; n /= 4 {
				w.Width++
			}
			m.Ways = append(m.Ways, *w)
		}
	}
	slices.SortFunc(m.Ways, func(a, b Way) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To), cmp.Compare(a.Verdict, b.Verdict))
	})
}
