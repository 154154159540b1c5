// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/state"
)

// repairPlan is what is applied of an attachment's fragment, and what was decided of each drift.
type repairPlan struct {
	host, pod state.Space
	// joint: a pair has gone with both of its ends, and both are made in one.
	joint   bool
	decided []decided
}

type decided struct {
	state.Difference
	decision
}

// repairOf is the part of a fragment that is put back. On the node it is everything, but for what is on links that
// cannot be made again. In the pod it is what drifted and is to be repaired, nothing else: what the pod has changed on
// purpose stays.
func repairOf(
	want state.Fragment, found []state.Difference, decide func(d state.Difference, can bool) decision,
) repairPlan {
	var r repairPlan
	lost := lostLinks(want, found)
	again := map[string]bool{} // pod's ends of pairs that are made again
	wanted := map[state.SpaceName]map[string]bool{state.Host: {}, state.Pod: {}}
	on := map[state.SpaceName]map[string]string{state.Host: linksOf(want.Host), state.Pod: linksOf(want.Pod)}
	tables := false
	for _, d := range found {
		name := on[d.Space][d.Want]
		l, gone := lost[d.Space][name]
		c := decide(d, gone && l.again || !gone && !otherEnd(name, d))
		if gone && kindOf(d) == "link" && d.Space == state.Pod && c.repair {
			again[name], r.joint = true, true
		}
		r.decided = append(r.decided, decided{d, c})
		wanted[d.Space][d.Want] = c.repair
		tables = tables || c.repair && d.Space == state.Pod && kindOf(d) == "nft"
	}
	for space, links := range lost {
		for name, l := range links {
			if space == state.Pod && again[name] || space == state.Host && l.again && (l.peer == "" || again[l.peer]) {
				delete(links, name)
			}
		}
	}
	if slices.ContainsFunc(found, func(d state.Difference) bool {
		return d.Space == state.Host && wanted[state.Host][d.Want]
	}) || r.joint {
		r.host = without(want.Host, lost[state.Host])
	}
	r.pod = chosen(without(want.Pod, lost[state.Pod]), wanted[state.Pod], again)
	if !tables && !r.joint {
		r.pod.Tables = nil
	}
	return r
}

// lostLink is a link that is not there.
type lostLink struct {
	// again: it can be made again, together with its peer in the other namespace, if it has one.
	again bool
	peer  string
}

// lostLinks are the links that have gone. Weft makes again what it can make alone: bridges and their like, and a pair
// of which neither end is left. One end that is left tells that its pod has renamed or moved the other one; a tap is
// its hypervisor's; what came from elsewhere, and what others made, cannot be made at all. A link that bears another
// attachment's mark has gone as well.
func lostLinks(want state.Fragment, found []state.Difference) map[state.SpaceName]map[string]lostLink {
	out := map[state.SpaceName]map[string]lostLink{state.Host: {}, state.Pod: {}}
	gone := map[state.SpaceName]map[string]bool{state.Host: {}, state.Pod: {}}
	foreign := map[state.SpaceName]map[string]bool{state.Host: {}, state.Pod: {}}
	for _, d := range found {
		if name := linkNamed(want, d); name != "" {
			gone[d.Space][name], foreign[d.Space][name] = d.Have == "", passedOn(d)
		}
	}
	for _, space := range []state.SpaceName{state.Host, state.Pod} {
		for _, l := range want.Space(space).Links {
			pair := l.Kind == state.Veth && l.Peer != nil && l.Peer.Space != space
			switch {
			case foreign[space][l.Name]:
				out[space][l.Name] = lostLink{}
			case !gone[space][l.Name]:
			case pair:
				out[space][l.Name] = lostLink{again: gone[l.Peer.Space][l.Peer.Name], peer: l.Peer.Name}
			default:
				out[space][l.Name] = lostLink{again: space == state.Host && l.Kind != "" && l.Kind != state.Tap && l.From == nil}
			}
		}
	}
	return out
}

// linksOf are the links that things are on, by the things' words.
func linksOf(s state.Space) map[string]string {
	out := map[string]string{}
	for _, l := range s.Links {
		out[l.String()] = l.Name
	}
	for _, a := range s.Addrs {
		out[a.String()] = a.Link
	}
	for _, r := range s.Routes {
		out[r.String()] = r.Link
	}
	for _, n := range s.Neighs {
		out[n.String()] = n.Link
	}
	for _, f := range s.FDBs {
		out[f.String()] = f.Link
	}
	for _, q := range s.Qdiscs {
		out[q.String()] = q.Link
	}
	for _, j := range s.Joins {
		out[j.String()] = j.Link
	}
	for _, c := range s.Sysctls {
		for _, l := range s.Links {
			if about(c, l.Name) {
				out[c.String()] = l.Name
			}
		}
	}
	return out
}

// passedOn reports whether a link that is no shared one bears another attachment's mark: its name has passed on.
func passedOn(d state.Difference) bool {
	_, want, _ := strings.Cut(d.Want, " alias ")
	_, have, bears := strings.Cut(d.Have, " alias ")
	return bears && want != "" && !strings.HasPrefix(want, kernel.SharedMark) && !strings.HasPrefix(have, want)
}

// linkNamed is the name of the link that a difference is about, empty where it is about something else.
func linkNamed(want state.Fragment, d state.Difference) string {
	if kindOf(d) != "link" {
		return ""
	}
	for _, l := range want.Space(d.Space).Links {
		if l.String() == d.Want {
			return l.Name
		}
	}
	return ""
}

// otherEnd reports whether a link differs in nothing but its other end: that one was moved or renamed, and stays.
func otherEnd(name string, d state.Difference) bool {
	return name != "" && strings.HasPrefix(d.Have, "link "+name+": ")
}

// without is a space without what is on some links.
func without(s state.Space, links map[string]lostLink) state.Space {
	if len(links) == 0 {
		return s
	}
	is := func(names ...string) bool {
		return slices.ContainsFunc(names, func(name string) bool { _, is := links[name]; return is })
	}
	s.Links = slices.DeleteFunc(slices.Clone(s.Links), func(l state.Link) bool { return is(l.Name, l.Master) })
	s.Addrs = slices.DeleteFunc(slices.Clone(s.Addrs), func(a state.Addr) bool { return is(a.Link) })
	s.Routes = slices.DeleteFunc(slices.Clone(s.Routes), func(r state.Route) bool { return is(r.Link) })
	s.Neighs = slices.DeleteFunc(slices.Clone(s.Neighs), func(n state.Neigh) bool { return is(n.Link) })
	s.FDBs = slices.DeleteFunc(slices.Clone(s.FDBs), func(f state.FDB) bool { return is(f.Link) })
	s.Qdiscs = slices.DeleteFunc(slices.Clone(s.Qdiscs), func(q state.Qdisc) bool { return is(q.Link, q.Redirect) })
	s.Joins = slices.DeleteFunc(slices.Clone(s.Joins), func(j state.Join) bool { return is(j.Tap, j.Link) })
	s.Sysctls = slices.DeleteFunc(slices.Clone(s.Sysctls), func(c state.Sysctl) bool {
		return slices.ContainsFunc(slices.Collect(maps.Keys(links)), func(name string) bool { return about(c, name) })
	})
	return s
}

// chosen is the part of a pod's space that is put back: what is wanted by its words, and all that is on links that are
// made again.
func chosen(s state.Space, wanted, again map[string]bool) state.Space {
	out := state.Space{Tables: s.Tables}
	is := func(thing fmt.Stringer, link string) bool { return wanted[thing.String()] || again[link] }
	for _, l := range s.Links {
		switch {
		case again[l.Name] || len(again) > 0 && l.Peer != nil:
			out.Links = append(out.Links, l)
		case wanted[l.String()]:
			// nothing else: its MTU and its MAC are the pod's own
			out.Links = append(out.Links, state.Link{Name: l.Name, Up: l.Up})
		}
	}
	out.Addrs = pick(s.Addrs, func(a state.Addr) bool { return is(a, a.Link) })
	out.Routes = pick(s.Routes, func(r state.Route) bool { return is(r, r.Link) })
	out.Rules = pick(s.Rules, func(r state.Rule) bool { return is(r, "") })
	out.Neighs = pick(s.Neighs, func(n state.Neigh) bool { return is(n, n.Link) })
	out.FDBs = pick(s.FDBs, func(f state.FDB) bool { return is(f, f.Link) })
	out.Sysctls = pick(s.Sysctls, func(c state.Sysctl) bool {
		return wanted[c.String()] ||
			slices.ContainsFunc(slices.Collect(maps.Keys(again)), func(name string) bool { return about(c, name) })
	})
	out.Qdiscs = pick(s.Qdiscs, func(q state.Qdisc) bool { return is(q, q.Link) })
	out.Joins = pick(s.Joins, func(j state.Join) bool { return is(j, j.Link) })
	return out
}

// about reports whether a setting is one of a link.
func about(c state.Sysctl, link string) bool { return strings.Contains(c.Name, "/"+link+"/") }

func pick[T any](all []T, is func(T) bool) (out []T) {
	for _, one := range all {
		if is(one) {
			out = append(out, one)
		}
	}
	return out
}

// apply does it: the node first, with its rules, then the pod. between is called between the two.
func (r repairPlan) apply(ctx context.Context, spaces kernel.Spaces, owner string, between func() error) error {
	if r.joint {
		return spaces.Apply(ctx, state.Fragment{Owner: owner, Host: r.host, Pod: r.pod})
	}
	if !r.host.Empty() {
		// Without the pod's namespace the driver does not compare the ends of pairs.
		if err := (kernel.Spaces{Host: spaces.Host}).Apply(ctx, state.Fragment{Owner: owner, Host: r.host}); err != nil {
			return err
		}
	}
	if err := between(); err != nil || r.pod.Empty() {
		return err
	}
	return spaces.Apply(ctx, state.Fragment{Owner: owner, Pod: r.pod})
}
