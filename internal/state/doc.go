// SPDX-License-Identifier: Apache-2.0

// Package state holds the kernel's nouns as plain values: links, addresses, routes, rules, neighbors, sysctls and nft
// tables. A plan is made of them, a driver reads them back, and everything prints itself.
//
// # Vocabulary
//
//   - Space: what one network namespace should hold, or holds.
//   - Fragment: the part of a node's state that one owner (an attachment, a peer) answers for. It names objects in two
//     spaces: the node's (Host) and, for an attachment, the pod's (Pod).
//   - Partial: an unset field (zero value, nil pointer) is not compared and not written.
//   - Shared: an object that several owners name. Remove leaves it in place; RemoveShared takes it when its last owner
//     is gone.
//
// Never in a state: ifindexes, handles, connected and local routes, link-local addresses the kernel chose. Drivers turn
// names into indexes.
package state

// SpaceName says which of a fragment's two namespaces something is in.
type SpaceName string

// The two spaces of a fragment.
const (
	Host SpaceName = "host"
	Pod  SpaceName = "pod"
)

// Space is what one network namespace should hold.
type Space struct {
	Links   []Link   `json:"links,omitempty"`
	Addrs   []Addr   `json:"addrs,omitempty"`
	Routes  []Route  `json:"routes,omitempty"`
	Rules   []Rule   `json:"rules,omitempty"`
	Neighs  []Neigh  `json:"neighs,omitempty"`
	FDBs    []FDB    `json:"fdbs,omitempty"`
	Sysctls []Sysctl `json:"sysctls,omitempty"`
	Tables  []Table  `json:"tables,omitempty"`
	Qdiscs  []Qdisc  `json:"qdiscs,omitempty"`
	// Joins make wires of taps and other links.
	Joins []Join `json:"joins,omitempty"`
	// Sources are addresses in zones of firewalld; the node's own namespace only.
	Sources []ZoneSource `json:"sources,omitempty"`
	// IPTables is what must be visible to plugins that use the iptables programs; the node's own namespace only.
	IPTables []IPTables `json:"iptables,omitempty"`
}

// Fragment is one owner's part of the state of a node.
type Fragment struct {
	// Owner keys the fragment, for example "attachment/<container id>/eth0" or "mesh/peer/node2".
	Owner   string   `json:"owner"`
	Host    Space    `json:"host"`
	Pod     Space    `json:"pod"`
	Effects []Effect `json:"effects,omitempty"`
}

// Space returns a pointer to the named space of f.
func (f *Fragment) Space(name SpaceName) *Space {
	if name == Pod {
		return &f.Pod
	}
	return &f.Host
}

// Merge adds what g names to f; the owner stays f's. What g says of a link or a setting that f names already counts.
func (f *Fragment) Merge(g Fragment) {
	f.Host.merge(g.Host)
	f.Pod.merge(g.Pod)
	f.Effects = append(f.Effects, g.Effects...)
}

// Empty tells whether the space names nothing.
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
