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

// becomes has the machine change.
func (r *running) becomes(c launch.Change) {
	r.t.Helper()
	st, err := launch.Ask(r.t.Context(), r.status, c, bootTime)
	if err != nil {
		r.t.Fatal(err)
	}
	r.status = st
}

// refuses has the machine refuse a change.
func (r *running) refuses(c launch.Change, want string) {
	r.t.Helper()
	if _, err := launch.Ask(r.t.Context(), r.status, c, bootTime); err == nil || !strings.Contains(err.Error(), want) {
		r.t.Errorf("%+v: %v, want %s", c, err, want)
	}
}

// until waits until the guest's command succeeds.
func (r *running) until(command string) {
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

// carrier takes an interface's carrier and gives it back.
func (r *running) carrier(name, dev string) {
	r.t.Helper()
	for _, c := range []struct {
		up          bool
		sees, state string
	}{{false, "0", "down"}, {true, "1", "up"}} {
		r.becomes(launch.Change{Link: name, Up: c.up})
		r.until("test $(cat /sys/class/net/" + dev + "/carrier) = " + c.sees)
		for _, i := range r.status.Interfaces {
			if i.Name == name && i.LinkState != c.state {
				r.t.Errorf("the link of %s is said to be %s, not %s", name, i.LinkState, c.state)
			}
		}
	}
	r.refuses(launch.Change{Link: "green"}, `machine shop/vm1 has no interface "green"`)
}

// plugs gives a running guest another interface, takes it away again and an older one, and gives that back as the
// manifest does.
func (r *running) plugs(in plan.Input, blue *netns.NS) {
	r.t.Helper()
	green := nettest.NS(r.t, "green")
	more := in
	more.VM.Interfaces = append([]model.VMInterface{}, in.VM.Interfaces...)
	attach := model.VMInterface{
		Name: "green", Binding: model.VMBridge, Model: "virtio", Network: model.VMNetwork{Name: "green", Definition: "green"},
	}
	r.refuses(launch.Change{Attach: &attach}, "the pod has no link podba4788b226a")
	r.further(&more, "green", model.VMBridge, "1200", "10.40.0.5/24", green, "10.40.0.1/24")
	before := r.looks()
	r.becomes(launch.Change{Attach: &attach})
	r.await("weft-guest: LEASE eth3 10.40.0.5/24 router= mtu=1200 ")
	r.does("ping -c 1 -W 20 10.40.0.1")
	r.calledFrom(green, "10.40.0.5:80", "guest hello")
	if n := len(r.status.Interfaces); n != 4 || r.status.Interfaces[3].Name != "green" ||
		r.status.Interfaces[3].IP != "10.40.0.5" {
		r.t.Errorf("it is said to have %+v", r.status.Interfaces)
	}
	r.refuses(launch.Change{Attach: &attach}, `machine shop/vm1 has an interface "green" already`)
	r.refuses(launch.Change{Detach: "default"}, `interface "default": the pod's default network cannot be taken away`)
	other := more.VM
	other.Interfaces = append([]model.VMInterface{}, more.VM.Interfaces...)
	other.Interfaces[3].Binding = model.VMDirect
	r.refuses(launch.Change{Machine: &other}, `interface "green": only its state can change while the machine runs`)

	r.becomes(launch.Change{Detach: "green"})
	r.until("test ! -e /sys/class/net/eth3")
	if after := r.looks(); after != before {
		r.t.Errorf("the pod was\n%s\nand is\n%s", before, after)
	}
	r.ip(r.pod, "link del podba4788b226a")
	absent := in.VM
	absent.Interfaces = append([]model.VMInterface{}, in.VM.Interfaces...)
	absent.Interfaces[1].Absent = true
	r.becomes(launch.Change{Machine: &absent})
	r.until("test ! -e /sys/class/net/eth1")
	r.becomes(launch.Change{Machine: &in.VM})
	r.until("ping -c 1 -W 20 10.21.0.1")
	r.calledFrom(blue, "10.20.0.5:80", "guest hello")
}
