// SPDX-License-Identifier: Apache-2.0

package serviceips

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weft-net/weft/internal/model"
)

func pool(name, cidr string) model.AddressPool {
	p := netip.MustParsePrefix(cidr)
	return model.AddressPool{
		Name: name, AssignmentMode: model.AssignAutomatic, AllowedUses: []model.AddressUse{model.UseLoadBalancer},
		Regions: []model.AddressRegion{{CIDR: p, BlockSize: p.Addr().BitLen()}},
	}
}

func addrs(texts ...string) (out []netip.Addr) {
	for _, text := range texts {
		out = append(out, netip.MustParseAddr(text))
	}
	return out
}

// line is a result in one line.
func line(r Result) string {
	var words []string
	for _, a := range r.Addrs {
		words = append(words, a.String())
	}
	text := strings.Join(words, ",") + " " + r.Reason
	if r.Reason != Assigned {
		text += ": " + r.Message
	}
	return text
}

func TestAssign(t *testing.T) {
	four, six := pool("four", "192.0.2.0/30"), pool("six", "2001:db8::/64")
	manual := pool("manual", "198.51.100.0/30")
	manual.AssignmentMode = model.AssignManual
	disabled := pool("disabled", "203.0.113.0/30")
	disabled.Disabled = true
	pods := pool("pods", "10.244.0.0/16")
	pods.AllowedUses = append(pods.AllowedUses, model.UseWorkload)
	kept := pool("kept", "192.0.2.128/30")
	kept.AssignmentMode = model.AssignManual
	kept.Reserved = []model.ReservedAddress{{Addr: netip.MustParseAddr("192.0.2.129"), Owner: "router"}}
	kept.Excluded = []model.ExcludedRange{{CIDR: netip.MustParsePrefix("192.0.2.130/31")}}
	pools := []model.AddressPool{four, six, manual, disabled, pods, kept}
	other := Service{Name: "a/other", Created: 1, Owner: Other, Addrs: addrs("192.0.2.0")}
	request := func(a string) []Request { return []Request{{"spec.loadBalancerIP", netip.MustParseAddr(a)}} }
	from := func(family int, name string) []PoolRequest { return []PoolRequest{{"pools", family, name}} }
	for _, c := range []struct {
		name string
		s    Service
		want string
	}{
		{"the first that is free", Service{Families: []int{4}}, "192.0.2.1 Assigned"},
		{"it stays", Service{Families: []int{4}, Addrs: addrs("192.0.2.3")}, "192.0.2.3 Assigned"},
		{"of two the older keeps it", Service{Families: []int{4}, Addrs: addrs("192.0.2.0")}, "192.0.2.1 Assigned"},
		{"both", Service{Families: []int{6, 4}, RequireAll: true}, "2001:db8::,192.0.2.1 Assigned"},
		{"a family goes", Service{Families: []int{6}, Addrs: addrs("192.0.2.3", "2001:db8::7")}, "2001:db8::7 Assigned"},
		{"requested", Service{Families: []int{4}, Requests: request("198.51.100.2")}, "198.51.100.2 Assigned"},
		{"another one is requested", Service{Families: []int{4}, Addrs: addrs("192.0.2.3"), Requests: request("198.51.100.2")}, "198.51.100.2 Assigned"},
		{"it has what it requests of a disabled pool", Service{Families: []int{4}, Addrs: addrs("203.0.113.1"), Requests: request("203.0.113.1")}, "203.0.113.1 Assigned"},
		{"a disabled pool", Service{Families: []int{4}, Requests: request("203.0.113.1")}, " NoPool: spec.loadBalancerIP: 203.0.113.1 is of pool disabled: the pool is disabled (request an address of another pool)"},
		{"in use", Service{Families: []int{4}, Requests: request("192.0.2.0")}, " AddressInUse: spec.loadBalancerIP: 192.0.2.0 is in use by Service a/other (request another one, or delete that Service)"},
		{"in use, and the current one stays", Service{Families: []int{4}, Addrs: addrs("192.0.2.2"), Requests: request("192.0.2.0")}, "192.0.2.2 AddressInUse: spec.loadBalancerIP: 192.0.2.0 is in use by Service a/other (request another one, or delete that Service)"},
		{"of pods", Service{Families: []int{4}, Requests: request("10.244.0.1")}, " AddressNotInPool: spec.loadBalancerIP: 10.244.0.1 is in no pool for Services (request an address of a pool with allowedUses: [LoadBalancer], or add it to one)"},
		{"reserved", Service{Families: []int{4}, Requests: request("192.0.2.129")}, ` AddressInUse: spec.loadBalancerIP: 192.0.2.129 is reserved in pool kept for "router" (request another one, or remove it from the pool's spec.reserved)`},
		{"excluded ones can be requested", Service{Families: []int{4}, Requests: request("192.0.2.130")}, "192.0.2.130 Assigned"},
		{"the wrong family", Service{Families: []int{4}, Requests: request("2001:db8::1")}, " InvalidRequest: spec.loadBalancerIP: 2001:db8::1 is of a family that spec.ipFamilies does not have (request an address of these families, or add IPv6 to spec.ipFamilies)"},
		{"a pool by name", Service{Families: []int{4}, Pools: from(4, "manual")}, "198.51.100.0 Assigned"},
		{"a pool by CIDR, from another one", Service{Families: []int{4}, Pools: from(4, "198.51.100.0/30"), Addrs: addrs("192.0.2.1")}, "198.51.100.0 Assigned"},
		{"a pool of the other family", Service{Families: []int{4}, Pools: from(4, "six")}, ` InvalidRequest: pools: pool "six" has no IPv4 addresses (name one with a region of that family)`},
		{"a pool for pods", Service{Families: []int{4}, Pools: from(4, "pods")}, ` InvalidRequest: pools: there is no pool "pods" for Services (name one with allowedUses: [LoadBalancer])`},
		{"a disabled pool by name", Service{Families: []int{4}, Pools: from(4, "disabled")}, " NoPool: pool disabled: the pool is disabled (request another pool, or enable it)"},
		{"neither reserved nor excluded", Service{Families: []int{4}, Pools: from(4, "kept")}, "192.0.2.128 Assigned"},
		{"both or none", Service{Families: []int{4, 6}, RequireAll: true, Pools: from(6, "no")}, ` InvalidRequest: pools: there is no pool "no" for Services (name one with allowedUses: [LoadBalancer])`},
		{"its pool is gone", Service{Families: []int{4}, Addrs: addrs("172.16.0.1")}, "172.16.0.1 Assigned"},
		{"no load balancer any more", Service{Owner: Released, Addrs: addrs("192.0.2.1", "172.16.0.1")}, "172.16.0.1 : "},
	} {
		c.s.Name, c.s.Created = "b/s", 2
		if c.s.Owner == Other {
			c.s.Owner = Weft
		}
		if got := line(Assign(pools, []Service{c.s, other}, nil)["b/s"]); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	shared := Service{Name: "b/s", Owner: Weft, Shared: true, Families: []int{4}, Addrs: addrs("172.16.0.1")}
	if got := Assign(pools, []Service{shared}, nil); len(got) != 0 {
		t.Errorf("a Service of another controller: %v", got)
	}
	shared.Addrs = nil
	if got := Assign([]model.AddressPool{pods}, []Service{shared}, nil); len(got) != 0 {
		t.Errorf("without a pool for Services: %v", got)
	}
}

// Whatever Services there are, no address is assigned twice, a second pass changes nothing, an address that is free is
// found, and one that is in use elsewhere is never taken.
func TestAssignIsConsistent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pools := []model.AddressPool{pool("a", "192.0.2.0/29"), pool("b", "192.0.2.16/30"), pool("c", "2001:db8::/126")}
		pools[1].AssignmentMode = model.AssignManual
		all := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Service {
			s := Service{
				Created: rapid.Int64Range(0, 2).Draw(t, "created"), Owner: rapid.SampledFrom([]Owner{Weft, Weft, Weft, Other, Released}).Draw(t, "owner"),
				Families:   rapid.SampledFrom([][]int{{4}, {6}, {4, 6}, {6, 4}}).Draw(t, "families"),
				RequireAll: rapid.Bool().Draw(t, "all"),
			}
			for _, text := range rapid.SliceOfN(rapid.SampledFrom([]string{"192.0.2.1", "192.0.2.2", "192.0.2.17", "2001:db8::1"}), 0, 2).Draw(t, "has") {
				s.Addrs = append(s.Addrs, netip.MustParseAddr(text))
			}
			if rapid.Bool().Draw(t, "requests") {
				s.Requests = []Request{{"field", netip.MustParseAddr(rapid.SampledFrom([]string{"192.0.2.2", "192.0.2.16", "2001:db8::1", "192.0.2.99"}).Draw(t, "request"))}}
			}
			return s
		}), 0, 12).Draw(t, "services")
		for i := range all {
			all[i].Name = fmt.Sprintf("ns/s%02d", i)
		}
		first := Assign(pools, all, nil)
		held := map[netip.Addr]string{}
		for i, s := range all {
			r, ours := first[s.Name]
			if !ours || s.Owner == Released {
				all[i].Owner = Other
			}
			if ours {
				all[i].Addrs = r.Addrs
			}
			if s.Owner == Other {
				for _, a := range s.Addrs {
					held[a] += "?" // two others may have one
				}
			}
		}
		for _, s := range all {
			if s.Owner != Weft {
				continue
			}
			for _, a := range s.Addrs {
				if by := held[a]; by != "" && !strings.HasPrefix(by, "?") {
					t.Fatalf("%s has %s of %s", s.Name, a, by)
				}
				held[a] = s.Name
				if !slices.Contains(s.Families, familyOf(a)) {
					t.Fatalf("%s has %s of another family", s.Name, a)
				}
			}
			if r := first[s.Name]; r.Reason == Assigned && len(r.Addrs) == 0 || s.RequireAll && r.Reason == Assigned && len(r.Addrs) != len(s.Families) {
				t.Fatalf("%s: %+v", s.Name, r)
			}
		}
		for name, r := range Assign(pools, all, nil) {
			if was := first[name]; was.Reason == Assigned && !slices.Equal(was.Addrs, r.Addrs) {
				t.Fatalf("%s: %s, and again %s", name, line(was), line(r))
			}
			if r.Reason == NoFreeAddress && strings.Contains(r.Message, "IPv4") && held[netip.MustParseAddr("192.0.2.6")] == "" {
				t.Fatalf("%s finds no address, and one is free: %s", name, line(r))
			}
		}
	})
}

// TestCooldown: an address that a Service has given up is assigned to another one after its pool's cooldown, before that
// only if nothing else is free, or if it is requested.
func TestCooldown(t *testing.T) {
	p := pool("four", "192.0.2.0/30")
	p.Cooldown = 30
	p.Excluded = []model.ExcludedRange{{CIDR: netip.MustParsePrefix("192.0.2.3/32")}}
	var c Cooldown
	at := func(second int, all ...Service) string {
		pools := []model.AddressPool{p}
		var words []string
		results := Assign(pools, all, c.Update(pools, all, time.Unix(int64(second), 0)))
		for _, s := range all {
			words = append(words, line(results[s.Name]))
		}
		return strings.Join(words, ", ")
	}
	has := func(name, addr string) Service {
		return Service{Name: name, Owner: Weft, Families: []int{4}, Addrs: addrs(addr)}
	}
	wants := func(name string) Service { return Service{Name: name, Owner: Weft, Families: []int{4}} }
	asks := wants("asks")
	asks.Requests = []Request{{"spec.loadBalancerIP", netip.MustParseAddr("192.0.2.0")}}
	for _, step := range []struct {
		second int
		all    []Service
		want   string
	}{
		{0, []Service{has("a", "192.0.2.0")}, "192.0.2.0 Assigned"},
		{1, []Service{wants("b")}, "192.0.2.1 Assigned"},
		{30, []Service{has("b", "192.0.2.1"), wants("c")}, "192.0.2.1 Assigned, 192.0.2.2 Assigned"},
		{31, []Service{has("b", "192.0.2.1"), wants("c")}, "192.0.2.1 Assigned, 192.0.2.0 Assigned"},
		{32, []Service{has("b", "192.0.2.1"), has("c", "192.0.2.0")}, "192.0.2.1 Assigned, 192.0.2.0 Assigned"},
		{33, []Service{has("b", "192.0.2.1"), asks}, "192.0.2.1 Assigned, 192.0.2.0 Assigned"},
		{34, nil, ""},
		// All addresses are cooling but one; then nothing else is free: the one whose cooldown ends first.
		{35, []Service{wants("d"), wants("e"), wants("f"), wants("g")}, "192.0.2.2 Assigned, 192.0.2.0 Assigned, " +
			"192.0.2.1 Assigned,  NoFreeAddress: no pool for Services has a free IPv4 address: four (add a region to the pool, or delete Services)"},
	} {
		if got := at(step.second, step.all...); got != step.want {
			t.Errorf("after %d s: %s, not %s", step.second, got, step.want)
		}
	}
	p.Cooldown = 0
	if got := at(36, wants("h")); got != "192.0.2.2 Assigned" {
		t.Errorf("with the default cooldown: %s", got)
	}
}
