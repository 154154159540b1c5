// SPDX-License-Identifier: Apache-2.0

package launch_test

import (
	"strings"
	"time"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	plan "github.com/weft-net/weft/internal/plan/vm"
	"github.com/weft-net/weft/internal/vm/launch"
)

// change applies a change to the VM.
func (r *running) change(c launch.Change) {
	r.t.Helper()
	st, err := launch.RequestChange(r.t.Context(), r.status, c, bootTime)
	if err != nil {
		r.t.Fatal(err)
	}
	r.status = st
}

// expectRefused expects an error for a change.
func (r *running) expectRefused(c launch.Change, want string) {
	r.t.Helper()
	if _, err := launch.RequestChange(r.t.Context(), r.status, c, bootTime); err == nil ||
		!strings.Contains(err.Error(), want) {
		r.t.Errorf("%+v: %v, want %s", c, err, want)
	}
}

// waitFor waits until a command in the guest succeeds.
func (r *running) waitFor(command string) {
	r.t.Helper()
	for until := time.Now().Add(bootTime); ; time.Sleep(50 * time.Millisecond) {
		_, err := r.Run(r.t.Context(), command)
		if err == nil {
			return
		}
		if time.Now().After(until) {
			r.t.Fatal(err)
		}
	}
}

// toggleLink sets an interface's carrier off and on.
func (r *running) toggleLink(name, dev string) {
	r.t.Helper()
	for _, c := range []struct {
		up          bool
		sees, state string
	}{{false, "0", "down"}, {true, "1", "up"}} {
		r.change(launch.Change{Link: name, Up: c.up})
		r.waitFor("test $(cat /sys/class/net/" + dev + "/carrier) = " + c.sees)
		for _, i := range r.status.Interfaces {
			if i.Name == name && i.LinkState != c.state {
				r.t.Errorf("the status of link %s is %s, not %s", name, i.LinkState, c.state)
			}
		}
	}
	r.expectRefused(launch.Change{Link: "green"}, `VM shop/vm1 has no interface "green"`)
}

// hotplug plugs another interface into a running guest, unplugs it and an older one, and plugs the older one by a
// changed manifest.
func (r *running) hotplug(in plan.Input, blue *netns.NS) {
	r.t.Helper()
	green := nettest.NS(r.t, "green")
	more := in
	more.VM.Interfaces = append([]model.VMInterface{}, in.VM.Interfaces...)
	attach := model.VMInterface{
		Name: "green", Binding: model.VMBridge, Model: "virtio", Network: model.VMNetwork{Name: "green", Definition: "green"},
	}
	r.expectRefused(launch.Change{Attach: &attach}, "the pod has no link podba4788b226a")
	r.addNetwork(&more, "green", model.VMBridge, "1200", "10.40.0.5/24", green, "10.40.0.1/24")
	before := r.dump()
	r.change(launch.Change{Attach: &attach})
	r.await("weft-guest: LEASE eth3 10.40.0.5/24 router= mtu=1200 ")
	r.exec("ping -c 1 -W 20 10.40.0.1")
	r.expectReplyFrom(green, "10.40.0.5:80", "guest hello")
	if n := len(r.status.Interfaces); n != 4 || r.status.Interfaces[3].Name != "green" ||
		r.status.Interfaces[3].IP != "10.40.0.5" {
		r.t.Errorf("its status has %+v", r.status.Interfaces)
	}
	r.expectRefused(launch.Change{Attach: &attach}, `VM shop/vm1 already has an interface "green"`)
	r.expectRefused(launch.Change{Detach: "default"}, `interface "default": the pod's default network cannot be unplugged`)
	other := more.VM
	other.Interfaces = append([]model.VMInterface{}, more.VM.Interfaces...)
	other.Interfaces[3].Binding = model.VMDirect
	r.expectRefused(launch.Change{VM: &other}, `interface "green": only its state can change while the VM runs`)

	r.change(launch.Change{Detach: "green"})
	r.waitFor("test ! -e /sys/class/net/eth3")
	if after := r.dumpAs(before); after != before {
		r.t.Errorf("the pod was\n%s\nand is\n%s", before, after)
	}
	r.ip(r.pod, "link del podba4788b226a")
	absent := in.VM
	absent.Interfaces = append([]model.VMInterface{}, in.VM.Interfaces...)
	absent.Interfaces[1].Absent = true
	r.change(launch.Change{VM: &absent})
	r.waitFor("test ! -e /sys/class/net/eth1")
	r.change(launch.Change{VM: &in.VM})
	r.waitFor("ping -c 1 -W 20 10.21.0.1")
	r.expectReplyFrom(blue, "10.20.0.5:80", "guest hello")
}
