// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/explain"
	"github.com/weft-net/weft/internal/plan/packettrace"
)

// Why explains a connection, in each address family.
type Why struct {
	Reports []WhyReport `json:"reports"`
	// Silent are why agents did not answer: a part of the answer is missing.
	Silent []string `json:"silent"`
}

// WhyReport is one family's.
type WhyReport struct {
	From    string        `json:"from"`
	To      string        `json:"to"`
	Port    string        `json:"port,omitempty"`
	IPv6    bool          `json:"ipv6"`
	State   explain.State `json:"state"`
	Forward []explain.Hop `json:"forward"`
	Back    []explain.Hop `json:"back"`
	// Command explains the same on the command line.
	Command string `json:"command"`
}

// NewWhy returns the view of explanations.
func NewWhy(reports []explain.Report, silent []string) Why {
	w := Why{Reports: []WhyReport{}, Silent: silent}
	for _, r := range reports {
		w.Reports = append(w.Reports, WhyReport{
			From: r.From.String(), To: r.To.String(), Port: port(r.Protocol, r.Port), IPv6: r.From.Addr.Is6(), State: r.State,
			Forward: append([]explain.Hop{}, r.Forward...), Back: append([]explain.Hop{}, r.Back...),
			Command: "weft explain " + r.From.Name + " " + target(r.To, r.Protocol, r.Port),
		})
	}
	return w
}

func port(protocol model.Protocol, number uint16) string {
	if protocol == "" {
		return ""
	}
	return fmt.Sprintf("%d/%s", number, strings.ToLower(string(protocol)))
}

// target returns an end with a port, as the command line takes it.
func target(e explain.End, protocol model.Protocol, number uint16) string {
	if protocol == "" {
		return e.Name
	}
	name := e.Name
	if strings.Contains(name, ":") {
		name = "[" + name + "]"
	}
	return name + ":" + port(protocol, number)
}

// Trace is what became of a packet.
type Trace struct {
	From  string            `json:"from"`
	To    string            `json:"to"`
	State packettrace.State `json:"state"`
	// Good: it arrived and was answered.
	Good  bool   `json:"good"`
	Where string `json:"where,omitempty"`
	Cause string `json:"cause,omitempty"`
	// Object is to blame.
	Object string        `json:"object,omitempty"`
	Faults []explain.Hop `json:"faults"`
	Steps  []TraceStep   `json:"steps"`
	// There are the pods and nodes at which the packet was seen, in order, and Back those of its answer.
	There   []string `json:"there"`
	Back    []string `json:"back"`
	Notes   []string `json:"notes"`
	Command string   `json:"command"`
}

// TraceStep is a place where the packet or its answer was seen.
type TraceStep struct {
	Where string `json:"where"`
	// Packet is packet or answer.
	Packet  string `json:"packet"`
	Table   string `json:"table"`
	Chain   string `json:"chain"`
	Verdict string `json:"verdict"`
	Rule    string `json:"rule,omitempty"`
	From    string `json:"from,omitempty"`
	To      string `json:"to,omitempty"`
}

// NewTrace returns the view of a trace.
func NewTrace(r packettrace.Report) Trace {
	t := Trace{
		From: r.From.String(), To: r.To.String(), State: r.State, Good: r.State == packettrace.Arrived,
		Where: r.Where, Cause: r.Cause, Object: r.Object, Faults: append([]explain.Hop{}, r.Faults...),
		Steps: []TraceStep{}, There: []string{}, Back: []string{}, Notes: []string{}, Command: "weft trace " + r.From.Name + " " + target(r.To, r.Protocol, r.Port),
	}
	if p := port(r.Protocol, r.Port); p != "" {
		t.To += " port " + p
	}
	for _, s := range r.Steps {
		step := TraceStep{
			Where: s.Node, Packet: "packet", Chain: s.Chain, Verdict: s.Verdict, Rule: s.Rule, Table: strings.TrimSpace(s.Family + " " + s.Table),
		}
		if s.Pod != "" {
			step.Where = s.Pod + " on " + s.Node
		}
		seen := &t.There
		if r.IsAnswer(s) {
			step.Packet, seen = "answer", &t.Back
		}
		if place := cmp.Or(s.Pod, s.Node); len(*seen) == 0 || (*seen)[len(*seen)-1] != place {
			*seen = append(*seen, place)
		}
		if s.From.IsValid() {
			step.From, step.To = s.From.String(), s.To.String()
		}
		t.Steps = append(t.Steps, step)
	}
	if r.Drop != nil {
		t.Notes = append(t.Notes, "the kernel dropped it: "+r.Drop.String())
	}
	if r.Unwatched != "" {
		t.Notes = append(t.Notes, "whether a kernel dropped it is not known: "+r.Unwatched)
	}
	for _, c := range r.Counters {
		t.Notes = append(t.Notes, fmt.Sprintf("counter %s of %s rose by %d meanwhile", c.Name, c.Node, c.By))
	}
	return t
}
