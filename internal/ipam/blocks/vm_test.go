// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/model"
)

// vmManifest is a VM in KubeVirt's form, with its instance.
func vmManifest(name, uid string) string {
	return "apiVersion: kubevirt.io/v1\nkind: VirtualMachine\nmetadata: {name: " + name + ", namespace: shop, uid: " +
		uid + "}\n---\n" +
		"apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nmetadata: {name: " + name +
		", namespace: shop, uid: i-" + uid + "}\n"
}

// runs performs the ADD of a VM's pod, with its record; incoming: the VM runs on another node, and migrates.
func (n *node) runs(vm, id string, incoming bool, more ...string) string {
	n.t.Helper()
	req := n.vmRequest(vm, id, calicoConf(more...))
	req.Incoming = incoming
	h, err := n.engine.Allocators()[2].(ipam.Reserver).Reserve(context.Background(), req)
	if err != nil {
		return err.Error()
	}
	if err := h.Commit(); err != nil {
		n.t.Fatal(err)
	}
	var words []string
	var addrs []netip.Addr
	for _, ip := range h.Result().IPs {
		words, addrs = append(words, ip.Address.Addr().String()), append(addrs, ip.Address.Addr())
	}
	if h.Standby() {
		return "standby " + strings.Join(words, " ")
	}
	n.ledger[key(id)], n.confs[key(id)] = addrs, string(req.Conf)
	return strings.Join(words, " ")
}

func (n *node) vmRequest(vm, id, conf string, held ...string) ipam.Request {
	req := n.req(conf, key(id))
	req.VM = &model.VMRef{Namespace: "shop", Name: vm}
	for _, text := range held {
		req.Held = append(req.Held, netip.MustParseAddr(text))
	}
	return req
}

// takes performs the transfer when the VM runs in the pod that was on standby.
func (n *node) takes(vm, id string, addrs ...string) error {
	req := n.vmRequest(vm, id, calicoConf(), addrs...)
	if err := n.engine.Allocators()[2].(ipam.Transferrer).Transfer(context.Background(), req); err != nil {
		return err
	}
	n.ledger[key(id)], n.confs[key(id)] = req.Held, string(req.Conf)
	return nil
}

// hosts are two nodes, a manual clock, and a VM.
func hosts(t *testing.T) (a, b *node, now *time.Time, path string) {
	_, path = cluster(t, map[string]string{
		"four.yaml": poolYAML("four", "10.1.0.0/27", 29), "six.yaml": poolYAML("six", "fd01::/112", 124),
		"vm.yaml": vmManifest("db", "u1"),
	})
	now = new(time.Time)
	*now = time.Unix(1e9, 0)
	calm := func(c *Config) {
		c.Now = func() time.Time { return *now }
		c.After = func(time.Duration) <-chan time.Time { ch := make(chan time.Time, 1); ch <- *now; return ch }
	}
	return join(t, path, "a", calm), join(t, path, "b", calm), now, path
}

func (n *node) promise(vm string) string {
	n.t.Helper()
	ref := model.VMRef{Namespace: "shop", Name: vm}
	o, err := n.line.Objects.Get(n.t.Context(), store.AddressClaims(),
		store.AddressClaims().Key("shop", ref.ClaimName("net", "net1")))
	if err != nil {
		n.t.Fatal(err)
	}
	return string(o.Raw)
}

func is(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %s\nwant %s", what, got, want)
	}
}

func has(t *testing.T, what, got, want string) {
	t.Helper()
	if !strings.Contains(got, want) {
		t.Errorf("%s: %s\nwant %s", what, got, want)
	}
}

// TestVMKeepsAddresses over pods, restarts of agents, nodes that do not answer, and families that are added; they are
// allocated to nothing else.
func TestVMKeepsAddresses(t *testing.T) {
	a, b, now, _ := hosts(t)
	first := a.runs("db", "one", false)
	has(t, "the first pod", first, "10.1.0.")
	text := a.promise("db")
	for _, want := range []string{
		`"ownerReferences":[{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachine","name":"db","uid":"u1"}]`,
		`"virtualMachine":{"interface":"net1","kind":"VirtualMachine","name":"db","network":"net","uid":"u1"}`,
		`"status":{"addresses":["` + first + `"],"node":"a"}`,
	} {
		has(t, "the promise", text, want)
	}
	has(t, "a second pod", a.runs("db", "two", false),
		"virtual machine shop/db: address "+first+
			" is taken by interface net1 of container one (network net) (it is retried until the VM's earlier pod is gone)")
	a.del("one")
	*now = now.Add(time.Hour)
	for i := range 12 {
		if got, err := a.addCluster(calicoConf(), "other"+strings.Repeat("x", i), model.AddressRequest{}); err != nil ||
			strings.HasPrefix(got, first+"/") {
			t.Fatalf("%s, error %v", got, err)
		}
	}
	a.start() // killed
	is(t, "the second pod", a.runs("db", "three", false), first)

	// Not on another node while the VM's pod is still here.
	has(t, "elsewhere, in use here", b.inUse(t, a, "db", "four"), "is taken by an attachment on node a")
	a.del("three")
	// It is no longer in use here, but this node does not answer: the VM reclaims the address.
	is(t, "elsewhere", b.runs("db", "five", false), first)
	if a.engine.freshenAll(t); a.engine.Holds(netip.MustParseAddr(first)) || !b.engine.Holds(netip.MustParseAddr(first)) {
		t.Error("both nodes, or none, have the address")
	}
	has(t, "the promise", a.promise("db"), `"node":"b"`)
	b.del("five")
	is(t, "back, with both families", a.runs("db", "six", false, `"assign_ipv6":"true"`), first+" "+six(a.promise("db")))
	b.engine.freshenAll(t)
	for _, h := range b.engine.Allocations().Blocks {
		if h.IsSingleIP() {
			t.Errorf("node b still has %s", h)
		}
	}
	checkOnce(t, a, b)
}

// six returns the IPv6 address in a claim.
func six(promise string) string {
	_, rest, _ := strings.Cut(promise, `"fd01::`)
	rest, _, _ = strings.Cut(rest, `"`)
	return "fd01::" + rest
}

// inUse is runs if the node that has the address answers that it is in use.
func (n *node) inUse(t *testing.T, has *node, vm, id string) string {
	t.Helper()
	n.engine.cfg.Failpoint = func(name string) error {
		if name == "after swap" {
			has.engine.freshenAll(t)
		}
		return nil
	}
	defer func() { n.engine.cfg.Failpoint = nil }()
	return n.runs(vm, id, false)
}

// freshenAll makes an engine refresh all its blocks.
func (e *Engine) freshenAll(t *testing.T) {
	t.Helper()
	e.state.synced = false
	if err := e.reconciler.reconcile(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// TestVMMigrates: the second pod gets the same addresses and owns none; when the VM runs there, they are transferred in
// one write, whichever node's block they are in; a failed transfer leaves nothing.
func TestVMMigrates(t *testing.T) {
	a, b, now, path := hosts(t)
	c := join(t, path, "c", func(c *Config) { c.Now, c.After = a.config.Now, a.config.After })
	addr := a.runs("db", "source", false)
	is(t, "the target", b.runs("db", "target", true), "standby "+addr)
	is(t, "the target once more", b.runs("db", "target", true), "standby "+addr)
	if b.engine.Holds(netip.MustParseAddr(addr)) {
		t.Error("the target's node has the address already")
	}
	req := b.vmRequest("db", "target", calicoConf())
	req.Standby = true
	prev := model.Result{IPs: []model.IP{{Address: netip.MustParsePrefix(addr + "/32")}}}
	if err := b.engine.Allocators()[2].Check(t.Context(), req, prev); err != nil {
		t.Errorf("CHECK of what stands by: %v", err)
	}
	b.del("target") // it failed
	a.engine.freshenAll(t)
	if !a.engine.Holds(netip.MustParseAddr(addr)) {
		t.Error("the source has lost the address to a migration that failed")
	}
	nodes := []*node{a, b, c, a, c, b, a} // whose the block is, away, on, back to the block's own
	for i, to := range nodes[1:] {
		from, id := nodes[i], "run"+strings.Repeat("x", i)
		is(t, "migration", to.runs("db", id, true), "standby "+addr)
		for range 2 { // the second time nothing is to be done
			if err := to.takes("db", id, addr); err != nil {
				t.Fatalf("from %s to %s: %v", from.name, to.name, err)
			}
		}
		from.engine.freshenAll(t)
		if from.engine.Holds(netip.MustParseAddr(addr)) || !to.engine.Holds(netip.MustParseAddr(addr)) {
			t.Errorf("from %s to %s: both have it, or none", from.name, to.name)
		}
		for k := range from.ledger {
			from.del(k.ContainerID)
		}
		has(t, "the promise", a.promise("db"), `"node":"`+to.name+`"`)
		to.start() // killed
		*now = now.Add(time.Hour)
		for _, n := range nodes[:3] {
			n.engine.freshenAll(t)
		}
	}
	for i := range 40 {
		for _, n := range nodes[:3] {
			if got, err := n.addCluster(calicoConf(), n.name+strings.Repeat("y", i), model.AddressRequest{}); err == nil &&
				got == addr+"/32" {
				t.Fatalf("node %s gives the machine's address to somebody else", n.name)
			}
			n.engine.freshenAll(t)
		}
	}
	checkOnce(t, a, b, c)
}

// TestVMDeleted: without the claim its addresses can be allocated by any pod, and a late transfer fails; a VM of the
// same name is another one.
func TestVMDeleted(t *testing.T) {
	a, b, now, path := hosts(t)
	addr := a.runs("db", "one", false)
	is(t, "the target", b.runs("db", "late", true), "standby "+addr)
	if err := os.WriteFile(filepath.Join(path, "vm.yaml"), []byte(vmManifest("db", "u2")), 0o600); err != nil {
		t.Fatal(err)
	}
	a.del("one")
	again := a.runs("db", "two", false)
	if again == addr || !strings.HasPrefix(again, "10.1.0.") {
		t.Errorf("the machine made anew: %s, before %s", again, addr)
	}
	has(t, "its promise", a.promise("db"), `"uid":"u2"`)
	for range 3 {
		*now = now.Add(claimPoll)
		a.engine.freshenAll(t)
	}
	if err := b.takes("db", "late", addr); err == nil ||
		!strings.Contains(err.Error(), "does not name address "+addr+" any more") {
		t.Errorf("an address of a machine that is gone is taken: %v", err)
	}
	*now = now.Add(time.Hour)
	if got, err := a.addCluster(calicoConf(), "free", model.AddressRequest{
		Addrs: []netip.Addr{netip.MustParseAddr(addr)},
	}); err != nil || got != addr+"/32" {
		t.Errorf("the address is not free: %s, error %v", got, err)
	}
	checkOnce(t, a, b)
}

// TestVMTransferTooLate: between the check of the claim and the write the claim is deleted, and the address is
// allocated again: the write must fail.
func TestVMTransferTooLate(t *testing.T) {
	a, b, now, path := hosts(t)
	addr := a.runs("db", "one", false)
	is(t, "the target", b.runs("db", "late", true), "standby "+addr)
	done := false
	b.engine.cfg.Failpoint = func(name string) error {
		if name != "before swap" || done {
			return nil
		}
		done = true
		claim := a.promise("db")
		o, err := store.NewObject([]byte(claim))
		if err == nil {
			o, err = a.line.Objects.Get(t.Context(), store.AddressClaims(), o.Key)
		}
		if err == nil {
			err = a.line.Objects.Delete(t.Context(), store.AddressClaims(), o.Key, o.Version)
		}
		if err != nil {
			t.Fatal(err)
		}
		a.del("one")
		for range 3 {
			*now = now.Add(time.Hour)
			a.engine.freshenAll(t)
		}
		if got, err := a.addCluster(calicoConf(), "other", model.AddressRequest{
			Addrs: []netip.Addr{netip.MustParseAddr(addr)},
		}); err != nil {
			t.Fatalf("%s, error %v", got, err)
		}
		return nil
	}
	if err := b.takes("db", "late", addr); err == nil || !done {
		t.Errorf("the address was taken from who has it now (%v)", done)
	}
	_ = path
	checkOnce(t, a, b)
}

// TestVMWithoutObject: if a VM has no object, its claim stays until it is deleted; a datastore that does not respond
// does not prevent a start on the last node.
func TestVMWithoutObject(t *testing.T) {
	a, b, _, path := hosts(t)
	addr := a.runs("bare", "one", false)
	if text := a.promise("bare"); strings.Contains(text, "ownerReferences") || !strings.Contains(text, addr) {
		t.Errorf("the promise: %s", text)
	}
	a.del("one")
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	is(t, "without the store", a.runs("bare", "two", false), addr)
	has(t, "elsewhere, without the store", b.runs("bare", "three", false), "does not answer")
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
	// If all VMs have objects, a pod that names a VM without one gets no claim; root may.
	a.config.VMsKnown = true
	a.start()
	req := a.vmRequest("made-up", "five", calicoConf())
	for _, unproven := range []bool{true, false} {
		req.UnverifiedVM = unproven
		h, err := a.engine.Allocators()[2].(ipam.Reserver).Reserve(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		h.Cancel()
		all, err := a.line.Objects.List(t.Context(), store.AddressClaims())
		made := slices.ContainsFunc(all, func(o store.Object) bool { return strings.Contains(o.Key.Name, "made-up") })
		if err != nil || made == unproven {
			t.Errorf("unproven: %v, claim: %v (%v)", unproven, made, err)
		}
	}
	// A migration without a claim allocates an address for the pod itself.
	if got := b.runs("new", "four", true); strings.HasPrefix(got, "standby") || !strings.HasPrefix(got, "10.1.0.") {
		t.Errorf("an incoming machine without a promise: %s", got)
	}
}
