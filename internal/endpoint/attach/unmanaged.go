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

// unmanaged remembers which pods have addresses that no IPAM gave them. Nobody else sees to it that no two pods have
// the same one.
type unmanaged struct {
	catalog   *catalog
	records   *recordStore
	boot      string
	elsewhere func(ctx context.Context, addr netip.Addr, pod model.PodRef) error // nil: there is no other node

	mu sync.Mutex
	by map[netip.Addr][]Record // nil where nobody brings any
}

// take notes the addresses of a record.
func (u *unmanaged) take(rec Record, addrs []netip.Addr) {
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

// drop forgets an attachment's.
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

// other is another pod's attachment that brought an address.
func (u *unmanaged) other(rec Record, a netip.Addr) (Record, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, o := range u.by[a] {
		if !samePod(o, rec) {
			return o, true
		}
	}
	return Record{}, false
}

// samePod reports whether two records are of one pod: of one sandbox, or of one and the next.
func samePod(a, b Record) bool {
	if a.Request.ContainerID == b.Request.ContainerID {
		return true
	}
	x, okX := a.Endpoint()
	y, okY := b.Endpoint()
	return okX && okY && x.Pod.Namespace == y.Pod.Namespace && x.Pod.Name == y.Pod.Name
}

// of are the addresses that the pod of a record brought along.
func (u *unmanaged) of(rec Record) []netip.Addr {
	var out []netip.Addr
	for _, conf := range rec.Network.Plugins {
		if of := u.catalog.can(conf).Brought; of != nil {
			out = append(out, of(u.catalog.input(conf, rec.Request))...)
		}
	}
	return out
}

// check refuses a record with an address that another pod of this node has, where one of both brought it along. It is
// called when it is promised and nothing is applied: of two that come at once at least one sees the other.
func (u *unmanaged) check(ctx context.Context, rec Record) error {
	own := u.of(rec)
	u.take(rec, own)
	for _, addr := range slices.Concat(own, addresses(rec)) {
		if o, is := u.other(rec, addr); is {
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

// checkLocal refuses addresses that IPAM gave to another pod of this node.
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

// checkRemote refuses addresses that another node has. Who stands by has those of the pod that it will follow.
func (u *unmanaged) checkRemote(ctx context.Context, rec Record, addrs []netip.Addr) error {
	if u.elsewhere == nil || rec.Standby {
		return nil
	}
	g, _ := rec.Endpoint()
	for _, addr := range addrs {
		if err := u.elsewhere(ctx, addr, g.Pod); err != nil {
			return err
		}
	}
	return nil
}

// Brought is an address that a pod has brought along, or that leads to it.
type Brought struct {
	Addr netip.Addr
	Pod  model.PodRef
}

// list returns those of the pods that are attached and do not stand by, in order.
func (u *unmanaged) list() ([]Brought, error) {
	u.mu.Lock()
	by := map[model.AttachmentKey][]netip.Addr{}
	for addr, recs := range u.by {
		for _, rec := range recs {
			by[rec.Key()] = append(by[rec.Key()], addr)
		}
	}
	u.mu.Unlock()
	var out []Brought
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
			out = append(out, Brought{addr, g.Pod})
		}
	}
	slices.SortFunc(out, func(a, b Brought) int {
		return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Pod.String(), b.Pod.String()), cmp.Compare(a.Pod.UID, b.Pod.UID))
	})
	return out, nil
}

func takenBy(addr netip.Addr, o Record) error {
	who := o.Key().String()
	if g, ok := o.Endpoint(); ok {
		who = "pod " + g.Pod.String() + " (attachment " + who + ")"
	}
	return model.Faultf(model.CodeTaken, "choose another address, or delete that pod",
		"address %s is taken by %s", addr, who)
}
