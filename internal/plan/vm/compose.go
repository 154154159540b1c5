// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/state"
)

// Compose returns the desired state of an attachment: what it created (its interface is link), changed by a VM's
// networks. The VM's settings take precedence. The networks' own objects are included if they belong to that interface.
func Compose(attached state.Fragment, link string, pod Step, networks []Network) state.Fragment {
	out := attached
	settings := pod.Fragment.Pod.Sysctls
	for _, n := range networks {
		if n.PodLink == link {
			out = overlayNetwork(out, n.Fragment)
			continue
		}
		settings = append(slices.Clip(settings), n.Fragment.Pod.Sysctls...)
	}
	out.Pod.Sysctls = without(out.Pod.Sysctls, settings)
	return out
}

// overlayNetwork applies the changes of a VM's network to an attachment's fragment.
func overlayNetwork(f, over state.Fragment) state.Fragment {
	f.Pod.Links = slices.Clone(f.Pod.Links)
	made := slices.Clone(over.Pod.Links)
	over.Pod.Links = made[:0]
	for _, l := range made {
		switch {
		case l.MovedFrom != nil:
			f = renameLink(f, l)
		case l.Kind == "":
			f.Pod = changePort(f.Pod, l)
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

// renameLink renames a link. It has lost its addresses, routes and settings: the placeholder link has the old name now,
// with settings of its own.
func renameLink(f state.Fragment, l state.Link) state.Fragment {
	was := l.MovedFrom.Name
	i := slices.IndexFunc(f.Pod.Links, func(o state.Link) bool { return o.Name == was })
	if i >= 0 {
		f.Pod.Links[i] = changed(f.Pod.Links[i], l)
		if f.Pod.Links[i].Name = l.Name; f.Pod.Links[i].MovedFrom != nil { // it had another name before
			f.Pod.Links[i].MovedFrom = l.MovedFrom
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
	f.Pod = withoutLink(f.Pod, was)
	f.Pod.Sysctls = slices.DeleteFunc(slices.Clone(f.Pod.Sysctls), func(o state.Sysctl) bool { return isOfLink(o, was) })
	f.Pod.Qdiscs = slices.Clone(f.Pod.Qdiscs)
	for i := range f.Pod.Qdiscs {
		if f.Pod.Qdiscs[i].Link == was {
			f.Pod.Qdiscs[i].Link = l.Name
		}
	}
	return f
}

// changePort changes a link that keeps its name. If it has become a port, it has lost its addresses and routes.
func changePort(s state.Space, l state.Link) state.Space {
	i := slices.IndexFunc(s.Links, func(o state.Link) bool { return o.Name == l.Name })
	if i >= 0 {
		s.Links[i] = changed(s.Links[i], l)
	}
	if l.Master != "" {
		s = withoutLink(s, l.Name)
	}
	return s
}

// changed returns a link with the changes of a VM's network.
func changed(was, l state.Link) state.Link {
	f := state.Fragment{Pod: state.Space{Links: []state.Link{was}}}
	l.Name, l.MovedFrom, l.Kind = was.Name, nil, ""
	f.Merge(state.Fragment{Pod: state.Space{Links: []state.Link{l}}})
	return f.Pod.Links[0]
}

// withoutLink returns a namespace without a link's addresses, routes and neighbors.
func withoutLink(s state.Space, link string) state.Space {
	s.Addrs = slices.DeleteFunc(slices.Clone(s.Addrs), func(a state.Addr) bool { return a.Link == link })
	s.Routes = slices.DeleteFunc(slices.Clone(s.Routes), func(r state.Route) bool { return r.Link == link })
	s.Neighs = slices.DeleteFunc(slices.Clone(s.Neighs), func(n state.Neigh) bool { return n.Link == link })
	return s
}

// without removes the settings that are also in others.
func without(settings, others []state.Sysctl) []state.Sysctl {
	return slices.DeleteFunc(slices.Clone(settings), func(s state.Sysctl) bool {
		return slices.ContainsFunc(others, func(o state.Sysctl) bool { return o.Name == s.Name })
	})
}

// isOfLink reports whether a setting belongs to a link.
func isOfLink(s state.Sysctl, link string) bool {
	return strings.HasPrefix(s.Name, "net/ipv") && strings.Contains(s.Name, "/"+link+"/")
}
