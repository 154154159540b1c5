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

// objectIndex maps what the kernel names in an event to the finished attachments that it is about. What is being
// attached or detached is not in it, so that an agent's own calls cause no looks.
type objectIndex struct {
	mu     sync.Mutex
	of     map[model.AttachmentKey]*objects
	links  map[string]map[model.AttachmentKey]struct{}       // of the node
	places map[netip.Prefix]map[model.AttachmentKey]struct{} // routes and neighbors of the node
	rules  map[model.AttachmentKey]struct{}                  // attachments with policy routing rules on the node
	pods   map[uint64]*podNamespace                          // by the namespace's inode
	byNSID map[int]uint64
	// unknown are ids of namespaces that changes were reported of and that may be a pod's.
	unknown map[int]struct{}
	// ignored are ids that are none of the attachments', as far as it is known: while a namespace waits for its id, one of
	// them may be its.
	ignored map[int]struct{}
	// fresh: a namespace waits for its id.
	fresh bool
}

// objects are what one attachment has on the node.
type objects struct {
	links  map[string]state.Link
	places []netip.Prefix
	macs   map[netip.Addr]state.MAC // of neighbors
	inPod  map[netip.Addr]struct{}  // neighbors in the pod
	netns  uint64
}

// podNamespace is the network namespace of attachments.
type podNamespace struct {
	path string
	nsid int // -1 while it is not known
	keys map[model.AttachmentKey]struct{}
}

func newObjectIndex() *objectIndex {
	return &objectIndex{
		of: map[model.AttachmentKey]*objects{}, links: map[string]map[model.AttachmentKey]struct{}{},
		places: map[netip.Prefix]map[model.AttachmentKey]struct{}{}, rules: map[model.AttachmentKey]struct{}{},
		pods: map[uint64]*podNamespace{}, byNSID: map[int]uint64{}, unknown: map[int]struct{}{}, ignored: map[int]struct{}{},
	}
}

// note brings the index to what a record says: a finished attachment is in it, any other is not. It reports whether
// there is now a new namespace whose id must be asked for, and none before.
func (x *objectIndex) note(rec Record, finished bool) (fresh bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.dropLocked(rec.Key())
	if !finished {
		return false
	}
	key, f := rec.Key(), rec.Fragment()
	o := &objects{
		links: map[string]state.Link{}, macs: map[netip.Addr]state.MAC{}, inPod: map[netip.Addr]struct{}{},
		netns: rec.NetnsID,
	}
	for _, l := range f.Host.Links {
		o.links[l.Name] = l
	}
	for _, r := range f.Host.Routes {
		o.places = append(o.places, r.Dst.Masked())
	}
	for _, n := range f.Host.Neighs {
		o.places = append(o.places, netip.PrefixFrom(n.IP, n.IP.BitLen()))
		o.macs[n.IP] = n.MAC
	}
	for _, n := range f.Pod.Neighs {
		o.inPod[n.IP] = struct{}{}
	}
	for name := range o.links {
		join(x.links, name, key)
	}
	for _, place := range o.places {
		join(x.places, place, key)
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
		x.fresh, fresh = true, !x.fresh
	}
	pod.keys[key] = struct{}{}
	return fresh
}

// drop takes an attachment out of the index.
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
	for _, place := range o.places {
		leave(x.places, place, key)
	}
	delete(x.rules, key)
	delete(x.of, key)
	if pod := x.pods[o.netns]; pod != nil {
		if delete(pod.keys, key); len(pod.keys) == 0 {
			delete(x.pods, o.netns)
			if delete(x.byNSID, pod.nsid); pod.nsid >= 0 {
				x.ignored[pod.nsid] = struct{}{} // what a DEL takes away is no reason to ask whose it was
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

// onNode returns the attachments that a change in the node's namespace may have taken something from.
func (x *objectIndex) onNode(c watch.Change) []model.AttachmentKey {
	x.mu.Lock()
	defer x.mu.Unlock()
	var out []model.AttachmentKey
	switch c.Kind {
	case watch.Lost:
		return list(x.of)
	case watch.Rule:
		return list(x.rules)
	case watch.Link, watch.Addr, watch.Queue, watch.Setting:
		for key := range x.links[c.Link] {
			if c.Kind != watch.Link || x.of[key].links[c.Link].Name != "" && linkDrifts(x.of[key].links[c.Link], c) {
				out = append(out, key)
			}
		}
	case watch.Route, watch.Neigh:
		for key := range x.places[c.Place()] {
			if mac, known := x.of[key].macs[c.Addr]; c.Kind == watch.Neigh && !c.Gone && known && mac == state.MAC(c.MAC) {
				continue
			}
			out = append(out, key)
		}
	}
	return out
}

// linkDrifts reports whether a link's message says something else than the plan.
func linkDrifts(want state.Link, c watch.Change) bool {
	return c.Gone || c.Down && want.Up != nil && *want.Up || c.Freed && want.Master != "" ||
		want.MTU != 0 && c.MTU != 0 && c.MTU != want.MTU ||
		!want.MAC.IsZero() && c.MAC != [6]byte{} && state.MAC(c.MAC) != want.MAC
}

// inPod returns the attachments of the namespace that a change was made in. A namespace that is not known yet is noted;
// unknown reports the first of several. Of neighbors those alone count that an attachment has made: what a pod has
// learned the kernel forgets all the time. more reports whether something else than the attachment is in a container,
// whose neighbors are not known here.
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
				return c.Kind == watch.Neigh && !made && !more(key.ContainerID)
			}), false
		}
	}
	if _, ignored := x.ignored[c.NSID]; ignored && !x.fresh {
		return nil, false
	}
	before := len(x.unknown)
	x.unknown[c.NSID] = struct{}{}
	return nil, before == 0
}

// unresolved reports whether namespaces wait for their ids, and whether changes wait for that.
func (x *objectIndex) unresolved() (fresh, waiting bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.fresh, len(x.unknown) > 0
}

// nameless returns the paths of namespaces whose id is not known, by inode.
func (x *objectIndex) nameless() map[uint64]string {
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

// resolve notes ids of namespaces and returns the attachments of those that changes were reported of before, or could
// not be.
func (x *objectIndex) resolve(ids map[uint64]int, unheard []uint64) []model.AttachmentKey {
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
		if _, waits := x.unknown[id]; waits || slices.Contains(unheard, inode) {
			out = append(out, list(pod.keys)...)
			delete(x.unknown, id)
		}
	}
	for id := range x.unknown {
		x.ignored[id] = struct{}{}
	}
	x.fresh, x.unknown = false, map[int]struct{}{}
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
