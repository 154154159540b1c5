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

// worlds returns the ways to attach a pod.
func worlds() map[string]func(*world) {
	return map[string]func(*world){"flannel": (*world).flannel, "routed": (*world).routed}
}

func testInputs() map[string]plan.Input {
	listed, queues := testInput(model.VMMasquerade), testInput(model.VMBridge)
	listed.VM.Interfaces[0].Ports = []model.VMPortRange{
		{Protocol: "tcp", First: 80, Last: 90}, {Protocol: "udp", First: 53, Last: 53},
	}
	listed.VM.MigrationPorts = []uint16{49152, 49153}
	queues.VM.Queues, queues.SoftChecksums = 4, true
	mesh := testInput(model.VMMasquerade)
	mesh.VM.ServiceMesh = true
	return map[string]plan.Input{
		"masquerade": testInput(model.VMMasquerade), "listed": listed, "mesh": mesh, "bridge": testInput(model.VMBridge),
		"queues":  queues,
		"several": testInput(model.VMMasquerade, model.VMBridge), "managed": testInput(model.VMManagedTap, model.VMManagedTap),
		"direct": testInput(model.VMDirect), "directs": testInput(model.VMDirect, model.VMDirect),
	}
}

// TestStartAndUndo: the pod matches the plan, a second start writes nothing, and undo restores the pod's network.
func TestStartAndUndo(t *testing.T) {
	for attached, attach := range worlds() {
		for name, in := range testInputs() {
			t.Run(attached+"/"+name, func(t *testing.T) {
				w := newWorld(t)
				attach(w)
				before := w.dump()
				r := w.start(in)
				w.expectApplied(r)
				if n := w.writes(func(s kernel.Spaces) error { return applyAll(t.Context(), s, r) }); n > 0 {
					t.Errorf("a second pass wrote %d times", n)
				}
				after := w.dump()
				again := w.start(in)
				if d := cmp.Diff(r.Networks, again.Networks, comparers()); d != "" {
					t.Errorf("started again (-first +second):\n%s", d)
				}
				if d := cmp.Diff(after, w.dump()); d != "" {
					t.Errorf("started again (-first +second):\n%s", d)
				}
				w.undo()
				if d := cmp.Diff(before, w.dump()); d != "" {
					t.Errorf("the pod (-before +after):\n%s", d)
				}
				w.undo() // nothing is left to do
			})
		}
	}
}

// TestPlugAndUnplug: a network is added, and removed while the others stay.
func TestPlugAndUnplug(t *testing.T) {
	w := newWorld(t)
	w.flannel()
	before := w.dump()
	w.start(testInput(model.VMBridge))
	one := w.dump()
	both := testInput(model.VMBridge, model.VMBridge)
	r := w.start(both)
	if w.expectApplied(r); len(r.Networks) != 2 {
		t.Errorf("networks: %+v", r.Networks)
	}
	both.VM.Interfaces[1].Absent = true
	w.expectApplied(w.start(both))
	if d := cmp.Diff(one, w.dump()); d != "" {
		t.Errorf("unplugged (-before +after):\n%s", d)
	}
	w.undo()
	if d := cmp.Diff(before, w.dump()); d != "" {
		t.Errorf("the pod (-before +after):\n%s", d)
	}
}

// TestUnpluggedAll: a VM that stays in its pod without networks leaves nothing changed, and can get a network again.
func TestUnpluggedAll(t *testing.T) {
	for _, binding := range []model.VMBinding{model.VMBridge, model.VMMasquerade} {
		t.Run(string(binding), func(t *testing.T) {
			w := newWorld(t)
			w.flannel()
			settings := func() string {
				return nettest.Run(t, w.pod, "sysctl", "net.ipv4.ip_forward", "net.ipv4.conf.all.arp_ignore",
					"net.ipv6.conf.all.forwarding")
			}
			before, were := w.dump(), settings()
			w.start(testInput(binding))
			one := w.dump()
			if settings() == were {
				t.Fatalf("nothing was set: %s", were)
			}
			none := testInput(binding)
			none.VM.Interfaces[0].Absent = true
			for range 2 {
				if r := w.start(none); len(r.Networks) > 0 {
					t.Errorf("networks: %+v", r.Networks)
				}
				if d := cmp.Diff(before, w.dump()); d != "" {
					t.Errorf("the pod (-before +after):\n%s", d)
				}
				if got := settings(); got != were {
					t.Errorf("settings were\n%sand are\n%s", were, got)
				}
			}
			w.expectApplied(w.start(testInput(binding)))
			if d := cmp.Diff(one, w.dump()); d != "" {
				t.Errorf("plugged again (-first +second):\n%s", d)
			}
			w.undo()
			if d := cmp.Diff(before, w.dump()); d != "" || settings() != were {
				t.Errorf("the pod (-before +after):\n%s\n%s", d, settings())
			}
		})
	}
}

// TestChanged: a change that a running VM does not support is refused, and nothing changes.
func TestChanged(t *testing.T) {
	w := newWorld(t)
	w.flannel()
	r := w.start(testInput(model.VMBridge))
	twin := testInput(model.VMBridge, model.VMBridge)
	twin.VM.Interfaces[1].MAC = r.Networks[0].Device.MAC
	for want, in := range map[string]plan.Input{
		`spec.domain.devices.interfaces[0]: network "default" is bound by bridge in the pod, not by masquerade (stop the VM first)`: testInput(model.VMMasquerade),
		`spec.domain.devices.interfaces[1].macAddress: ` + r.Networks[0].Device.MAC +
			` is already the address of interface "default" (choose another one)`: twin,
	} {
		if _, err := w.Start(t.Context(), w.pod, "pod1", in); err == nil || err.Error() != want {
			t.Errorf("\n got %v\nwant %s", err, want)
		}
		w.expectApplied(r)
	}
}

// TestOrdinal: in a pod with ordinal link names a network that is added later has its own number.
func TestOrdinal(t *testing.T) {
	w := newWorld(t)
	w.flannel()
	w.ip(w.pod, "link set "+blueLink+" down")
	w.ip(w.pod, "link set "+blueLink+" name net1")
	w.start(testInput(model.VMMasquerade))
	r := w.start(testInput(model.VMMasquerade, model.VMBridge))
	if w.expectApplied(r); r.Networks[1].PodLink != "net1" || r.Networks[1].Device.Target != "tap1" {
		t.Errorf("%+v", r.Networks[1])
	}
}

// TestNewPod: a VM in two pods, as during a live migration, has a record for each.
func TestNewPod(t *testing.T) {
	w := newWorld(t)
	w.flannel()
	before := w.dump()
	w.start(testInput(model.VMMasquerade))
	next := newWorld(t)
	next.routed()
	next.Dir = w.Dir
	r, err := next.Start(t.Context(), next.pod, "pod2", testInput(model.VMBridge))
	if err != nil || len(r.Networks) != 1 || r.Networks[0].Interface.Binding != model.VMBridge {
		t.Fatalf("%+v %v", r, err)
	}
	next.expectApplied(r)
	if _, _, err := w.Read("shop/vm1", ""); err == nil ||
		err.Error() != "VM shop/vm1 is in the pods pod1 and pod2 (choose one of them)" {
		t.Errorf("%v", err)
	}
	if err := w.Undo(t.Context(), w.pod, "pod1", "shop/vm1"); err != nil {
		t.Error(err)
	}
	if d := cmp.Diff(before, w.dump()); d != "" {
		t.Errorf("the first pod (-before +after):\n%s", d)
	}
	if r, found, err := w.Read("shop/vm1", ""); err != nil || !found || r.PodID != "pod2" {
		t.Errorf("%+v %v %v", r, found, err)
	}
	if err := w.Undo(t.Context(), nil, "pod2", "shop/vm1"); err != nil { // a pod that is gone needs nothing
		t.Error(err)
	}
	if r, err = next.Start(t.Context(), next.pod, "pod3", testInput(model.VMMasquerade)); err == nil {
		t.Errorf("links without a record were adopted: %+v", r)
	}
}

// TestOtherBoot: a record of an earlier boot is void, and is deleted.
func TestOtherBoot(t *testing.T) {
	w := newWorld(t)
	w.flannel()
	w.Boot = "one"
	w.start(testInput(model.VMMasquerade))
	next := newWorld(t)
	next.flannel()
	next.Dir, next.Boot = w.Dir, "two"
	if _, found, err := next.Read("shop/vm1", "pod1"); found || err != nil {
		t.Errorf("%v %v", found, err)
	}
	if all, err := next.List(); len(all) > 0 || err != nil {
		t.Errorf("%v %v", all, err)
	}
	next.expectApplied(next.start(testInput(model.VMMasquerade)))
	next.undo()
}

// TestRefused: an error names its field, and the pod's network is unchanged.
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
				`.name: network "default": the pod already has a link tap0 (tun) (delete it, or start the VM in a pod of its own)`,
		},
		"bridge": {
			func(w *world) { w.ip(w.pod, "link add k6t-eth0 type bridge") },
			nic +
				`.name: network "default": the pod already has a link k6t-eth0 (bridge) (delete it, or start the VM in a pod of its own)`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.flannel()
			c.spoil(w)
			before := w.dump()
			_, err := w.Start(t.Context(), w.pod, "pod1", testInput(model.VMBridge))
			var fault *model.Error
			if !errors.As(err, &fault) || err.Error() != c.want {
				t.Errorf("\n got %v\nwant %s", err, c.want)
			}
			if d := cmp.Diff(before, w.dump()); d != "" {
				t.Errorf("the pod (-before +after):\n%s", d)
			}
		})
	}
}

// TestVanished: a link that vanishes after it was observed is an error, and the call is rolled back.
func TestVanished(t *testing.T) {
	w := newWorld(t)
	w.flannel()
	w.Step = func(name string) error {
		if name == "apply" {
			w.ip(w.pod, "link del eth0")
		}
		return nil
	}
	_, err := w.Start(t.Context(), w.pod, "pod1", testInput(model.VMBridge))
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

// TestErrorAtEveryStep: a failure at any step leaves the pod's network unchanged.
func TestErrorAtEveryStep(t *testing.T) {
	w := newWorld(t)
	w.flannel()
	in, before := testInput(model.VMBridge, model.VMBridge), w.dump()
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
		if d := cmp.Diff(before, w.dump()); d != "" {
			t.Fatalf("step %d (%s) (-before +after):\n%s", k, at, d)
		}
	}
	w.Step = nil
	w.undo()
}

// TestOneAtATime: a call waits for another one for the same VM until its context ends.
func TestOneAtATime(t *testing.T) {
	w := newWorld(t)
	unlock, err := w.lock(t.Context(), "shop/vm1")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	_, err = w.Start(ctx, w.pod, "pod1", testInput(model.VMBridge))
	var fault *model.Error
	if !errors.As(err, &fault) || fault.Code != model.CodeTryAgain {
		t.Errorf("%v", err)
	}
	unlock()
	w.flannel()
	w.start(testInput(model.VMBridge))
}

// TestDummyStandIn: a dummy keeps the name of the pod's link if the kernel has dummies, else a bridge, or a bridge if
// the input asks for it; all stay down.
func TestDummyStandIn(t *testing.T) {
	for _, kind := range []state.Kind{state.Dummy, state.Bridge} {
		w := newWorld(t)
		w.flannel()
		in := testInput(model.VMBridge)
		in.StandIn = kind
		r := w.start(in)
		w.expectApplied(r)
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
