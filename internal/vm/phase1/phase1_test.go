// SPDX-License-Identifier: Apache-2.0

package phase1

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
	plan "github.com/weft-net/weft/internal/plan/vm"
	"github.com/weft-net/weft/internal/state"
)

// worlds are the ways in which a pod is attached.
func worlds() map[string]func(*world) {
	return map[string]func(*world){"flannel": (*world).flannel, "routed": (*world).routed}
}

func machines() map[string]plan.Input {
	listed, queues := machine(model.VMMasquerade), machine(model.VMBridge)
	listed.VM.Interfaces[0].Ports = []model.VMPorts{
		{Protocol: "tcp", First: 80, Last: 90}, {Protocol: "udp", First: 53, Last: 53},
	}
	listed.VM.MigrationPorts = []uint16{49152, 49153}
	queues.VM.Queues, queues.SoftChecksums = 4, true
	mesh := machine(model.VMMasquerade)
	mesh.VM.Mesh = true
	return map[string]plan.Input{
		"masquerade": machine(model.VMMasquerade), "listed": listed, "mesh": mesh, "bridge": machine(model.VMBridge),
		"queues":  queues,
		"several": machine(model.VMMasquerade, model.VMBridge), "managed": machine(model.VMManagedTap, model.VMManagedTap),
		"direct": machine(model.VMDirect), "directs": machine(model.VMDirect, model.VMDirect),
	}
}

// TestStartAndUndo: what is in the pod is what the plan says, a second time changes nothing, and undo gives the pod's
// network back.
func TestStartAndUndo(t *testing.T) {
	for attached, attach := range worlds() {
		for name, in := range machines() {
			t.Run(attached+"/"+name, func(t *testing.T) {
				w := newWorld(t)
				attach(w)
				before := w.looks()
				r := w.start(in)
				w.same(r)
				if n := w.writes(func(s kernel.Spaces) error { return applyAll(t.Context(), s, r) }); n > 0 {
					t.Errorf("a second pass wrote %d times", n)
				}
				after := w.looks()
				again := w.start(in)
				if d := cmp.Diff(r.Networks, again.Networks, comparers()); d != "" {
					t.Errorf("started again (-first +second):\n%s", d)
				}
				if d := cmp.Diff(after, w.looks()); d != "" {
					t.Errorf("started again (-first +second):\n%s", d)
				}
				w.undo()
				if d := cmp.Diff(before, w.looks()); d != "" {
					t.Errorf("the pod (-before +after):\n%s", d)
				}
				w.undo() // nothing is left to do
			})
		}
	}
}

// TestPlugAndUnplug: a network comes later, and goes while the others stay.
func TestPlugAndUnplug(t *testing.T) {
	w := newWorld(t)
	w.flannel()
	before := w.looks()
	w.start(machine(model.VMBridge))
	one := w.looks()
	both := machine(model.VMBridge, model.VMBridge)
	r := w.start(both)
	if w.same(r); len(r.Networks) != 2 {
		t.Errorf("networks: %+v", r.Networks)
	}
	both.VM.Interfaces[1].Absent = true
	w.same(w.start(both))
	if d := cmp.Diff(one, w.looks()); d != "" {
		t.Errorf("unplugged (-before +after):\n%s", d)
	}
	w.undo()
	if d := cmp.Diff(before, w.looks()); d != "" {
		t.Errorf("the pod (-before +after):\n%s", d)
	}
}

// TestUnpluggedAll: a machine that stays in its pod without any network leaves nothing of it changed, and gets one
// again.
func TestUnpluggedAll(t *testing.T) {
	for _, binding := range []model.VMBinding{model.VMBridge, model.VMMasquerade} {
		t.Run(string(binding), func(t *testing.T) {
			w := newWorld(t)
			w.flannel()
			settings := func() string {
				return nettest.Run(t, w.pod, "sysctl", "net.ipv4.ip_forward", "net.ipv4.conf.all.arp_ignore",
					"net.ipv6.conf.all.forwarding")
			}
			before, were := w.looks(), settings()
			w.start(machine(binding))
			one := w.looks()
			if settings() == were {
				t.Fatalf("nothing was set: %s", were)
			}
			none := machine(binding)
			none.VM.Interfaces[0].Absent = true
			for range 2 {
				if r := w.start(none); len(r.Networks) > 0 {
					t.Errorf("networks: %+v", r.Networks)
				}
				if d := cmp.Diff(before, w.looks()); d != "" {
					t.Errorf("the pod (-before +after):\n%s", d)
				}
				if got := settings(); got != were {
					t.Errorf("settings were\n%sand are\n%s", were, got)
				}
			}
			w.same(w.start(machine(binding)))
			if d := cmp.Diff(one, w.looks()); d != "" {
				t.Errorf("plugged again (-first +second):\n%s", d)
			}
			w.undo()
			if d := cmp.Diff(before, w.looks()); d != "" || settings() != were {
				t.Errorf("the pod (-before +after):\n%s\n%s", d, settings())
			}
		})
	}
}

// TestChanged: what a machine that runs cannot change is refused, and stays as it is.
func TestChanged(t *testing.T) {
	w := newWorld(t)
	w.flannel()
	r := w.start(machine(model.VMBridge))
	twin := machine(model.VMBridge, model.VMBridge)
	twin.VM.Interfaces[1].MAC = r.Networks[0].Device.MAC
	for want, in := range map[string]plan.Input{
		`spec.domain.devices.interfaces[0]: network "default" is bound by bridge in the pod, not by masquerade (stop the machine first)`: machine(model.VMMasquerade),
		`spec.domain.devices.interfaces[1].macAddress: ` + r.Networks[0].Device.MAC +
			` is the address of interface "default" already (choose another one)`: twin,
	} {
		if _, err := w.Start(t.Context(), w.pod, "pod1", in); err == nil || err.Error() != want {
			t.Errorf("\n got %v\nwant %s", err, want)
		}
		w.same(r)
	}
}

// TestOrdinal: in a pod whose links are numbered the one that comes later has its own number.
func TestOrdinal(t *testing.T) {
	w := newWorld(t)
	w.flannel()
	w.ip(w.pod, "link set "+blueLink+" down")
	w.ip(w.pod, "link set "+blueLink+" name net1")
	w.start(machine(model.VMMasquerade))
	r := w.start(machine(model.VMMasquerade, model.VMBridge))
	if w.same(r); r.Networks[1].PodLink != "net1" || r.Networks[1].Device.Target != "tap1" {
		t.Errorf("%+v", r.Networks[1])
	}
}

// TestNewPod: a machine that is in two pods, as one that moves is, is remembered of each by itself.
func TestNewPod(t *testing.T) {
	w := newWorld(t)
	w.flannel()
	before := w.looks()
	w.start(machine(model.VMMasquerade))
	next := newWorld(t)
	next.routed()
	next.Dir = w.Dir
	r, err := next.Start(t.Context(), next.pod, "pod2", machine(model.VMBridge))
	if err != nil || len(r.Networks) != 1 || r.Networks[0].Interface.Binding != model.VMBridge {
		t.Fatalf("%+v %v", r, err)
	}
	next.same(r)
	if _, _, err := w.Read("shop/vm1", ""); err == nil ||
		err.Error() != "machine shop/vm1 is in the pods pod1 and pod2 (say which of them is meant)" {
		t.Errorf("%v", err)
	}
	if err := w.Undo(t.Context(), w.pod, "pod1", "shop/vm1"); err != nil {
		t.Error(err)
	}
	if d := cmp.Diff(before, w.looks()); d != "" {
		t.Errorf("the first pod (-before +after):\n%s", d)
	}
	if r, found, err := w.Read("shop/vm1", ""); err != nil || !found || r.In != "pod2" {
		t.Errorf("%+v %v %v", r, found, err)
	}
	if err := w.Undo(t.Context(), nil, "pod2", "shop/vm1"); err != nil { // a pod that is gone needs nothing
		t.Error(err)
	}
	if r, err = next.Start(t.Context(), next.pod, "pod3", machine(model.VMMasquerade)); err == nil {
		t.Errorf("links of which nothing is recorded were taken: %+v", r)
	}
}

// TestOtherBoot: what was recorded before the node booted is void, and goes.
func TestOtherBoot(t *testing.T) {
	w := newWorld(t)
	w.flannel()
	w.Boot = "one"
	w.start(machine(model.VMMasquerade))
	next := newWorld(t)
	next.flannel()
	next.Dir, next.Boot = w.Dir, "two"
	if _, found, err := next.Read("shop/vm1", "pod1"); found || err != nil {
		t.Errorf("%v %v", found, err)
	}
	if all, err := next.List(); len(all) > 0 || err != nil {
		t.Errorf("%v %v", all, err)
	}
	next.same(next.start(machine(model.VMMasquerade)))
	next.undo()
}

// TestRefused: what cannot be is told with its field, and the pod's network is as it was.
func TestRefused(t *testing.T) {
	const nic = `spec.domain.devices.interfaces[0]`
	for name, c := range map[string]struct {
		spoil func(*world)
		want  string
	}{
		"no link": {
			func(w *world) { w.ip(w.pod, "link del eth0") },
			nic + `.name: network "default": the pod has no link eth0 (the pod must be attached to the network first)`,
		},
		"tap": {
			func(w *world) { w.ip(w.pod, "tuntap add tap0 mode tap user 0") },
			nic +
				`.name: network "default": the pod has a link tap0 already (tun) (take it away, or start the machine in a pod of its own)`,
		},
		"bridge": {
			func(w *world) { w.ip(w.pod, "link add k6t-eth0 type bridge") },
			nic +
				`.name: network "default": the pod has a link k6t-eth0 already (bridge) (take it away, or start the machine in a pod of its own)`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.flannel()
			c.spoil(w)
			before := w.looks()
			_, err := w.Start(t.Context(), w.pod, "pod1", machine(model.VMBridge))
			var fault *model.Fault
			if !errors.As(err, &fault) || err.Error() != c.want {
				t.Errorf("\n got %v\nwant %s", err, c.want)
			}
			if d := cmp.Diff(before, w.looks()); d != "" {
				t.Errorf("the pod (-before +after):\n%s", d)
			}
		})
	}
}

// TestVanished: a link that goes between the look and the act is told, and what was made is taken back.
func TestVanished(t *testing.T) {
	w := newWorld(t)
	w.flannel()
	w.Step = func(name string) error {
		if name == "apply" {
			w.ip(w.pod, "link del eth0")
		}
		return nil
	}
	_, err := w.Start(t.Context(), w.pod, "pod1", machine(model.VMBridge))
	if err == nil ||
		!strings.Contains(err.Error(),
			`spec.domain.devices.interfaces[0]: network "default": pod: link eth0 does not exist`) {
		t.Errorf("%v", err)
	}
	if out := nettest.Run(t, w.pod, "ip", "-br", "link"); strings.Contains(out, "tap0") || strings.Contains(out, "k6t") {
		t.Errorf("left: %s", out)
	}
	w.Step = nil
	w.undo()
}

// TestErrorAtEveryStep: whatever fails, the pod's network is as it was.
func TestErrorAtEveryStep(t *testing.T) {
	w := newWorld(t)
	w.flannel()
	in, before := machine(model.VMBridge, model.VMBridge), w.looks()
	errStep := errors.New("not today")
	for k := 0; ; k++ {
		left, at := k, ""
		w.Step = func(name string) error {
			if left--; left == -1 {
				at = name
				return errStep
			}
			return nil
		}
		_, err := w.Start(t.Context(), w.pod, "pod1", in)
		if at == "" {
			t.Logf("%d steps", k)
			break
		}
		if !errors.Is(err, errStep) {
			t.Fatalf("step %d (%s): %v", k, at, err)
		}
		if d := cmp.Diff(before, w.looks()); d != "" {
			t.Fatalf("step %d (%s) (-before +after):\n%s", k, at, d)
		}
	}
	w.Step = nil
	w.undo()
}

// TestOneAtATime: a call waits for another one about the same machine, as long as it may.
func TestOneAtATime(t *testing.T) {
	w := newWorld(t)
	unlock, err := w.lock(t.Context(), "shop/vm1")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	_, err = w.Start(ctx, w.pod, "pod1", machine(model.VMBridge))
	var fault *model.Fault
	if !errors.As(err, &fault) || fault.Code != model.CodeTryAgain {
		t.Errorf("%v", err)
	}
	unlock()
	w.flannel()
	w.start(machine(model.VMBridge))
}

// TestDummyStandIn: what keeps the name of the pod's link is a dummy where the kernel has one, else a bridge, or a
// bridge where that is asked for; all stay down.
func TestDummyStandIn(t *testing.T) {
	for _, kind := range []state.Kind{state.Dummy, state.Bridge} {
		w := newWorld(t)
		w.flannel()
		in := machine(model.VMBridge)
		in.StandIn = kind
		r := w.start(in)
		w.same(r)
		if _, err := nettest.Try(w.far, "ip", "link", "add", "probe", "type", "dummy"); err != nil {
			kind = state.Bridge
		}
		if links := r.Networks[0].Fragment.Pod.Links; links[len(links)-1].Kind != kind {
			t.Errorf("it is %s, want %s", links[len(links)-1], kind)
		}
		if out := nettest.Run(t, w.pod, "ip", "-br", "link", "show", "eth0"); !strings.Contains(out, "DOWN") {
			t.Errorf("%s: %s", kind, out)
		}
	}
}
