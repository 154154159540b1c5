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

// checkResult compares the kernel with the caller's result. It is used for unrecorded attachments, which a reference
// plugin made.
func checkResult(ctx context.Context, job Job, spaces kernel.Spaces) ([]string, error) {
	if job.Prev == nil {
		return nil, model.Errorf(model.CodeInvalidConf, "CHECK needs the result of the ADD", "prevResult is missing")
	}
	r := resultCheck{prev: *job.Prev}
	var err error
	if r.answers, err = spaces.Observe(ctx, r.queries()); err != nil {
		return nil, err
	}
	for i, iface := range r.prev.Interfaces {
		r.link(i)
		if iface.Sandbox != "" {
			r.veth(iface.Name)
		}
	}
	r.routes()
	return r.diff, nil
}

// resultCheck compares a result with the kernel's answers.
type resultCheck struct {
	prev    model.Result
	answers state.Answers
	diff    []string
}

func (r *resultCheck) addf(format string, args ...any) {
	r.diff = append(r.diff, fmt.Sprintf(format, args...))
}

// spaceOf returns the namespace of an interface of a result.
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

// link checks an interface, its MAC and its addresses.
func (r *resultCheck) link(i int) {
	iface := r.prev.Interfaces[i]
	space := spaceOf(iface)
	have := r.answers[state.Query{Space: space, Link: iface.Name}]
	if !have.Found {
		r.addf("%s: missing link %s", space, iface.Name)
		return
	}
	if mac := have.Link.MAC.String(); iface.MAC != "" && !strings.EqualFold(iface.MAC, mac) {
		r.addf("%s: want link %s mac %s, have %s", space, iface.Name, iface.MAC, mac)
	}
	for _, ip := range r.prev.IPs {
		if ip.Interface == nil || *ip.Interface != i {
			continue
		}
		same := func(a state.Addr) bool { return a.Prefix == ip.Address }
		if !slices.ContainsFunc(have.Addrs, same) {
			r.addf("%s: missing addr %s dev %s", space, ip.Address, iface.Name)
		}
	}
}

// veth checks that the node's end of a veth pair is the one that the result names, on the bridge that it names.
func (r *resultCheck) veth(name string) {
	pod := r.answers[state.Query{Space: state.Pod, Link: name}]
	if !pod.Found || pod.Link.Kind != state.Veth {
		return
	}
	var hostLinks, bridges []string
	for _, iface := range r.prev.Interfaces {
		switch have := r.answers[state.Query{Space: state.Host, Link: iface.Name}]; {
		case iface.Sandbox != "":
		case have.Link.Kind == state.Bridge:
			bridges = append(bridges, iface.Name)
		case have.Link.Kind == state.Veth:
			hostLinks = append(hostLinks, iface.Name)
		}
	}
	if len(hostLinks) == 0 {
		return // reported by link already, or the result lists no interface of the node
	}
	end := r.answers[state.Query{Space: state.Pod, OtherEnd: name}]
	switch {
	case !end.Found || !slices.Contains(hostLinks, end.Link.Name):
		r.addf("pod: want link %s with its other end in %s, have %q", name, strings.Join(hostLinks, " or "), end.Link.Name)
	case len(bridges) > 0 && !slices.Contains(bridges, end.Link.Master):
		r.addf("host: want link %s master %s, have %q", end.Link.Name, strings.Join(bridges, " or "), end.Link.Master)
	}
}

// routes checks the result's routes, in any table: a later plugin may have moved them.
func (r *resultCheck) routes() {
	var have []state.Route
	for _, answer := range r.answers {
		have = append(have, answer.Routes...)
	}
	for _, want := range r.prev.Routes {
		same := func(o state.Route) bool { return o.Dst == want.Dst.Masked() && (!want.GW.IsValid() || o.Gw == want.GW) }
		if !slices.ContainsFunc(have, same) {
			route := state.Route{Dst: want.Dst.Masked(), Gw: want.GW}
			r.addf("pod: missing %s", route)
		}
	}
}
