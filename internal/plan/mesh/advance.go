// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// A node that joins, leaves or changes among thousands changes its own fragment and a few elements of sets, if nothing
// contradicts anything before and after: then the plan is the last one with these differences. Whatever is less simple
// is planned as a whole.

// maxAdvance is how many nodes may change at once: each copies lists of all nodes.
const maxAdvance = 8

// Previous is the last plan and its inputs. The zero Previous is ready for use. It is not safe for concurrent use.
type Previous struct {
	topology Topology
	cluster  *model.Cluster
	cfg      Config
	queries  []state.Query
	answers  state.Answers
	planner  *Planner
	// vxlan reports that the VXLAN back end is used, so that a VTEP may be published.
	vxlan bool
	// displaced are the metrics of prefixes whose own metric another prefix has.
	displaced []displacedMetric
	// senders counts the elements that the plan does not have.
	senders senderSets
	// taken is what the nodes have; nil before the first change.
	taken *taken
	// simple reports that the plan can be advanced, advanced that it was.
	simple, advanced bool
}

// Plan is Plan, and keeps the result for Advance. If the last one had the same inputs, it returns that, which needs no
// memory for a second plan next to the one in force; but a plan that was advanced is planned as a whole.
func (v *Previous) Plan(c *model.Cluster, cfg Config, answers state.Answers) (Topology, error) {
	same := v.isOf(c, cfg, answers)
	if same && v.simple && !v.advanced {
		v.cluster = c
		return v.topology, nil
	}
	t, all, err := plan(c, cfg, answers)
	if err != nil {
		*v = Previous{}
		return t, err
	}
	var known *taken
	if same { // a whole pass without a change
		known = v.taken
	}
	*v = Previous{
		topology: t, cluster: c, cfg: cfg, queries: Observe(c, cfg), answers: answers, planner: all.Planner,
		displaced: all.displaced, taken: known,
	}
	if used, err := cfg.used(c.Nodes, c.Self, all.pools); err == nil {
		v.vxlan = slices.ContainsFunc(used, func(b Backend) bool { return b.Name == "vxlan" })
	}
	v.simple = v.isSimple()
	if !v.simple {
		*v = Previous{} // the inputs of a large cluster are large
		all.guard.fill(&t)
		return t, nil
	}
	t.bare = true
	if v.topology = t; t.guardsTunnels() {
		v.senders = all.guard.senders()
	}
	return t, nil
}

// isOf reports whether the last plan has these inputs. Snapshots share nodes and blocks that have not changed.
func (v *Previous) isOf(c *model.Cluster, cfg Config, answers state.Answers) bool {
	return v.cluster != nil && c.Self == v.cluster.Self && shared(v.cluster.Nodes, c.Nodes) &&
		shared(v.cluster.Blocks, c.Blocks) && reflect.DeepEqual(cfg, v.cfg) &&
		reflect.DeepEqual(c.Pools, v.cluster.Pools) && reflect.DeepEqual(answers, v.answers)
}

// shared reports whether two lists are one in memory.
func shared[T any](a, b []T) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }

// isSimple reports whether the last plan has nothing but fragments of peers, tunnels and sets that depends on several
// nodes.
func (v *Previous) isSimple() bool {
	t, cfg, c := v.topology, v.cfg, v.cluster
	return len(t.Problems)+len(t.LostFamilies) == 0 &&
		slices.Contains([]string{"host-gw", "vxlan", "ipip", udpName, "wireguard"}, t.Backend) &&
		len(cfg.Backends)+len(cfg.DSCPMarks)+len(cfg.Relays)+len(cfg.Unmanaged) == 0 && len(c.Nodes) > 1 &&
		!slices.ContainsFunc(t.Peers, func(p *Peer) bool { // its prefixes' metrics are those of its routes
			return p.Backend != t.Backend || len(p.PodCIDRs)+len(p.Blocks) == 0 && len(t.Pools) == 0 ||
				len(p.Routes()) != len(p.PodCIDRs)+len(p.Blocks)
		}) && slices.IsSortedFunc(c.Blocks, compareBlocks)
}

// Queries returns the queries for Advance; false if the plan cannot be advanced to these facts.
func (v *Previous) Queries(c *model.Cluster, cfg Config) ([]state.Query, bool) {
	if !v.simple || c.Self != v.cluster.Self || !reflect.DeepEqual(cfg, v.cfg) ||
		cfg.Pools && !reflect.DeepEqual(c.Pools, v.cluster.Pools) {
		return nil, false
	}
	return v.queries, true
}

// Advance returns the plan (Topology.IsBare) for facts that differ in few nodes and blocks from those of the last one, and how many peers
// were planned; false if it must be planned as a whole. The order of elements in sets may differ from the whole plan's.
func (v *Previous) Advance(c *model.Cluster, cfg Config, answers state.Answers) (t Topology, planned int, ok bool) {
	if _, ok := v.Queries(c, cfg); !ok || !reflect.DeepEqual(answers, v.answers) {
		return Topology{}, 0, false
	}
	changes, ok := nodeChanges(v.cluster.Nodes, c.Nodes, c.Self)
	if !ok || len(c.Nodes) < 2 {
		return Topology{}, 0, false
	}
	var held pools
	if cfg.Pools && len(v.planner.pools.all) > 0 {
		if changes, held, ok = v.blockChanges(c, changes); !ok {
			return Topology{}, 0, false
		}
	}
	if len(changes) > 0 {
		if v.taken == nil {
			if v.taken, ok = newTaken(v.planner, v.topology.Peers); !ok {
				return Topology{}, 0, false
			}
		}
		a := advance{Previous: v, topology: v.topology, displaced: v.displaced}
		if !a.run(changes, held) {
			*v = Previous{} // its blocks may have changed already
			return Topology{}, 0, false
		}
		v.topology, v.displaced, v.advanced = a.topology, a.displaced, true
		if v.vxlan {
			v.topology.VTEP = vteps{v.planner}.publishedVTEP(c.Nodes)
		}
	}
	v.cluster = c
	return v.topology, len(changes), true
}

// nodeChange is a node before and after: nil if it did not exist.
type nodeChange struct{ was, is *model.Node }

// nodeChanges returns the nodes that differ; false if they are too many or self is among them, or if the nodes are not
// sorted by name.
func nodeChanges(old, now []model.Node, self string) (out []nodeChange, ok bool) {
	add := func(c nodeChange, name string) bool {
		out = append(out, c)
		return len(out) <= maxAdvance && name != self
	}
	i, j := 0, 0
	for i < len(old) || j < len(now) {
		switch {
		case i < len(old) && j < len(now) && old[i].Name == now[j].Name: // most names are the same text in memory
			if !sameNode(&old[i], &now[j]) && !add(nodeChange{&old[i], &now[j]}, now[j].Name) {
				return nil, false
			}
			i, j = i+1, j+1
		case j == len(now) || i < len(old) && old[i].Name < now[j].Name:
			if !add(nodeChange{&old[i], nil}, old[i].Name) {
				return nil, false
			}
			i++
		default:
			if j > 0 && now[j-1].Name >= now[j].Name || !add(nodeChange{nil, &now[j]}, now[j].Name) {
				return nil, false
			}
			j++
		}
	}
	return out, true
}

// sameNode compares what the plan depends on. Most nodes share their values with those of the last facts.
func sameNode(a, b *model.Node) bool {
	return same(a.Addrs, b.Addrs) && same(a.PodCIDRs, b.PodCIDRs) && same(a.Public, b.Public) &&
		(a.Published == b.Published || a.Published.Equal(b.Published)) && a.VTEP == b.VTEP &&
		same(a.Unmanaged, b.Unmanaged)
}

func same[T comparable](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0] || slices.Equal(a, b))
}

// advance is one advance of a plan.
type advance struct {
	*Previous
	topology  Topology
	displaced []displacedMetric
	guard     state.Table // the guard's table, whose sets are its own
}

// run applies the changes; false if the plan is not simple any more. held has the blocks of the changed nodes.
func (a *advance) run(changes []nodeChange, held pools) bool {
	tables := slices.Clone(a.topology.Node.Host.Tables)
	at := slices.IndexFunc(tables, func(t state.Table) bool { return t.Name == GuardTable })
	if at < 0 {
		return false
	}
	a.guard = tables[at]
	a.guard.Sets = slices.Clone(a.guard.Sets)
	a.topology.Peers = slices.Clone(a.topology.Peers)
	a.topology.Tunnels = slices.Clone(a.topology.Tunnels)
	for _, c := range changes {
		if c.was != nil && !a.remove(a.seen(*c.was)) {
			return false
		}
	}
	for _, c := range changes {
		switch {
		case c.is == nil:
			delete(a.planner.pools.byNode, c.was.Name)
		case len(a.planner.pools.all) > 0:
			a.planner.pools.byNode[c.is.Name] = held.byNode[c.is.Name]
		}
	}
	for _, c := range changes {
		if c.is != nil && !a.add(a.seen(*c.is)) {
			return false
		}
	}
	for _, n := range a.senders { // the whole plan has no empty set of sources
		if n == 0 {
			return false
		}
	}
	tables[at] = a.guard
	a.topology.Node.Host.Tables = tables
	return a.setSourcesCluster()
}

// seen returns a node as the whole plan sees it.
func (a *advance) seen(n model.Node) model.Node {
	return a.planner.pools.withoutPoolCIDRs(a.cfg.enabledFamilies([]model.Node{n}))[0]
}

// prefixes returns the prefixes of a node's pods.
func (a *advance) prefixes(n model.Node) []netip.Prefix {
	return append(firstPerFamily(n.PodCIDRs), cidrs(a.planner.pools.byNode[n.Name])...)
}

// usesOwn reports whether a node is reached by self's own back end, so that which back ends are used does not change.
func (a *advance) usesOwn(n model.Node) bool {
	name := a.cfg.backendOf(n)
	return name == "" || name == a.topology.Backend
}

// remove removes what a node contributes.
func (a *advance) remove(n model.Node) bool {
	i, ok := slices.BinarySearchFunc(a.topology.Peers, n.Name, func(p *Peer, name string) int {
		return strings.Compare(p.Name, name)
	})
	if !ok || !a.usesOwn(n) {
		return false
	}
	if !a.dropFromTunnels(i) {
		return false
	}
	peer := a.topology.Peers[i]
	a.taken.drop(appendClaims(nil, peer.Addrs, peer.PodCIDRs, a.planner.pools.byNode[n.Name]))
	a.taken.note(peer, false)
	a.topology.Peers = slices.Delete(a.topology.Peers, i, i+1)
	for _, p := range a.prefixes(n) {
		m := metricOf(p)
		for _, d := range a.displaced {
			if d.prefix == p || d.probed(m) {
				return false
			}
		}
	}
	if a.senders != nil {
		a.senders.count(peer.Addrs, peer.allowedSources(), -1)
	}
	return a.dropFromCluster(n)
}

// add adds what a node contributes.
func (a *advance) add(n model.Node) bool {
	all := a.prefixes(n)
	if !a.usesOwn(n) || len(all) == 0 && len(a.planner.pools.all) == 0 ||
		len(firstPerFamily(n.PodCIDRs)) < len(n.PodCIDRs) || a.contradicts(n) {
		return false
	}
	metrics := map[netip.Prefix]uint32{}
	for _, p := range all {
		metrics[p] = metricOf(p)
	}
	if len(metrics) < len(all) || a.takes(metrics) {
		return false
	}
	planner := *a.planner
	planner.metrics = metrics
	var t Topology
	peer, problems := planner.peer(&t, n, nil)
	if len(problems)+len(t.Problems) > 0 || len(peer.Routes()) != len(all) || a.sharesVTEP(peer) {
		return false
	}
	i, exists := slices.BinarySearchFunc(a.topology.Peers, n.Name, func(p *Peer, name string) int {
		return strings.Compare(p.Name, name)
	})
	if exists {
		return false
	}
	a.topology.Peers = slices.Insert(a.topology.Peers, i, &peer)
	a.taken.note(&peer, true)
	if !a.addToTunnels(n, i, t.Tunnels) {
		return false
	}
	if a.senders != nil {
		sets := len(a.senders)
		if a.senders.count(peer.Addrs, peer.allowedSources(), 1); len(a.senders) > sets {
			return false // the first prefix of this length needs a set and a rule
		}
	}
	return a.addToCluster(n)
}

func (a *advance) set(name string) *state.Set {
	i := slices.IndexFunc(a.guard.Sets, func(s state.Set) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &a.guard.Sets[i]
}

// contradicts reports whether something is wrong with a node alone, or whether it shares an address with another one.
// Otherwise its addresses and prefixes are taken now.
func (a *advance) contradicts(n model.Node) bool {
	addrs, podCIDRs, blocks := addrsOf(n), firstPerFamily(n.PodCIDRs), a.planner.pools.byNode[n.Name]
	for _, p := range podCIDRs {
		if specialPrefix(p.Addr()) != "" || len(a.cfg.Networks) > 0 && !isWithin(p, a.cfg.Networks) {
			return true
		}
	}
	return !a.taken.add(appendClaims(nil, addrs, podCIDRs, blocks))
}

// takes reports whether another node's prefix has one of the metrics, or wants it.
func (a *advance) takes(metrics map[netip.Prefix]uint32) bool {
	for p, m := range metrics {
		for _, d := range a.displaced {
			if d.metric == m || d.probed(m) {
				return true
			}
		}
		for o, other := range metrics {
			if o != p && other == m {
				return true
			}
		}
		for _, own := range a.prefixes(a.planner.self) {
			if metricOf(own) == m {
				return true
			}
		}
		if a.taken.metrics[m] {
			return true
		}
	}
	return false
}

// sharesVTEP reports whether another peer has a VtepMAC of this one.
func (a *advance) sharesVTEP(p Peer) bool {
	for i, f := range p.FDBs() {
		is := func(o state.FDB) bool { return o.Link == f.Link && o.MAC == f.MAC }
		if slices.ContainsFunc(p.FDBs()[:i], is) { // as the whole plan, which takes it for two peers
			return true
		}
		if a.taken.vteps[vtepAt{f.Link, f.MAC}] {
			return true
		}
	}
	return false
}

// The sets of the cluster's prefixes have the outermost of all nodes' prefixes and addresses, sorted.

// addToCluster adds a node's prefixes and addresses.
func (a *advance) addToCluster(n model.Node) bool {
	for _, p := range ownPrefixes(n) {
		s := a.clusterSet(p)
		if s == nil {
			continue // all pods are masqueraded
		}
		i, ok := position(s.Elements, p)
		if !ok {
			return false
		}
		if i > 0 {
			before, err := netip.ParsePrefix(s.Elements[i-1].Key[0])
			if err != nil {
				return false
			}
			if before.Overlaps(p) { // sorted before it, it contains it
				continue
			}
		}
		if i < len(s.Elements) {
			after, err := netip.ParsePrefix(s.Elements[i].Key[0])
			if err != nil || after != p && after.Overlaps(p) {
				return false
			}
			if after == p {
				continue
			}
		}
		s.Elements = slices.Concat(s.Elements[:i], []state.Element{{Key: []string{p.String()}}}, s.Elements[i:])
	}
	return true
}

// dropFromCluster removes a node's prefixes and addresses.
func (a *advance) dropFromCluster(n model.Node) bool {
	prefixes := ownPrefixes(n)
	if len(prefixes) == 0 || a.clusterSet(prefixes[0]) == nil {
		return true
	}
	// These stay: in a set, or in the prefix of another element.
	static := guard{p: a.planner, nodes: []model.Node{a.planner.self}}.cluster()
	for _, p := range prefixes {
		overlaps := func(o netip.Prefix) bool { return o.Overlaps(p) }
		if slices.ContainsFunc(static, overlaps) {
			if !isWithin(p, static) {
				return false
			}
			continue
		}
		s := a.clusterSet(p)
		at, ok := position(s.Elements, p)
		if !ok || at == len(s.Elements) || s.Elements[at].Key[0] != p.String() {
			return false
		}
		s.Elements = slices.Concat(s.Elements[:at], s.Elements[at+1:])
	}
	return true
}

func (a *advance) clusterSet(p netip.Prefix) *state.Set {
	if p.Addr().Is6() {
		return a.set("cluster6")
	}
	return a.set("cluster4")
}

// ownPrefixes returns a node's part of clusterPrefixes, each once.
func ownPrefixes(n model.Node) []netip.Prefix {
	var out []netip.Prefix
	add := func(p netip.Prefix) {
		if !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	for _, p := range n.PodCIDRs {
		add(p.Masked())
	}
	for _, addr := range addrsOf(n) {
		add(netip.PrefixFrom(addr, addr.BitLen()))
	}
	return out
}

// position returns the index of a prefix among sorted elements, or of the first one after it.
func position(all []state.Element, p netip.Prefix) (int, bool) {
	ok := true
	i, _ := slices.BinarySearchFunc(all, p, func(e state.Element, p netip.Prefix) int {
		at, err := netip.ParsePrefix(e.Key[0])
		ok = ok && err == nil
		return comparePrefix(at, p)
	})
	return i, ok
}
