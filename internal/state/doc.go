// SPDX-License-Identifier: Apache-2.0

// Package state represents kernel objects as plain values: links, addresses, routes, rules, neighbors, sysctls and nft
// tables. A plan consists of them, a driver reads them back, and each prints itself.
//
// # Vocabulary
//
//   - Space: what one network namespace should hold, or holds.
//   - Fragment: the part of a node's state that has one owner (an attachment, a peer). It names objects in two spaces:
//     the node's (Host) and, for an attachment, the pod's (Pod).
//   - Partial: an unset field (zero value, nil pointer) is not compared and not written.
//   - Shared: an object with several owners. Remove leaves it; RemoveShared removes it when its last owner is gone.
//
// A state never contains interface indexes, handles, connected and local routes, or link-local addresses that the
// kernel chose. Drivers translate names to indexes.
package state

// SpaceName selects one of a fragment's two namespaces.
type SpaceName string

// The two spaces of a fragment.
const (
	Host SpaceName = "host"
	Pod  SpaceName = "pod"
)

// Space is what one network namespace should hold.
type Space struct {
	Links   List[Link]   `json:"links,omitempty"`
	Addrs   List[Addr]   `json:"addrs,omitempty"`
	Routes  List[Route]  `json:"routes,omitempty"`
	Rules   List[Rule]   `json:"rules,omitempty"`
	Neighs  List[Neigh]  `json:"neighs,omitempty"`
	FDBs    List[FDB]    `json:"fdbs,omitempty"`
	Sysctls List[Sysctl] `json:"sysctls,omitempty"`
	Tables  List[Table]  `json:"tables,omitempty"`
	Qdiscs  List[Qdisc]  `json:"qdiscs,omitempty"`
	// Joins connect taps and other links.
	Joins List[Join] `json:"joins,omitempty"`
	// Sources are source addresses of firewalld's zones; in the node's own namespace only.
	Sources List[ZoneSource] `json:"sources,omitempty"`
	// IPTables are chains and rules for plugins that use the iptables programs; in the node's own namespace only.
	IPTables List[IPTables] `json:"iptables,omitempty"`
}

// Fragment is the part of a node's state that has one owner.
type Fragment struct {
	// Owner identifies the fragment, for example "attachment/<container id>/eth0" or "mesh/peer/node2".
	Owner   string       `json:"owner"`
	Host    Space        `json:"host"`
	Pod     Space        `json:"pod"`
	Effects List[Effect] `json:"effects,omitempty"`
}

// Space returns a pointer to the named space of f.
func (f *Fragment) Space(name SpaceName) *Space {
	if name == Pod {
		return &f.Pod
	}
	return &f.Host
}

// Merge adds the objects of g to f; the owner remains that of f. Where g changes a link or a setting that f already
// has, the values of g win.
func (f *Fragment) Merge(g Fragment) {
	f.Host.merge(g.Host)
	f.Pod.merge(g.Pod)
	f.Effects = append(f.Effects, g.Effects...)
}

// Empty reports whether the space has no objects.
func (s Space) Empty() bool {
	return len(s.Links)+len(s.Addrs)+len(s.Routes)+len(s.Rules)+len(s.Neighs)+len(s.FDBs)+len(s.Sysctls)+len(s.Tables)+
		len(s.Qdiscs)+len(s.Joins)+len(s.Sources)+len(s.IPTables) == 0
}

func (s *Space) merge(t Space) {
	for _, l := range t.Links {
		s.Links = withLink(s.Links, l)
	}
	s.Addrs = append(s.Addrs, t.Addrs...)
	for _, r := range t.Routes {
		s.Routes = withRoute(s.Routes, r)
	}
	s.Rules = append(s.Rules, t.Rules...)
	s.Neighs = append(s.Neighs, t.Neighs...)
	s.FDBs = append(s.FDBs, t.FDBs...)
	for _, v := range t.Sysctls {
		s.Sysctls = withSysctl(s.Sysctls, v)
	}
	s.Tables = append(s.Tables, t.Tables...)
	s.Qdiscs = append(s.Qdiscs, t.Qdiscs...)
	s.Joins = append(s.Joins, t.Joins...)
	s.Sources = append(s.Sources, t.Sources...)
	s.IPTables = append(s.IPTables, t.IPTables...)
}
