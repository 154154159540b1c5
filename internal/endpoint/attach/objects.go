// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"net/netip"
	"slices"
	"sync"

	"github.com/weft-net/weft/internal/kernel/watch"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// objectIndex maps the objects that kernel events name to the finished attachments that own them. Attachments in
// progress are not in it, so that an agent's own calls trigger no repairs.
type objectIndex struct {
	mu       sync.Mutex
	of       map[model.AttachmentKey]*objects
	links    map[string]map[model.AttachmentKey]struct{}       // of the node
	prefixes map[netip.Prefix]map[model.AttachmentKey]struct{} // routes and neighbors of the node
	rules    map[model.AttachmentKey]struct{}                  // attachments with policy routing rules on the node
	pods     map[uint64]*podNamespace                          // by the namespace's inode
	byNSID   map[int]uint64
	// unknown are the nsids of reported changes that may belong to a pod.
	unknown map[int]struct{}
	// ignored are nsids that belong to no attachment, as far as known: while a namespace waits for its nsid, one of them
	// may be it.
	ignored map[int]struct{}
	// needsNSID: the nsid of a namespace is not resolved yet.
	needsNSID bool
}

// objects are an attachment's objects on the node.
type objects struct {
	state.Space
	links    map[string]state.Link
	prefixes []netip.Prefix
	inPod    map[netip.Addr]struct{} // neighbors in the pod
	tables   bool                    // the pod has nft tables of it
	netns    uint64
}

// podNamespace is a pod's network namespace.
type podNamespace struct {
	path string
	nsid int // -1 while unknown
	keys map[model.AttachmentKey]struct{}
}

func newObjectIndex() *objectIndex {
	return &objectIndex{
		of: map[model.AttachmentKey]*objects{}, links: map[string]map[model.AttachmentKey]struct{}{},
		prefixes: map[netip.Prefix]map[model.AttachmentKey]struct{}{}, rules: map[model.AttachmentKey]struct{}{},
		pods: map[uint64]*podNamespace{}, byNSID: map[int]uint64{}, unknown: map[int]struct{}{}, ignored: map[int]struct{}{},
	}
}

// note updates the index from a record: a finished attachment is added, any other is removed. It reports whether a nsid
// must be resolved now and none had to before.
func (x *objectIndex) note(rec Record, finished bool) (fresh bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.dropLocked(rec.Key())
	if !finished {
		return false
	}
	key, f := rec.Key(), rec.Fragment()
	o := &objects{
		Space: f.Host, links: map[string]state.Link{}, inPod: map[netip.Addr]struct{}{},
		tables: len(f.Pod.Tables)+len(f.Pod.Joins) > 0, // a join may be a table
		netns:  rec.NetnsID,
	}
	o.Tables, o.IPTables, o.Sources = nil, nil, nil // their changes name no attachment
	for _, l := range f.Host.Links {
		o.links[l.Name] = l
	}
	for _, r := range f.Host.Routes {
		o.prefixes = append(o.prefixes, r.Dst.Masked())
	}
	for _, n := range f.Host.Neighs {
		o.prefixes = append(o.prefixes, netip.PrefixFrom(n.IP, n.IP.BitLen()))
	}
	for _, n := range f.Pod.Neighs {
		o.inPod[n.IP] = struct{}{}
	}
	for name := range o.links {
		join(x.links, name, key)
	}
	for _, place := range o.prefixes {
		join(x.prefixes, place, key)
	}
	if len(f.Host.Rules) > 0 {
		x.rules[key] = struct{}{}
	}
	x.of[key] = o
	if rec.NetnsID == 0 {
		return false
	}
	pod := x.pods[rec.NetnsID]
	if pod == nil {
		pod = &podNamespace{path: rec.Request.Netns, nsid: -1, keys: map[model.AttachmentKey]struct{}{}}
		x.pods[rec.NetnsID] = pod
		x.needsNSID, fresh = true, !x.needsNSID
	}
	pod.keys[key] = struct{}{}
	return fresh
}

// drop removes an attachment from the index.
func (x *objectIndex) drop(key model.AttachmentKey) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.dropLocked(key)
}

func (x *objectIndex) dropLocked(key model.AttachmentKey) {
	o := x.of[key]
	if o == nil {
		return
	}
	for name := range o.links {
		leave(x.links, name, key)
	}
	for _, place := range o.prefixes {
		leave(x.prefixes, place, key)
	}
	delete(x.rules, key)
	delete(x.of, key)
	if pod := x.pods[o.netns]; pod != nil {
		if delete(pod.keys, key); len(pod.keys) == 0 {
			delete(x.pods, o.netns)
			if delete(x.byNSID, pod.nsid); pod.nsid >= 0 {
				x.ignored[pod.nsid] = struct{}{} // changes that the DEL causes need no resolution
			}
		}
	}
}

func join[K comparable](m map[K]map[model.AttachmentKey]struct{}, k K, key model.AttachmentKey) {
	if m[k] == nil {
		m[k] = map[model.AttachmentKey]struct{}{}
	}
	m[k][key] = struct{}{}
}

func leave[K comparable](m map[K]map[model.AttachmentKey]struct{}, k K, key model.AttachmentKey) {
	if delete(m[k], key); len(m[k]) == 0 {
		delete(m, k)
	}
}

// onNode returns the attachments that a change in the node's namespace concerns: lost are those one of whose objects it
// removed or overwrote, near those that have objects next to it. more reports whether a container has a VM, which may
// have changed the MAC of a neighbor.
func (x *objectIndex) onNode(c watch.Change, more func(container string) bool) (lost, near []model.AttachmentKey) {
	x.mu.Lock()
	defer x.mu.Unlock()
	var all map[model.AttachmentKey]struct{}
	switch c.Kind {
	case watch.Lost:
		return nil, list(x.of)
	case watch.Rule:
		all = x.rules
	case watch.Link, watch.Addr, watch.Queue, watch.Setting:
		all = x.links[c.Link]
	case watch.Route, watch.Neigh:
		all = x.prefixes[c.Place()]
	}
	for key := range all {
		switch x.of[key].effect(c, func() bool { return more(key.ContainerID) }) {
		case lossOf:
			lost = append(lost, key)
		case nearby:
			near = append(near, key)
		}
	}
	return lost, near
}

// inPod returns the attachments of the namespace that a change was made in. An unknown nsid is stored; unknown reports
// the first one. Only neighbors that an attachment has created count, because learned ones expire all the time, and
// tables of nft only if it has some. more reports whether a container has a VM, whose neighbors and tables are not known
// here.
func (x *objectIndex) inPod(
	c watch.Change, more func(container string) bool,
) (keys []model.AttachmentKey, unknown bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch inode, known := x.byNSID[c.NSID]; {
	case c.Kind == watch.Lost:
		return list(x.of), false
	case c.Kind == watch.Namespace:
		delete(x.byNSID, c.NSID)
		delete(x.ignored, c.NSID)
		if pod := x.pods[inode]; known && pod != nil {
			pod.nsid = -1
		}
		return nil, false
	case known:
		if pod := x.pods[inode]; pod != nil {
			return slices.DeleteFunc(list(pod.keys), func(key model.AttachmentKey) bool {
				_, made := x.of[key].inPod[c.Addr]
				return (c.Kind == watch.Neigh && !made || c.Kind == watch.NftTable && !x.of[key].tables) && !more(key.ContainerID)
			}), false
		}
	}
	if _, ignored := x.ignored[c.NSID]; ignored && !x.needsNSID {
		return nil, false
	}
	before := len(x.unknown)
	x.unknown[c.NSID] = struct{}{}
	return nil, before == 0
}

// unresolved reports whether nsids must be resolved, and whether changes wait for that.
func (x *objectIndex) unresolved() (fresh, waiting bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.needsNSID, len(x.unknown) > 0
}

// withoutNSID returns the paths of namespaces whose nsid is unknown, by inode.
func (x *objectIndex) withoutNSID() map[uint64]string {
	x.mu.Lock()
	defer x.mu.Unlock()
	paths := map[uint64]string{}
	for inode, pod := range x.pods {
		if pod.nsid < 0 {
			paths[inode] = pod.path
		}
	}
	return paths
}

// resolve stores nsids and returns the attachments that may have changed before: their nsid was reported with a change,
// or was assigned only now, so that the kernel could not report it.
func (x *objectIndex) resolve(ids map[uint64]int, unreported []uint64) []model.AttachmentKey {
	x.mu.Lock()
	defer x.mu.Unlock()
	var out []model.AttachmentKey
	for inode, id := range ids {
		pod := x.pods[inode]
		if pod == nil {
			continue
		}
		pod.nsid, x.byNSID[id] = id, inode
		delete(x.ignored, id)
		if _, waits := x.unknown[id]; waits || slices.Contains(unreported, inode) {
			out = append(out, list(pod.keys)...)
			delete(x.unknown, id)
		}
	}
	for id := range x.unknown {
		x.ignored[id] = struct{}{}
	}
	x.needsNSID, x.unknown = false, map[int]struct{}{}
	return out
}

// has reports whether an attachment is in the index.
func (x *objectIndex) has(key model.AttachmentKey) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.of[key] != nil
}

// all returns the attachments of the index.
func (x *objectIndex) all() []model.AttachmentKey {
	x.mu.Lock()
	defer x.mu.Unlock()
	return list(x.of)
}

func list[V any](m map[model.AttachmentKey]V) []model.AttachmentKey {
	out := make([]model.AttachmentKey, 0, len(m))
	for key := range m {
		out = append(out, key)
	}
	return out
}
