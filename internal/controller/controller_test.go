// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/model"
)

// world is a cluster of manifests.
type world struct {
	t    *testing.T
	path string
	store.Objects
	now time.Time
}

func newWorld(t *testing.T, manifests string) *world {
	t.Helper()
	w := &world{t: t, path: t.TempDir(), now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	w.write("all.yaml", manifests)
	return w
}

// write replaces a file of manifests; an empty one goes.
func (w *world) write(name, manifests string) {
	w.t.Helper()
	path := filepath.Join(w.path, name)
	err := os.WriteFile(path, []byte(manifests), 0o600)
	if manifests == "" {
		err = os.Remove(path)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	s, err := dir.Open(w.path)
	if err != nil {
		w.t.Fatal(err)
	}
	w.Objects = s.Objects()
}

// reconcile does one pass and returns its errors.
func (w *world) reconcile() string {
	w.t.Helper()
	_, err := Reconcile(w.t.Context(), w.Objects, nil, w.now, true)
	if err != nil {
		return err.Error()
	}
	return ""
}

// pool is a pool with its condition in one line.
func (w *world) pool(name string) (model.AddressPool, string) {
	w.t.Helper()
	o, err := w.Get(w.t.Context(), store.AddressPools(), store.AddressPools().Key("", name))
	if err != nil {
		return model.AddressPool{}, err.Error()
	}
	p, err := o.AddressPool()
	if err != nil {
		w.t.Log(err)
	}
	c := o.Conditions()[model.ConditionAllocatable]
	return p, fmt.Sprintf("%v %s: %s", c.True, c.Reason, c.Message)
}

func excluded(p model.AddressPool) string {
	var words []string
	for _, r := range p.Excluded {
		words = append(words, strings.TrimSpace(r.CIDR.String()+" "+r.Source))
	}
	return strings.Join(words, ", ")
}

const ok = "true OK: addresses can be allocated"

const calicoPools = `apiVersion: crd.projectcalico.org/v1
kind: IPPool
metadata: {name: default-ipv4-ippool, creationTimestamp: "2026-01-01T00:00:00Z"}
spec: {cidr: 10.244.0.0/16, vxlanMode: CrossSubnet, natOutgoing: true, nodeSelector: all()}
---
apiVersion: crd.projectcalico.org/v1
kind: IPPool
metadata: {name: a-younger, creationTimestamp: "2026-01-02T00:00:00Z"}
spec: {cidr: 10.244.128.0/20}
---
apiVersion: crd.projectcalico.org/v1
kind: IPPool
metadata: {name: broken}
spec: {cidr: 10.245.0.0/16, vxlanMode: Always, ipipMode: Always}
---
apiVersion: crd.projectcalico.org/v1
kind: IPReservation
metadata: {name: printers}
spec: {reservedCIDRs: [10.244.9.0/24, 10.9.0.0/24]}
---
apiVersion: crd.projectcalico.org/v1
kind: IPAMConfig
metadata: {name: default}
spec: {strictAffinity: false, autoAllocateBlocks: true, maxBlocksPerHost: 3}
`

// TestMirror: Calico's pools are mirrored, updated, and deleted with Calico's once no node has a block; weft's own
// pools of the same name are not changed.
func TestMirror(t *testing.T) {
	w := newWorld(t, calicoPools)
	if _, err := Reconcile(t.Context(), w.Objects, nil, w.now, false); err != nil || w.text() != "" {
		t.Errorf("beside a Calico that gives the cluster's addresses: %v %s", err, w.text())
	}
	const trouble = `IPPool broken (crd.projectcalico.org): spec.vxlanMode "Always" and spec.ipipMode "Always" contradict each other (one of them is Never)`
	if got := w.reconcile(); got != trouble {
		t.Errorf("%s", got)
	}
	p, says := w.pool("default-ipv4-ippool")
	want := model.AddressPool{
		Name: "default-ipv4-ippool", AssignmentMode: model.AssignAutomatic, NodeSelector: "all()", NATOutgoing: true,
		MaxBlocks:     3,
		Regions:       []model.AddressRegion{{CIDR: netip.MustParsePrefix("10.244.0.0/16"), BlockSize: 26}},
		Encapsulation: model.Encapsulation{Kind: model.EncapsulationVXLAN, Mode: model.EncapsulateCrossSubnet},
		Excluded:      []model.ExcludedRange{{CIDR: netip.MustParsePrefix("10.244.9.0/24"), Source: "IPReservation printers"}},
		Created:       time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Unix(),
	}
	same := cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })
	if d := cmp.Diff(want, p, same); d != "" || says != ok {
		t.Errorf("%s, -want +got:\n%s", says, d)
	}
	if _, says := w.pool("broken"); !strings.Contains(says, "not found") {
		t.Errorf("a pool that cannot be understood: %s", says)
	}
	if _, says := w.pool("a-younger"); says !=
		"false CIDROverlap: region 10.244.128.0/20 overlaps with region 10.244.0.0/16 of pool default-ipv4-ippool, which is older" {
		t.Error(says)
	}
	// Without mirroring, earlier mirrors are kept.
	followed := w.text()
	if _, err := Reconcile(t.Context(), w.Objects, nil, w.now, false); err != nil || w.text() != followed {
		t.Errorf("%v %s", err, cmp.Diff(followed, w.text()))
	}
	// A second pass writes nothing.
	before := w.text()
	if w.reconcile(); w.text() != before {
		t.Errorf("the second pass wrote:\n%s", cmp.Diff(before, w.text()))
	}
	// Changed, and the reservation broken: what it kept back stays.
	changed := strings.NewReplacer("natOutgoing: true", "disabled: true", "[10.244.9.0/24", "[10.244.9.0",
		"maxBlocksPerHost: 3", "maxBlocksPerHost: 0").Replace(calicoPools)
	w.write("all.yaml", changed)
	w.reconcile()
	p, says = w.pool("default-ipv4-ippool")
	if p.NATOutgoing || p.MaxBlocks != 0 || excluded(p) != "10.244.9.0/24 IPReservation printers" ||
		says != "false PoolDisabled: the pool is disabled" {
		t.Errorf("%+v %s", p, says)
	}
	// Gone, while a node has a block; then it is back.
	w.write("block.yaml", `apiVersion: weft.dev/v1alpha1
kind: AddressBlock
metadata: {name: default-ipv4-ippool-10-244-0-0-26}
spec: {pool: default-ipv4-ippool, cidr: 10.244.0.0/26, node: n1, claim: "1"}
`)
	const other = "apiVersion: crd.projectcalico.org/v1\nkind: IPPool\nmetadata: {name: other}\nspec: {cidr: 10.9.0.0/16}\n"
	w.write("all.yaml", other)
	w.reconcile()
	if _, says := w.pool("default-ipv4-ippool"); says != "false PoolDisabled: the pool is disabled" {
		t.Error(says)
	}
	if _, says := w.pool("a-younger"); !strings.Contains(says, "not found") {
		t.Error(says)
	}
	w.write("block.yaml", "")
	w.reconcile()
	if _, says := w.pool("default-ipv4-ippool"); !strings.Contains(says, "not found") {
		t.Error(says)
	}
	// All of Calico's are gone: what followed them is weft's.
	w.write("all.yaml", "")
	w.reconcile()
	if _, says := w.pool("other"); says != ok {
		t.Error(says)
	}
	// A pool of weft's own.
	w.write("own.yaml",
		"apiVersion: weft.dev/v1alpha1\nkind: AddressPool\nmetadata: {name: a-younger}\nspec: {assignmentMode: Manual}\n")
	w.write("all.yaml", calicoPools)
	w.reconcile()
	if p, _ := w.pool("a-younger"); p.AssignmentMode != model.AssignManual || len(p.Regions) > 0 {
		t.Errorf("%+v", p)
	}
}

// TestMirrorOfAPoolInUse: addresses that Calico has allocated are reserved when the pool is created, so that they are
// not allocated twice; no pool is created while Calico's blocks are unreadable.
func TestMirrorOfAPoolInUse(t *testing.T) {
	const block = `---
apiVersion: crd.projectcalico.org/v1
kind: IPAMBlock
metadata: {name: 10-244-0-0-26}
spec:
  cidr: 10.244.0.0/26
  affinity: host:n1
  allocations: [null, 0, 1]
  attributes: [{handle_id: net.0123, secondary: {node: n1, namespace: shop, pod: web-0}}, {handle_id: net.4567, secondary: {node: n1, namespace: shop, pod: gone}}]
---
apiVersion: v1
kind: Pod
metadata: {name: web-0, namespace: shop}
spec: {nodeName: n1}
`
	w := newWorld(t, calicoPools+strings.Replace(block, "[null, 0, 1]", "[null, 7]", 1))
	if got := w.reconcile(); !strings.Contains(
		got,
		"new pools of Calico are not mirrored: IPAMBlock 10-244-0-0-26 (crd.projectcalico.org): spec.allocations[1] is 7",
	) {
		t.Error(got)
	}
	if _, says := w.pool("default-ipv4-ippool"); !strings.Contains(says, "not found") {
		t.Error(says)
	}
	w.write("all.yaml", calicoPools+block)
	w.reconcile()
	p, says := w.pool("default-ipv4-ippool")
	want := []model.ReservedAddress{
		{Addr: netip.MustParseAddr("10.244.0.1"), Owner: "shop/web-0", ContainerID: "0123", IfName: "eth0", Source: "calico"},
	}
	if d := cmp.Diff(want, p.Reserved, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); d != "" || says != ok {
		t.Errorf("%s, -want +got:\n%s", says, d)
	}
}

// text is all pools as they are written.
func (w *world) text() string {
	w.t.Helper()
	all, err := w.List(w.t.Context(), store.AddressPools())
	if err != nil {
		w.t.Fatal(err)
	}
	var out strings.Builder
	for _, o := range all {
		out.Write(o.Raw)
		out.WriteByte('\n')
	}
	return out.String()
}

// TestReservations: they are in the pools that have their addresses, and ranges that operators have written are kept.
func TestReservations(t *testing.T) {
	w := newWorld(t, `apiVersion: weft.dev/v1alpha1
kind: AddressPool
metadata: {name: a}
spec: {regions: [{cidr: 10.0.0.0/16}, {cidr: "FD00::/64"}], excluded: [{cidr: 10.0.1.0/24, for: people}]}
---
apiVersion: weft.dev/v1alpha1
kind: AddressPool
metadata: {name: b}
spec: {regions: [{cidr: 10.1.0.0/16}], nodeSelector: "zone ==", assignmentMode: Automatic}
`)
	const reservation = "apiVersion: weft.dev/v1alpha1\nkind: AddressReservation\nmetadata: {name: r}\nspec: {for: dns, addresses: [10.0.0.10, 10.1.0.0/30, 192.168.0.1]}\n"
	w.write("r.yaml", reservation)
	if got := w.reconcile(); got != "" {
		t.Error(got)
	}
	is := func(wantA, wantB string) {
		t.Helper()
		a, saysA := w.pool("a")
		b, saysB := w.pool("b")
		if excluded(a) != wantA || excluded(b) != wantB {
			t.Errorf("%q and %q, want %q and %q", excluded(a), excluded(b), wantA, wantB)
		}
		if saysA != ok || !strings.HasPrefix(saysB, "false BadSelector: nodeSelector: selector") {
			t.Error(saysA, saysB)
		}
	}
	is("10.0.0.10/32 AddressReservation r, 10.0.1.0/24", "10.1.0.0/30 AddressReservation r")
	w.write("r.yaml", strings.Replace(reservation, "10.0.0.10", "10.0.0.x", 1))
	if got := w.reconcile(); got !=
		`AddressReservation r: spec.addresses[0] "10.0.0.x" is no prefix (write for example "10.244.1.0/24")` {
		t.Error(got)
	}
	is("10.0.0.10/32 AddressReservation r, 10.0.1.0/24", "10.1.0.0/30 AddressReservation r")
	w.write("r.yaml", "")
	w.reconcile()
	is("10.0.1.0/24", "")
	const operator = `{"assignmentMode":"Manual","encapsulation":{},"regions":[{"cidr":"FD01::/64"}]}`
	w.write("c.yaml", "apiVersion: weft.dev/v1alpha1\nkind: AddressPool\nmetadata: {name: c}\nspec: "+operator+"\n")
	if w.reconcile(); !strings.Contains(w.text(), operator) {
		t.Errorf("what people wrote is written anew: %s", w.text())
	}
}

// TestCheck: the result of the audit is in each pool's status and in the report, and a reservation is deleted when its
// pod has been gone for long enough, in more than one audit.
func TestCheck(t *testing.T) {
	w := newWorld(t, `apiVersion: v1
kind: Pod
metadata: {name: web-0, namespace: shop}
spec: {nodeName: n1}
status: {podIP: 10.0.9.9}
---
apiVersion: weft.dev/v1alpha1
kind: AddressPool
metadata: {name: p}
spec:
  assignmentMode: Automatic
  regions: [{cidr: 10.0.0.0/16}]
  reserved:
  - {address: 10.0.0.5, for: shop/web-0, by: calico}
  - {address: 10.0.0.6, for: shop/gone, by: calico}
  - {address: 10.0.0.7, for: shop/gone, by: whereabouts}
  - {address: 10.0.0.8, for: the printer}
`)
	c := New(Config{Objects: w.Objects, Identity: "n1", Now: func() time.Time { return w.now }})
	read := func(later time.Duration, reserved, findings int) string {
		t.Helper()
		w.now = w.now.Add(later)
		if err := c.Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		p, _ := w.pool("p")
		if r, _ := c.Report(); len(p.Reserved) != reserved || len(r.Findings) != findings {
			t.Errorf("%+v; findings %+v", p.Reserved, r.Findings)
		}
		o, err := w.Get(t.Context(), store.AddressPools(), store.AddressPools().Key("", "p"))
		if err != nil {
			t.Fatal(err)
		}
		return o.Conditions()[ConditionConsistent].Message
	}
	says := read(0, 4, 4)
	if want := `4 findings, first Pod shop/web-0: it reports address 10.0.9.9 of pool "p", which is in no node's block: re-create the pod`; says != want {
		t.Errorf("%s, want %s", says, want)
	}
	read(time.Minute, 4, 4)                // nothing is due
	read(reservationGrace-time.Hour, 4, 4) // a clock that jumps back: nothing is due
	read(time.Hour, 2, 4)                  // what was found before the repair
	says = read(reservationGrace, 2, 2)
	if want := `2 findings, first Pod shop/web-0: it reports address 10.0.9.9 of pool "p", which is in no node's block: re-create the pod`; says != want {
		t.Errorf("%s, want %s", says, want)
	}
	r, _ := c.Report()
	if d := cmp.Diff([]PoolReport{{Name: "p", Allocatable: true, Addresses: 65536, Reserved: 2}}, r.Pools); d != "" {
		t.Error(d)
	}
}
