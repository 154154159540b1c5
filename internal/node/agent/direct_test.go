// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// TestDirectByCNI: the plugin, called as KubeVirt calls it for a binding plugin, creates a tap that assigns a guest the
// pod's place in the network, and the agent serves DHCP to that guest, also after it was killed. DEL restores the pod's
// interface.
func TestDirectByCNI(t *testing.T) {
	nettest.EndToEnd(t)
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		nettest.SkipMissing(t, "there is no busybox, whose udhcpc would be the guest's client")
	}
	w := newWorld(t)
	w.start()
	nettest.Run(t, w.node, "ip", "link", "set", "lo", "up")
	nettest.Run(t, w.node, "ip", "addr", "add", "192.0.2.1/32", "dev", "lo") // what it pings from
	pods, ns := w.attached("routed")
	before := inPod(t, ns)
	direct := w.list("1.1.0", `{"type":"weft-direct","args":{"cni":{"logicNetworkName":"default"}}}`)
	second := &libcni.RuntimeConf{ContainerID: "c1", NetNS: ns.Path(), IfName: "net1"}
	r, err := w.cni.AddNetworkList(w.ctx(), direct, second)
	if err != nil {
		t.Fatalf("%v\n%s", err, w.log())
	}
	result, err := current.NewResultFromResult(r)
	if err != nil || len(result.Interfaces) != 1 || result.Interfaces[0].Name != "tap0" ||
		result.Interfaces[0].Sandbox != ns.Path() {
		t.Errorf("the result is %+v (%v)", result, err)
	}
	guest := nettest.NS(t, "guest")
	mac := strings.Fields(nettest.Run(t, ns, "ip", "-br", "link", "show", "eth0"))[2]
	nettest.Relay(t, ns, "tap0", false, guest, mac)
	for _, when := range []string{"at first", "after the agent was killed"} {
		leases(t, guest, busybox, "10.9.0.2", when)
		if err := w.check(pods, "c1", ns); err != nil {
			t.Errorf("CHECK of the pod's network %s: %v", when, err)
		}
		if err := w.cni.CheckNetworkList(w.ctx(), direct, second); err != nil {
			t.Errorf("CHECK of the tap %s: %v", when, err)
		}
		if when == "at first" {
			w.kill()
			w.start()
		}
	}
	nettest.Run(t, guest, "ip", "addr", "add", "10.9.0.2/32", "dev", "eth0")
	nettest.Run(t, guest, "ip", "route", "add", "169.254.1.1", "dev", "eth0")
	nettest.Run(t, guest, "ip", "route", "add", "default", "via", "169.254.1.1")
	nettest.Run(t, w.node, "ping", "-c1", "-W10", "10.9.0.2")
	nettest.Run(t, guest, "ip", "link", "set", "eth0", "down")
	if out, err := nettest.Try(w.node, "ping", "-c1", "-W1", "10.9.0.2"); err == nil {
		t.Errorf("the pod answers in the guest's place:\n%s", out)
	}
	if err := w.cni.DelNetworkList(w.ctx(), direct, second); err != nil {
		t.Fatal(err)
	}
	if diff := w.reads(func() string { return inPod(t, ns) }, before); diff != "" {
		t.Error(diff)
	}
	nettest.Run(t, w.node, "ping", "-c1", "-W10", "10.9.0.2")
}

// leases makes a guest request an address.
func leases(t *testing.T, guest *netns.NS, busybox, want, when string) {
	t.Helper()
	out, err := nettest.Try(guest, "timeout", "60", busybox, "udhcpc", "-i", "eth0", "-n", "-q", "-f", "-t", "20", "-T",
		"1", "-s", "/bin/true")
	if err != nil || !strings.Contains(out, fmt.Sprintf("lease of %s obtained from 169.254.75.10", want)) {
		t.Errorf("%s the guest is told (%v)\n%s", when, err, out)
	}
}

// TestDirectRouter: a guest with a routed pod's addresses of both families finds its default route by the agent's
// advertisements, which are the same as those of weft's own VMs.
func TestDirectRouter(t *testing.T) {
	nettest.EndToEnd(t)
	nettest.Need(t, "tap")
	w := newWorld(t)
	w.start()
	for _, line := range []string{"link set lo up", "addr add fd00:99::1/128 dev lo"} {
		nettest.IP(t, w.node, line)
	}
	ns := nettest.NS(t, "pod")
	pods := w.list("1.1.0", fmt.Sprintf(`{"plugins":[{"type":"calico","mtu":1400,"ipam":{"type":"host-local","dataDir":%q,
		"ranges":[[{"subnet":"10.9.0.0/16"}],[{"subnet":"fd00:9::/64"}]],"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"}]}}]}`, w.path("addresses")))
	if _, err := w.add(pods, "c1", ns); err != nil {
		t.Fatal(err)
	}
	g := w.startVM(ns, vmInput(model.VMDirect)).Networks[0].Guest
	if g == nil || g.DHCP4 == nil || g.DHCP6 == nil || g.RA == nil || g.DHCP6.Address.String() != "fd00:9::2" ||
		g.RA.Prefix.IsValid() {
		t.Errorf("a guest of weft's own is told %+v", g)
	}
	w.stopVM(ns)
	direct := w.list("1.1.0", `{"type":"weft-direct"}`)
	second := &libcni.RuntimeConf{ContainerID: "c1", NetNS: ns.Path(), IfName: "net1"}
	if _, err := w.cni.AddNetworkList(w.ctx(), direct, second); err != nil {
		t.Fatal(err)
	}
	guest := nettest.NS(t, "guest")
	mac := strings.Fields(nettest.Run(t, ns, "ip", "-br", "link", "show", "eth0"))[2]
	nettest.Relay(t, ns, "tap0", false, guest, mac)
	nettest.Run(t, guest, "ip", "addr", "add", "fd00:9::2/128", "dev", "eth0", "nodad")
	found := false
	for range 600 {
		if found = strings.Contains(nettest.Run(t, guest, "ip", "-6", "route", "show", "default"),
			"via fe80::1 dev eth0"); found {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if !found {
		t.Fatalf("the guest has no router:\n%s%s", nettest.Run(t, guest, "ip", "-6", "route"), w.log())
	}
	nettest.Run(t, guest, "ping", "-c1", "-W10", "fd00:99::1")
	nettest.Run(t, w.node, "ping", "-c1", "-W10", "fd00:9::2")
}
