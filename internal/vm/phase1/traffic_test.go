// SPDX-License-Identifier: Apache-2.0

package phase1

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	plan "github.com/weft-net/weft/internal/plan/vm"
)

// boot starts a VM with a relay instead of a hypervisor, and configures the guest as its GuestConfig says.
func (w *world) boot(in plan.Input) *netns.NS {
	w.t.Helper()
	r := w.start(in)
	n := r.Networks[0]
	guest := nettest.NS(w.t, "guest")
	nettest.Relay(w.t, w.pod, n.Device.Target, n.Device.Queues > 1, guest, n.Device.MAC)
	w.ip(guest, "link set lo up")
	w.ip(guest, fmt.Sprintf("link set eth0 mtu %d", n.Device.MTU))
	g := n.Guest
	if d := g.DHCP4; d != nil {
		w.ip(guest, fmt.Sprintf("addr add %s dev eth0", d.Address))
		routes := d.Routes
		if len(routes) == 0 {
			w.ip(guest, "route add default via "+d.Router.String())
		}
		for _, route := range routes {
			line := "route add " + route.Dst.String()
			if route.GW.IsValid() {
				line += " via " + route.GW.String()
			}
			w.ip(guest, line+" dev eth0")
		}
	}
	if d := g.DHCP6; d != nil {
		w.ip(guest, fmt.Sprintf("addr add %s/128 dev eth0 nodad", d.Address))
		if g.RA.Prefix.IsValid() {
			w.ip(guest, "route add "+g.RA.Prefix.String()+" dev eth0")
		}
		w.ip(guest, "route add default via fe80::1 dev eth0")
	}
	return guest
}

// ping retries until a reply comes: the first packets may meet a port that is not ready.
func (w *world) ping(from *netns.NS, to string) {
	w.t.Helper()
	var out string
	var err error
	for range 10 {
		if out, err = nettest.Try(from, "ping", "-n", "-c", "1", "-W", "2", to); err == nil {
			return
		}
	}
	w.t.Errorf("ping %s: %v\n%s", to, err, out)
}

// serve replies to connections in a namespace with a name and the peer's address. Each family has a listener of its
// own: Go decides once per process what "tcp" listens on.
func (w *world) serve(ns *netns.NS, at, name string) {
	w.t.Helper()
	families := []string{"tcp4", "tcp6"}
	if strings.HasPrefix(at, "[") {
		families = families[1:]
	}
	for _, family := range families {
		var l net.Listener
		err := ns.Do(func() (err error) {
			l, err = net.Listen(family, at)
			return err
		})
		if err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(func() { _ = l.Close() })
		go answer(l, name)
	}
}

func answer(l net.Listener, name string) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
		_, _ = fmt.Fprintf(c, "%s %s\n", name, host)
		_ = c.Close()
	}
}

// call connects, and returns the reply: the server's name and the source address that it saw.
func (w *world) call(ns *netns.NS, to string) string {
	w.t.Helper()
	var reply string
	err := ns.Do(func() error {
		c, err := net.DialTimeout("tcp", to, 10*time.Second)
		if err != nil {
			return err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		reply, err = bufio.NewReader(c).ReadString('\n')
		return err
	})
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(reply)
}

func (w *world) expectReply(ns *netns.NS, to, want string) {
	w.t.Helper()
	if got := w.call(ns, to); got != want {
		w.t.Errorf("call of %s: %q, want %q", to, got, want)
	}
}

// TestMasquerade: the guest is reachable at the pod's address and the pod's 127.0.0.1, and its egress has the pod's
// address.
func TestMasquerade(t *testing.T) {
	for name, attach := range worlds() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			attach(w)
			far := "169.254.1.1"
			if name == "flannel" {
				far = "10.244.1.1"
			}
			guest := w.boot(testInput(model.VMMasquerade))
			w.serve(guest, ":80", "guest")
			w.serve(w.far, ":81", "far")
			w.ping(guest, far)
			w.expectReply(guest, far+":81", "far 10.244.1.5")
			w.expectReply(w.far, "10.244.1.5:80", "guest "+far)
			w.expectReply(w.pod, "127.0.0.1:80", "guest 10.0.2.1")
			w.expectReply(w.pod, "10.0.2.2:80", "guest 10.0.2.1")
			if name != "flannel" {
				return
			}
			w.ping(guest, "fd00:1::1")
			w.expectReply(guest, "[fd00:1::1]:81", "far fd00:1::5")
			w.expectReply(w.far, "[fd00:1::5]:80", "guest fd00:1::1")
			w.serve(w.pod, "[::1]:80", "pod")
			w.expectReply(w.pod, "[::1]:80", "pod ::1") // the kernel drops packets from ::1 on a link
		})
	}
}

// TestMasqueradePorts: only the listed ports are mapped to the guest.
func TestMasqueradePorts(t *testing.T) {
	w := newWorld(t)
	w.flannel()
	in := testInput(model.VMMasquerade)
	in.VM.Interfaces[0].Ports = []model.VMPortRange{{Protocol: "tcp", First: 80, Last: 82}}
	guest := w.boot(in)
	for _, port := range []string{":80", ":82", ":83"} {
		w.serve(guest, port, "guest")
		w.serve(w.pod, port, "pod")
	}
	w.ping(guest, "10.244.1.1")
	for to, want := range map[string]string{
		"10.244.1.5:80": "guest 10.244.1.1", "10.244.1.5:82": "guest 10.244.1.1", "10.244.1.5:83": "pod 10.244.1.1",
		"[fd00:1::5]:82": "guest fd00:1::1", "[fd00:1::5]:83": "pod fd00:1::1",
	} {
		w.expectReply(w.far, to, want)
	}
	w.expectReply(w.pod, "127.0.0.1:80", "guest 10.0.2.1")
	w.expectReply(w.pod, "127.0.0.1:83", "pod 127.0.0.1")
}

// TestMesh: with a service mesh only port 22 is mapped to the guest; the rest goes to the proxy, which reaches the
// guest by the pod's address.
func TestMesh(t *testing.T) {
	w := newWorld(t)
	w.flannel()
	in := testInput(model.VMMasquerade)
	in.VM.ServiceMesh = true
	guest := w.boot(in)
	for _, port := range []string{":22", ":80"} {
		w.serve(guest, port, "guest")
		w.serve(w.pod, port, "proxy")
	}
	w.serve(w.pod, ":15021", "proxy")
	w.ping(guest, "10.244.1.1")
	w.expectReply(w.far, "10.244.1.5:22", "guest 10.244.1.1")
	w.expectReply(w.far, "10.244.1.5:80", "proxy 10.244.1.1")
	w.expectReply(w.pod, "127.0.0.1:80", "guest 10.0.2.1")
	w.expectReply(w.pod, "127.0.0.1:15021", "proxy 127.0.0.1")
}

// TestBridge: the guest has the pod's address and link, also where it is routed.
func TestBridge(t *testing.T) {
	for name, attach := range worlds() {
		for _, queues := range []int{0, 2} {
			t.Run(fmt.Sprintf("%s/%d", name, queues), func(t *testing.T) {
				w := newWorld(t)
				attach(w)
				far := "169.254.1.1"
				if name == "flannel" {
					far = "10.244.1.1"
				}
				in := testInput(model.VMBridge)
				in.VM.Queues = queues
				guest := w.boot(in)
				w.serve(guest, ":80", "guest")
				w.serve(w.pod, ":80", "pod")
				w.serve(w.far, ":81", "far")
				w.ping(guest, far)
				w.expectReply(guest, far+":81", "far 10.244.1.5")
				w.expectReply(w.far, "10.244.1.5:80", "guest "+far)
			})
		}
	}
}

// TestTap: the hypervisor's user owns the tap, which has the pod's MTU.
func TestTap(t *testing.T) {
	w := newWorld(t)
	w.flannel()
	if runtimeUser() == 0 {
		nettest.SkipMissing(t, "this user namespace has no user but root")
	}
	w.start(testInput(model.VMMasquerade))
	out := nettest.Run(t, w.pod, "ip", "-d", "link", "show", "tap0")
	for _, want := range []string{"mtu 1450", "user qemu", "persist on", "master k6t-eth0"} {
		if !strings.Contains(strings.ReplaceAll(out, "user 107", "user qemu"), want) && !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}
