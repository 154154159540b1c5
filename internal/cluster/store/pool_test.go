// SPDX-License-Identifier: Apache-2.0

package store

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/weft-net/weft/internal/model"
)

// netips compares addresses as they are.
func netips() cmp.Options {
	return cmp.Options{
		cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
		cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }), cmpopts.EquateEmpty(),
	}
}

// TestPoolRoundTrip: what a pool says is what is read of its object, also when the object said something else before,
// and what weft does not know stays.
func TestPoolRoundTrip(t *testing.T) {
	word := rapid.SampledFrom([]string{"", "a", `zone == "w"`})
	pools := rapid.Custom(func(t *rapid.T) model.AddressPool {
		p := model.AddressPool{
			Name: "p", Cooldown: rapid.IntRange(0, 2).Draw(t, "cooldown"), MaxBlocks: rapid.IntRange(0, 2).Draw(t, "blocks"),
			AssignmentMode: rapid.SampledFrom([]model.AssignmentMode{
				"", model.AssignAutomatic, model.AssignManual,
			}).Draw(t, "mode"),
			NodeSelector: word.Draw(t, "nodes"), NamespaceSelector: word.Draw(t, "namespaces"),
			AllowedUses: rapid.SliceOfDistinct(
				rapid.SampledFrom([]model.AddressUse{model.UseWorkload, model.UseTunnel, model.UseLoadBalancer}),
				rapid.ID[model.AddressUse],
			).Draw(t, "uses"),
			Disabled: rapid.Bool().Draw(t, "disabled"), NATOutgoing: rapid.Bool().Draw(t, "nat"),
			Encapsulation: model.Encapsulation{
				Kind: rapid.SampledFrom([]model.EncapsulationKind{
					"", model.EncapsulationNone, model.EncapsulationVXLAN, model.EncapsulationIPIP,
				}).Draw(t, "kind"),
				Mode: rapid.SampledFrom([]model.EncapsulationMode{
					"", model.EncapsulateAlways, model.EncapsulateCrossSubnet,
				}).Draw(t, "when"),
			},
		}
		for i := range rapid.IntRange(0, 2).Draw(t, "regions") {
			addr := netip.AddrFrom4([4]byte{10, byte(i), 0, 0})
			p.Regions = append(p.Regions, model.AddressRegion{CIDR: netip.PrefixFrom(addr, 16), BlockSize: 26})
			p.Reserved = append(p.Reserved, model.ReservedAddress{Addr: addr, Owner: word.Draw(t, "for"), Source: word.Draw(t, "by")})
			p.Excluded = append(p.Excluded, model.ExcludedRange{
				CIDR: netip.PrefixFrom(addr, 30), Reason: word.Draw(t, "for"), Source: word.Draw(t, "by"),
			})
		}
		return p
	})
	rapid.Check(t, func(t *rapid.T) {
		first, second := pools.Draw(t, "first"), pools.Draw(t, "second")
		o, err := AddressPoolObject(Object{}, first)
		if err == nil {
			o, err = o.Edited(func(fields map[string]any) error {
				fields["spec"].(map[string]any)["theirs"] = "1"
				fields["metadata"].(map[string]any)["creationTimestamp"] = "2026-01-02T03:04:05Z"
				return nil
			})
		}
		if err == nil {
			o, err = AddressPoolObject(o, second)
		}
		if err != nil {
			t.Fatal(err)
		}
		got, err := o.AddressPool()
		second.Created = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Unix()
		if d := cmp.Diff(second, got, netips()); err != nil || d != "" {
			t.Fatalf("%v, -want +got:\n%s", err, d)
		}
		if !strings.Contains(string(o.Raw), `"theirs":"1"`) {
			t.Fatalf("what weft does not know is gone: %s", o.Raw)
		}
	})
}

func TestPoolFaults(t *testing.T) {
	for spec, want := range map[string]string{
		`"assignmentMode":"automatic"`:                     `AddressPool p: spec.assignmentMode "automatic" is not known (write Automatic or Manual)`,
		`"allowedUses":["Workload","Pods"]`:                `AddressPool p: spec.allowedUses[1] "Pods" is not known (write Workload, Tunnel or LoadBalancer)`,
		`"encapsulation":{"kind":"geneve"}`:                `AddressPool p: spec.encapsulation.kind "geneve" is not known (write none, vxlan or ipip)`,
		`"encapsulation":{"when":"Never"}`:                 `AddressPool p: spec.encapsulation.when "Never" is not known (write Always or CrossSubnet)`,
		`"maxBlocksPerNode":-1`:                            `AddressPool p: spec.maxBlocksPerNode -1 is negative (write how many, or 0 for no bound)`,
		`"excluded":[{"cidr":"10.0.0.1"}]`:                 `AddressPool p: spec.excluded[0].cidr "10.0.0.1" is no prefix (write for example "10.244.1.0/24")`,
		`"regions":[{"cidr":"10.0.0.0/8","blockSize":16}]`: `AddressPool p: spec.regions[0].blockSize 16 cannot be used in 10.0.0.0/8 (a prefix length from 24 to 32)`,
	} {
		o, err := NewObject(
			[]byte(`{"apiVersion":"weft.dev/v1alpha1","kind":"AddressPool","metadata":{"name":"p"},"spec":{` + spec + `}}`),
		)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := o.AddressPool(); err == nil || err.Error() != want {
			t.Errorf("%s:\n got %v\nwant %s", spec, err, want)
		}
	}
}

func TestReservation(t *testing.T) {
	reservation := func(addresses string) ([]model.ExcludedRange, error) {
		o, err := NewObject(
			[]byte(
				`{"apiVersion":"weft.dev/v1alpha1","kind":"AddressReservation","metadata":{"name":"r"},"spec":{"for":"printers","addresses":[` + addresses + `]}}`,
			),
		)
		if err != nil {
			t.Fatal(err)
		}
		return o.AddressReservation()
	}
	got, err := reservation(`"10.0.0.7","10.1.0.0/24","fd00::/120","::ffff:10.0.0.8"`)
	var want []model.ExcludedRange
	for _, s := range []string{"10.0.0.7/32", "10.1.0.0/24", "fd00::/120", "10.0.0.8/32"} {
		want = append(want, model.ExcludedRange{CIDR: netip.MustParsePrefix(s), Reason: "printers", Source: "AddressReservation r"})
	}
	if d := cmp.Diff(want, got, netips()); err != nil || d != "" {
		t.Errorf("%v, -want +got:\n%s", err, d)
	}
	for text, want := range map[string]string{
		`"10.0.0.1/24"`: `AddressReservation r: spec.addresses[0] "10.0.0.1/24" has bits set behind the prefix length (write "10.0.0.0/24")`,
		`"x"`:           `AddressReservation r: spec.addresses[0] "x" is no prefix (write for example "10.244.1.0/24")`,
		`"fe80::1%lo"`:  `AddressReservation r: spec.addresses[0] "fe80::1%lo" is no prefix (write for example "10.244.1.0/24")`,
	} {
		if _, err := reservation(text); err == nil || err.Error() != want {
			t.Errorf("%s:\n got %v\nwant %s", text, err, want)
		}
	}
}

// TestWithCondition: a condition is exchanged, others stay, and the time changes with the truth.
func TestWithCondition(t *testing.T) {
	o, err := NewObject(
		[]byte(`{"apiVersion":"weft.dev/v1alpha1","kind":"AddressPool","metadata":{"name":"p","generation":7},
		"status":{"theirs":1,"conditions":[{"type":"Other","status":"True"}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	at := func(minute int) time.Time { return time.Date(2026, 1, 1, 0, minute, 0, 0, time.UTC) }
	for i, c := range []model.Condition{
		{Type: "Allocatable", True: true, Reason: "OK", Message: "a"},
		{Type: "Allocatable", True: true, Reason: "OK", Message: "b"},
		{Type: "Allocatable", Reason: "No", Message: "c"},
	} {
		if o, err = o.Edited(WithCondition(c, at(i))); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(map[string]model.Condition{"Allocatable": c, "Other": {Type: "Other", True: true}},
			o.Conditions()); d != "" {
			t.Errorf("%d: %s", i, d)
		}
		want := `"lastTransitionTime":"` + at(i&^1).Format(time.RFC3339) + `"`
		if s := string(o.Raw); !strings.Contains(s, want) || !strings.Contains(s, `"theirs":1`) ||
			!strings.Contains(s, `"observedGeneration":7`) {
			t.Errorf("%d: %s lacks %s", i, s, want)
		}
	}
	edited, err := o.Edited(func(fields map[string]any) error {
		fields["metadata"].(map[string]any)["generation"] = 8
		return nil
	})
	if err != nil || !o.Observed("Allocatable") || edited.Observed("Allocatable") || o.Observed("Other") ||
		o.Observed("Nothing") {
		t.Errorf("a condition of generation 7 is not about generation 8: %v", err)
	}
}

// TestPoolNumbers: a number that the API's type cannot have is refused, and not written as another one.
func TestPoolNumbers(t *testing.T) {
	for _, p := range []model.AddressPool{{Name: "p", Cooldown: 1 << 32}, {Name: "p", MaxBlocks: 1 << 32}} {
		if o, err := AddressPoolObject(Object{}, p); err == nil {
			t.Errorf("%+v is written as %s", p, o.Raw)
		}
	}
}
