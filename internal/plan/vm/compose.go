// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/state"
)

// Compose is what there should be about an attachment: what it made (its interface is link), and what a machine's
// networks have made of that since. What both say the machine says. The networks' own things are in it as far as they
// are about that interface.
func Compose(attached state.Fragment, link string, pod Step, networks []Network) state.Fragment {
	out := attached
	settings := pod.Fragment.Pod.Sysctls
	for _, n := range networks {
		if n.PodLink == link {
			out = upon(out, n.Fragment)
			continue
		}
		settings = append(slices.Clip(settings), n.Fragment.Pod.Sysctls...)
	}
	out.Pod.Sysctls = without(out.Pod.Sysctls, settings)
	return out
}

// upon lays what a network of a machine says over what an attachment has made.
func upon(f, over state.Fragment) state.Fragment {
	f.Pod.Links = slices.Clone(f.Pod.Links)
	made := slices.Clone(over.Pod.Links)
	over.Pod.Links = made[:0]
	for _, l := range made {
		switch {
		case l.From != nil:
			f = moved(f, l)
		case l.Kind == "":
			f.Pod = port(f.Pod, l)
		default:
			over.Pod.Links = append(over.Pod.Links, l)
		}
	}
	f.Pod.Sysctls = without(f.Pod.Sysctls, over.Pod.Sysctls)
	f.Host.Neighs = slices.DeleteFunc(slices.Clone(f.Host.Neighs), func(n state.Neigh) bool {
		return slices.ContainsFunc(over.Host.Neighs, func(o state.Neigh) bool { return o.Link == n.Link && o.IP == n.IP })
	})
	f.Merge(over)
	return f
}

// moved gives a link its new name. It has lost its addresses, what was reached over it and its settings: another link
// has that name now, whose settings are its own.
func moved(f state.Fragment, l state.Link) state.Fragment {
	was := l.From.Name
	i := slices.IndexFunc(f.Pod.Links, func(o state.Link) bool { return o.Name == was })
	if i >= 0 {
		f.Pod.Links[i] = changed(f.Pod.Links[i], l)
		if f.Pod.Links[i].Name = l.Name; f.Pod.Links[i].From != nil { // it bears the name that it had last
			f.Pod.Links[i].From = l.From
		}
	}
	f.Host.Links = slices.Clone(f.Host.Links)
	for i, o := range f.Host.Links {
		if o.Peer != nil && o.Peer.Space == state.Pod && o.Peer.Name == was {
			peer := *o.Peer
			peer.Name = l.Name
			f.Host.Links[i].Peer = &peer
		}
	}
	f.Pod = bare(f.Pod, was)
	f.Pod.Sysctls = slices.DeleteFunc(slices.Clone(f.Pod.Sysctls), func(o state.Sysctl) bool { return about(o, was) })
	f.Pod.Qdiscs = slices.Clone(f.Pod.Qdiscs)
	for i := range f.Pod.Qdiscs {
		if f.Pod.Qdiscs[i].Link == was {
			f.Pod.Qdiscs[i].Link = l.Name
		}
	}
	return f
}

// port changes a link that keeps its name. Where it has become a port it has lost what is reached over it.
func port(s state.Space, l state.Link) state.Space {
	i := slices.IndexFunc(s.Links, func(o state.Link) bool { return o.Name == l.Name })
	if i >= 0 {
		s.Links[i] = changed(s.Links[i], l)
	}
	if l.Master != "" {
		s = bare(s, l.Name)
	}
	return s
}

// changed is a link as a machine's network has made it of what it was.
func changed(was, l state.Link) state.Link {
	f := state.Fragment{Pod: state.Space{Links: []state.Link{was}}}
	l.Name, l.From, l.Kind = was.Name, nil, ""
	f.Merge(state.Fragment{Pod: state.Space{Links: []state.Link{l}}})
	return f.Pod.Links[0]
}

// bare is a space without what is reached over a link.
func bare(s state.Space, link string) state.Space {
	s.Addrs = slices.DeleteFunc(slices.Clone(s.Addrs), func(a state.Addr) bool { return a.Link == link })
	s.Routes = slices.DeleteFunc(slices.Clone(s.Routes), func(r state.Route) bool { return r.Link == link })
	s.Neighs = slices.DeleteFunc(slices.Clone(s.Neighs), func(n state.Neigh) bool { return n.Link == link })
	return s
}

// without leaves out the settings that others say.
func without(settings, others []state.Sysctl) []state.Sysctl {
	return slices.DeleteFunc(slices.Clone(settings), func(s state.Sysctl) bool {
		return slices.ContainsFunc(others, func(o state.Sysctl) bool { return o.Name == s.Name })
	})
}

// about tells whether a setting is one of a link.
func about(s state.Sysctl, link string) bool {
	return strings.HasPrefix(s.Name, "net/ipv") && strings.Contains(s.Name, "/"+link+"/")
}
