// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam/claims"
	"github.com/weft-net/weft/internal/model"
)

// Report has all objects about addresses, and the findings.
type Report struct {
	Pools  []model.AddressPool  `json:"pools"`
	Blocks []model.AddressBlock `json:"blocks"`
	// VMs are the claims of virtual machines.
	VMs []claims.VMClaim `json:"machines,omitempty"`
	// Findings are errors and stale reservations.
	Findings []Finding `json:"findings"`

	claimed map[netip.Addr]string // by claims of all kinds
	// services are the Services that have addresses of pools for Services.
	services map[netip.Addr]string
	nodes    map[string]bool // empty: there are no Node objects
	pods     podIndex
	ranges   map[string][]netip.Prefix     // podCIDRs, by node
	hosts    map[string]model.AddressBlock // by node: the first block with a machine ID
}

// Finding is one error or stale reservation.
type Finding struct {
	Object string `json:"object"`
	// Reason is the class of the error; empty for what only a node's agent finds.
	Reason Reason `json:"reason,omitempty"`
	// Pool is the pool that it is about; empty: none, or unknown.
	Pool string `json:"pool,omitempty"`
	Msg  string `json:"message"`
	// Fix is what --fix does about it; empty: nothing.
	Fix string `json:"fix,omitempty"`

	fix func(context.Context, store.Objects) error
	// gone is the node that does not exist, if the finding is about what it has left.
	gone string
	// reserved is the reservation in the pool's object that Fix removes, with others of the pool; nil: fix does it.
	reserved *model.ReservedAddress
	// about is the object; zero: none.
	about store.Object
	// stale marks a reservation for a deleted pod of another network.
	stale bool
}

// Reason is the class of a finding, as in the reason of a condition.
type Reason string

// The classes of findings.
const (
	// Conflict: two owners have the same address or the same name.
	Conflict Reason = "Conflict"
	// Overlap: two blocks overlap.
	Overlap Reason = "Overlap"
	// OwnerGone: the object's owner does not exist.
	OwnerGone Reason = "OwnerGone"
	// Leaked: addresses are kept for what does not exist or does not use them.
	Leaked Reason = "Leaked"
	// NoPool: an address is in no pool.
	NoPool Reason = "NoPool"
	// NotAllocatable: a pool's condition Allocatable is False because of an error.
	NotAllocatable Reason = "NotAllocatable"
	// Invalid: the object cannot be read.
	Invalid Reason = "Invalid"
)

// Reasons returns the classes of findings, the most severe first.
func Reasons() []Reason {
	return []Reason{Conflict, Overlap, OwnerGone, Leaked, NoPool, NotAllocatable, Invalid}
}

// About returns the object of the finding as it was inspected; ok is false if there is none in the datastore.
func (f Finding) About() (o store.Object, ok bool) { return f.about, f.about.Key.Name != "" }

// GoneNode returns the node that does not exist, if the finding is about what it has left: blocks, and addresses that it
// borrowed, requested or waits for.
func (f Finding) GoneNode() string { return f.gone }

// Stale reports whether this is a reservation for a deleted pod of another network, which can be removed without
// confirmation.
func (f Finding) Stale() bool { return f.stale }

// Inspect reads all objects and checks them.
func Inspect(ctx context.Context, objects store.Objects) (Report, error) {
	p := Report{
		nodes: map[string]bool{}, pods: podIndex{}, ranges: map[string][]netip.Prefix{},
		hosts: map[string]model.AddressBlock{},
	}
	raw := map[string]store.Object{}
	for _, kind := range []store.Kind{store.AddressPools(), store.AddressBlocks(), store.Nodes()} {
		all, err := objects.List(ctx, kind)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return p, fmt.Errorf("list of %s: %w", kind.Resource, err)
		}
		for _, o := range all {
			raw[o.Key.String()] = o
			switch kind {
			case store.AddressPools():
				err = note(&p.Pools, o.AddressPool)
			case store.AddressBlocks():
				err = note(&p.Blocks, o.AddressBlock)
			default:
				p.nodes[o.Key.Name] = true
				var n model.Node
				if n, err = o.Node(); err == nil && len(n.PodCIDRs) > 0 {
					p.ranges[n.Name] = n.PodCIDRs
				}
			}
			if err != nil {
				p.invalid(o, err)
			}
		}
	}
	// Pods are listed last, so that pods with a reservation exist by then.
	if err := store.Each(ctx, objects, store.Pods(), p.pods.note); err != nil && !errors.Is(err, store.ErrNotFound) {
		return p, fmt.Errorf("list of pods: %w", err)
	}
	slices.SortFunc(p.Pools, func(a, b model.AddressPool) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(p.Blocks, func(a, b model.AddressBlock) int {
		if n := strings.Compare(a.Pool, b.Pool); n != 0 {
			return n
		}
		return a.CIDR.Addr().Compare(b.CIDR.Addr())
	})
	if err := p.readClaims(ctx, objects); err != nil {
		return p, err
	}
	for _, pool := range p.Pools {
		p.examinePool(pool, raw[store.AddressPools().Key("", pool.Name).String()])
	}
	p.examineConditions(raw)
	overlaps := p.overlaps()
	for i, b := range p.Blocks {
		p.examineBlock(overlaps[i], b, raw[store.AddressBlocks().Key("", store.BlockName(b.Pool, b.CIDR)).String()])
	}
	p.examinePods()
	if err := p.examineServices(ctx, objects); err != nil {
		return p, err
	}
	return p, p.examineClaims(ctx, objects)
}

func note[T any](into *[]T, read func() (T, error)) error {
	v, err := read()
	if err == nil {
		*into = append(*into, v)
	}
	return err
}

func (p *Report) found(
	reason Reason, o store.Object, fix func(context.Context, store.Objects) error, how, format string, args ...any,
) {
	p.Findings = append(p.Findings, Finding{
		Object: o.Key.String(), Reason: reason, Pool: poolOf(o), Msg: fmt.Sprintf(format, args...), Fix: how, fix: fix,
		about: o,
	})
}

// foundGone adds a finding about what a node that does not exist has left.
func (p *Report) foundGone(
	node string, reason Reason, o store.Object, fix func(context.Context, store.Objects) error, how, format string, args ...any,
) {
	p.found(reason, o, fix, how, format, args...)
	p.Findings[len(p.Findings)-1].gone = node
}

// invalid reports an object that cannot be read.
func (p *Report) invalid(o store.Object, err error) {
	p.Findings = append(p.Findings, Finding{Object: o.Key.String(), Reason: Invalid, Msg: err.Error(), about: o})
}

// poolOf returns the pool that an object is about.
func poolOf(o store.Object) string {
	switch {
	case o.Key.Of(store.AddressPools()):
		return o.Key.Name
	case o.Key.Of(store.AddressBlocks()):
		b, _ := o.AddressBlock()
		return b.Pool
	}
	return ""
}

func (p *Report) examinePool(pool model.AddressPool, o store.Object) {
	for _, r := range pool.Reserved {
		p.examineReserved(o, r)
	}
	for _, n := range pool.ExhaustedOn {
		if p.gone(n) {
			p.foundGone(n, Leaked, o, removeExhausted(o.Key, n), "it is removed", "node %q is in status.exhaustedOn, and there is no such node", n)
		}
	}
}

// examineReserved checks an address that is reserved for a pod of another network, or by another program.
func (p *Report) examineReserved(o store.Object, r model.ReservedAddress) {
	drop := func(stale bool) { // what was found last
		f := &p.Findings[len(p.Findings)-1]
		f.Fix, f.reserved, f.stale = "the reservation is removed", &r, stale
	}
	switch moving := r.Source == model.ByCalico || r.Source == model.ByHostLocal; {
	case r.Source == "":
		return
	case moving && p.pods.moved(r.Owner, r.Addr):
		p.found(Leaked, o, nil, "", "address %s is reserved for pod %s by %s, and the pod has another one", r.Addr, r.Owner, r.Source)
		drop(true)
	case p.pods.gone(r.Owner):
		p.found(Leaked, o, nil, "", "address %s is reserved for pod %s by %s, and there is no such pod", r.Addr, r.Owner, r.Source)
		drop(moving)
	case !moving && p.pods.denies(r.Owner, r.Addr):
		p.found(
			Leaked,
			o, nil, "",
			"address %s is reserved for pod %s by %s, and the pod does not report it: remove it from spec.reserved if it is unused", r.Addr, r.Owner, r.Source,
		)
	}
}

// examineBlock checks a block; overlap is another one, perhaps of another pool, that overlaps it.
func (p *Report) examineBlock(overlap *model.AddressBlock, b model.AddressBlock, o store.Object) {
	pool := p.pool(b.Pool)
	switch {
	case pool == nil:
		p.found(NoPool, o, nil, "", "there is no pool %q", b.Pool)
	case !slices.ContainsFunc(pool.Regions, func(r model.AddressRegion) bool {
		return r.CIDR.Contains(b.CIDR.Addr()) && r.BlockSize == b.CIDR.Bits()
	}):
		p.found(NoPool, o, nil, "", "block %s does not match the regions of pool %q", b.CIDR, b.Pool)
	}
	if other := p.hosts[b.Node]; b.MachineID != "" && other.MachineID == "" {
		p.hosts[b.Node] = b
	} else if b.MachineID != "" && other.MachineID != b.MachineID {
		p.found(Conflict, o, nil, "", "node %q runs on two hosts: block %s has machine ID %s, block %s has machine ID %s", b.Node, b.CIDR,
			b.MachineID, other.CIDR, other.MachineID)
	}
	if overlap != nil {
		p.found(Overlap, o, nil, "", "block %s of node %q overlaps with block %s of node %q", b.CIDR, b.Node, overlap.CIDR,
			overlap.Node)
	}
	if n := p.pods.on(b.Node); p.gone(b.Node) && n > 0 {
		p.found(
			OwnerGone,
			o, nil, "", "block %s belongs to node %q, and there is no such node, but %d pods are on it: delete them first",
			b.CIDR, b.Node, n,
		)
		return
	}
	if lent := p.lentToOthers(b); p.gone(b.Node) && lent > 0 {
		// A deleted block is free for any node, which would allocate the borrowers' addresses a second time: these
		// nodes are not asked, and may not answer at the moment.
		fix, how := orphan(o.Key), "other nodes take the block over with the lent addresses"
		if b.Orphaned {
			fix, how = nil, ""
		}
		p.foundGone(b.Node, OwnerGone, o, fix, how,
			"block %s belongs to node %q, and there is no such node, and other nodes borrow %d addresses of it", b.CIDR, b.Node, lent)
		p.examineLent(b, o)
		return
	}
	if p.gone(b.Node) {
		p.foundGone(b.Node, OwnerGone, o, func(ctx context.Context, objects store.Objects) error {
			return objects.Delete(ctx, store.AddressBlocks(), o.Key, o.Version)
		}, "the block is free", "block %s belongs to node %q, and there is no such node", b.CIDR, b.Node)
		return
	}
	p.examineLent(b, o)
}

// gone reports whether there is no such node, as far as nodes are known.
func (p *Report) gone(node string) bool { return len(p.nodes) > 0 && !p.nodes[node] }

// lentToOthers returns how many addresses of a block nodes borrow that exist.
func (p *Report) lentToOthers(b model.AddressBlock) int {
	n := 0
	for _, with := range b.Lent {
		if node, _, is := strings.Cut(with, "/"); is && !p.gone(node) {
			n++
		}
	}
	return n
}

// orphan marks a block as orphaned, so that other nodes take it over when they need addresses.
func orphan(key store.Key) func(context.Context, store.Objects) error {
	return func(ctx context.Context, objects store.Objects) error {
		return editBlock(ctx, objects, key, func(s *model.AddressBlock) bool {
			was := s.Orphaned
			s.Orphaned = true
			return !was
		})
	}
}

// examineLent checks the addresses of a block that deleted nodes have borrowed or request.
func (p *Report) examineLent(b model.AddressBlock, o store.Object) {
	for _, a := range slices.SortedFunc(maps.Keys(b.Requested), netip.Addr.Compare) {
		node, _, _ := strings.Cut(b.Requested[a], claims.EntrySeparator)
		if p.gone(node) {
			p.foundGone(node, Leaked, o, func(ctx context.Context, objects store.Objects) error {
				return editBlock(ctx, objects, o.Key, func(s *model.AddressBlock) bool {
					was := s.Requested[a] == b.Requested[a]
					s.Requested = without(s.Requested, a)
					return was
				})
			}, "the request is removed", "node %q requests address %s, and there is no such node", node, a)
		}
	}
	for _, a := range slices.SortedFunc(maps.Keys(b.Lent), netip.Addr.Compare) {
		if node, _, is := strings.Cut(b.Lent[a], "/"); !is || !p.gone(node) || p.claimed[a] != "" {
			continue // the claim's next pod reclaims it
		}
		node, _, _ := strings.Cut(b.Lent[a], "/")
		p.foundGone(node, Leaked, o, func(ctx context.Context, objects store.Objects) error {
			return editBlock(ctx, objects, o.Key, func(s *model.AddressBlock) bool {
				was := s.Lent[a] == b.Lent[a]
				s.Lent = with(s.Lent, a, "")
				return was
			})
		},
			"the address is free", "address %s is lent to node %q, and there is no such node", a, node)
	}
}

// editBlock changes the current version of a block, if change returns true.
func editBlock(ctx context.Context, objects store.Objects, key store.Key, change func(*model.AddressBlock) bool) error {
	now, err := objects.Get(ctx, store.AddressBlocks(), key)
	if err != nil {
		return err
	}
	spec, err := now.AddressBlock()
	if err != nil || !change(&spec) {
		return err
	}
	next, err := store.AddressBlockObject(now, spec)
	if err == nil {
		_, err = objects.CompareAndSwap(ctx, store.AddressBlocks(), now.Version, next)
	}
	return err
}

// without returns a copy of a map without one entry.
func without(m map[netip.Addr]string, a netip.Addr) map[netip.Addr]string {
	out := map[netip.Addr]string{}
	maps.Copy(out, m)
	delete(out, a)
	return out
}

// with returns a copy of a map with one more entry.
func with(m map[netip.Addr]string, a netip.Addr, value string) map[netip.Addr]string {
	out := without(m, a)
	out[a] = value
	return out
}

// Fix repairs the findings that can be repaired, and returns how many it repaired.
func (p Report) Fix(ctx context.Context, objects store.Objects) (int, error) {
	done, err := Repair(ctx, objects, p.Findings)
	return len(done), err
}

// Repair repairs those findings that can be repaired, and returns them. It continues after an error. All reservations of
// a pool are removed by one write: the pool's object has all of them, and may have thousands.
func Repair(ctx context.Context, objects store.Objects, findings []Finding) ([]Finding, error) {
	var done []Finding
	var errs []error
	report := func(err error, fixed ...Finding) {
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			errs = append(errs, fmt.Errorf("%s: %w", fixed[0].Object, err))
			return
		}
		done = append(done, fixed...)
	}
	var pools []store.Key
	reserved := map[store.Key][]Finding{}
	for _, f := range findings {
		switch key := f.about.Key; {
		case f.reserved != nil:
			if reserved[key] == nil {
				pools = append(pools, key)
			}
			reserved[key] = append(reserved[key], f)
		case f.fix != nil:
			report(f.fix(ctx, objects), f)
		}
	}
	for _, key := range pools {
		report(removeReserved(ctx, objects, key, reserved[key]), reserved[key]...)
	}
	return done, errors.Join(errs...)
}

// removeReserved removes reservations from the current version of a pool.
func removeReserved(ctx context.Context, objects store.Objects, key store.Key, findings []Finding) error {
	drop := map[model.ReservedAddress]bool{}
	for _, f := range findings {
		drop[*f.reserved] = true
	}
	now, err := objects.Get(ctx, store.AddressPools(), key)
	if err != nil {
		return err
	}
	spec, err := now.AddressPool()
	if err != nil {
		return err
	}
	spec.Reserved = slices.DeleteFunc(slices.Clone(spec.Reserved), func(r model.ReservedAddress) bool { return drop[r] })
	next, err := store.AddressPoolObject(now, spec)
	if err == nil {
		_, err = objects.CompareAndSwap(ctx, store.AddressPools(), now.Version, next)
	}
	return err
}
