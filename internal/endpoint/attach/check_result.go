// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// checkResult compares node and container with the caller's result, when nothing is recorded: an attachment that the
// reference plugin made.
func checkResult(ctx context.Context, job Job, spaces kernel.Spaces) ([]string, error) {
	if job.Prev == nil {
		return nil, model.Faultf(model.CodeInvalidConf, "CHECK needs the result of the ADD", "prevResult is missing")
	}
	r := resultCheck{prev: *job.Prev}
	var err error
	if r.answers, err = spaces.Observe(ctx, r.queries()); err != nil {
		return nil, err
	}
	for i, iface := range r.prev.Interfaces {
		r.link(i)
		if iface.Sandbox != "" {
			r.wire(iface.Name)
		}
	}
	r.routes()
	return r.diff, nil
}

// resultCheck compares a result with what the kernel said.
type resultCheck struct {
	prev    model.Result
	answers state.Answers
	diff    []string
}

func (r *resultCheck) say(format string, args ...any) {
	r.diff = append(r.diff, fmt.Sprintf(format, args...))
}

// spaceOf is where an interface of a result is.
func spaceOf(iface model.Interface) state.SpaceName {
	if iface.Sandbox != "" {
		return state.Pod
	}
	return state.Host
}

func (r *resultCheck) queries() []state.Query {
	var out []state.Query
	for _, iface := range r.prev.Interfaces {
		space := spaceOf(iface)
		out = append(out, state.Query{Space: space, Link: iface.Name})
		if space == state.Pod {
			out = append(out, state.Query{Space: space, OtherEnd: iface.Name},
				state.Query{Space: space, Routes: iface.Name}, state.Query{Space: space, Routes: iface.Name, Main: true})
		}
	}
	return out
}

// link looks for an interface with its MAC address and its addresses.
func (r *resultCheck) link(i int) {
	iface := r.prev.Interfaces[i]
	space := spaceOf(iface)
	have := r.answers[state.Query{Space: space, Link: iface.Name}]
	if !have.Found {
		r.say("%s: missing link %s", space, iface.Name)
		return
	}
	if mac := have.Link.MAC.String(); iface.MAC != "" && !strings.EqualFold(iface.MAC, mac) {
		r.say("%s: want link %s mac %s, have %s", space, iface.Name, iface.MAC, mac)
	}
	for _, ip := range r.prev.IPs {
		if ip.Interface == nil || *ip.Interface != i {
			continue
		}
		same := func(a state.Addr) bool { return a.Prefix == ip.Address }
		if !slices.ContainsFunc(have.Addrs, same) {
			r.say("%s: missing addr %s dev %s", space, ip.Address, iface.Name)
		}
	}
}

// wire looks whether the node's end of a pair is the one that the result names, and on the bridge that it names.
func (r *resultCheck) wire(name string) {
	pod := r.answers[state.Query{Space: state.Pod, Link: name}]
	if !pod.Found || pod.Link.Kind != state.Veth {
		return
	}
	var ends, bridges []string
	for _, iface := range r.prev.Interfaces {
		switch have := r.answers[state.Query{Space: state.Host, Link: iface.Name}]; {
		case iface.Sandbox != "":
		case have.Link.Kind == state.Bridge:
			bridges = append(bridges, iface.Name)
		case have.Link.Kind == state.Veth:
			ends = append(ends, iface.Name)
		}
	}
	if len(ends) == 0 {
		return // said already, or the result speaks of the container alone
	}
	end := r.answers[state.Query{Space: state.Pod, OtherEnd: name}]
	switch {
	case !end.Found || !slices.Contains(ends, end.Link.Name):
		r.say("pod: want link %s with its other end in %s, have %q", name, strings.Join(ends, " or "), end.Link.Name)
	case len(bridges) > 0 && !slices.Contains(bridges, end.Link.Master):
		r.say("host: want link %s master %s, have %q", end.Link.Name, strings.Join(bridges, " or "), end.Link.Master)
	}
}

// routes looks for the result's routes, in whatever table: a plugin behind may have moved them.
func (r *resultCheck) routes() {
	var have []state.Route
	for _, answer := range r.answers {
		have = append(have, answer.Routes...)
	}
	for _, want := range r.prev.Routes {
		same := func(o state.Route) bool { return o.Dst == want.Dst.Masked() && (!want.GW.IsValid() || o.Gw == want.GW) }
		if !slices.ContainsFunc(have, same) {
			route := state.Route{Dst: want.Dst.Masked(), Gw: want.GW}
			r.say("pod: missing %s", route)
		}
	}
}
