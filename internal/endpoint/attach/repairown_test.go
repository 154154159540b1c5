// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// TestPodsOwnChangesStay: what a pod changes on purpose is left, and what it takes away twice within ten minutes. Both
// are reported.
func TestPodsOwnChangesStay(t *testing.T) {
	n := newRepairNode(t, false)
	job := n.podJob(bridge, "web-0")
	result := n.add(job)
	key, host := job.Request.Key(), result.Interfaces[1].Name
	repair := func(want bool) {
		t.Helper()
		if repaired, err := n.Repair(t.Context(), key); err != nil || repaired != want {
			t.Errorf("repaired %v, want %v: %v", repaired, want, err)
		}
	}
	for _, own := range []drift{
		{name: "its MTU", pod: "ip link set eth0 mtu 1400"},
		{name: "a route", pod: "ip route add 198.51.100.0/24 dev eth0"},
		{name: "its gateway", pod: "ip route replace default via 10.8.0.9"},
		{name: "its MAC", pod: "ip link set eth0 address 02:00:00:00:00:09"},
		{name: "its name", pod: "ip link set eth0 name mine"},
	} {
		own.apply(t, host, "", job.Netns)
		before := network(t, job.Netns)
		repair(false)
		settled(t, own.name, before, job.Netns)
	}
	nettest.Run(t, job.Netns, "ip", "link", "set", "mine", "name", "eth0")
	repair(false)
	if n.events.Load() != 0 {
		t.Errorf("%d events about the pod's own changes", n.events.Load())
	}
	has := func() bool {
		return strings.Contains(nettest.Run(t, job.Netns, "ip", "addr"), result.IPs[0].Address.String())
	}
	take := func() { nettest.Run(t, job.Netns, "ip", "addr", "del", result.IPs[0].Address.String(), "dev", "eth0") }
	take()
	repair(true)
	if !has() {
		t.Error("the address is not put back")
	}
	take()
	for range 2 {
		repair(false)
	}
	n.pass()
	repair(false)
	if has() || n.events.Load() != 1 {
		t.Errorf("left and reported once: address there %v, %d events", has(), n.events.Load())
	}
	nettest.Run(t, job.Netns, "ip", "addr", "add", result.IPs[0].Address.String(), "dev", "eth0")
	repair(false)
	n.pass()
	take()
	n.Repair(t.Context(), key)
	if !has() {
		t.Error("the pod had it back: the address is not put back")
	}
	for range 3 { // on the node it is put back each time
		nettest.Run(t, nil, "ip", "link", "set", host, "down")
		repair(true)
	}
	if n.events.Load() != 2 {
		t.Errorf("%d events, want one more", n.events.Load())
	}
	if err := n.Del(t.Context(), job); err != nil {
		t.Error(err)
	}
	n.clean("DEL")
}

// TestForwardingStays: a routed pod begins without forwarding. What enables it there (KubeVirt, for a guest with masquerade)
// is not undone, by a repair or the same ADD again, and CHECK passes.
func TestForwardingStays(t *testing.T) {
	n := newRepairNode(t, true)
	job, result := n.routedPod(calico, "web-0")
	forwarding := func() string {
		return strings.Join(strings.Fields(nettest.Run(t, job.Netns, "sysctl", "-n", "net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding")), " ")
	}
	if got := forwarding(); got != "0 0" {
		t.Fatalf("a new pod forwards: %s", got)
	}
	nettest.Run(t, job.Netns, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
	if repaired, err := n.Repair(t.Context(), job.Request.Key()); err != nil || repaired {
		t.Errorf("repaired %v: %v", repaired, err)
	}
	// Another drift, which is repaired, does not take it along.
	nettest.Run(t, job.Netns, "ip", "route", "flush", "default")
	if repaired, err := n.Repair(t.Context(), job.Request.Key()); err != nil || !repaired {
		t.Errorf("a missing route: repaired %v: %v", repaired, err)
	}
	if again := n.add(job); again.IPs[0].Address != result.IPs[0].Address {
		t.Errorf("the same ADD again: %+v, first %+v", again, result)
	}
	job.Prev = &result
	if err := n.Check(t.Context(), job); err != nil {
		t.Errorf("CHECK: %v", err)
	}
	if got := forwarding(); got != "1 1" {
		t.Errorf("forwarding is %s after repairs, want 1 1", got)
	}
	if err := n.Del(t.Context(), job); err != nil {
		t.Error(err)
	}
	n.clean("DEL")
}

// TestDownAfterOwnChange: a link that the pod has changed on purpose, and that goes down later, is brought up again as
// the pod has changed it.
func TestDownAfterOwnChange(t *testing.T) {
	n := newRepairNode(t, false)
	job := n.podJob(bridge, "web-0")
	n.add(job)
	repair := func(want bool) {
		t.Helper()
		if repaired, err := n.Repair(t.Context(), job.Request.Key()); err != nil || repaired != want {
			t.Errorf("repaired %v, want %v: %v", repaired, want, err)
		}
	}
	nettest.Run(t, job.Netns, "ip", "link", "set", "eth0", "address", "02:00:00:00:00:09")
	repair(false)
	nettest.Run(t, job.Netns, "ip", "link", "set", "eth0", "down")
	repair(true)
	if is := nettest.Run(t, job.Netns, "ip", "link", "show", "eth0"); !strings.Contains(is, ",UP") ||
		!strings.Contains(is, "02:00:00:00:00:09") {
		t.Errorf("the link is %s", is)
	}
	repair(false)
	nettest.Run(t, job.Netns, "ip", "link", "set", "eth0", "down")
	repair(false) // the second time it is the pod's will
	if err := n.Del(t.Context(), job); err != nil {
		t.Error(err)
	}
	n.clean("DEL")
}

// TestNamespaceEnds: a namespace that is deleted while the reconciler watches it and repairs in it is gone, and with it
// its links on the node. What was of it is not made again.
func TestNamespaceEnds(t *testing.T) {
	n := newRepairNode(t, false)
	n.reconcile(t)
	for _, at := range []time.Duration{0, 5 * time.Millisecond, 30 * time.Millisecond, 60 * time.Millisecond} {
		job := n.podJob(bridge, "web-0")
		result := n.add(job)
		host := result.Interfaces[1].Name
		time.Sleep(at)
		nettest.Run(t, nil, "ip", "link", "set", host, "down")
		nettest.Run(t, job.Netns, "ip", "addr", "flush", "dev", "eth0")
		time.Sleep(at)
		if err := errors.Join(job.Netns.Close(), netns.Remove(job.Netns.Path())); err != nil {
			t.Fatal(err)
		}
		for limit := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			if _, err := nettest.Try(nil, "ip", "link", "show", host); err != nil {
				break
			}
			if time.Now().After(limit) {
				t.Fatalf("%v: link %s is there yet: something holds the namespace", at, host)
			}
		}
		if repaired, err := n.Repair(t.Context(), job.Request.Key()); err != nil || repaired {
			t.Errorf("%v: of a pod that has gone: repaired %v: %v", at, repaired, err)
		}
		job.Netns = nil
		if err := n.Del(t.Context(), job); err != nil {
			t.Error(err)
		}
	}
	n.clean("DEL")
}

// TestRepairDuringDEL: while others take things away without end, calls succeed, and nothing is put back of what has
// gone.
func TestRepairDuringDEL(t *testing.T) {
	n := newRepairNode(t, false)
	n.reconcile(t)
	ctx, cancel := context.WithCancel(t.Context())
	var calls, outsider sync.WaitGroup
	conf := n.list(bridge)
	outsider.Go(func() {
		for ctx.Err() == nil {
			_, _ = nettest.Try(nil, "ip", "addr", "flush", "dev", "abr0")
			_, _ = nettest.Try(nil, "nft", "flush", "ruleset")
			_, _ = nettest.Try(nil, "ip", "link", "set", "abr0", "down")
		}
	})
	for range 4 {
		id, ns := n.pod()
		job := n.job(conf, id, ns)
		calls.Go(func() {
			for range 15 {
				if _, err := n.Add(t.Context(), job); err != nil {
					t.Errorf("ADD: %v", err)
				}
				_, _ = nettest.Try(ns, "ip", "link", "set", "eth0", "down")
				if err := n.Del(t.Context(), job); err != nil {
					t.Errorf("DEL: %v", err)
				}
			}
		})
	}
	kept := n.podJob(bridge, "kept")
	result := n.add(kept)
	kept.Prev = &result
	calls.Wait()
	cancel()
	outsider.Wait()
	for limit := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		err := n.Check(t.Context(), kept)
		if err == nil {
			break
		}
		if time.Now().After(limit) {
			t.Fatalf("not repaired in the end: %v", err)
		}
	}
	if err := n.GC(t.Context(), kept, nil); err != nil {
		t.Errorf("GC: %v", err)
	}
	n.clean("ADDs, DELs and a GC beside repairs")
}

// TestRepairWithoutPair: the namespace of a pod without a link to the node's is watched, too.
func TestRepairWithoutPair(t *testing.T) {
	n := newRepairNode(t, false)
	nettest.IP(t, nil, "link add up0 type veth peer name up1")
	nettest.IP(t, nil, "link set up0 up")
	t.Cleanup(func() { nettest.IP(t, nil, "link del up0") })
	job := n.podJob(
		`{"type":"macvlan","master":"up0","ipam":{"type":"host-local","subnet":"10.8.0.0/24","dataDir":"DATA"}}`, "web-0",
	)
	n.add(job)
	n.reconcile(t)
	before := network(t, job.Netns)
	nettest.Run(t, job.Netns, "ip", "addr", "del", "10.8.0.2/24", "dev", "eth0")
	settled(t, "address of a macvlan", before, job.Netns)
	nettest.Run(t, job.Netns, "ip", "link", "del", "eth0")
	if repaired, err := n.Repair(t.Context(), job.Request.Key()); err != nil || repaired {
		t.Errorf("a link that the pod deleted: repaired %v: %v", repaired, err)
	}
	if err := n.Del(t.Context(), job); err != nil {
		t.Error(err)
	}
	n.drain()
}

// TestTakenName: a pod renames its interface and creates another link by its name, as KubeVirt does for a guest with its bridge
// binding: the other one is down, and only keeps the address for the hypervisor. Nothing is done to it, and nothing is put on it:
// up, the pod would have its guest's address.
func TestTakenName(t *testing.T) {
	for design, conf := range map[string]string{"routed": calico, "bridge": bridge} {
		t.Run(design, func(t *testing.T) {
			n := newRepairNode(t, design == "routed")
			job := n.podJob(conf, "web-0")
			result := n.add(job)
			addr := result.IPs[0].Address.String()
			for command := range strings.SplitSeq("ip link set eth0 down; ip link set eth0 name eth0-nic; ip addr flush dev eth0-nic;"+
				"ip link set eth0-nic up; ip link add eth0 type bridge; ip addr add "+addr+" dev eth0", ";") {
				nettest.Run(t, job.Netns, strings.Fields(command)...)
			}
			// The node's end gets its carrier back when the kernel has processed the event of the pod's end.
			before := network(t, job.Netns)
			for limit := time.Now().Add(30 * time.Second); strings.Contains(before, "NO-CARRIER") && time.Now().Before(limit); {
				time.Sleep(20 * time.Millisecond)
				before = network(t, job.Netns)
			}
			for range 2 {
				if repaired, err := n.Repair(t.Context(), job.Request.Key()); err != nil || repaired {
					t.Errorf("repaired %v: %v", repaired, err)
				}
				settled(t, "another link by the interface's name", before, job.Netns)
				n.pass()
			}
			if n.events.Load() != 0 {
				t.Errorf("%d events about the pod's own link", n.events.Load())
			}
			if err := n.Del(t.Context(), job); err != nil {
				t.Error(err)
			}
			n.clean("DEL")
		})
	}
}
