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

// brought remembers who has such addresses. Nobody gives them, so nobody else sees to it that no two pods have the same one.
type brought struct {
	mu sync.Mutex
	by map[netip.Addr][]Record // nil where nobody brings any
}

// take notes the addresses of a record.
func (b *brought) take(rec Record, addrs []netip.Addr) {
	if len(addrs) == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.by == nil {
		b.by = map[netip.Addr][]Record{}
	}
	brief := Record{Request: rec.Request, Boot: rec.Boot}
	for _, a := range addrs {
		same := func(o Record) bool { return o.Key() == rec.Key() }
		b.by[a] = append(slices.DeleteFunc(b.by[a], same), brief)
	}
}

// drop forgets an attachment's.
func (b *brought) drop(k model.AttachmentKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for a, recs := range b.by {
		if recs = slices.DeleteFunc(recs, func(o Record) bool { return o.Key() == k }); len(recs) > 0 {
			b.by[a] = recs
		} else {
			delete(b.by, a)
		}
	}
	if len(b.by) == 0 {
		b.by = nil
	}
}

// other is another pod's attachment that brought an address.
func (b *brought) other(rec Record, a netip.Addr) (Record, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, o := range b.by[a] {
		if !samePod(o, rec) {
			return o, true
		}
	}
	return Record{}, false
}

// samePod tells whether two records are of one pod: of one sandbox, or of one and the next.
func samePod(a, b Record) bool {
	if a.Request.ContainerID == b.Request.ContainerID {
		return true
	}
	x, okX := a.Guarded()
	y, okY := b.Guarded()
	return okX && okY && x.Pod.Namespace == y.Pod.Namespace && x.Pod.Name == y.Pod.Name
}

// broughtBy are the addresses that the pod of a record brought along.
func (a *Attacher) broughtBy(rec Record) []netip.Addr {
	var out []netip.Addr
	for _, conf := range rec.Network.Plugins {
		if of := a.can(conf).Brought; of != nil {
			out = append(out, of(conf, rec.Request)...)
		}
	}
	return out
}

// unshared refuses a run with an address that another pod of this node has, where one of both brought it along. It is called when
// its record is promised and nothing is applied: of two that come at once at least one sees the other.
func (a *Attacher) unshared(ctx context.Context, r *run) error {
	own := a.broughtBy(r.rec)
	a.brought.take(r.rec, own)
	for _, addr := range slices.Concat(own, addresses(r.rec)) {
		if o, is := a.brought.other(r.rec, addr); is {
			return takenBy(addr, o)
		}
	}
	if len(own) == 0 {
		return nil
	}
	if err := a.nowhereElse(ctx, r.rec, own); err != nil {
		return err
	}
	return a.notHere(r.rec, own)
}

// notHere refuses addresses that IPAM gave to another pod of this node.
func (a *Attacher) notHere(rec Record, addrs []netip.Addr) error {
	records, err := a.cfg.Memory.List()
	if err != nil && len(records) == 0 {
		return err
	}
	for _, o := range records {
		if o.Boot != a.cfg.Boot || o.Stage == Releasing || samePod(o, rec) {
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

// nowhereElse refuses addresses that another node has. Who stands by has those of the pod that it will follow.
func (a *Attacher) nowhereElse(ctx context.Context, rec Record, addrs []netip.Addr) error {
	if a.cfg.Elsewhere == nil || rec.Standby {
		return nil
	}
	g, _ := rec.Guarded()
	for _, addr := range addrs {
		if err := a.cfg.Elsewhere(ctx, addr, g.Pod); err != nil {
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

// Brought are those of the pods that are attached and do not stand by, in order.
func (a *Attacher) Brought() ([]Brought, error) {
	a.brought.mu.Lock()
	by := map[model.AttachmentKey][]netip.Addr{}
	for addr, recs := range a.brought.by {
		for _, rec := range recs {
			by[rec.Key()] = append(by[rec.Key()], addr)
		}
	}
	a.brought.mu.Unlock()
	var out []Brought
	for k, addrs := range by {
		rec, found, err := a.cfg.Memory.Get(k)
		if err != nil {
			return nil, err
		}
		g, isPod := rec.Guarded()
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
	if g, ok := o.Guarded(); ok {
		who = "pod " + g.Pod.String() + " (attachment " + who + ")"
	}
	return model.Faultf(model.CodeTaken, "choose another address, or delete that pod", "address %s is taken by %s", addr, who)
}
