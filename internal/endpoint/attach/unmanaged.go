// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"sync"

	"github.com/weft-net/weft/internal/model"
)

// unmanaged tracks addresses of pods outside of IPAM. It alone ensures that no two pods have the same one.
type unmanaged struct {
	catalog        *catalog
	records        *notifyingStore
	boot           string
	remoteConflict func(ctx context.Context, addr netip.Addr, pod model.PodRef) error // nil: not checked

	mu sync.Mutex
	by map[netip.Addr][]Record // nil if there are none
}

// add adds the unmanaged addresses of a record.
func (u *unmanaged) add(rec Record, addrs []netip.Addr) {
	if len(addrs) == 0 {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.by == nil {
		u.by = map[netip.Addr][]Record{}
	}
	brief := Record{Request: rec.Request, Boot: rec.Boot}
	for _, a := range addrs {
		same := func(o Record) bool { return o.Key() == rec.Key() }
		u.by[a] = append(slices.DeleteFunc(u.by[a], same), brief)
	}
}

// drop removes an attachment's addresses.
func (u *unmanaged) drop(k model.AttachmentKey) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for a, recs := range u.by {
		if recs = slices.DeleteFunc(recs, func(o Record) bool { return o.Key() == k }); len(recs) > 0 {
			u.by[a] = recs
		} else {
			delete(u.by, a)
		}
	}
	if len(u.by) == 0 {
		u.by = nil
	}
}

// conflicting returns another pod's record with the same unmanaged address.
func (u *unmanaged) conflicting(rec Record, a netip.Addr) (Record, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, o := range u.by[a] {
		if !samePod(o, rec) {
			return o, true
		}
	}
	return Record{}, false
}

// samePod reports whether two records belong to one pod: to the same sandbox, or to successive ones.
func samePod(a, b Record) bool {
	if a.Request.ContainerID == b.Request.ContainerID {
		return true
	}
	x, okX := a.Endpoint()
	y, okY := b.Endpoint()
	return okX && okY && x.Pod.Namespace == y.Pod.Namespace && x.Pod.Name == y.Pod.Name
}

// addrsOf returns the unmanaged addresses of a record's pod.
func (u *unmanaged) addrsOf(rec Record) []netip.Addr {
	var out []netip.Addr
	for _, conf := range rec.Network.Plugins {
		if of := u.catalog.capabilities(conf).Unmanaged; of != nil {
			out = append(out, of(u.catalog.input(conf, rec.Request))...)
		}
	}
	return out
}

// check returns an error if another pod has an address of the record and one of the two is unmanaged. It is called
// after the record is written and before it is applied, so that of two concurrent ADDs at least one sees the other.
func (u *unmanaged) check(ctx context.Context, rec Record) error {
	own := u.addrsOf(rec)
	u.add(rec, own)
	for _, addr := range slices.Concat(own, addresses(rec)) {
		if o, is := u.conflicting(rec, addr); is {
			return takenBy(addr, o)
		}
	}
	if len(own) == 0 {
		return nil
	}
	if err := u.checkRemote(ctx, rec, own); err != nil {
		return err
	}
	return u.checkLocal(rec, own)
}

// checkLocal returns an error if IPAM has allocated one of the addresses to another pod of this node.
func (u *unmanaged) checkLocal(rec Record, addrs []netip.Addr) error {
	records, err := u.records.list()
	if err != nil && len(records) == 0 {
		return err
	}
	for _, o := range records {
		if o.Boot != u.boot || o.Stage == Releasing || samePod(o, rec) {
			continue
		}
		for _, addr := range addresses(o) {
			if slices.Contains(addrs, addr) {
				return takenBy(addr, o)
			}
		}
	}
	return nil
}

// checkRemote returns an error if one of the addresses is in use on another node. A standby attachment has the
// addresses of the active one.
func (u *unmanaged) checkRemote(ctx context.Context, rec Record, addrs []netip.Addr) error {
	if u.remoteConflict == nil || rec.Standby {
		return nil
	}
	g, _ := rec.Endpoint()
	for _, addr := range addrs {
		if err := u.remoteConflict(ctx, addr, g.Pod); err != nil {
			return err
		}
	}
	return nil
}

// UnmanagedAddr is an unmanaged or floating address of a pod.
type UnmanagedAddr struct {
	Addr netip.Addr
	Pod  model.PodRef
}

// list returns the addresses of active attachments, sorted.
func (u *unmanaged) list() ([]UnmanagedAddr, error) {
	u.mu.Lock()
	by := map[model.AttachmentKey][]netip.Addr{}
	for addr, recs := range u.by {
		for _, rec := range recs {
			by[rec.Key()] = append(by[rec.Key()], addr)
		}
	}
	u.mu.Unlock()
	var out []UnmanagedAddr
	for k, addrs := range by {
		rec, found, err := u.records.get(k)
		if err != nil {
			return nil, err
		}
		g, isPod := rec.Endpoint()
		if !found || !isPod || rec.Stage != Done || rec.Standby {
			continue
		}
		for _, addr := range addrs {
			out = append(out, UnmanagedAddr{addr, g.Pod})
		}
	}
	slices.SortFunc(out, func(a, b UnmanagedAddr) int {
		return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Pod.String(), b.Pod.String()), cmp.Compare(a.Pod.UID, b.Pod.UID))
	})
	return out, nil
}

func takenBy(addr netip.Addr, o Record) error {
	who := o.Key().String()
	if g, ok := o.Endpoint(); ok {
		who = "pod " + g.Pod.String() + " (attachment " + who + ")"
	}
	return model.Errorf(model.CodeInUse, "choose another address, or delete that pod",
		"address %s is taken by %s", addr, who)
}
