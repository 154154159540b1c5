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

// repairPlan is the part of an attachment's fragment that is applied, and the decision about each drift.
type repairPlan struct {
	host, pod state.Space
	// joint: both ends of a veth pair are gone and are created together.
	joint   bool
	decided []decided
}

type decided struct {
	state.Difference
	decision
}

// planRepair returns the part of a fragment that is applied. On the node it is everything, except for objects on links
// that cannot be re-created. In the pod it is only the drift that is to be repaired: what the pod has changed on
// purpose stays.
func planRepair(want state.Fragment, differences []state.Difference, decide func(found) decision) repairPlan {
	var r repairPlan
	lost := lostLinks(want, differences)
	ports, freed := podPorts(want.Pod), map[string]bool{}
	again := map[string]bool{} // the pod's ends of veth pairs that are re-created
	wanted := map[state.SpaceName]map[string]bool{state.Host: {}, state.Pod: {}}
	on := map[state.SpaceName]map[string]string{state.Host: linkByObject(want.Host), state.Pod: linkByObject(want.Pod)}
	tables := false
	for _, d := range differences {
		name := on[d.Space][d.Want]
		l, gone := lost[d.Space][name]
		master, masterless := lost[d.Space][masterOf(d.Want)]
		c := decide(found{
			Difference: d,
			fixable:    (gone && l.recreate || !gone && !onlyPeerDiffers(name, d)) && (!masterless || master.recreate),
			joins:      d.Space == state.Pod && ports[name],
		})
		if gone && kindOf(d) == "link" && d.Space == state.Pod && c.repair {
			again[name], r.joint = true, true
		}
		r.decided = append(r.decided, decided{d, c})
		wanted[d.Space][d.Want] = c.repair
		freed[name] = freed[name] || d.Space == state.Pod && otherMaster(d)
		tables = tables || c.repair && d.Space == state.Pod && kindOf(d) == "nft"
	}
	forgetRecreated(lost, again)
	if slices.ContainsFunc(differences, func(d state.Difference) bool {
		return d.Space == state.Host && wanted[state.Host][d.Want]
	}) || r.joint {
		r.host = without(want.Host, lost[state.Host])
	}
	r.pod = chosen(without(want.Pod, lost[state.Pod]), wanted[state.Pod], again, freed)
	if !tables && !r.joint {
		r.pod.Tables = nil
	}
	return r
}

// forgetRecreated removes from the lost links those that are re-created: again are the pod's ends.
func forgetRecreated(lost map[state.SpaceName]map[string]lostLink, again map[string]bool) {
	for space, links := range lost {
		for name, l := range links {
			if space == state.Pod && again[name] || space == state.Host && l.recreate && (l.peer == "" || again[l.peer]) {
				delete(links, name)
			}
		}
	}
}

// podPorts returns the links of a pod that are ports of a bridge in the pod.
func podPorts(pod state.Space) map[string]bool {
	out := map[string]bool{}
	for _, l := range pod.Links {
		out[l.Name] = l.Master != "" && slices.ContainsFunc(pod.Links, func(o state.Link) bool {
			return o.Name == l.Master && o.Kind == state.Bridge
		})
	}
	return out
}

// lostLink is a link that is gone.
type lostLink struct {
	// recreate: it can be re-created, together with its peer in the other namespace, if it has one.
	recreate bool
	peer     string
}

// lostLinks returns the links that are gone. Bridges and the like can be re-created, and a veth pair of which neither
// end is left. If one end is left, the pod has renamed or moved the other one. A tap belongs to its hypervisor, and
// links that were moved into the pod or that other programs created cannot be re-created. A link with another
// attachment's mark counts as gone, and so does one of another kind in the pod, which took the name.
func lostLinks(want state.Fragment, found []state.Difference) map[state.SpaceName]map[string]lostLink {
	out := map[state.SpaceName]map[string]lostLink{state.Host: {}, state.Pod: {}}
	gone := map[state.SpaceName]map[string]bool{state.Host: {}, state.Pod: {}}
	foreign := map[state.SpaceName]map[string]bool{state.Host: {}, state.Pod: {}}
	for _, d := range found {
		if name := linkNamed(want, d); name != "" {
			gone[d.Space][name], foreign[d.Space][name] = d.Have == "", reusedName(d)
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
				out[space][l.Name] = lostLink{recreate: gone[l.Peer.Space][l.Peer.Name], peer: l.Peer.Name}
			default:
				out[space][l.Name] = lostLink{
					recreate: space == state.Host && l.Kind != "" && l.Kind != state.Tap && l.MovedFrom == nil,
				}
			}
		}
	}
	return out
}

// linkByObject returns the link that each object is on, by the object's text.
func linkByObject(s state.Space) map[string]string {
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
			if sysctlOfLink(c, l.Name) {
				out[c.String()] = l.Name
			}
		}
	}
	return out
}

// reusedName reports whether an unshared link has another attachment's mark, or is of another kind in the pod, as the one by
// which KubeVirt replaces the interface of a guest with its bridge binding: its name was reused.
func reusedName(d state.Difference) bool {
	if want, have := linkKind(d.Want), linkKind(d.Have); d.Space == state.Pod && want != "" && have != "" && want != have {
		return true
	}
	_, want, _ := strings.Cut(d.Want, " alias ")
	_, have, bears := strings.Cut(d.Have, " alias ")
	return bears && want != "" && !strings.HasPrefix(want, kernel.SharedMark) && !strings.HasPrefix(have, want)
}

// linkKind returns the kind of a link as it is printed, empty if that has none.
func linkKind(link string) string {
	link, _, _ = strings.Cut(link, " alias ") // comes last, and may contain anything
	_, rest, _ := strings.Cut(link, " kind ")
	kind, _, _ := strings.Cut(rest, " ")
	return kind
}

// linkNamed returns the name of the link that a difference is about, empty if it is about another object.
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

// onlyPeerDiffers reports whether a link differs only in its peer, which was moved or renamed and stays.
func onlyPeerDiffers(name string, d state.Difference) bool {
	return name != "" && strings.HasPrefix(d.Have, "link "+name+": ")
}

// without returns a space without the objects on some links.
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
		return slices.ContainsFunc(slices.Collect(maps.Keys(links)), func(name string) bool { return sysctlOfLink(c, name) })
	})
	return s
}

// chosen returns the part of a pod's space that is applied: the wanted objects, and all objects on re-created links.
// freed are the links that are not ports of their masters.
func chosen(s state.Space, wanted, again, freed map[string]bool) state.Space {
	out := state.Space{Tables: s.Tables}
	is := func(thing fmt.Stringer, link string) bool { return wanted[thing.String()] || again[link] }
	for _, l := range s.Links {
		switch {
		case again[l.Name] || len(again) > 0 && l.Peer != nil:
			out.Links = append(out.Links, l)
		case wanted[l.String()]:
			// only its state: MTU and MAC may be the pod's choice
			only := state.Link{Name: l.Name, Up: l.Up}
			if freed[l.Name] { // a port begins with the kernel's settings
				only.Master, only.Port, only.VLANs = l.Master, l.Port, l.VLANs
			}
			out.Links = append(out.Links, only)
		}
	}
	out.Addrs = pick(s.Addrs, func(a state.Addr) bool { return is(a, a.Link) })
	out.Routes = pick(s.Routes, func(r state.Route) bool { return is(r, r.Link) })
	out.Rules = pick(s.Rules, func(r state.Rule) bool { return is(r, "") })
	out.Neighs = pick(s.Neighs, func(n state.Neigh) bool { return is(n, n.Link) })
	out.FDBs = pick(s.FDBs, func(f state.FDB) bool { return is(f, f.Link) })
	out.Sysctls = pick(s.Sysctls, func(c state.Sysctl) bool {
		return wanted[c.String()] ||
			slices.ContainsFunc(slices.Collect(maps.Keys(again)), func(name string) bool { return sysctlOfLink(c, name) })
	})
	out.Qdiscs = pick(s.Qdiscs, func(q state.Qdisc) bool { return is(q, q.Link) })
	out.Joins = pick(s.Joins, func(j state.Join) bool { return is(j, j.Link) })
	return out
}

// sysctlOfLink reports whether a sysctl belongs to a link.
func sysctlOfLink(c state.Sysctl, link string) bool { return strings.Contains(c.Name, "/"+link+"/") }

func pick[T any](all []T, is func(T) bool) (out []T) {
	for _, one := range all {
		if is(one) {
			out = append(out, one)
		}
	}
	return out
}

// apply applies the plan: the node first, with its rules, then the pod. between is called in between.
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
