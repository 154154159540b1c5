// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/apitest"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/kube"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
)

const calicoKind = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[3]s.%[1]s}
spec:
  group: %[1]s
  scope: Cluster
  names: {kind: %[4]s, listKind: %[4]sList, plural: %[3]s, singular: %[5]s}
  versions:
  - name: %[2]s
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// kubernetes is a real API server that knows weft's kinds, and those of Calico's that are named by their resources.
func kubernetes(t *testing.T, calico map[string]string) (*apitest.Server, *world) {
	t.Helper()
	s := apitest.Start(t, nil, netip.MustParseAddr("127.0.0.1"))
	for _, name := range []string{"addresspools", "addressblocks", "addressreservations", "addressclaims"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "deploy", "crds", "weft.dev_"+name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		s.DefineKind(text)
	}
	for resource, kind := range calico {
		s.DefineKind(fmt.Appendf(nil, calicoKind, "projectcalico.org", "v3", resource, kind, strings.ToLower(kind)))
	}
	k, err := kube.Open(kube.Config{
		Access: kube.Access{Kubeconfig: s.Kubeconfig(s.URL, ""), Getenv: os.Getenv}, Node: "n1", Agent: "weft-test",
		Log: slog.New(slog.DiscardHandler), Now: time.Now, After: time.After,
	})
	if err != nil {
		t.Fatal(err)
	}
	return s, &world{t: t, Objects: k.Objects(), now: time.Now()}
}

const pools = "/apis/weft.dev/v1alpha1/addresspools"

// TestOnKubernetes: with a real API server, pools mirror Calico's (as projectcalico.org/v3), changes of operators are
// kept, a deleted pool waits for its last block, and conditions are in the status.
func TestOnKubernetes(t *testing.T) {
	nettest.EndToEnd(t)
	s, w := kubernetes(t, map[string]string{
		"ippools": "IPPool", "ipreservations": "IPReservation", "ipamconfigurations": "IPAMConfiguration",
		"ipamblocks": "IPAMBlock",
	})
	s.Do(http.MethodPost, "/apis/projectcalico.org/v3/ippools",
		`{"apiVersion":"projectcalico.org/v3","kind":"IPPool","metadata":{"name":"theirs"},
		"spec":{"cidr":"10.244.0.0/16","ipipMode":"Always","blockSize":27}}`)
	s.Do(http.MethodPost, "/apis/projectcalico.org/v3/ippools",
		`{"apiVersion":"projectcalico.org/v3","kind":"IPPool","metadata":{"name":"other"},"spec":{"cidr":"10.245.0.0/16"}}`)
	s.Do(http.MethodPost, "/apis/projectcalico.org/v3/ipreservations",
		`{"apiVersion":"projectcalico.org/v3","kind":"IPReservation","metadata":{"name":"r"},
		"spec":{"reservedCIDRs":["10.244.1.0/24","10.0.7.0/24"]}}`)
	// No block size: it cannot be added later.
	s.Do(http.MethodPost, pools, `{"apiVersion":"weft.dev/v1alpha1","kind":"AddressPool","metadata":{"name":"ours"},
		"spec":{"assignmentMode":"Automatic","regions":[{"cidr":"10.0.0.0/16"}]}}`)
	s.Do(http.MethodPost, "/apis/weft.dev/v1alpha1/addressblocks",
		`{"apiVersion":"weft.dev/v1alpha1","kind":"AddressBlock","metadata":{"name":"ours-10-0-0-0-26"},
		"spec":{"pool":"ours","cidr":"10.0.0.0/26","node":"n1","claim":"1"}}`)
	if got := w.reconcile(); got != "" {
		t.Fatal(got)
	}
	theirs, says := w.pool("theirs")
	if theirs.Regions[0].BlockSize != 27 || theirs.Encapsulation.Kind != model.EncapsulationIPIP ||
		excluded(theirs) != "10.244.1.0/24 IPReservation r" || says != ok {
		t.Errorf("%+v %s", theirs, says)
	}
	ours, says := w.pool("ours")
	if excluded(ours) != "10.0.7.0/24 IPReservation r" || says != ok || ours.Created == 0 {
		t.Errorf("%+v %s", ours, says)
	}
	s.Do(http.MethodDelete, "/apis/projectcalico.org/v3/ippools/theirs", nil)
	s.Do(http.MethodDelete, pools+"/ours", nil)
	for range 2 { // it is deleted, then the finalizer goes
		if got := w.reconcile(); got != "" {
			t.Fatal(got)
		}
	}
	if _, says := w.pool("theirs"); !strings.Contains(says, "not found") {
		t.Errorf("it follows a pool that is gone: %s", says)
	}
	if ours, says := w.pool("ours"); !ours.Deleted ||
		says != "false Terminating: the pool is deleted when its last block is released" {
		t.Errorf("%+v %s", ours, says)
	}
	s.Do(http.MethodDelete, "/apis/weft.dev/v1alpha1/addressblocks/ours-10-0-0-0-26", nil)
	w.reconcile()
	if _, says := w.pool("ours"); !strings.Contains(says, "not found") {
		t.Errorf("its last block is back: %s", says)
	}
	leading(t, w)
	refused(t, w)
	operator(t, s, w)
	pages(t, s, w)
}

// pages: all objects are visited once, also where the server returns them in pages; a kind that it does not have has
// none.
func pages(t *testing.T, s *apitest.Server, w *world) {
	t.Helper()
	const n = 510
	for k := range n {
		s.Do(http.MethodPost, "/apis/weft.dev/v1alpha1/namespaces/default/addressclaims",
			fmt.Sprintf(`{"apiVersion":"weft.dev/v1alpha1","kind":"AddressClaim","metadata":{"name":"c%d"},"spec":{}}`, k))
	}
	seen := map[string]int{}
	if err := store.Each(t.Context(), w.Objects, store.AddressClaims(), func(o store.Object) {
		seen[o.Key.Name]++
	}); err != nil {
		t.Error(err)
	}
	if len(seen) != n {
		t.Errorf("%d of %d objects are visited", len(seen), n)
	}
	for name, times := range seen {
		if times != 1 {
			t.Errorf("%s is visited %d times", name, times)
		}
	}
	if err := store.Each(t.Context(), w.Objects, store.WhereaboutsPools(), func(o store.Object) {
		t.Error(o.Key)
	}); err != nil {
		t.Error(err)
	}
}

// operator: what `weft ipam` does, by the server's own rules.
func operator(t *testing.T, s *apitest.Server, w *world) {
	t.Helper()
	s.Do(http.MethodPost, "/apis/projectcalico.org/v3/ipamblocks",
		`{"apiVersion":"projectcalico.org/v3","kind":"IPAMBlock","metadata":{"name":"b"},
		"spec":{"cidr":"10.245.0.0/26","affinity":"host:n1","allocations":[0,null],"attributes":[{"handle_id":"wireguard","secondary":{"node":"n1","type":"wireguardTunnelAddress"}}]}}`)
	plan, err := PlanCalico(t.Context(), w.Objects, rand.Reader)
	if err == nil {
		err = plan.Apply(t.Context(), w.Objects)
	}
	if other, _ := w.pool("other"); err != nil || len(plan.Blocks) != 1 || plan.Blocks[0].Node != "n1" ||
		len(other.Reserved) != 1 {
		t.Errorf("import: %v %+v %+v", err, plan, other)
	}
	ranges := []netip.Prefix{netip.MustParsePrefix("10.245.9.0/24")}
	change, err := Reserve(t.Context(), w.Objects, "printers", "printers", ranges, w.now)
	if other, _ := w.pool("other"); err != nil || len(change.Done) != 1 ||
		!strings.Contains(excluded(other), "10.245.9.0/24 AddressReservation printers") {
		t.Errorf("reserve: %v %+v %s", err, change, excluded(other))
	}
	change, err = Release(t.Context(), w.Objects, append(ranges, netip.MustParsePrefix("10.245.0.0/32")), w.now)
	if other, _ := w.pool("other"); err != nil || len(change.Done) != 2 || strings.Contains(excluded(other), "10.245.9") ||
		len(other.Reserved) != 0 {
		t.Errorf("release: %v %+v %+v", err, change, other)
	}
}

// leading: of two controllers one leads, over the server's Lease.
func leading(t *testing.T, w *world) {
	t.Helper()
	a, b := lease{objects: w.Objects, me: "a"}, lease{objects: w.Objects, me: "b"}
	for i, want := range []bool{true, false, true, false} {
		l := []*lease{&a, &b}[i%2]
		if got, err := l.acquire(t.Context(), w.now.Add(time.Duration(i)*time.Second), time.Minute); err != nil ||
			got != want {
			t.Errorf("%d: %v %v", i, got, err)
		}
	}
}

// refused: the API server rejects changes that would allocate an address twice.
func refused(t *testing.T, w *world) {
	t.Helper()
	p := model.AddressPool{
		Name: "cut", AssignmentMode: model.AssignManual,
		Regions: []model.AddressRegion{{CIDR: netip.MustParsePrefix("10.1.0.0/16"), BlockSize: 26}},
	}
	o, err := store.AddressPoolObject(store.Object{}, p)
	if err == nil {
		o, err = w.Create(t.Context(), store.AddressPools(), o)
	}
	if err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(*model.AddressPool){
		"the blockSize of a region cannot be changed": func(p *model.AddressPool) {
			p.Regions = []model.AddressRegion{{CIDR: p.Regions[0].CIDR, BlockSize: 27}}
		},
		"one of the cluster's network cannot be changed": func(p *model.AddressPool) { p.AssignmentMode = "" },
		`Unsupported value: "geneve"`:                    func(p *model.AddressPool) { p.Encapsulation.Kind = "geneve" },
		"spec.maxBlocksPerNode":                          func(p *model.AddressPool) { p.MaxBlocks = -1 },
		`Unsupported value: "Pods"`: func(p *model.AddressPool) {
			p.AllowedUses = []model.AddressUse{"Pods"}
		},
	} {
		changed := p
		change(&changed)
		next, err := store.AddressPoolObject(o, changed)
		if err == nil {
			_, err = w.CompareAndSwap(t.Context(), store.AddressPools(), o.Version, next)
		}
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
