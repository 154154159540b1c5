// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/grants"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
)

// facts are what a cluster says when node n2 asks for the address 10.77.0.5 of node n1's block for a virtual machine's
// claim.
type facts struct {
	claim           string // its name
	vm              string // in its specification
	addresses, node string // in its status
	pod, lent, more string
}

func (f facts) manifests() string {
	return fmt.Sprintf(`---
apiVersion: weft.dev/v1alpha1
kind: AddressClaim
metadata: {name: %s, namespace: shop}
spec: {virtualMachine: {name: %s, network: weft, interface: eth0}}
status: {addresses: [%s], node: %s}
---
apiVersion: weft.dev/v1alpha1
kind: AddressBlock
metadata: {name: pods-10-77-0-0-28}
spec: {pool: pods, cidr: 10.77.0.0/28, node: n1, claim: "1", ceded: {%s}}
---
apiVersion: v1
kind: Pod
%s
%s`, f.claim, f.vm, f.addresses, f.node, f.lent, f.pod, f.more)
}

// launcher is a pod of a virtual machine on a node.
func launcher(more, annotations, node string) string {
	return fmt.Sprintf("metadata: {name: launcher, namespace: shop, %s annotations: {%s}}\nspec: {nodeName: %s}", more,
		annotations, node)
}

func instanceOf(status string) string {
	return "---\napiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nmetadata: {name: db, namespace: shop}\nstatus: {" + status + "}\n"
}

// TestGrant: an address is granted where the claim's pod is on the node that asks, and where the node that has the
// address has confirmed that it is the claim's; what a node's token can write of its own is no reason.
func TestGrant(t *testing.T) {
	claimOf := func(vm string) string {
		return model.VMRef{Namespace: "shop", Name: vm}.ClaimName("weft", "eth0")
	}
	const domain, incoming = `kubevirt.io/domain: db`, `kubevirt.io/domain: db, kubevirt.io/migrationJobName: job`
	good := facts{claim: claimOf("db"), vm: "db", addresses: "10.77.0.5", node: "n1", pod: launcher("", domain, "n2")}
	with := func(change func(*facts)) facts {
		f := good
		change(&f)
		return f
	}
	for name, x := range map[string]struct {
		facts
		says string // of the refusal; empty: granted
	}{
		"the machine's pod": {good, ""},
		"a pod that names the claim": {
			with(func(f *facts) { f.pod = launcher("", "weft.dev/address-claim: "+f.claim, "n2") }), "",
		},
		"the address's node says it itself": {
			with(func(f *facts) { f.node, f.lent = "n2", `10.77.0.5: "n3/7 for AddressClaim shop/`+f.claim+`"` }), "",
		},
		"target of the migration": {with(func(f *facts) {
			f.pod, f.more = launcher("", incoming, "n2"),
				instanceOf("nodeName: n1, migrationState: {targetPod: launcher, sourcePod: other}")
		}), ""},
		"started again": {with(func(f *facts) { f.more = instanceOf("") }), ""},
		"it runs there": {with(func(f *facts) { f.more = instanceOf("nodeName: n2") }), ""},
		"another target": {with(func(f *facts) {
			f.more = instanceOf("nodeName: n1, migrationState: {targetPod: other, sourcePod: third}")
		}), "does not name pod"},
		"a failed migration": {with(func(f *facts) {
			f.more = instanceOf("nodeName: n1, migrationState: {targetPod: launcher, sourcePod: other, failed: true}")
		}), "does not name pod"},
		"no migration yet": {
			with(func(f *facts) { f.pod, f.more = launcher("", incoming, "n2"), instanceOf("") }), "does not name pod",
		},
		"it runs elsewhere":     {with(func(f *facts) { f.more = instanceOf("nodeName: n1") }), "does not name pod"},
		"a pod of another node": {with(func(f *facts) { f.pod = launcher("", domain, "n3") }), `is on node "n3"`},
		"a pod of no node":      {with(func(f *facts) { f.pod = launcher("", domain, `""`) }), `is on node ""`},
		"a deleted pod": {
			with(func(f *facts) { f.pod = launcher(`deletionTimestamp: "2026-01-01T00:00:00Z",`, domain, "n2") }),
			"there is no pod",
		},
		"no pod": {
			with(func(f *facts) { f.pod = "metadata: {name: other, namespace: shop}" }), "there is no pod",
		},
		"a pod that is over": {with(func(f *facts) { f.pod += "\nstatus: {phase: Failed}" }), "has finished"},
		"another machine's pod": {
			with(func(f *facts) { f.pod = launcher("", "kubevirt.io/domain: web", "n2") }), "does not use the claim",
		},
		"a claim that lies": {
			with(func(f *facts) { f.vm, f.pod = "web", launcher("", "kubevirt.io/domain: web", "n2") }),
			"does not use the claim",
		},
		"a pod that names it not": {
			with(func(f *facts) { f.pod = launcher("", "weft.dev/address-claim: other", "n2") }), "does not use the claim",
		},
		"another address": {with(func(f *facts) { f.addresses = "10.77.0.6" }), "does not have the address"},
		"another claim":   {with(func(f *facts) { f.claim = "other" }), "no such claim"},
		"written by the node that asks": {
			with(func(f *facts) { f.node = "n2" }), `node "n1", which has the address, has not confirmed`,
		},
		"ceded for another claim": {
			with(func(f *facts) { f.lent = `10.77.0.5: "n3/7 for AddressClaim shop/other"` }),
			`node "n3", which has the address, has not confirmed`,
		},
	} {
		w := newWorld(t, x.manifests())
		err := grants.Address(t.Context(), w.Objects, model.PoolRequest{
			Node: "n2", Pool: "pods", CIDR: netip.MustParsePrefix("10.77.0.0/28"), Claim: "shop/" + claimOf("db"),
			Addr: netip.MustParseAddr("10.77.0.5"), Pod: "shop/launcher",
		})
		b := w.block(t, "pods-10-77-0-0-28")
		got := b.Granted[netip.MustParseAddr("10.77.0.5")]
		switch {
		case x.says == "" && (err != nil || got != "n2 for AddressClaim shop/"+claimOf("db")):
			t.Errorf("%s: %q %v", name, got, err)
		case x.says != "" && (err == nil || !strings.Contains(err.Error(), x.says) || len(b.Granted) > 0):
			t.Errorf("%s: %v %v, want %q", name, b.Granted, err, x.says)
		}
	}
}

func (w *world) block(t *testing.T, name string) model.AddressBlock {
	t.Helper()
	o, err := w.Get(t.Context(), store.AddressBlocks(), store.AddressBlocks().Key("", name))
	if err != nil {
		t.Fatal(err)
	}
	b, err := o.AddressBlock()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestGrantIsRevoked: a grant that a node has not used in time cannot be used later.
func TestGrantIsRevoked(t *testing.T) {
	const name = "pods-10-77-0-0-28"
	w := newWorld(t, `---
apiVersion: weft.dev/v1alpha1
kind: AddressBlock
metadata: {name: `+name+`}
spec: {pool: pods, cidr: 10.77.0.0/28, node: n1, claim: "1", granted: {10.77.0.5: n2 for AddressClaim a/b, 10.77.0.6: n2 for AddressClaim a/c}}
`)
	c := New(Config{Objects: w.Objects, Now: func() time.Time { return w.now }})
	pass := func(after time.Duration, want int) {
		t.Helper()
		w.now = w.now.Add(after)
		if err := c.revokeUnusedGrants(t.Context()); err != nil {
			t.Fatal(err)
		}
		if b := w.block(t, name); len(b.Granted) != want {
			t.Errorf("%v is granted, want %d", b.Granted, want)
		}
	}
	pass(0, 2)
	pass(grantLasts-time.Second, 2)
	pass(time.Second, 0)
	// One that is granted again has all the time again, also when no look has seen the block without it.
	o, err := w.Get(t.Context(), store.AddressBlocks(), store.AddressBlocks().Key("", name))
	if err != nil {
		t.Fatal(err)
	}
	b := w.block(t, name)
	b.Granted = map[netip.Addr]string{netip.MustParseAddr("10.77.0.5"): "n2 for AddressClaim a/b"}
	next, err := store.AddressBlockObject(o, b)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.CompareAndSwap(t.Context(), store.AddressBlocks(), o.Version, next); err != nil {
		t.Fatal(err)
	}
	pass(time.Second, 1)
	pass(grantLasts, 0)
	pass(time.Second, 0)
	if c.grantsPending {
		t.Error("it goes on looking where nothing is granted")
	}
	w.write(
		"unread.yaml",
		`{"apiVersion":"weft.dev/v1alpha1","kind":"AddressBlock","metadata":{"name":"unread"},"spec":{"pool":"pods","cidr":"none"}}`,
	)
	c = New(Config{Objects: w.Objects, Now: func() time.Time { return w.now }})
	pass(time.Second, 0)
	if !c.grantsPending {
		t.Error("a block that cannot be read is forgotten, and what is granted in it")
	}
}

// TestGrantOnKubernetes: with the RBAC of the manifests, a VM that is restarted on another node, while the node that
// has its address is down, gets its address there by the controller's grant only.
func TestGrantOnKubernetes(t *testing.T) {
	nettest.EndToEnd(t)
	s := newSplit(t)
	stopController := s.control("c")
	add1, stop1 := s.engine("n1")
	db := &model.VMRef{Namespace: "default", Name: "db"}
	var addr netip.Addr
	s.until("the machine has an address on node n1", func() bool {
		addrs, err := add1(ofCluster, "first", db)
		if err == nil {
			addr = addrs[0]
		}
		return err == nil
	})
	stop1()
	s.unforged(addr)
	add2, _ := s.engine("n2")
	refused := func(pod, says string) {
		t.Helper()
		s.until("pod "+pod+" is refused: "+says, func() bool {
			addrs, err := add2(ofCluster, pod, db)
			if err == nil {
				t.Fatalf("pod %s has %v", pod, addrs)
			}
			return strings.Contains(err.Error(), says)
		})
	}
	s.launcher("elsewhere", "n3", "db")
	s.launcher("web", "n2", "web")
	s.launcher("db", "n2", "db")
	refused("none", "has not granted it to pod default/none")
	refused("elsewhere", "has not granted it to pod default/elsewhere")
	refused("web", "has not granted it to pod default/web")
	stopController()
	refused("db", "has not answered")
	s.control("second")
	s.until("the machine has its address on node n2", func() bool {
		addrs, err := add2(ofCluster, "db", db)
		return err == nil && addrs[0] == addr
	})
	b := s.holds(addr)
	if !strings.HasPrefix(b.Lent[addr], "n2/") || !strings.Contains(b.Lent[addr], " for AddressClaim default/") ||
		len(b.Granted) > 0 {
		t.Errorf("the block after that: %+v", b)
	}
	s.migrates(addr, db)
	for line := range strings.Lines(s.log.String()) {
		if strings.Contains(line, "forbidden") || strings.Contains(line, "denied request") {
			t.Error(line)
		}
	}
}

// migrates: a VM that migrates to node n3 keeps its address, from a running node that has not lent it.
func (s *split) migrates(addr netip.Addr, vm *model.VMRef) {
	s.t.Helper()
	s.engine("n3")
	s.launcher("target", "n3", vm.Name)
	took := func(pod string) error {
		ask := ipam.Request{
			Conf: json.RawMessage(ofCluster), Network: "net", ContainerID: pod, IfName: "eth0", VM: vm, Incoming: true,
			Held: []netip.Addr{addr},
			Args: [][2]string{{"K8S_POD_NAMESPACE", "default"}, {"K8S_POD_NAME", pod}},
		}
		if _, err := s.last.Allocators()[2].Add(s.t.Context(), ask); err != nil { // it stands by
			return err
		}
		return s.last.Allocators()[2].(ipam.Transferrer).Transfer(s.t.Context(), ask)
	}
	s.until("the pod of another machine is refused", func() bool {
		err := took("web")
		if err == nil {
			s.t.Fatal("the pod of another machine has the address")
		}
		return strings.Contains(err.Error(), "has not granted it to pod default/web")
	})
	var err error
	s.until("the machine has its address on node n3", func() bool {
		err = took("target")
		return err == nil
	})
	if b := s.holds(addr); b.Holder(addr) != "n3" || len(b.Granted) > 0 {
		s.t.Errorf("the block after the migration: %+v", b)
	}
}

// launcher makes the pod of a virtual machine.
func (s *split) launcher(name, node, vm string) {
	s.t.Helper()
	s.Do(http.MethodPost, "/api/v1/namespaces/default/pods", fmt.Sprintf(
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"annotations":{"kubevirt.io/domain":%q}},"spec":{"nodeName":%q,"containers":[{"name":"c","image":"i"}]}}`, name, vm, node))
}

// holds is the block of an address.
func (s *split) holds(addr netip.Addr) (out model.AddressBlock) {
	s.t.Helper()
	var all struct{ Items []json.RawMessage }
	if err := json.Unmarshal(s.Do(http.MethodGet, allBlocks, nil), &all); err != nil {
		s.t.Fatal(err)
	}
	for _, raw := range all.Items {
		o, err := store.NewObject(raw)
		if err != nil {
			s.t.Fatal(err)
		}
		if b, err := o.AddressBlock(); err == nil && b.CIDR.Contains(addr) {
			return b
		}
	}
	s.t.Fatalf("no block has %s", addr)
	return out
}

// unforged: a node's token alone does not take the address, whatever claim it names, and grants itself nothing.
func (s *split) unforged(addr netip.Addr) {
	s.t.Helper()
	agent := s.as("weft", "n3")
	for name, change := range map[string]func(*model.AddressBlock){
		"or that the controller granted to its node": func(b *model.AddressBlock) {
			b.Lent = map[netip.Addr]string{addr: "n3/9 for AddressClaim default/any"}
		},
		"an agent may grant no addresses": func(b *model.AddressBlock) {
			b.Granted = map[netip.Addr]string{addr: "n3 for AddressClaim default/any"}
		},
	} {
		b := s.holds(addr)
		kind := store.AddressBlocks()
		o, err := agent.Get(s.t.Context(), kind, kind.Key("", store.BlockName(b.Pool, b.CIDR)))
		next := o
		if err == nil {
			change(&b)
			next, err = store.AddressBlockObject(o, b)
		}
		if err == nil {
			_, err = agent.CompareAndSwap(s.t.Context(), kind, o.Version, next)
		}
		if err == nil || !strings.Contains(err.Error(), name) {
			s.t.Errorf("%s: %v", name, err)
		}
	}
}
