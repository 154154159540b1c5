// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

func netips() cmp.Options {
	return cmp.Options{
		cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
		cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }), cmpopts.EquateEmpty(),
	}
}

// object is one of Calico's in a group.
func object(t testing.TB, kind store.Kind, name, rest string) store.Object {
	t.Helper()
	o, err := store.NewObject([]byte(`{"apiVersion":"` + kind.Group + "/" + kind.Version + `","kind":"` + kind.Kind +
		`","metadata":{"name":"` + name + `","creationTimestamp":"2026-01-02T03:04:05Z"},` + rest + `}`))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestPool: every field of an IPPool has its place, in both groups.
func TestPool(t *testing.T) {
	created := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Unix()
	region := func(cidr string, size int) []model.AddressRegion {
		return []model.AddressRegion{{CIDR: netip.MustParsePrefix(cidr), BlockSize: size}}
	}
	none := model.Encapsulation{Kind: model.EncapsulationNone}
	for _, g := range Groups() {
		for _, c := range []struct {
			spec     string
			want     model.AddressPool
			warnings []model.Warning
		}{
			{
				`"cidr":"10.244.0.0/16"`,
				model.AddressPool{AssignmentMode: model.AssignAutomatic, Regions: region("10.244.0.0/16", 26), Encapsulation: none},
				nil,
			},
			{
				`"cidr":"fd00::/48"`,
				model.AddressPool{AssignmentMode: model.AssignAutomatic, Regions: region("fd00::/48", 122), Encapsulation: none},
				nil,
			},
			{
				`"cidr":"10.0.0.0/16","blockSize":28,"vxlanMode":"CrossSubnet","ipipMode":"Never","natOutgoing":true,"disabled":true,
				"nodeSelector":"all()","namespaceSelector":"has(x)","allowedUses":["Workload","LoadBalancer"],"assignmentMode":"Manual","disableBGPExport":true`,
				model.AddressPool{
					AssignmentMode: model.AssignManual, Regions: region("10.0.0.0/16", 28), NATOutgoing: true, Disabled: true, DisableBGPExport: true,
					Encapsulation: model.Encapsulation{Kind: model.EncapsulationVXLAN, Mode: model.EncapsulateCrossSubnet},
					NodeSelector:  "all()", NamespaceSelector: "has(x)",
					AllowedUses: []model.AddressUse{model.UseWorkload, model.UseLoadBalancer},
				},
				[]model.Warning{
					{Field: "spec.allowedUses[1]", Msg: "Services get no addresses of a pool with other uses", Hint: "create another pool for Services"},
				},
			},
			{
				`"cidr":"10.0.0.0/16","ipipMode":"Always","blockSize":22`,
				model.AddressPool{
					AssignmentMode: model.AssignAutomatic, Regions: region("10.0.0.0/16", 24),
					Encapsulation: model.Encapsulation{Kind: model.EncapsulationIPIP, Mode: model.EncapsulateAlways},
				},
				[]model.Warning{
					{
						Field: "spec.blockSize", Msg: "blocks of /22 are larger than weft's may be: /24 is taken",
						Hint: "no action is needed: a node claims more blocks",
					},
				},
			},
		} {
			got, warnings, err := Pool(object(t, g.Pools, "p", `"spec":{`+c.spec+`}`))
			c.want.Name, c.want.Created = "p", created
			if d := cmp.Diff(c.want, got, netips()); err != nil || d != "" {
				t.Errorf("%s: %v, -want +got:\n%s", c.spec, err, d)
			}
			if d := cmp.Diff(c.warnings, warnings); d != "" {
				t.Errorf("%s: warnings: %s", c.spec, d)
			}
		}
	}
}

func TestBadInput(t *testing.T) {
	g := Groups()[0]
	pool := func(o store.Object) error { _, _, err := Pool(o); return err }
	reservation := func(o store.Object) error { _, err := Reservation(o); return err }
	configure := func(o store.Object) error { _, _, err := Configure(o); return err }
	block := func(o store.Object) error { _, err := Allocations(o); return err }
	for _, c := range []struct {
		kind store.Kind
		read func(store.Object) error
		rest string
		want string
	}{
		{
			g.Pools, pool, `"spec":{}`,
			`IPPool x (crd.projectcalico.org): spec.cidr "" is no prefix (write for example "10.244.0.0/16")`,
		},
		{
			g.Pools, pool, `"spec":{"cidr":"10.0.0.0/28"}`,
			`IPPool x (crd.projectcalico.org): spec.blockSize 26 cannot be used in 10.0.0.0/28 (a prefix length from 28 to 32)`,
		},
		{
			g.Pools, pool, `"spec":{"cidr":"10.0.0.0/8","blockSize":16}`,
			`IPPool x (crd.projectcalico.org): spec.blockSize 16 cannot be used in 10.0.0.0/8 (a prefix length from 20 to 32)`,
		},
		{
			g.Pools, pool, `"spec":{"cidr":"fd00::/64","blockSize":64}`,
			`IPPool x (crd.projectcalico.org): spec.blockSize 64 cannot be used in fd00::/64 (a prefix length from 116 to 128)`,
		},
		{
			g.Pools, pool, `"spec":{"cidr":"10.0.0.0/8","vxlanMode":"Always","ipipMode":"CrossSubnet"}`,
			`IPPool x (crd.projectcalico.org): spec.vxlanMode "Always" and spec.ipipMode "CrossSubnet" contradict each other (one of them is Never)`,
		},
		{
			g.Pools, pool, `"spec":{"cidr":"10.0.0.0/8","ipipMode":"On"}`,
			`IPPool x (crd.projectcalico.org): spec.ipipMode "On" is not known (write Always, CrossSubnet or Never)`,
		},
		{
			g.Pools, pool, `"spec":{"cidr":"10.0.0.0/8","assignmentMode":"manual"}`,
			`IPPool x (crd.projectcalico.org): spec.assignmentMode "manual" is not known (write Automatic or Manual)`,
		},
		{
			g.Pools, pool, `"spec":{"cidr":"10.0.0.0/8","allowedUses":["Pods"]}`,
			`IPPool x (crd.projectcalico.org): spec.allowedUses[0] "Pods" is not known (write Workload, Tunnel or LoadBalancer)`,
		},
		{
			g.Pools, pool, `"spec":{"cidr":7}`,
			`IPPool x (crd.projectcalico.org): json: cannot unmarshal number into Go struct field .spec.cidr of type string (compare with Calico's reference)`,
		},
		{
			g.Reservations, reservation, `"spec":{"reservedCIDRs":["10.0.0.1"]}`,
			`IPReservation x (crd.projectcalico.org): spec.reservedCIDRs[0] "10.0.0.1" is no prefix (write for example "10.244.0.0/16")`,
		},
		{
			g.Configurations, configure, `"spec":{"maxBlocksPerHost":-1}`,
			`IPAMConfig x (crd.projectcalico.org): spec.maxBlocksPerHost -1 is negative (write how many, or 0 for no bound)`,
		},
		{
			g.Configurations, configure, `"spec":{"ipCooldownSeconds":-1}`,
			`IPAMConfig x (crd.projectcalico.org): spec.ipCooldownSeconds -1 is negative (write a number of seconds)`,
		},
		{
			g.Blocks, block, `"spec":{"cidr":"10.0.0.0/31","allocations":[null,null,null]}`,
			`IPAMBlock x (crd.projectcalico.org): spec.allocations has 3 entries, more than 10.0.0.0/31 has addresses (compare with ` + "`calicoctl ipam check`)",
		},
		{
			g.Blocks, block, `"spec":{"cidr":"10.0.0.0/30","allocations":[2],"attributes":[]}`,
			`IPAMBlock x (crd.projectcalico.org): spec.allocations[0] is 2, and there are 0 attributes (compare with ` +
				"`calicoctl ipam check`)",
		},
		{
			g.Blocks, block, `"spec":{"cidr":"10.0.0.0/30","allocations":[-1],"attributes":[]}`,
			`IPAMBlock x (crd.projectcalico.org): spec.allocations[0] is -1, and there are 0 attributes (compare with ` +
				"`calicoctl ipam check`)",
		},
	} {
		err := c.read(object(t, c.kind, "x", c.rest))
		var f *model.Error
		if !errors.As(err, &f) || err.Error() != c.want {
			t.Errorf("%s:\n got %v\nwant %s", c.rest, err, c.want)
		}
	}
}

func TestReservationAndConfiguration(t *testing.T) {
	for _, g := range Groups() {
		got, err := Reservation(
			object(t, g.Reservations, "printers", `"spec":{"reservedCIDRs":["10.0.0.0/30","10.0.1.7/30","fd00::1/128"]}`),
		)
		var want []model.ExcludedRange
		for _, s := range []string{"10.0.0.0/30", "10.0.1.4/30", "fd00::1/128"} {
			want = append(want, model.ExcludedRange{CIDR: netip.MustParsePrefix(s), Source: "IPReservation printers"})
		}
		if d := cmp.Diff(want, got, netips()); err != nil || d != "" {
			t.Errorf("%v, -want +got:\n%s", err, d)
		}
		c, warnings, err := Configure(
			object(t, g.Configurations, "default",
				`"spec":{"strictAffinity":true,"autoAllocateBlocks":false,"maxBlocksPerHost":4,"ipCooldownSeconds":30}`),
		)
		if err != nil || c != (Configuration{MaxBlocks: 4, Cooldown: 30}) || len(warnings) != 1 ||
			warnings[0].Field != "spec.autoAllocateBlocks" {
			t.Errorf("%+v %v %v", c, warnings, err)
		}
		if c, warnings, err := Configure(object(t, g.Configurations, "default", `"spec":{"autoAllocateBlocks":true}`)); err !=
			nil || c != (Configuration{}) || warnings != nil {
			t.Errorf("%+v %v %v", c, warnings, err)
		}
	}
}

// TestAllocations: whose each address is.
func TestAllocations(t *testing.T) {
	for _, g := range Groups() {
		got, err := Allocations(
			object(t, g.Blocks, "10-0-0-0-29",
				`"spec":{"cidr":"10.0.0.0/29","affinity":"host:n1","strictAffinity":false,"unallocated":[5,6,7],
			"allocations":[0,1,null,2,1,null,null,null],"attributes":[
			{"handle_id":"vxlan-tunnel-addr-n1","secondary":{"node":"n1","type":"vxlanTunnelAddress"}},
			{"handle_id":"k8s-pod-network.0a1b","secondary":{"namespace":"shop","node":"n2","pod":"web-0","timestamp":"x"}},
			{"handle_id":"k8s-pod-network.vmi.shop.db","secondary":{"namespace":"shop","node":"n1","pod":"virt-launcher-db-x","vmi-name":"db"}}]}`))
		a := netip.MustParseAddr
		want := Block{CIDR: netip.MustParsePrefix("10.0.0.0/29"), Node: "n1", Allocations: []Allocation{
			{Addr: a("10.0.0.0"), Handle: "vxlan-tunnel-addr-n1", Node: "n1", Use: "vxlanTunnelAddress"},
			{Addr: a("10.0.0.1"), Handle: "k8s-pod-network.0a1b", Pod: "shop/web-0", Node: "n2"},
			{
				Addr: a("10.0.0.3"), Handle: "k8s-pod-network.vmi.shop.db", Pod: "shop/virt-launcher-db-x", Node: "n1",
				VM: "shop/db",
			},
			{Addr: a("10.0.0.4"), Handle: "k8s-pod-network.0a1b", Pod: "shop/web-0", Node: "n2"},
		}}
		if d := cmp.Diff(want, got, netips()); err != nil || d != "" {
			t.Fatalf("%v, -want +got:\n%s", err, d)
		}
		words := []string{"vxlanTunnelAddress of node n1", "pod shop/web-0", "machine shop/db", "pod shop/web-0"}
		for i, container := range []string{"", "0a1b", "", "0a1b"} {
			if got.Allocations[i].Container() != container || got.Allocations[i].String() != words[i] {
				t.Errorf("%s: container %q, %s", got.Allocations[i].Addr, got.Allocations[i].Container(), got.Allocations[i])
			}
		}
	}
	g := Groups()[0]
	if b, err := Allocations(
		object(
			t,
			g.Blocks,
			"x",
			`"spec":{"cidr":"10.0.0.0/30","affinity":"virtual:load-balancer","deleted":true,"allocations":[0,null,null,null],"attributes":[{}]}`,
		),
	); err != nil || b.Node != "" || len(b.Allocations) > 0 {
		t.Errorf("a block that is deleted: %+v %v", b, err)
	}
}

// FuzzObjects: whatever an object of Calico's says, it is read in bounded time or refused.
func FuzzObjects(f *testing.F) {
	f.Add(
		`"spec":{"cidr":"10.0.0.0/29","allocations":[0,null],"attributes":[{"handle_id":"a.b","secondary":{"pod":"x"}}]}`,
	)
	f.Add(`"spec":{"cidr":"::/0","blockSize":128,"vxlanMode":"Always"}`)
	f.Add(`"spec":{"reservedCIDRs":["10.0.0.0/8"],"maxBlocksPerHost":1}`)
	f.Fuzz(func(t *testing.T, rest string) {
		for _, g := range Groups() {
			o, err := store.NewObject(
				[]byte(`{"apiVersion":"` + g.Blocks.Group + `/v1","kind":"IPAMBlock","metadata":{"name":"x"},` + rest + `}`),
			)
			if err != nil {
				return
			}
			if p, _, err := Pool(o); err == nil && (len(p.Regions) != 1 || p.Regions[0].BlockSize < p.Regions[0].CIDR.Bits()) {
				t.Fatalf("%+v", p)
			}
			if b, err := Allocations(o); err == nil {
				for _, g := range b.Allocations {
					if !b.CIDR.Contains(g.Addr) {
						t.Fatalf("%s is not in %s", g.Addr, b.CIDR)
					}
				}
			}
			_, _ = Reservation(o)
			_, _, _ = Configure(o)
		}
	})
}
