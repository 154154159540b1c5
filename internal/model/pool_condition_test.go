// SPDX-License-Identifier: Apache-2.0

package model

import (
	"math/rand"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The message names what is wrong with a pool, and does not depend on the order in which pools are listed.
func TestPoolConditions(t *testing.T) {
	region := func(cidr string) []AddressRegion {
		return []AddressRegion{{CIDR: netip.MustParsePrefix(cidr), BlockSize: 26}}
	}
	pools := []AddressPool{
		{Name: "old", AssignmentMode: AssignAutomatic, Regions: region("10.0.0.0/16"), Created: 1},
		{Name: "young", AssignmentMode: AssignManual, Regions: region("10.0.128.0/17"), Created: 2},
		{Name: "younger", AssignmentMode: AssignAutomatic, Regions: region("10.0.255.0/24"), Created: 3},
		{Name: "same-b", AssignmentMode: AssignAutomatic, Regions: region("10.1.0.0/16"), Created: 4},
		{Name: "same-a", AssignmentMode: AssignAutomatic, Regions: region("10.1.0.0/16"), Created: 4},
		{Name: "lan", Regions: region("10.0.0.0/16"), Created: 5},
		{Name: "disabled", AssignmentMode: AssignAutomatic, Disabled: true, Regions: region("10.2.0.0/16")},
		{Name: "overlaps-disabled", AssignmentMode: AssignAutomatic, Regions: region("10.2.0.0/24"), Created: 9},
		{Name: "going", AssignmentMode: AssignAutomatic, Deleted: true, Disabled: true, Regions: region("10.3.0.0/16")},
		{Name: "selector", AssignmentMode: AssignAutomatic, NodeSelector: "zone = 'a'", Regions: region("10.4.0.0/16")},
		{Name: "namespace", AssignmentMode: AssignAutomatic, NamespaceSelector: "has()", Regions: region("10.5.0.0/16")},
		{
			Name: "ipip6", AssignmentMode: AssignAutomatic, Encapsulation: Encapsulation{Kind: EncapsulationIPIP},
			Regions: region("fd00::/64"),
		},
		{
			Name: "services", AssignmentMode: AssignAutomatic, AllowedUses: []AddressUse{UseLoadBalancer},
			Regions: region("10.6.0.0/16"),
		},
		{
			Name: "services-too", AssignmentMode: AssignAutomatic, AllowedUses: []AddressUse{UseTunnel, UseLoadBalancer},
			Regions: region("10.7.0.0/16"),
		},
	}
	no := func(reason, message string) Condition {
		return Condition{Type: ConditionAllocatable, Reason: reason, Message: message}
	}
	ok := Condition{Type: ConditionAllocatable, True: true, Reason: ReasonOK, Message: "addresses can be allocated"}
	want := map[string]Condition{
		"old": ok, "same-a": ok, "lan": ok,
		"young": no(ReasonCIDROverlap,
			"region 10.0.128.0/17 overlaps with region 10.0.0.0/16 of pool old, which is older"),
		"younger": no(ReasonCIDROverlap,
			"region 10.0.255.0/24 overlaps with region 10.0.0.0/16 of pool old, which is older"),
		"same-b": no(ReasonCIDROverlap,
			"region 10.1.0.0/16 overlaps with region 10.1.0.0/16 of pool same-a, which is older"),
		"disabled": no(ReasonPoolDisabled, "the pool is disabled"),
		"overlaps-disabled": no(ReasonCIDROverlap,
			"region 10.2.0.0/24 overlaps with region 10.2.0.0/16 of pool disabled, which is older"),
		"going": no(ReasonTerminating, "the pool is deleted when its last block is released"),
		"selector": no(
			ReasonBadSelector,
			`nodeSelector: selector "zone = 'a'", character 6: unexpected character '=' (the signs are ==, !=, &&, ||, !, ( ), { } and the comma)`,
		),
		"namespace": no(ReasonBadSelector,
			`namespaceSelector: selector "has()", character 5: ')' is not a label (write for example 'has(zone)')`),
		"ipip6": no(ReasonBadEncapsulation,
			"encapsulation ipip carries IPv4 only, and region fd00::/64 is IPv6: use vxlan or none"),
		"services": {Type: ConditionAllocatable, True: true, Reason: ReasonOK, Message: "addresses can be allocated to Services"},
		"services-too": {
			Type: ConditionAllocatable, True: true, Reason: ReasonOK,
			Message: "addresses can be allocated; LoadBalancer of allowedUses has no effect next to other uses: create another pool for Services",
		},
	}
	random := rand.New(rand.NewSource(1))
	for range 20 {
		if d := cmp.Diff(want, PoolConditions(pools)); d != "" {
			t.Fatalf("-want +got:\n%s", d)
		}
		random.Shuffle(len(pools), func(i, j int) { pools[i], pools[j] = pools[j], pools[i] })
	}
	if n := len(Allocatable(pools)); n != 5 {
		t.Errorf("%d pools are allocatable, want 5", n)
	}
}

func TestPoolAllows(t *testing.T) {
	for _, c := range []struct {
		uses []AddressUse
		use  AddressUse
		want bool
	}{
		{nil, UseWorkload, true},
		{nil, UseTunnel, true},
		{nil, UseLoadBalancer, false},
		{[]AddressUse{UseTunnel}, UseWorkload, false},
		{[]AddressUse{UseLoadBalancer}, UseLoadBalancer, true},
	} {
		if got := (AddressPool{AllowedUses: c.uses}).Allows(c.use); got != c.want {
			t.Errorf("uses %v allow %s: %v", c.uses, c.use, got)
		}
	}
	for kind, want := range map[EncapsulationKind]bool{
		"": true, EncapsulationNone: true, EncapsulationVXLAN: false, EncapsulationIPIP: false,
	} {
		if got := (Encapsulation{Kind: kind}).None(); got != want {
			t.Errorf("encapsulation %q is none: %v", kind, got)
		}
	}
}
