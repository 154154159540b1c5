// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/apitest"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/kube"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/blocks"
	"github.com/weft-net/weft/internal/nettest"
)

// whereaboutsLeft are whereabouts' objects and what surrounds them, in the form that v0.9.4 writes.
func whereaboutsLeft() []string {
	status := func(ips string) string {
		return `"annotations":{"k8s.v1.cni.cncf.io/network-status":"[{\"name\":\"lan\",\"interface\":\"net1\",\"ips\":[` +
			ips + `]}]"}`
	}
	pool := func(name, within, allocations string) string {
		return `{"apiVersion":"whereabouts.cni.cncf.io/v1alpha1","kind":"IPPool","metadata":{"name":"` + name +
			`","namespace":"default"},
			"spec":{"range":"` + within + `","allocations":{` + allocations + `}}}`
	}
	given := func(offset, id, pod string) string {
		return `"` + offset + `":{"id":"` + id + `","podref":"shop/` + pod + `","ifname":"net1"}`
	}
	overlap := func(name, pod string) string {
		return `{"apiVersion":"whereabouts.cni.cncf.io/v1alpha1","kind":"OverlappingRangeIPReservation","metadata":{"name":"` + name + `","namespace":"default"},
			"spec":{"containerid":"c9","podref":"shop/` + pod + `","ifname":"net1"}}`
	}
	pod := func(name, more string) string {
		return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"` + name + `","namespace":"shop"` + more +
			`},"spec":{"nodeName":"a","containers":[{"name":"c","image":"i"}]}}`
	}
	return []string{
		`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}`,
		`{"apiVersion":"k8s.cni.cncf.io/v1","kind":"NetworkAttachmentDefinition","metadata":{"name":"lan","namespace":"shop"},
			"spec":{"config":"{\"cniVersion\":\"1.0.0\",\"type\":\"macvlan\",\"ipam\":{\"type\":\"whereabouts\",\"range\":\"10.1.0.0/24\",\"range_start\":\"10.1.0.1\",\"range_end\":\"10.1.0.20\"}}"}}`,
		pod("web-0", `,`+status(`\"10.1.0.1\"`)), pod("web-1", ``), pod("web-2", `,`+status(`\"10.1.0.7\",\"10.1.0.3\"`)),
		pod("web-3", ``),
		pool("10.1.0.0-24", "10.1.0.0/24", given("1", "c1", "web-0")+","+given("2", "c2", "gone")+","+
			given("3", "c3", "web-1")+","+given("4", "c4", "web-2")),
		pool("blue-10.1.0.0-24", "10.1.0.0/24", given("1", "c5", "web-3")),
		pool("fd00-1---64", "fd00:1::/64", given("4294967297", "c6", "web-3")),
		pool("10.2.0.0-26-a", "10.2.0.0/26", given("5", "c7", "web-3")),
		`{"apiVersion":"whereabouts.cni.cncf.io/v1alpha1","kind":"NodeSlicePool","metadata":{"name":"sliced","namespace":"default"},"spec":{"range":"10.2.0.0/20","sliceSize":"/26"}}`,
		overlap("10.1.0.1", "web-0"), overlap("10.1.0.9", "web-3"), overlap("blue-10.1.0.8", "web-3"),
		overlap("fd00-1--5", "web-3"), overlap("10.9.9.9", "web-3"),
	}
}

// imported is what whereaboutsLeft becomes.
const imported = `whereabouts 10.2.0.0/20 in /26
whereabouts 10.1.0.0/24 in /32
whereabouts fd00:1::/64 in /122
whereabouts 10.1.0.1 shop/web-0 c1 net1
whereabouts 10.1.0.3 shop/web-1 c3 net1
whereabouts 10.1.0.4 shop/web-2 c4 net1
whereabouts 10.1.0.9 shop/web-3 c9 net1
whereabouts 10.2.0.5 shop/web-3 c7 net1
whereabouts fd00:1::5 shop/web-3 c9 net1
whereabouts fd00:1::1:0:1 shop/web-3 c6 net1
whereabouts-blue 10.1.0.0/24 in /30
whereabouts-blue 10.1.0.1 shop/web-3 c5 net1
whereabouts-blue 10.1.0.8 shop/web-3 c9 net1
left out: IPPool default/10.1.0.0-24: address 10.1.0.2 of shop/gone: there is no such pod
left out: OverlappingRangeIPReservation default/10.9.9.9: address 10.9.9.9 of shop/web-3: no IPPool and no network has that address
look at: IPPool default/10.1.0.0-24: address 10.1.0.3 is allocated to shop/web-1, and pod shop/web-2 reports it
look at: IPPool default/10.1.0.0-24: address 10.1.0.4 is allocated to pod shop/web-2, which does not report it
`

func words(im Import) string {
	var out strings.Builder
	for _, p := range im.Pools {
		for _, r := range p.Regions {
			fmt.Fprintf(&out, "%s %s in /%d\n", p.Pool, r.CIDR, r.BlockSize)
		}
		for _, r := range p.Reserved {
			fmt.Fprintln(&out, p.Pool, r.Addr, r.Owner, r.ContainerID, r.IfName)
		}
	}
	for _, s := range im.LeftOut {
		fmt.Fprintln(&out, "left out: "+s)
	}
	for _, s := range im.Warnings {
		fmt.Fprintln(&out, "look at: "+s)
	}
	return out.String()
}

// importAll plans, applies, and plans again.
func importAll(t *testing.T, objects store.Objects) {
	t.Helper()
	ctx := context.Background()
	plan, err := PlanImport(ctx, objects, nil)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(imported, words(plan)); d != "" {
		t.Errorf("plan (-want +got):\n%s", d)
	}
	if all, err := objects.List(ctx, store.AddressPools()); err != nil || len(all) != 0 {
		t.Errorf("a plan wrote %v, error %v", all, err)
	}
	if err := plan.Apply(ctx, objects); err != nil {
		t.Fatal(err)
	}
	if err := plan.Apply(ctx, objects); err == nil ||
		!strings.Contains(err.Error(), `pool "whereabouts" was changed meanwhile`) {
		t.Errorf("an old plan: %v", err)
	}
	again, err := PlanImport(ctx, objects, nil)
	if err != nil {
		t.Fatal(err)
	}
	had := 0
	for _, p := range again.Pools {
		had += p.Had
		if len(p.Regions)+len(p.Reserved) > 0 {
			t.Errorf("once more: %+v", p)
		}
	}
	if had != 9 {
		t.Errorf("%d were there", had)
	}
}

func TestImportPlan(t *testing.T) {
	s := cluster(t, whereaboutsLeft()...)
	importAll(t, s.Objects())
	engine, err := blocks.Open(blocks.Config{
		Objects: s.Objects(), Node: "a", Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler), Now: time.Now,
		After: time.After, Random: rand.New(rand.NewSource(1)),
	})
	if err != nil {
		t.Fatal(err)
	}
	engine.Restore(context.Background(), nil)
	got, err := engine.Allocators()[1].Add(context.Background(), ipam.Request{
		Conf: json.RawMessage(`{"cniVersion":"1.0.0","name":"net","type":"macvlan",
			"ipam":{"type":"whereabouts","range":"10.1.0.0/24","range_start":"10.1.0.1","range_end":"10.1.0.20"}}`),
		Network: "net", ContainerID: "1", IfName: "net1",
	})
	if err != nil || len(got.IPs) != 1 || got.IPs[0].Address.Addr().String() != "10.1.0.2" {
		t.Errorf("allocated after the import: %v, error %v", got.IPs, err)
	}
	later, err := PlanImport(context.Background(), s.Objects(), nil)
	if err != nil || len(later.Pools) != 2 {
		t.Errorf("%+v %v", later, err)
	}
}

// TestImportRefuses: what cannot be understood stops the import before anything is written.
func TestImportRefuses(t *testing.T) {
	object := func(kind, name, spec string) string {
		return `{"apiVersion":"whereabouts.cni.cncf.io/v1alpha1","kind":"` + kind + `","metadata":{"name":"` + name +
			`","namespace":"n"},"spec":` + spec + `}`
	}
	good := object("IPPool", "10.0.0.0-24", `{"range":"10.0.0.0/24","allocations":{"1":{"id":"c","podref":"n/p"}}}`)
	for bad, want := range map[string]string{
		object(
			"IPPool", "x", `{"range":"10.0.0.0","allocations":{}}`,
		): `IPPool n/x: spec.range "10.0.0.0" is not a prefix`,
		object(
			"IPPool", "x", `{"range":"10.0.0.0/24","allocations":{"256":{"id":"c"}}}`,
		): `IPPool n/x: spec.allocations: "256" is not an offset in 10.0.0.0/24`,
		object(
			"IPPool", "x", `{"range":"10.0.0.0/24","allocations":{"-1":{"id":"c"}}}`,
		): `IPPool n/x: spec.allocations: "-1" is not an offset in 10.0.0.0/24`,
		object(
			"IPPool", "x", `{"range":5}`,
		): `IPPool n/x: json: cannot unmarshal number`,
		object("OverlappingRangeIPReservation", "blue-printer",
			`{"podref":"n/p"}`): `metadata.name "blue-printer" has no address`,
		object(
			"NodeSlicePool", "s", `{"range":"everything","sliceSize":"/26"}`,
		): `NodeSlicePool n/s: spec.range "everything" is not a prefix`,
		`{"apiVersion":"weft.dev/v1alpha1","kind":"AddressPool","metadata":{"name":"p"},"spec":{"regions":[{"cidr":"x"}]}}`: `spec.regions[0].cidr "x"`,
	} {
		s := cluster(t, good, bad)
		plan, err := PlanImport(context.Background(), s.Objects(), nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", bad, err, want)
		}
		if len(plan.Pools) > 0 {
			t.Errorf("%s: there is a plan nevertheless", bad)
		}
	}
}

// TestImportOnKubernetes: the same from a real API server that knows whereabouts' kinds.
func TestImportOnKubernetes(t *testing.T) {
	nettest.EndToEnd(t)
	s := apitest.Start(t, nil, netip.MustParseAddr("127.0.0.1"))
	crd, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", "crds", "weft.dev_addresspools.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	s.DefineKind(crd)
	define(s, "k8s.cni.cncf.io", "v1", "NetworkAttachmentDefinition", "network-attachment-definitions",
		`{"config":{"type":"string"}}`)
	define(s, "whereabouts.cni.cncf.io", "v1alpha1", "IPPool", "ippools",
		`{"range":{"type":"string"},"allocations":{"type":"object","additionalProperties":{"type":"object",
		"required":["id","podref"],"properties":{"id":{"type":"string"},"podref":{"type":"string"},"ifname":{"type":"string"}}}}}`, "range", "allocations")
	define(s, "whereabouts.cni.cncf.io", "v1alpha1", "OverlappingRangeIPReservation", "overlappingrangeipreservations",
		`{"containerid":{"type":"string"},"podref":{"type":"string"},"ifname":{"type":"string"}}`, "podref")
	define(s, "whereabouts.cni.cncf.io", "v1alpha1", "NodeSlicePool", "nodeslicepools",
		`{"range":{"type":"string"},"sliceSize":{"type":"string"}}`, "range", "sliceSize")
	k, err := kube.Open(kube.Config{
		Access: kube.Access{Kubeconfig: s.Kubeconfig(s.URL, ""), Getenv: os.Getenv}, Node: "a", Agent: "weft-test",
		Log: slog.New(slog.DiscardHandler), Now: time.Now, After: time.After,
	})
	if err != nil {
		t.Fatal(err)
	}
	objects := k.Objects()
	for _, text := range whereaboutsLeft() {
		o, err := store.NewObject([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		kind := map[string]store.Kind{
			"Namespace": {Version: "v1", Kind: "Namespace", Resource: "namespaces"}, "Pod": store.Pods(),
			"IPPool":        store.WhereaboutsPools(),
			"NodeSlicePool": store.WhereaboutsSlices(), "OverlappingRangeIPReservation": store.WhereaboutsReservations(),
			"NetworkAttachmentDefinition": store.NetworkAttachments(),
		}[o.Key.Kind]
		deadline := time.Now().Add(30 * time.Second)
		for { // a kind is served after a moment
			if _, err = objects.Create(context.Background(), kind, o); err == nil {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s is not taken: %v", o.Key, err)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	importAll(t, objects)
}

// define makes a namespaced kind with a spec.
func define(s *apitest.Server, group, version, kind, plural, properties string, required ...string) {
	spec := `{"type":"object","properties":` + properties
	if len(required) > 0 {
		spec += `,"required":["` + strings.Join(required, `","`) + `"]`
	}
	s.DefineKind(fmt.Appendf(nil, `{"apiVersion":"apiextensions.k8s.io/v1",
		"kind":"CustomResourceDefinition","metadata":{"name":"%[4]s.%[1]s"},"spec":{"group":%[1]q,"scope":"Namespaced",
		"names":{"kind":%[3]q,"plural":%[4]q,"singular":%[5]q,"listKind":"%[3]sList"},
		"versions":[{"name":%[2]q,"served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":%[6]s}}}}]}}`,
		group, version, kind, plural, strings.ToLower(kind), spec+"}"))
}
