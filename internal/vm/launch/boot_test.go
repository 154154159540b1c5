// SPDX-License-Identifier: Apache-2.0

package launch_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	kubevirt "kubevirt.io/api/core/v1"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/vm/launch"
)

// TestBoot: a real guest of each binding gets its lease, routes and MTU, and connects by TCP in both directions; then
// the pod is restored.
func TestBoot(t *testing.T) {
	for _, c := range []struct {
		name       string
		binding    model.VMBinding
		attach     func(*world)
		lease, far string
		routes     []string
		six        bool
	}{
		{
			"masquerade", model.VMMasquerade, (*world).flannel,
			"10.0.2.2/24 router=10.0.2.1 mtu=1450 dns=10.96.0.10 hostname=vm1", "10.244.1.1",
			[]string{"inet default via 10.0.2.1 dev eth0", "inet6 default via fe80::1 dev eth0"},
			true,
		},
		{
			"bridge", model.VMBridge, (*world).routed, "10.244.1.5/32 router=169.254.1.1 mtu=1450 dns=10.96.0.10 hostname=vm1",
			"169.254.1.1",
			[]string{"inet default via 169.254.1.1 dev eth0", "inet 169.254.1.1 dev eth0 scope link"},
			false,
		},
		{
			"direct", model.VMDirect, (*world).routed, "10.244.1.5/32 router=169.254.1.1 mtu=1450 dns=10.96.0.10 hostname=vm1",
			"169.254.1.1",
			[]string{"inet default via 169.254.1.1 dev eth0", "inet 169.254.1.1 dev eth0 scope link"},
			false,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			c.attach(w)
			before := w.dump()
			r := w.run(w.config(w.input(c.binding)))
			if line := r.await("weft-guest: LEASE eth0 "); line != "weft-guest: LEASE eth0 "+c.lease {
				t.Errorf("leased %q, want %q", line, c.lease)
			}
			if c.six {
				r.await("weft-guest: LEASE6 eth0 fd10:0:2::2 ")
			}
			facts := r.exec("facts")
			for _, route := range c.routes {
				if !strings.Contains(facts, "weft-guest: ROUTE "+route) {
					t.Errorf("the guest lacks the route %q:\n%s", route, facts)
				}
			}
			if !strings.Contains(facts, "mac="+r.status.Interfaces[0].MAC+" mtu=1450 carrier=1") {
				t.Errorf("the guest's link is another one:\n%s", facts)
			}
			r.exec("ping -c 1 -W 20 " + c.far)
			r.exec("answer 80 guest")
			w.expectReply("10.244.1.5:80", "guest hello")
			w.listen(w.far, c.far+":90")
			if out := r.exec("send " + c.far + " 90 hello"); strings.TrimSpace(out) != "far hello" {
				t.Errorf("the guest received %q", out)
			}
			if c.six {
				r.exec("ping -6 -c 1 -W 20 fd00:1::1")
			}
			if err := r.stop(); err != nil {
				t.Error(err)
			}
			if after := w.dumpAs(before); after != before {
				t.Errorf("the pod was\n%s\nand is\n%s", before, after)
			}
		})
	}
}

// dump returns the pod's network configuration.
func (w *world) dump() string {
	var out []string
	for _, line := range []string{"-o link", "-o addr", "route", "-6 route"} {
		for text := range strings.Lines(nettest.IP(w.t, w.pod, line)) {
			if !strings.Contains(text, "fe80:") { // link-local addresses are asynchronous
				out = append(out, text)
			}
		}
	}
	return strings.Join(out, "") + nettest.Run(w.t, w.pod, "nft", "-s", "list", "ruleset")
}

// dumpAs returns the pod's state as soon as it is as before: carriers follow changes of links.
func (w *world) dumpAs(before string) string {
	w.t.Helper()
	after := w.dump()
	for end := time.Now().Add(time.Minute); after != before && time.Now().Before(end); after = w.dump() {
		time.Sleep(20 * time.Millisecond)
	}
	return after
}

// expectReply connects to the guest from the far namespace, until it listens.
func (w *world) expectReply(addr, want string) {
	w.t.Helper()
	w.expectReplyFrom(w.far, addr, want)
}

func (w *world) expectReplyFrom(from *netns.NS, addr, want string) {
	w.t.Helper()
	var last error
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		var conn net.Conn
		last = from.Do(func() (err error) {
			conn, err = new(net.Dialer).DialContext(w.t.Context(), "tcp", addr)
			return err
		})
		if last != nil {
			continue
		}
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		_, _ = fmt.Fprintln(conn, "hello")
		line, err := bufio.NewReader(conn).ReadString('\n')
		_ = conn.Close()
		if err == nil && strings.TrimSpace(line) == want {
			return
		}
		last = fmt.Errorf("%q: %w", line, err)
	}
	w.t.Errorf("%s does not answer %q: %v", addr, want, last)
}

// listen replies to connections.
func (w *world) listen(ns *netns.NS, addr string) {
	w.t.Helper()
	var l net.Listener
	err := ns.Do(func() (err error) {
		l, err = new(net.ListenConfig).Listen(context.Background(), "tcp", addr)
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			line, _ := bufio.NewReader(conn).ReadString('\n')
			_, _ = fmt.Fprint(conn, "far "+line)
			_ = conn.Close()
		}
	}()
}

// TestStatus: the status of a VM has the fields of KubeVirt, and is removed with the VM.
func TestStatus(t *testing.T) {
	w := newWorld(t)
	w.flannel()
	c := w.config(w.input(model.VMMasquerade))
	c.Grace = time.Millisecond
	r := w.run(c)
	b, err := os.ReadFile(filepath.Join(w.dir, "status.json"))
	if err != nil {
		t.Fatal(err)
	}
	var s struct {
		Phase      launch.Phase
		Interfaces []kubevirt.VirtualMachineInstanceNetworkInterface
	}
	if err := json.Unmarshal(b, &s); err != nil || s.Phase != launch.Running || len(s.Interfaces) != 1 {
		t.Fatalf("%s: %v", b, err)
	}
	got, _ := json.Marshal(s.Interfaces[0])
	want := `{"ipAddress":"10.244.1.5","mac":"` + r.status.Interfaces[0].MAC +
		`","name":"default","ipAddresses":["10.244.1.5","fd00:1::5"],"podInterfaceName":"eth0","infoSource":"domain","queueCount":1,"linkState":"up"}`
	if string(got) != want {
		t.Errorf("\n%s\nwant\n%s", got, want)
	}
}

// TestHypervisorDies: the pod's network is restored, and Run returns an error.
func TestHypervisorDies(t *testing.T) {
	w := newWorld(t)
	w.flannel()
	before := w.dump()
	c := w.config(w.input(model.VMBridge))
	done := make(chan error, 1)
	c.OnRunning = func(launch.Status) { go w.killQEMU() }
	go func() { done <- c.Run(t.Context()) }()
	err := <-done
	if err == nil || err.Error() != "VM shop/vm1: the hypervisor ended: signal: killed" {
		t.Errorf("%v", err)
	}
	if after := w.dumpAs(before); after != before {
		t.Errorf("the pod was\n%s\nand is\n%s", before, after)
	}
}

// killQEMU kills the process that has the console's socket.
func (w *world) killQEMU() {
	out, err := nettest.Try(
		nil, "sh", "-c",
		"for p in /proc/[0-9]*; do grep -qa 'guest=shop/vm1' $p/cmdline 2>/dev/null && grep -qa qemu $p/comm && kill -9 ${p#/proc/}; done; true",
	)
	if err != nil {
		w.t.Errorf("%v %s", err, out)
	}
}

// TestNoHypervisor: a QEMU that cannot be started is an error, and leaves nothing.
func TestNoHypervisor(t *testing.T) {
	w := newWorld(t)
	w.routed()
	before := w.dump()
	c := w.config(w.input(model.VMMasquerade))
	c.QEMU.Program = "/nowhere/qemu"
	err := c.Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "VM shop/vm1: start /nowhere/qemu: ") {
		t.Errorf("%v", err)
	}
	if after := w.dumpAs(before); after != before {
		t.Errorf("the pod was\n%s\nand is\n%s", before, after)
	}
}
