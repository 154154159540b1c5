// SPDX-License-Identifier: Apache-2.0

package watch_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/kernel/watch"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// heardChanges collects the reports of Changes.
type heardChanges struct {
	mu  sync.Mutex
	all []watch.Change
}

func (h *heardChanges) add(c watch.Change) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, c)
}

func (h *heardChanges) take(t *testing.T, what string, is func(watch.Change) bool) {
	t.Helper()
	for limit := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		h.mu.Lock()
		for _, c := range h.all {
			if is(c) {
				h.all = nil
				h.mu.Unlock()
				return
			}
		}
		all := fmt.Sprintf("%+v", h.all)
		h.mu.Unlock()
		if time.Now().After(limit) {
			t.Fatalf("%s: not reported; reported: %s", what, all)
		}
	}
}

func changes(t *testing.T, ns *netns.NS, scope watch.Scope) *heardChanges {
	t.Helper()
	h := &heardChanges{}
	ctx, cancel := context.WithCancel(t.Context())
	done, err := watch.Changes(ctx, ns, scope, h.add)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); <-done })
	return h
}

// TestChanges: each deletion in the watched namespace is reported, and what may have been overwritten.
func TestChanges(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	ns := nettest.NS(t, "node")
	run := func(c string) { t.Helper(); nettest.IP(t, ns, c) }
	h := changes(t, ns, watch.Scope{})
	run("link add br0 type bridge")
	run("link add one type veth peer name two")
	run("link set two up")
	run("link set one master br0 up")
	run("addr add 192.0.2.1/24 dev two")
	run("route add 198.51.100.0/24 dev two proto 119")
	for _, c := range []struct {
		command string
		is      func(watch.Change) bool
	}{
		{"route del 198.51.100.0/24", func(c watch.Change) bool {
			return c.Kind == watch.Route && c.Gone && c.Place().String() == "198.51.100.0/24"
		}},
		{
			"addr del 192.0.2.1/24 dev two",
			func(c watch.Change) bool { return c.Kind == watch.Addr && c.Gone && c.Link == "two" },
		},
		{"link set two down", func(c watch.Change) bool { return c.Kind == watch.Link && c.Down && c.Link == "two" }},
		{
			"link set two mtu 1400",
			func(c watch.Change) bool { return c.Kind == watch.Link && c.Link == "two" && c.MTU == 1400 },
		},
		{
			"link set one type bridge_slave hairpin on",
			func(c watch.Change) bool {
				return c.Kind == watch.Link && c.Link == "one" && c.Port && !c.Freed && c.Hairpin != nil && *c.Hairpin
			},
		},
		{
			"link set one nomaster",
			func(c watch.Change) bool { return c.Kind == watch.Link && c.Link == "one" && (c.Freed || c.Gone) },
		},
		{"neigh add 192.0.2.7 lladdr 02:00:00:00:00:07 dev two", func(c watch.Change) bool {
			return c.Kind == watch.Neigh && !c.Gone && c.Place().String() == "192.0.2.7/32"
		}},
		{"neigh del 192.0.2.7 dev two", func(c watch.Change) bool {
			return c.Kind == watch.Neigh && c.Gone && c.Place().String() == "192.0.2.7/32"
		}},
		{"link del one", func(c watch.Change) bool { return c.Kind == watch.Link && c.Gone && c.Link == "one" }},
	} {
		run(c.command)
		h.take(t, c.command, c.is)
	}
	run("rule add pref 99 from 192.0.2.0/24 to 198.51.100.1 table 999")
	run("rule del pref 99")
	h.take(t, "a rule", func(c watch.Change) bool {
		return c.Kind == watch.Rule && c.Metric == 99 && c.Table == 999 && c.From.String() == "192.0.2.0/24" &&
			c.Dst.String() == "198.51.100.1/32"
	})
	nettest.Run(t, ns, "sysctl", "-qw", "net.ipv4.conf.br0.proxy_arp=1")
	h.take(t, "a setting", func(c watch.Change) bool {
		return c.Kind == watch.Setting && c.Link == "br0" && c.Sysctl == "net/ipv4/conf/br0/proxy_arp" && c.Value == 1
	})
	nettest.Run(t, ns, "sysctl", "-qw", "net.ipv6.conf.br0.proxy_ndp=1")
	h.take(t, "a setting of IPv6", func(c watch.Change) bool {
		return c.Kind == watch.Setting && c.Sysctl == "net/ipv6/conf/br0/proxy_ndp" && c.Value == 1
	})
	for _, verb := range []string{"add", "change"} {
		nettest.Run(t, ns, "tc", "qdisc", verb, "dev", "br0", "root", "tbf", "rate", "1mbit", "burst", "9kb", "latency", "1s")
		h.take(t, verb+" of a queueing discipline", func(c watch.Change) bool {
			return c.Kind == watch.Queue && !c.Gone && c.Link == "br0" && c.Qdisc == "tbf"
		})
	}
	for _, kind := range []string{"ingress", "clsact"} {
		nettest.Run(t, ns, "tc", "qdisc", "add", "dev", "br0", kind)
		nettest.Run(t, ns, "tc", "filter", "add", "dev", "br0", "ingress", "protocol", "all", "u32", "match", "u32", "0", "0")
		nettest.Run(t, ns, "tc", "filter", "del", "dev", "br0", "ingress")
		h.take(t, "a filter of "+kind, func(c watch.Change) bool {
			return c.Kind == watch.Queue && c.Link == "br0" && c.Qdisc == "ingress"
		})
		nettest.Run(t, ns, "tc", "qdisc", "del", "dev", "br0", kind)
		h.take(t, kind, func(c watch.Change) bool { return c.Kind == watch.Queue && c.Link == "br0" && c.Qdisc == kind })
	}
}

// TestMakingIsSilent: the messages by which a link in another namespace is created, named, configured and brought up
// wake no process, and neither do those of the watched namespace; messages after them are received.
func TestMakingIsSilent(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	node, pod := nettest.NS(t, "node"), nettest.NS(t, "pod")
	host, err := kernel.Dial(node)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = host.Close() })
	if _, _, err := host.NamespaceID(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	h := changes(t, node, watch.Scope{Others: true})
	nettest.IP(t, node, "link add one type veth peer name two netns "+pod.Path())
	nettest.IP(t, node, "link set one up")
	nettest.IP(t, pod, "link set two alias end")
	nettest.IP(t, pod, "link set two name eth0")
	nettest.IP(t, pod, "link set eth0 mtu 1400")
	nettest.IP(t, pod, "link set eth0 up")
	nettest.IP(t, pod, "addr add 192.0.2.1/24 dev lo")
	nettest.IP(t, pod, "addr del 192.0.2.1/24 dev lo")
	h.take(t, "an address", func(c watch.Change) bool {
		if c.Kind != watch.Addr {
			t.Errorf("what is only made is reported: %+v", c)
		}
		return c.Kind == watch.Addr && c.Gone
	})
}

// TestChangesOfOthers: one socket receives the deletions in other namespaces that have an id, reports which one it was,
// and keeps none alive.
func TestChangesOfOthers(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	node, pod := nettest.NS(t, "node"), nettest.NS(t, "pod")
	host, err := kernel.Dial(node)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = host.Close() })
	h := changes(t, node, watch.Scope{Others: true})
	id, assigned, err := host.NamespaceID(t.Context(), pod)
	if err != nil || id < 0 || !assigned {
		t.Fatalf("id %d, assigned %v: %v", id, assigned, err)
	}
	if again, assigned, err := host.NamespaceID(t.Context(), pod); err != nil || again != id || assigned {
		t.Fatalf("ids %d and %d: %v", id, again, err)
	}
	run := func(c string) { t.Helper(); nettest.IP(t, pod, c) }
	run("link add one type veth peer name two")
	run("link set two up")
	run("addr add 192.0.2.1/24 dev two")
	run("addr del 192.0.2.1/24 dev two")
	h.take(t, "an address", func(c watch.Change) bool {
		if !c.Gone || c.Kind == watch.Link {
			t.Errorf("what is only made is reported: %+v", c)
		}
		return c.Kind == watch.Addr && c.Gone && c.NSID == id
	})
	run("link set two down")
	h.take(t, "a link", func(c watch.Change) bool { return c.Kind == watch.Link && c.Down && c.NSID == id })
	run("link add far type veth peer name near netns " + node.Path())
	if err := pod.Close(); err != nil {
		t.Fatal(err)
	}
	if err := netns.Remove(pod.Path()); err != nil {
		t.Fatal(err)
	}
	h.take(t, "the end of the namespace", func(c watch.Change) bool { return c.Kind == watch.Namespace && c.NSID == id })
	for limit := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err := nettest.Try(node, "ip", "link", "show", "near"); err != nil {
			break
		}
		if time.Now().After(limit) {
			t.Fatal("the namespace lives on while it is watched")
		}
	}
}
