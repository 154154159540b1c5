// SPDX-License-Identifier: Apache-2.0

package launch_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	plan "github.com/weft-net/weft/internal/plan/vm"
)

// addNetwork adds an interface on a secondary network to a VM, and its link to the pod, as a CNI plugin would: with an
// optional address, a gateway at the other end, and routes.
func (w *world) addNetwork(
	in *plan.Input, name string, binding model.VMBinding, mtu, addr string, far *netns.NS, gateway string,
	routes ...string,
) {
	w.t.Helper()
	i := len(in.VM.Interfaces)
	nic := model.VMInterface{
		Name: name, Index: i, Binding: binding, Model: "virtio",
		Network: model.VMNetwork{Name: name, Index: i, Definition: name},
	}
	in.VM.Interfaces = append(in.VM.Interfaces, nic)
	link := in.PodLink(nic)
	w.ip(far, "link add "+name+" mtu "+mtu+" type veth peer name "+link+" mtu "+mtu+" netns "+w.pod.Path())
	w.ip(far, "link set "+name+" up")
	w.ip(w.pod, "link set "+link+" up")
	if addr == "" {
		return
	}
	w.ip(w.pod, "addr add "+addr+" dev "+link)
	p := netip.MustParsePrefix(addr)
	w.ip(far, "addr add "+gateway+" dev "+name)
	gw := netip.MustParsePrefix(gateway).Addr()
	if !p.Contains(gw) {
		w.ip(w.pod, "route add "+gw.String()+" dev "+link)
		w.ip(far, "route add "+p.Addr().String()+" dev "+name)
	}
	for _, r := range routes {
		w.ip(w.pod, "route add "+r+" via "+gw.String())
	}
}

// TestMultipleNetworks: a guest with three interfaces of three bindings has the lease, MTU and routes of each network,
// and connects over each in both directions.
func TestMultipleNetworks(t *testing.T) {
	w := newWorld(t)
	w.flannel()
	blue, red := nettest.NS(t, "blue"), nettest.NS(t, "red")
	in := w.input(model.VMMasquerade)
	w.addNetwork(&in, "blue", model.VMBridge, "1400", "10.20.0.5/24", blue, "10.20.0.1/24", "10.21.0.0/16")
	w.addNetwork(&in, "red", model.VMDirect, "1300", "10.30.0.5/32", red, "169.254.1.1/32", "10.31.0.0/16")
	w.ip(blue, "addr add 10.21.0.1/32 dev lo")
	w.ip(red, "addr add 10.31.0.1/32 dev lo")
	for _, ns := range []*netns.NS{blue, red} {
		w.ip(ns, "link set lo up")
	}
	before := w.dump()
	r := w.run(w.config(in))
	for _, lease := range []string{
		"eth0 10.0.2.2/24 router=10.0.2.1 mtu=1450 ", "eth1 10.20.0.5/24 router= mtu=1400 ",
		"eth2 10.30.0.5/32 router= mtu=1300 ",
	} {
		r.await("weft-guest: LEASE " + lease)
	}
	facts := r.exec("facts")
	macs := map[string]string{}
	for _, i := range r.status.Interfaces {
		macs[i.Name] = i.MAC
	}
	for _, want := range []string{
		"LINK eth0 mac=" + macs["default"] + " mtu=1450 carrier=1", "LINK eth1 mac=" + macs["blue"] + " mtu=1400 carrier=1",
		"LINK eth2 mac=" + macs["red"] + " mtu=1300 carrier=1",
		"ROUTE inet default via 10.0.2.1 dev eth0", "ROUTE inet 10.21.0.0/16 via 10.20.0.1 dev eth1",
		"ROUTE inet 10.31.0.0/16 via 169.254.1.1 dev eth2",
		"ROUTE inet 169.254.1.1 dev eth2 scope link",
	} {
		if !strings.Contains(facts, "weft-guest: "+want) {
			t.Errorf("the guest lacks %q:\n%s", want, facts)
		}
	}
	if strings.Count(facts, "ROUTE inet default") != 1 {
		t.Errorf("the guest has several default routes:\n%s", facts)
	}
	r.exec("answer 80 guest")
	for _, c := range []struct {
		ns        *netns.NS
		own, gate string
		far       string
	}{
		{w.far, "10.244.1.5", "10.244.1.1", "10.244.1.1"},
		{blue, "10.20.0.5", "10.20.0.1", "10.21.0.1"},
		{red, "10.30.0.5", "169.254.1.1", "10.31.0.1"},
	} {
		w.listen(c.ns, c.far+":90")
		w.expectReplyFrom(c.ns, c.own+":80", "guest hello")
		r.exec("ping -c 1 -W 20 " + c.gate)
		if out := r.exec("send " + c.far + " 90 hello"); strings.TrimSpace(out) != "far hello" {
			t.Errorf("the guest received %q from %s", out, c.far)
		}
	}
	r.toggleLink("red", "eth2")
	r.hotplug(in, blue)
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	if after := w.dumpAs(before); after != before {
		t.Errorf("the pod was\n%s\nand is\n%s", before, after)
	}
}
