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

// Report is all that the store says about addresses.
type Report struct {
	Pools  []model.AddressPool  `json:"pools"`
	Blocks []model.AddressBlock `json:"blocks"`
	// Machines are what is promised to virtual machines.
	Machines []claims.MachinePromise `json:"machines,omitempty"`
	// Findings are what is wrong, or left over.
	Findings []Finding `json:"findings"`

	promised map[netip.Addr]string // by claims, whatever kind
	nodes    map[string]bool       // empty: nobody writes Node objects here
	pods     podIndex
	ranges   map[string][]netip.Prefix     // the nodes' own, by node
	machines map[string]model.AddressBlock // by node: the first block that says which machine has it
}

// Finding is one thing that is wrong, or left over.
type Finding struct {
	Object string `json:"object"`
	// Pool is the pool that it is about; empty where that is none, or not known.
	Pool string `json:"pool,omitempty"`
	Msg  string `json:"message"`
	// Fix says what --fix does about it; empty: it is left to the operator.
	Fix string `json:"fix,omitempty"`

	fix func(context.Context, store.Objects) error
	// leftover: a reservation of another network's pod that is gone.
	leftover bool
}

// Leftover reports whether this is a reservation for a pod of another network that is gone: nobody has to be asked
// about it.
func (f Finding) Leftover() bool { return f.leftover }

// Repair does what Fix says.
func (f Finding) Repair(ctx context.Context, objects store.Objects) error {
	if f.fix == nil {
		return nil
	}
	return f.fix(ctx, objects)
}

// Inspect reads everything and examines it.
func Inspect(ctx context.Context, objects store.Objects) (Report, error) {
	p := Report{
		nodes: map[string]bool{}, pods: podIndex{}, ranges: map[string][]netip.Prefix{},
		machines: map[string]model.AddressBlock{},
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
				p.Findings = append(p.Findings, Finding{Object: o.Key.String(), Msg: err.Error()})
			}
		}
	}
	// Pods last: one for which something is reserved is there already.
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
	if err := p.learnPromises(ctx, objects); err != nil {
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
	return p, p.examineKept(ctx, objects)
}

func note[T any](into *[]T, read func() (T, error)) error {
	v, err := read()
	if err == nil {
		*into = append(*into, v)
	}
	return err
}

func (p *Report) found(
	o store.Object, fix func(context.Context, store.Objects) error, how, format string, args ...any,
) {
	p.Findings = append(p.Findings, Finding{
		Object: o.Key.String(), Pool: poolOf(o), Msg: fmt.Sprintf(format, args...), Fix: how, fix: fix,
	})
}

// poolOf is the pool that an object is about.
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
	edit := func(change func(*model.AddressPool)) func(context.Context, store.Objects) error {
		return func(ctx context.Context, objects store.Objects) error {
			now, err := objects.Get(ctx, store.AddressPools(), o.Key)
			if err != nil {
				return err
			}
			spec, err := now.AddressPool()
			if err != nil {
				return err
			}
			change(&spec)
			next, err := store.AddressPoolObject(now, spec)
			if err == nil {
				_, err = objects.CompareAndSwap(ctx, store.AddressPools(), now.Version, next)
			}
			return err
		}
	}
	for _, r := range pool.Reserved {
		p.examineReserved(o, r, edit(func(s *model.AddressPool) {
			s.Reserved = slices.DeleteFunc(slices.Clone(s.Reserved), func(x model.ReservedAddress) bool { return x == r })
		}))
	}
	for _, n := range pool.Wanted {
		if p.gone(n) {
			p.found(o, unwanted(o.Key, n), "it is taken out", "node %q waits for addresses, and there is no such node", n)
		}
	}
}

// examineReserved looks at an address that is reserved for a pod of another network, or by another program.
func (p *Report) examineReserved(
	o store.Object, r model.ReservedAddress, drop func(context.Context, store.Objects) error,
) {
	const how = "the reservation goes"
	switch moving := r.By == model.ByCalico || r.By == model.ByHostLocal; {
	case r.By == "":
		return
	case moving && p.pods.moved(r.For, r.Addr):
		p.found(o, drop, how, "address %s is reserved for pod %s by %s, and the pod has another one", r.Addr, r.For, r.By)
		p.Findings[len(p.Findings)-1].leftover = true
	case p.pods.gone(r.For):
		p.found(o, drop, how, "address %s is reserved for pod %s by %s, and there is no such pod", r.Addr, r.For, r.By)
		p.Findings[len(p.Findings)-1].leftover = moving
	case !moving && p.pods.denies(r.For, r.Addr):
		p.found(
			o, nil, "",
			"address %s is reserved for pod %s by %s, and the pod does not say that it has it: take it out of spec.reserved if that is so", r.Addr, r.For, r.By,
		)
	}
}

// examineBlock looks at a block; overlap is another one, perhaps of another pool, that has some of its addresses.
func (p *Report) examineBlock(overlap *model.AddressBlock, b model.AddressBlock, o store.Object) {
	pool := p.pool(b.Pool)
	switch {
	case pool == nil:
		p.found(o, nil, "", "there is no pool %q", b.Pool)
	case !slices.ContainsFunc(pool.Regions, func(r model.AddressRegion) bool {
		return r.CIDR.Contains(b.CIDR.Addr()) && r.BlockSize == b.CIDR.Bits()
	}):
		p.found(o, nil, "", "block %s is none of pool %q as it is cut now", b.CIDR, b.Pool)
	}
	if other := p.machines[b.Node]; b.Machine != "" && other.Machine == "" {
		p.machines[b.Node] = b
	} else if b.Machine != "" && other.Machine != b.Machine {
		p.found(o, nil, "", "node %q is two machines: block %s is of machine %s, block %s of machine %s", b.Node, b.CIDR,
			b.Machine, other.CIDR, other.Machine)
	}
	if overlap != nil {
		p.found(o, nil, "", "block %s of node %q overlaps with block %s of node %q", b.CIDR, b.Node, overlap.CIDR,
			overlap.Node)
	}
	if n := p.pods.on(b.Node); p.gone(b.Node) && n > 0 {
		p.found(
			o, nil, "", "block %s belongs to node %q, and there is no such node, but %d pods are on it: delete them first",
			b.CIDR, b.Node, n,
		)
		return
	}
	if p.gone(b.Node) {
		p.found(o, func(ctx context.Context, objects store.Objects) error {
			return objects.Delete(ctx, store.AddressBlocks(), o.Key, o.Version)
		}, "the block is free", "block %s belongs to node %q, and there is no such node", b.CIDR, b.Node)
		return
	}
	p.examineCeded(b, o)
}

// gone reports whether there is no such node, as far as nodes are known.
func (p *Report) gone(node string) bool { return len(p.nodes) > 0 && !p.nodes[node] }

// examineCeded looks at the addresses that nodes which are gone have of a block, or ask for.
func (p *Report) examineCeded(b model.AddressBlock, o store.Object) {
	for _, a := range slices.SortedFunc(maps.Keys(b.Asked), netip.Addr.Compare) {
		node, _, _ := strings.Cut(b.Asked[a], claims.For)
		if p.gone(node) {
			p.found(o, func(ctx context.Context, objects store.Objects) error {
				return editBlock(ctx, objects, o.Key, func(s *model.AddressBlock) bool {
					was := s.Asked[a] == b.Asked[a]
					s.Asked = without(s.Asked, a)
					return was
				})
			}, "nobody asks for it", "node %q asks for address %s, and there is no such node", node, a)
		}
	}
	for _, a := range slices.SortedFunc(maps.Keys(b.Ceded), netip.Addr.Compare) {
		if node, _, is := strings.Cut(b.Ceded[a], "/"); !is || !p.gone(node) || p.promised[a] != "" {
			continue // who it is promised to takes it from there
		}
		node, _, _ := strings.Cut(b.Ceded[a], "/")
		p.found(o, func(ctx context.Context, objects store.Objects) error {
			return editBlock(ctx, objects, o.Key, func(s *model.AddressBlock) bool {
				was := s.Ceded[a] == b.Ceded[a]
				s.Ceded = with(s.Ceded, a, "")
				return was
			})
		},
			"the address is free", "address %s was ceded to node %q, and there is no such node", a, node)
	}
}

// editBlock changes a block as it is now; change reports whether it is still to be done.
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

// without is a map less one entry; the old map stays as it is.
func without(m map[netip.Addr]string, a netip.Addr) map[netip.Addr]string {
	out := map[netip.Addr]string{}
	maps.Copy(out, m)
	delete(out, a)
	return out
}

// with is a map with one entry more.
func with(m map[netip.Addr]string, a netip.Addr, value string) map[netip.Addr]string {
	out := without(m, a)
	out[a] = value
	return out
}

// Fix does what can be done about the findings, and gives how many there were of these.
func (p Report) Fix(ctx context.Context, objects store.Objects) (int, error) {
	n := 0
	var errs []error
	for _, f := range p.Findings {
		if f.fix == nil {
			continue
		}
		if err := f.fix(ctx, objects); err != nil && !errors.Is(err, store.ErrNotFound) {
			errs = append(errs, fmt.Errorf("%s: %w", f.Object, err))
			continue
		}
		n++
	}
	return n, errors.Join(errs...)
}
