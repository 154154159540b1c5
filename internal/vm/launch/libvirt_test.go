// SPDX-License-Identifier: Apache-2.0

package launch_test

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/vm/launch"
	"github.com/weft-net/weft/internal/vm/libvirt"
	"github.com/weft-net/weft/internal/vm/qemu"
)

// TestLibvirt: libvirt defines the domain, starts it on the tap of phase 1, sets the carrier off and on, plugs and
// unplugs another network device, and destroys the domain; the tap survives.
func TestLibvirt(t *testing.T) {
	w := newWorld(t)
	w.needLibvirt()
	w.flannel()
	before := w.dump()
	c := w.config(w.input(model.VMMasquerade))
	started := make(chan *libvirt.Domain, 1)
	c.Hypervisor = func(ctx context.Context, q qemu.Config) (launch.VM, error) {
		m, err := libvirt.Start(ctx, q)
		if err == nil {
			started <- m
		}
		return m, err
	}
	r := w.run(c)
	m := <-started
	r.await("weft-guest: LEASE eth0 10.0.2.2/24 ")
	if state, err := m.Virsh(t.Context(), "domstate", m.Name()); err != nil || state != "running" {
		t.Errorf("the domain is %q: %v", state, err)
	}
	list, err := m.Virsh(t.Context(), "domiflist", m.Name())
	if f := strings.Fields(list); err != nil || len(f) != 5 || f[0] != "tap0" || f[1] != "ethernet" ||
		f[4] != r.status.Interfaces[0].MAC {
		t.Errorf("its interfaces: %q: %v", list, err)
	}
	d := model.VMDevice{Name: "default", Target: "tap0"}
	for _, up := range []bool{false, true} {
		if err := m.SetLink(t.Context(), d, up); err != nil {
			t.Fatal(err)
		}
		want := map[bool]string{false: "0", true: "1"}[up]
		ctx, cancel := context.WithTimeout(t.Context(), bootTime)
		for {
			if out, err := r.Run(ctx, "cat /sys/class/net/eth0/carrier"); err == nil && strings.TrimSpace(out) == want {
				break
			} else if ctx.Err() != nil {
				t.Fatalf("the guest's carrier is %q, want %s: %v", out, want, err)
			}
			time.Sleep(50 * time.Millisecond)
		}
		cancel()
	}
	r.exec("ping -c 1 -W 20 10.244.1.1")
	green, with := nettest.NS(t, "green"), c.Input
	r.addNetwork(&with, "green", model.VMBridge, "1200", "10.40.0.5/24", green, "10.40.0.1/24")
	r.change(launch.Change{Attach: &with.VM.Interfaces[1]})
	r.await("weft-guest: LEASE eth1 10.40.0.5/24 router= mtu=1200 ")
	r.change(launch.Change{Detach: "green"})
	r.waitFor("test ! -e /sys/class/net/eth1")
	r.ip(r.pod, "link del podba4788b226a")
	if _, err := m.Virsh(t.Context(), "destroy", m.Name()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-m.Done():
	case <-time.After(bootTime):
		t.Fatal("a destroyed domain is still running")
	}
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	if after := w.dumpAs(before); after != before {
		t.Errorf("the pod was\n%s\nand is\n%s", before, after)
	}
}

// TestLibvirtForeignMacvtap: a macvtap of another namespace has the index of the VM's link, and so its name in the node's
// /dev. libvirt, which looks there by the index, must neither take a tap for a macvtap nor open the other's device.
func TestLibvirtForeignMacvtap(t *testing.T) {
	nettest.Need(t, "macvtap")
	for _, c := range []struct {
		binding model.VMBinding
		link    string
		setUp   func(*world)
		lease   string
	}{
		{model.VMMasquerade, "tap0", (*world).flannel, "eth0 10.0.2.2/24 "},
		{model.VMMacvtap, "eth0", func(w *world) { w.macvtap(); w.dhcpd() }, "eth0 10.244.1.5/24 "},
	} {
		t.Run(string(c.binding), func(t *testing.T) {
			w := newWorld(t)
			w.needLibvirt()
			c.setUp(w)
			config := w.config(w.input(c.binding))
			config.Hypervisor = func(ctx context.Context, q qemu.Config) (launch.VM, error) {
				w.foreignMacvtap(c.link)
				return libvirt.Start(ctx, q)
			}
			w.run(config).await("weft-guest: LEASE " + c.lease)
		})
	}
}

func (w *world) needLibvirt() {
	w.t.Helper()
	if _, err := exec.LookPath("virsh"); err != nil {
		nettest.SkipMissing(w.t, "there is no virsh")
	}
	if w.owner == 0 {
		nettest.SkipMissing(w.t, "libvirt needs root")
	}
}

// foreignMacvtap makes a macvtap in another namespace with the index of a link of the pod.
func (w *world) foreignMacvtap(link string) {
	w.t.Helper()
	index := 0
	if err := w.pod.Do(func() error {
		i, err := net.InterfaceByName(link)
		if err == nil {
			index = i.Index
		}
		return err
	}); err != nil {
		w.t.Fatal(err)
	}
	other := nettest.NS(w.t, "other")
	w.ip(other, fmt.Sprintf("link add lower index %d type veth peer name lower-peer", index+1))
	w.ip(other, fmt.Sprintf("link add link lower name other index %d type macvtap", index))
}
