// SPDX-License-Identifier: Apache-2.0

// Package serviceips assigns addresses of pools to Services of type LoadBalancer. The status of a Service is the only
// record of its addresses: an address is in use while a Service has it, so nothing else is to be released, whenever the
// controller ends.
package serviceips

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/model"
)

// Service is a Service as far as its addresses are concerned.
type Service struct {
	// Name is "namespace/name".
	Name string
	// Created is the creation time in seconds since 1970: of two Services with one address the older one keeps it.
	Created int64
	// Owner is the controller that assigns its addresses.
	Owner Owner
	// Local: spec.externalTrafficPolicy is Local.
	Local bool
	// Families are the IP families (4, 6) in the order of spec.ipFamilies.
	Families []int
	// RequireAll: addresses of all families, or none.
	RequireAll bool
	// Requests are specific addresses, at most one for each family.
	Requests []Request
	// Pools are the requested pools; empty means all with assignmentMode Automatic.
	Pools []PoolRequest
	// Addrs are those in its status.
	Addrs []netip.Addr
	// Shared: it has no class, and no status of weft's yet. With an address that is in no pool it is another controller's.
	Shared bool
	// Err is why its requests cannot be read.
	Err error
}

// Owner is who assigns the addresses of a Service.
type Owner int

// The owners.
const (
	// Other: another controller, or none. Addresses of pools in its status are in use all the same.
	Other Owner = iota
	// Weft assigns the addresses.
	Weft
	// Released: the Service is no load balancer any more, and its addresses are removed.
	Released
)

// Request is a request for a specific address. Field is where it is.
type Request struct {
	Field string
	Addr  netip.Addr
}

// PoolRequest is a request for a pool of a family, by its name or CIDR.
type PoolRequest struct {
	Field  string
	Family int
	Pool   string
}

// Result is what the status of a Service should be.
type Result struct {
	// Addrs are the addresses.
	Addrs []netip.Addr
	// Reason and Message are those of the condition.
	Reason, Message string
}

// The reasons of a result.
const (
	Assigned         = "Assigned"
	NoFreeAddress    = "NoFreeAddress"
	NoPool           = "NoPool"
	AddressInUse     = "AddressInUse"
	AddressNotInPool = "AddressNotInPool"
	InvalidRequest   = "InvalidRequest"
)

// Assign returns the results of the Services whose addresses are assigned here, or were, by name. An address that a
// Service has stays with it, unless it requests another one. Of cooling addresses see Cooldown.
func Assign(pools []model.AddressPool, all []Service, cooling map[netip.Addr]time.Time) map[string]Result {
	a := newAssignment(pools)
	a.cooling = cooling
	all = byAge(all)
	for _, s := range all {
		for _, addr := range s.Addrs {
			if a.holders[addr] == "" && s.Owner != Released {
				a.holders[addr] = s.Name
			}
		}
	}
	out := map[string]Result{}
	for _, s := range all {
		others := func(addr netip.Addr) bool { return a.poolOf(addr) == nil }
		switch {
		case s.Owner == Weft && s.Shared && (len(a.pools) == 0 || slices.ContainsFunc(s.Addrs, others)):
		case s.Owner == Weft:
			out[s.Name] = a.assign(s)
		case s.Owner == Released:
			out[s.Name] = Result{Addrs: slices.DeleteFunc(slices.Clone(s.Addrs), func(addr netip.Addr) bool { return a.poolOf(addr) != nil })}
		}
	}
	return out
}

// Holders returns the Services that have addresses of the pools: of several with one address the oldest.
func Holders(pools []model.AddressPool, all []Service) map[netip.Addr]string {
	a := newAssignment(pools)
	out := map[netip.Addr]string{}
	for _, s := range byAge(all) {
		for _, addr := range s.Addrs {
			if s.Owner != Released && out[addr] == "" && a.poolOf(addr) != nil {
				out[addr] = s.Name
			}
		}
	}
	return out
}

// InUse counts the addresses of each pool that Services have.
func InUse(pools []model.AddressPool, all []Service) map[string]int {
	a := newAssignment(pools)
	out := map[string]int{}
	for addr := range Holders(pools, all) {
		out[a.poolOf(addr).Name]++
	}
	return out
}

// byAge returns the Services in an order in which the first one with an address keeps it.
func byAge(all []Service) []Service {
	all = slices.Clone(all)
	slices.SortFunc(all, func(x, y Service) int {
		return cmp.Or(cmp.Compare(x.Created, y.Created), strings.Compare(x.Name, y.Name))
	})
	return all
}

// assignment is one pass.
type assignment struct {
	pools       []model.AddressPool // those of Services, by name
	allocatable map[string]model.Condition
	holders     map[netip.Addr]string // Services by address
	reserved    map[netip.Addr]string
	// cooling are the addresses that are assigned only if nothing else is free, with the time until which.
	cooling map[netip.Addr]time.Time
	// next is the first address of a region that may be free, by the region's prefix.
	next map[netip.Prefix]netip.Addr
}

func newAssignment(pools []model.AddressPool) *assignment {
	a := &assignment{
		allocatable: model.PoolConditions(pools), holders: map[netip.Addr]string{}, reserved: map[netip.Addr]string{},
		next: map[netip.Prefix]netip.Addr{},
	}
	for _, p := range pools {
		if !p.ForServices() {
			continue
		}
		a.pools = append(a.pools, p)
		for _, r := range p.Reserved {
			a.reserved[r.Addr] = r.Owner
		}
	}
	slices.SortFunc(a.pools, func(x, y model.AddressPool) int { return strings.Compare(x.Name, y.Name) })
	return a
}

// poolOf returns the pool of Services that has an address, nil if none has. Of several the one that allocates.
func (a *assignment) poolOf(addr netip.Addr) (found *model.AddressPool) {
	for i, p := range a.pools {
		if slices.ContainsFunc(p.Regions, func(r model.AddressRegion) bool { return r.CIDR.Contains(addr) }) &&
			(found == nil || a.allocatable[p.Name].True) {
			found = &a.pools[i]
		}
	}
	return found
}

func familyOf(addr netip.Addr) int {
	if addr.Is4() {
		return 4
	}
	return 6
}

// assign returns the addresses of a Service.
func (a *assignment) assign(s Service) Result {
	current := map[int]netip.Addr{}
	for _, addr := range s.Addrs {
		if f := familyOf(addr); a.holders[addr] == s.Name && !current[f].IsValid() && slices.Contains(s.Families, f) {
			current[f] = addr
		}
	}
	wanted, failed := a.requested(s)
	got := map[int]netip.Addr{}
	refused := failed.Reason != "" // the request itself: nothing else is assigned instead
	for _, f := range s.Families {
		if refused {
			break
		}
		addr, why := wanted[f], Result{}
		if !addr.IsValid() {
			addr, why = a.automatic(s, f, current[f])
		}
		if why.Reason == "" {
			got[f] = addr
			a.holders[addr] = s.Name
			continue
		}
		if failed.Reason == "" || failed.Reason == NoPool {
			failed = why
		}
	}
	if failed.Reason != "" && (refused || s.RequireAll || failed.Reason != NoPool || len(got) == 0) {
		a.undo(s, got, current)
		got = current
	} else {
		failed = Result{Reason: Assigned}
	}
	for _, f := range s.Families {
		if got[f].IsValid() {
			failed.Addrs = append(failed.Addrs, got[f])
		}
	}
	if failed.Reason == Assigned {
		failed.Message = a.describe(failed.Addrs)
	}
	return failed
}

// undo frees addresses that are not assigned after all.
func (a *assignment) undo(s Service, got, current map[int]netip.Addr) {
	for f, addr := range got {
		if addr == current[f] {
			continue
		}
		delete(a.holders, addr)
		for _, region := range a.poolOf(addr).Regions {
			if next, is := a.next[region.CIDR]; is && region.CIDR.Contains(addr) && addr.Less(next) {
				a.next[region.CIDR] = addr
			}
		}
	}
	for _, addr := range current {
		a.holders[addr] = s.Name
	}
}

// describe says which addresses a Service has.
func (a *assignment) describe(addrs []netip.Addr) string {
	var words []string
	for _, addr := range addrs {
		text := addr.String()
		if p := a.poolOf(addr); p != nil {
			text += " of pool " + p.Name
		}
		words = append(words, text)
	}
	return strings.Join(words, ", ")
}
