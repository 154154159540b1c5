// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/endpoint/ledger"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	plan "github.com/weft-net/weft/internal/plan/vm"
	"github.com/weft-net/weft/internal/vm/host"
	"github.com/weft-net/weft/internal/vm/phase1"
)

const (
	vmKey    = "shop/vm1"
	guestMAC = "52:54:00:12:34:56"
)

// vmInput is a VM with one interface on the pod's network.
func vmInput(binding model.VMBinding) plan.Input {
	return plan.Input{VM: model.VM{
		Namespace: "shop", Name: "vm1", Path: "spec", Hostname: "vm1", Interfaces: []model.VMInterface{{
			Name: "default", Binding: binding, Model: "virtio", Network: model.VMNetwork{
				Name: "default", Primary: true, Pod: true, CIDR4: netip.MustParsePrefix("10.0.2.0/24"),
				CIDR6: netip.MustParsePrefix("fd10:0:2::/120"),
			},
		}},
	}}
}

// vms requests the VMs from the world's agent.
func (w *world) vms() host.Host {
	w.t.Helper()
	var h host.Host
	w.whole("the agent answers", func() (err error) { // a busy one may not answer a ping in 400 ms
		h, err = host.Open(w.ctx(), host.Config{Socket: w.socket(), Dir: w.path("none"), Log: slog.New(slog.DiscardHandler)})
		return err
	})
	if _, local := h.(*host.Local); local {
		w.t.Fatal("the agent was not found")
	}
	return h
}

func (w *world) startVM(ns *netns.NS, in plan.Input) phase1.Record {
	w.t.Helper()
	r, err := w.vms().Start(w.ctx(), host.Pod{NS: ns}, in)
	if err != nil {
		w.t.Fatalf("%v\n%s", err, w.log())
	}
	return r
}

func (w *world) stopVM(ns *netns.NS) {
	w.t.Helper()
	if err := w.vms().Stop(w.ctx(), host.Pod{NS: ns}, vmKey); err != nil {
		w.t.Fatal(err)
	}
	w.noVMs()
}

// noVMs expects that no VM is recorded.
func (w *world) noVMs() {
	w.t.Helper()
	if left, _ := filepath.Glob(w.path("state", "vm", "*")); len(left) > 0 {
		w.t.Errorf("left: %q", left)
	}
	if left, err := w.vms().List(w.ctx()); err != nil || len(left) > 0 {
		w.t.Errorf("left: %v (%v)", left, err)
	}
}

// inPod is all that is in a pod's namespace.
func inPod(t *testing.T, ns *netns.NS) string {
	t.Helper()
	detected(t, ns)
	var b strings.Builder
	for _, line := range []string{
		"ip -o -d link", "ip -o addr", "ip route show table all", "ip -6 route show table all", "ip neigh show nud permanent",
		"nft list ruleset",
		"sysctl net.ipv4.ip_forward net.ipv4.conf.all.arp_ignore net.ipv6.conf.all.forwarding",
	} {
		b.WriteString(nettest.Run(t, ns, strings.Fields(line)...))
	}
	return counters(b.String())
}

// counters removes the packet counters of rules, and the state of duplicate address detection.
func counters(text string) string {
	return regexp.MustCompile(`packets \d+ bytes \d+| tentative`).ReplaceAllString(text, "")
}

// attached is a pod that is attached to a network.
func (w *world) attached(network string) (*libcni.NetworkConfigList, *netns.NS) {
	w.t.Helper()
	nettest.Need(w.t, "tap")
	list, ns := w.list("1.1.0", w.routedOr(network)), nettest.NS(w.t, "pod")
	if _, err := w.add(list, "c1", ns); err != nil {
		w.t.Fatal(err)
	}
	return list, ns
}

// TestVM: a pod with a VM has the expected state, also for a restarted agent, and a repeated ADD has the same
// result; when the VM has ended, the pod is as before.
func TestVM(t *testing.T) {
	nettest.EndToEnd(t)
	for _, network := range []string{"bridge", "ptp", "guarded", "routed"} {
		for _, binding := range []model.VMBinding{model.VMBridge, model.VMMasquerade, model.VMDirect} {
			if binding == model.VMDirect && network != "routed" {
				continue
			}
			owns := binding != model.VMMasquerade // the pod's place on the wire
			t.Run(network+"/"+string(binding), func(t *testing.T) {
				w := newWorld(t)
				w.start()
				list, ns := w.attached(network)
				before, node := inPod(t, ns), counters(w.host())
				in := vmInput(binding)
				if network == "routed" { // where the node knows the pod's link by what was set
					in.VM.Interfaces[0].MAC = guestMAC
				}
				w.startVM(ns, in)
				if known := nettest.Run(t, w.node, "ip", "neigh", "show", "nud", "permanent"); owns && network == "routed" &&
					!strings.Contains(known, "10.9.0.2 ") || strings.Contains(known, guestMAC) != (owns && network == "routed") {
					t.Errorf("the node knows %s", known)
				}
				if own := nettest.Run(t, w.node, "nft", "list", "ruleset"); owns && network == "routed" &&
					strings.Count(own, guestMAC+" . 10.9.0.2") != 2 { // for IP and for ARP
					t.Errorf("who may speak: %s", own)
				}
				good := func(when string) {
					t.Helper()
					if err := w.check(list, "c1", ns); err != nil {
						t.Errorf("CHECK %s: %v", when, err)
					}
					if _, err := w.add(list, "c1", ns); err != nil {
						t.Errorf("the same ADD %s: %v", when, err)
					}
				}
				good("with the machine")
				w.kill()
				w.start()
				good("after the agent was killed")
				nettest.Run(t, ns, "ip", "link", "del", "tap0")
				if err := w.check(list, "c1", ns); code(err) != uint(model.CodeDiffers) || !strings.Contains(err.Error(), "tap0") {
					t.Errorf("CHECK without the tap: %v", err)
				}
				w.stopVM(ns)
				if diff := w.reads(func() string { return inPod(t, ns) }, before); diff != "" {
					t.Errorf("in the pod, %s", diff)
				}
				// Multicast memberships and carriers follow.
				if diff := w.reads(func() string { return counters(w.host()) }, node); diff != "" {
					t.Errorf("on the node, %s", diff)
				}
				good("when the machine has left")
			})
		}
	}
}

// TestVMAndDel: DEL takes everything, whatever is left of the pod and whether or not there is an agent, and so
// does GC.
func TestVMAndDel(t *testing.T) {
	nettest.EndToEnd(t)
	w := newWorld(t)
	w.start()
	for how, del := range map[string]func(list *libcni.NetworkConfigList, ns *netns.NS){
		"a pod that lives": func(list *libcni.NetworkConfigList, ns *netns.NS) {
			if err := w.del(list, "c1", ns); err != nil {
				t.Error(err)
			}
			if left := nettest.Run(t, ns, "ip", "-o", "link"); strings.Contains(left, "tap0") || strings.Contains(left, "k6t") {
				t.Errorf("left: %s", left)
			}
		},
		"a pod that is gone": func(list *libcni.NetworkConfigList, ns *netns.NS) {
			if err := netns.Remove(ns.Path()); err != nil {
				t.Fatal(err)
			}
			if err := w.del(list, "c1", ns); err != nil {
				t.Error(err)
			}
		},
		"an agent that was away": func(list *libcni.NetworkConfigList, ns *netns.NS) {
			w.kill()
			if err := w.del(list, "c1", ns); err != nil {
				t.Error(err)
			}
			w.start()
		},
		"garbage collection": func(list *libcni.NetworkConfigList, _ *netns.NS) { w.gc(list) },
	} {
		t.Run(how, func(t *testing.T) {
			was := w.t
			w.t = t
			defer func() { w.t = was }()
			before := w.host()
			list, ns := w.attached("bridge")
			w.startVM(ns, vmInput(model.VMBridge))
			del(list, ns)
			if diff := w.settled(before); diff != "" {
				t.Errorf("left behind: %s", diff)
			}
			w.noVMs()
		})
	}
}

// TestNamespaceOfVMEnds: the namespace of a pod with a VM that is deleted without a DEL ends, and with it its links on
// the node; the DEL that comes later leaves nothing.
func TestNamespaceOfVMEnds(t *testing.T) {
	nettest.EndToEnd(t)
	w := newWorld(t)
	w.start()
	before := w.host()
	list, ns := w.attached("bridge")
	w.startVM(ns, vmInput(model.VMMasquerade))
	if err := errors.Join(ns.Close(), netns.Remove(ns.Path())); err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		links := nettest.Run(t, w.node, "ip", "-o", "link", "show", "type", "veth")
		if links == "" {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("the namespace lives on: %s", links)
		}
	}
	if err := w.del(list, "c1", ns); err != nil {
		t.Error(err)
	}
	if diff := w.settled(before); diff != "" {
		t.Errorf("left behind: %s", diff)
	}
	w.noVMs()
}

// TestVMKilledAtEveryStep: an agent that is killed at any step of phase 1, or of its end, leaves a pod with the
// whole VM or nothing of it once the next agent runs, and whose DEL leaves nothing.
func TestVMKilledAtEveryStep(t *testing.T) {
	nettest.EndToEnd(t)
	w := newWorld(t)
	w.start()
	list, ns := w.attached("bridge")
	before := inPod(t, ns)
	w.startVM(ns, vmInput(model.VMBridge))
	steps := map[string]int{}
	for _, call := range []string{"stop", "start"} {
		for k := 0; ; k++ {
			if err := os.WriteFile(w.path("step"), []byte(strconv.Itoa(k)), 0o600); err != nil {
				t.Fatal(err)
			}
			h, err := w.vms(), error(nil)
			if call == "stop" {
				err = h.Stop(w.ctx(), host.Pod{NS: ns}, vmKey)
			} else {
				_, err = h.Start(w.ctx(), host.Pod{NS: ns}, vmInput(model.VMBridge))
			}
			died := !w.alive(err != nil)
			_ = os.Remove(w.path("step"))
			if died {
				w.start()
				steps[call]++
			} else if err != nil {
				t.Fatalf("%s, step %d: %v", call, k, err)
			}
			if err := w.check(list, "c1", ns); err != nil {
				t.Errorf("%s, step %d: CHECK: %v", call, k, err)
			}
			_, whole, err := w.vms().Find(w.ctx(), vmKey)
			if err != nil {
				t.Fatal(err)
			}
			if !whole {
				if diff := w.reads(func() string { return inPod(t, ns) }, before); diff != "" {
					t.Fatalf("%s, step %d: %s", call, k, diff)
				}
			}
			if !died {
				break
			}
			if call == "stop" {
				w.startVM(ns, vmInput(model.VMBridge))
			} else {
				w.stopVM(ns)
			}
		}
	}
	t.Logf("killed at %v", steps)
	if steps["start"] < 5 || steps["stop"] < 5 {
		t.Errorf("too few steps: %v", steps)
	}
	w.stopVM(ns)
}

// TestVMOfAnEarlierVersion: an agent takes over a VM whose record an earlier version has written to a file.
func TestVMOfAnEarlierVersion(t *testing.T) {
	nettest.EndToEnd(t)
	w := newWorld(t)
	w.start()
	list, ns := w.attached("bridge")
	before := inPod(t, ns)
	r := w.startVM(ns, vmInput(model.VMBridge))
	with := counters(nettest.Run(t, ns, "ip", "-o", "addr"))
	w.kill()
	l, err := ledger.Open(w.path("state"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(l.VMs().Delete(attach.VMKey(r.VM, r.PodID)), l.Close()); err != nil {
		t.Fatal(err)
	}
	r.Version = 1
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(w.path("state", "vm"), 0o700); err != nil {
		t.Fatal(err)
	}
	file := w.path("state", "vm", "shop,vm1,"+r.PodID+".json")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	w.start()
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the file: %v", err)
	}
	if now, found, err := w.vms().Find(w.ctx(), vmKey); err != nil || !found || now.Unfinished() {
		t.Errorf("%+v %t %v", now, found, err)
	}
	if err := w.check(list, "c1", ns); err != nil {
		t.Errorf("CHECK: %v", err)
	}
	if after := counters(nettest.Run(t, ns, "ip", "-o", "addr")); after != with {
		t.Errorf("before:\n%s\nafter:\n%s", with, after)
	}
	w.stopVM(ns)
	if diff := w.reads(func() string { return inPod(t, ns) }, before); diff != "" {
		t.Error(diff)
	}
}
