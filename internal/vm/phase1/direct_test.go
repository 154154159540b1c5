// SPDX-License-Identifier: Apache-2.0

package phase1

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	plan "github.com/weft-net/weft/internal/plan/vm"
	"github.com/weft-net/weft/internal/state"
)

// TestDirect: the guest has the pod's address and link, also where it is routed; the pod keeps all of its
// configuration.
func TestDirect(t *testing.T) {
	for name, attach := range worlds() {
		for _, how := range state.JoinMethods() {
			t.Run(name+"/"+string(how), func(t *testing.T) { direct(t, name, attach, how, "") })
			// At a routed veth the agent sets the neighbor entry, else the node's kernel resolves it after seconds.
			if name == "flannel" {
				t.Run(name+"/"+string(how)+"/another MAC", func(t *testing.T) { direct(t, name, attach, how, "52:54:00:12:34:56") })
			}
		}
	}
}

func direct(t *testing.T, name string, attach func(*world), how state.JoinMethod, mac string) {
	w := newWorld(t)
	attach(w)
	far := "169.254.1.1"
	if name == "flannel" {
		far = "10.244.1.1"
	}
	before := w.dump()
	in := testInput(model.VMDirect)
	in.Join, in.VM.Interfaces[0].MAC = how, mac
	guest := w.bootOrSkip(in)
	if mac != "" && !strings.Contains(nettest.Run(t, guest, "ip", "link", "show", "eth0"), mac) {
		t.Error("the guest has another MAC than the manifest's")
	}
	w.serve(guest, ":80", "guest")
	w.serve(w.pod, ":80", "pod")
	w.serve(w.far, ":81", "far")
	w.ping(guest, far)
	w.expectReply(guest, far+":81", "far 10.244.1.5")
	w.expectReply(w.far, "10.244.1.5:80", "guest "+far)
	if name == "flannel" {
		w.ping(guest, "fd00:1::1")
		w.expectReply(guest, "[fd00:1::1]:81", "far fd00:1::5")
		w.expectReply(w.far, "[fd00:1::5]:80", "guest fd00:1::1")
	}
	for line := range strings.Lines(before) {
		if !strings.Contains(w.dump(), line) {
			t.Errorf("the pod has lost: %s", line)
		}
	}
	w.undo()
	if d := cmp.Diff(before, w.dump()); d != "" {
		t.Errorf("after undo (-before +after):\n%s", d)
	}
}

// TestRejoin: a join with one end or both removed is repaired; a complete join is not written.
func TestRejoin(t *testing.T) {
	for _, how := range state.JoinMethods() {
		t.Run(string(how), func(t *testing.T) {
			w := newWorld(t)
			w.routed()
			in := testInput(model.VMDirect)
			in.Join = how
			guest := w.bootOrSkip(in)
			w.ping(guest, "169.254.1.1")
			r, found, err := w.Read(in.VM.Key(), "pod1")
			if err != nil || !found {
				t.Fatal(err)
			}
			for _, link := range []string{"eth0", "tap0"} {
				w.removeJoin(how, link)
				if cut, err := Rejoin(t.Context(), w.pod, r.Joins()); err != nil || len(cut) != 1 {
					t.Errorf("%s: repaired: %v: %v", link, cut, err)
				}
				w.ping(guest, "169.254.1.1")
				if cut, err := Rejoin(t.Context(), w.pod, r.Joins()); err != nil || len(cut) != 0 {
					t.Errorf("%s: repaired again: %v: %v", link, cut, err)
				}
			}
			w.ip(w.pod, "link del tap0")
			if cut, err := Rejoin(t.Context(), w.pod, r.Joins()); err != nil || len(cut) != 1 {
				t.Errorf("without a tap: %v: %v", cut, err)
			}
		})
	}
}

// removeJoin removes the join's filter at a link with the standard tool of the method.
func (w *world) removeJoin(how state.JoinMethod, link string) {
	w.t.Helper()
	if how == state.JoinForward {
		for line := range strings.Lines(nettest.Run(w.t, w.pod, "nft", "list", "tables", "netdev")) {
			nettest.Run(w.t, w.pod, append([]string{"nft", "delete"}, strings.Fields(line)...)...)
		}
		return
	}
	if out := nettest.Run(w.t, w.pod, "tc", "qdisc", "show", "dev", link); !strings.Contains(out, "ingress") {
		nettest.SkipMissing(w.t, "joins are not tc filters here, and no tool removes them")
	}
	nettest.Run(w.t, w.pod, "tc", "qdisc", "del", "dev", link, "ingress")
}

// bootOrSkip boots a VM, or skips the test if the kernel does not support the join method.
func (w *world) bootOrSkip(in plan.Input) *netns.NS {
	w.t.Helper()
	if _, err := w.Start(w.t.Context(), w.pod, "pod1", in); errors.Is(err, unix.EPERM) ||
		errors.Is(err, ebpf.ErrNotSupported) {
		nettest.SkipMissing(w.t, fmt.Sprintf("links cannot be joined by %s here: %v", in.Join, err))
	}
	return w.boot(in)
}

// TestDirectSubnet: a guest with a single address can get a subnet around it, whose other addresses it reaches through
// the gateway.
func TestDirectSubnet(t *testing.T) {
	for _, how := range state.JoinMethods() {
		t.Run(string(how), func(t *testing.T) {
			w := newWorld(t)
			w.routed()
			w.ip(w.far, "addr add 10.244.1.77/32 dev lo")
			w.ip(w.far, "link set lo up")
			in := testInput(model.VMDirect)
			in.Join, in.SubnetBits = how, 24
			guest := w.bootOrSkip(in)
			w.serve(w.far, ":81", "far")
			w.ping(guest, "10.244.1.77")
			w.expectReply(guest, "169.254.1.1:81", "far 10.244.1.5")
			out := nettest.Run(t, guest, "sh", "-c", "ip -br addr show eth0; ip route")
			for _, want := range []string{"10.244.1.5/24", "default via 10.244.1.1 dev eth0"} {
				if !strings.Contains(out, want) {
					t.Errorf("no %q in\n%s", want, out)
				}
			}
			if mac := neighbor(t, guest, "10.244.1.77"); mac == "" {
				t.Errorf("no neighbor has answered for 10.244.1.77")
			}
		})
	}
}

// neighbor returns the MAC address in a guest's neighbor entry.
func neighbor(t *testing.T, guest *netns.NS, ip string) string {
	t.Helper()
	words := strings.Fields(nettest.Run(t, guest, "ip", "neigh", "show", ip))
	for i, word := range words {
		if word == "lladdr" && i+1 < len(words) {
			return words[i+1]
		}
	}
	return ""
}
