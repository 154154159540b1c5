// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
)

// TestHostTap: a tap on the node, instead of a veth, has the name, the routes and the source guard of a host
// interface; a guest behind it gets its address by DHCP, and can only use that one. CHECK passes and DEL removes
// everything, also while the tap is open.
func TestHostTap(t *testing.T) {
	nettest.EndToEnd(t)
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		nettest.SkipMissing(t, "there is no busybox, whose udhcpc would be the guest's client")
	}
	nettest.Need(t, "tap")
	w := newWorld(t)
	nettest.Run(t, w.node, "ip", "link", "set", "lo", "up")
	nettest.Run(t, w.node, "ip", "addr", "add", "192.0.2.1/32", "dev", "lo") // what it pings from
	w.start()
	before := w.host()
	list, ns := w.list(
		"1.1.0", fmt.Sprintf(`{"plugins":[{"type":"calico","mtu":1400,"host_tap":{},"ipam":%s}]}`, w.ipam("10.9.0.0/16")),
	), nettest.NS(t, "pod")
	r, err := w.add(list, "c1", ns)
	if err != nil {
		t.Fatalf("%v\n%s", err, w.log())
	}
	tap, mac := r.Interfaces[0], r.Interfaces[1].Mac
	if !strings.HasPrefix(tap.Name, "cali") || tap.Sandbox != "" || r.Interfaces[1].Name != "eth0" || len(r.IPs) != 1 {
		t.Fatalf("the result is %+v", r)
	}
	if d := w.startVM(ns, vmInput(model.VMDirect)).Networks[0].Device; d.Target != tap.Name || !d.OnNode || d.MAC != mac {
		t.Errorf("the hypervisor is told %+v", d)
	}
	guest := nettest.NS(t, "guest")
	nettest.Relay(t, w.node, tap.Name, false, guest, mac)
	for _, when := range []string{"at first", "after the agent was killed"} {
		out, err := nettest.Try(guest, "timeout", "60", busybox, "udhcpc", "-i", "eth0", "-n", "-q", "-f", "-t", "20", "-T",
			"1", "-s", "/bin/true")
		if err != nil || !strings.Contains(out, "lease of 10.9.0.2 obtained from 169.254.1.1") {
			t.Errorf("%s the guest is told (%v)\n%s\n%s", when, err, out, w.log())
		}
		if err := w.check(list, "c1", ns); err != nil {
			t.Errorf("CHECK %s: %v", when, err)
		}
		if when == "at first" {
			w.kill()
			w.start()
		}
	}
	for _, line := range []string{
		"addr add 10.9.0.2/32 dev eth0", "addr add 10.9.0.77/32 dev eth0", "route add 169.254.1.1 dev eth0",
		"route add default via 169.254.1.1",
	} {
		nettest.IP(t, guest, line)
	}
	nettest.Run(t, w.node, "ping", "-c1", "-W10", "10.9.0.2")
	nettest.Run(t, guest, "ping", "-c1", "-W10", "-I", "10.9.0.2", "192.0.2.1")
	if out, err := nettest.Try(guest, "ping", "-c1", "-W1", "-I", "10.9.0.77", "192.0.2.1"); err == nil {
		t.Errorf("a guest is heard by another's address:\n%s", out)
	}
	if err := w.del(list, "c1", ns); err != nil {
		t.Fatal(err)
	}
	if diff := w.settled(before); diff != "" {
		t.Errorf("left behind: %s", diff)
	}
}
