// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// write creates or updates an object.
func (p two) write(o store.Object, err error) {
	p.t.Helper()
	if err == nil {
		if was, missing := p.store.Get(o.Key); missing == nil {
			err = p.store.CompareAndSwap(p.t.Context(), was.Version, o)
		} else {
			_, err = p.store.Create(p.t.Context(), o)
		}
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// says starts a pod whose annotations claim to be of the VM default/db, and the target of its migration.
func (p two) says(w *world, node, name string) *vmPod {
	p.t.Helper()
	p.write(
		store.NewObject(
			fmt.Appendf(nil, `{"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "default", "name": %q, "uid": %q,
		"annotations": {"kubevirt.io/domain": "db", "kubevirt.io/migrationJobName": "m"}}, "spec": {"nodeName": %q}}`, name, "uid-"+name, node)))
	return p.vmPodOf(w, name, [][2]string{
		{"K8S_POD_NAMESPACE", "default"}, {"K8S_POD_NAME", name}, {"K8S_POD_UID", "uid-" + name},
	})
}

// instance writes the VM's instance; migration is its migration state.
func (p two) instance(node, migration string) {
	p.t.Helper()
	p.write(
		store.NewObject(
			fmt.Appendf(
				nil,
				`{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"namespace": "default", "name": "db"},
		"status": {"nodeName": %q, "migrationState": %s}}`, node, migration)))
}

// pretends sends a running VM's announcements from the pod, and waits until its agent has received them.
func (m *vmPod) pretends(p two) {
	p.t.Helper()
	refused := func() int { return strings.Count(m.node.log(), "without being the target of its migration") }
	before := refused()
	p.until(m.id+" is heard", func() bool {
		for _, a := range m.addrs {
			m.speaks(p.t, a)
		}
		return refused() > before
	})
	for _, a := range m.addrs {
		m.speaks(p.t, a)
	}
}

// TestForgedTarget: a pod that claims to be the target of a running VM's migration gets none of the VM's packets,
// whatever it sends, unless the VM's instance names it as the target. The packets are switched to a true target that
// sent first as soon as the instance names it.
func TestForgedTarget(t *testing.T) {
	nettest.EndToEnd(t)
	nettest.Need(t, "vxlan")
	p := newTwo(t, twoPools)
	n1, n2 := p.nodes[0], p.nodes[1]
	p.instance("n1", "{}")
	a := p.vmPod(n1, "a", false)
	peer1, _ := p.pod(n1, "peer1")
	peer2, peers := p.pod(n2, "peer2")
	all := []*netns.NS{peer1, peer2}
	p.answers(a, all...)
	forged := p.says(n2, "n2", "forged")
	if fmt.Sprint(a.addrs) != fmt.Sprint(forged.addrs) {
		t.Fatalf("%v and %v", a.addrs, forged.addrs)
	}
	p.moves(1)
	p.heard(forged)
	forged.pretends(p)
	p.instance("n1", `{"sourceNode": "n1", "targetNode": "n2", "targetPod": "other"}`)
	time.Sleep(2 * time.Second) // the instance is read each second
	forged.speaks(t, forged.addrs[0])
	p.is(forged, "awaited")
	p.is(a, "here")
	p.answers(a, all...)
	for i, addr := range forged.addrs {
		if forged.speaksTo(t, peer2, peers[i], 300*time.Millisecond) {
			t.Errorf("it speaks as %s before the machine is there", addr)
		}
	}
	a.pause(t)
	p.instance("n1", `{"sourceNode": "n1", "targetNode": "n2", "targetPod": "forged"}`)
	p.answers(forged, all...)
	p.is(a, "left")
	for _, addr := range peers {
		if !forged.speaksTo(t, peer2, addr, 20*time.Second) {
			t.Errorf("it does not speak when the machine is there, to %s", addr)
		}
	}
	forged.del(t)
	a.del(t)
}

// TestForgedTargetWithoutKubeVirt: without an instance, only the pod that an AddressMove names takes over the
// addresses.
func TestForgedTargetWithoutKubeVirt(t *testing.T) {
	nettest.EndToEnd(t)
	nettest.Need(t, "vxlan")
	p := newTwo(t, twoPools)
	n1, n2 := p.nodes[0], p.nodes[1]
	a := p.vmPod(n1, "a", false)
	peer1, _ := p.pod(n1, "peer1")
	peer2, _ := p.pod(n2, "peer2")
	all := []*netns.NS{peer1, peer2}
	forged, target := p.says(n2, "n2", "forged"), p.says(n2, "n2", "target")
	p.moves(2)
	p.heard(forged)
	forged.pretends(p)
	p.answers(a, all...)
	if _, errs, exit := n2.vm("here", "default/db"); exit != 1 ||
		!strings.Contains(errs, "more than one pod on this node: forged, target") {
		t.Errorf("%d %s", exit, errs)
	}
	allow := func(name, target, pod string) {
		t.Helper()
		p.write(store.AddressMoveObject(store.Object{}, model.AddressMove{
			Namespace: "default", Name: name, VM: "db", Addrs: []netip.Addr{a.addrs[0]}, Target: target, TargetPod: pod,
		}))
	}
	allow("elsewhere", "n3", "forged")
	allow("here", "n2", "target")
	a.pause(t)
	target.speaks(t, target.addrs[0])
	p.answers(target, all...)
	p.is(forged, "awaited")
	p.is(a, "left")
	forged.del(t)
	target.del(t)
	a.del(t)
}
