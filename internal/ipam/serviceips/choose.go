// SPDX-License-Identifier: Apache-2.0

package serviceips

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/model"
)

// createPool is the hint where no pool is for Services.
const createPool = "create an AddressPool with assignmentMode Automatic and allowedUses: [LoadBalancer]"

func fault(reason, hint, format string, args ...any) Result {
	return Result{Reason: reason, Message: fmt.Sprintf(format, args...) + " (" + hint + ")"}
}

// requested returns the specific addresses that a Service gets, by family, or why it gets none.
func (a *assignment) requested(s Service) (map[int]netip.Addr, Result) {
	if s.Err != nil {
		return nil, Result{Reason: InvalidRequest, Message: s.Err.Error()}
	}
	out := map[int]netip.Addr{}
	for _, r := range s.Requests {
		f := familyOf(r.Addr)
		holder, pool := a.holders[r.Addr], a.poolOf(r.Addr)
		switch {
		case !slices.Contains(s.Families, f):
			return nil, fault(InvalidRequest, fmt.Sprintf("request an address of these families, or add IPv%d to spec.ipFamilies", f),
				"%s: %s is of a family that spec.ipFamilies does not have", r.Field, r.Addr)
		case out[f].IsValid():
			return nil, fault(InvalidRequest, "leave one of them out", "%s: %s and %s are of the same family", r.Field, out[f], r.Addr)
		case pool == nil:
			return nil, fault(AddressNotInPool, "request an address of a pool with allowedUses: [LoadBalancer], or add it to one",
				"%s: %s is in no pool for Services", r.Field, r.Addr)
		case holder != "" && holder != s.Name:
			return nil, fault(AddressInUse, "request another one, or delete that Service", "%s: %s is in use by Service %s", r.Field, r.Addr, holder)
		case a.isReserved(r.Addr):
			return nil, fault(AddressInUse, "request another one, or remove it from the pool's spec.reserved",
				"%s: %s is reserved in pool %s for %q", r.Field, r.Addr, pool.Name, a.reserved[r.Addr])
		case holder == "" && !a.allocatable[pool.Name].True:
			return nil, fault(NoPool, "request an address of another pool", "%s: %s is of pool %s: %s", r.Field, r.Addr, pool.Name,
				a.allocatable[pool.Name].Message)
		}
		out[f] = r.Addr
	}
	return out, Result{}
}

func (a *assignment) isReserved(addr netip.Addr) bool {
	_, is := a.reserved[addr]
	return is
}

// automatic returns an address of a family: the current one, unless the Service requests other pools.
func (a *assignment) automatic(s Service, family int, current netip.Addr) (netip.Addr, Result) {
	asked := slices.ContainsFunc(s.Pools, func(r PoolRequest) bool { return r.Family == family })
	if current.IsValid() && !asked {
		return current, Result{}
	}
	pools, why := a.candidates(s, family)
	if why.Reason != "" {
		return netip.Addr{}, why
	}
	if own := a.poolOf(current); own != nil && slices.ContainsFunc(pools, func(p model.AddressPool) bool { return p.Name == own.Name }) {
		return current, Result{}
	}
	var last Result
	var usable []netip.Prefix
	for _, p := range pools {
		if c := a.allocatable[p.Name]; !c.True {
			last = fault(NoPool, "request another pool, or enable it", "pool %s: %s", p.Name, c.Message)
			continue
		}
		for _, r := range p.Regions {
			if r.CIDR.Addr().Is4() != (family == 4) {
				continue
			}
			usable = append(usable, r.CIDR)
			if addr := a.free(p, r.CIDR); addr.IsValid() {
				return addr, Result{}
			}
		}
	}
	if len(usable) == 0 {
		return netip.Addr{}, last
	}
	if addr := a.coolest(usable); addr.IsValid() {
		return addr, Result{}
	}
	return netip.Addr{}, fault(NoFreeAddress, "add a region to the pool, or delete Services", "no pool for Services has a free IPv%d address: %s",
		family, names(pools))
}

func names(pools []model.AddressPool) (text string) {
	for i, p := range pools {
		if i > 0 {
			text += ", "
		}
		text += p.Name
	}
	return text
}

// candidates returns the pools with addresses of a family that a Service may use.
func (a *assignment) candidates(s Service, family int) ([]model.AddressPool, Result) {
	has := func(p model.AddressPool) bool {
		return slices.ContainsFunc(p.Regions, func(r model.AddressRegion) bool { return r.CIDR.Addr().Is4() == (family == 4) })
	}
	var out []model.AddressPool
	asked := false
	for _, r := range s.Pools {
		if r.Family != family {
			continue
		}
		asked = true
		i := slices.IndexFunc(a.pools, func(p model.AddressPool) bool {
			return p.Name == r.Pool || slices.ContainsFunc(p.Regions, func(region model.AddressRegion) bool { return region.CIDR.String() == r.Pool })
		})
		if i < 0 {
			return nil, fault(InvalidRequest, "name one with allowedUses: [LoadBalancer]", "%s: there is no pool %q for Services", r.Field, r.Pool)
		}
		if !has(a.pools[i]) {
			return nil, fault(InvalidRequest, "name one with a region of that family", "%s: pool %q has no IPv%d addresses", r.Field, r.Pool, family)
		}
		out = append(out, a.pools[i])
	}
	if asked {
		return out, Result{}
	}
	for _, p := range a.pools {
		if p.AssignmentMode == model.AssignAutomatic && has(p) && a.allocatable[p.Name].True {
			out = append(out, p)
		}
	}
	if len(out) == 0 {
		return nil, fault(NoPool, createPool, "no pool for Services has IPv%d addresses that are allocated automatically", family)
	}
	return out, Result{}
}

// coolest returns the free address of regions whose cooldown ends first, invalid if none is cooling.
func (a *assignment) coolest(regions []netip.Prefix) (best netip.Addr) {
	for addr, until := range a.cooling {
		if !slices.ContainsFunc(regions, func(r netip.Prefix) bool { return r.Contains(addr) }) || a.holders[addr] != "" ||
			a.isReserved(addr) || slices.ContainsFunc(a.poolOf(addr).Excluded, func(e model.ExcludedRange) bool { return e.CIDR.Contains(addr) }) {
			continue
		}
		if c := until.Compare(a.cooling[best]); !best.IsValid() || c < 0 || c == 0 && addr.Less(best) {
			best = addr
		}
	}
	return best
}

// free returns the first free address of a region that is not cooling, invalid if there is none.
func (a *assignment) free(p model.AddressPool, region netip.Prefix) netip.Addr {
	addr, known := a.next[region]
	if !known {
		addr = region.Masked().Addr()
	}
	for region.Contains(addr) {
		if i := slices.IndexFunc(p.Excluded, func(e model.ExcludedRange) bool { return e.CIDR.Contains(addr) }); i >= 0 {
			addr = last(p.Excluded[i].CIDR).Next()
			continue
		}
		if _, cooling := a.cooling[addr]; a.holders[addr] == "" && !a.isReserved(addr) && !cooling {
			break
		}
		addr = addr.Next()
	}
	a.next[region] = addr
	if !region.Contains(addr) {
		return netip.Addr{}
	}
	return addr
}

// last returns the last address of a prefix.
func last(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < 8*len(b); i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	out, _ := netip.AddrFromSlice(b)
	return out
}
