// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/node/policy"
)

// vm adds an interface at a bridge port to a pod, as a VM has it: no IP hook in the pod sees its packets.
func (w *world) vm(p *pod, n int) *pod {
	w.t.Helper()
	nettest.NeedBridgeNetfilter(w.t)
	return w.bridged(p, n, func(g *model.WorkloadEndpoint) {
		g.VM, g.HostLink, g.HostEnd = true, fmt.Sprintf("port%d", n), model.HostEndPort
	})
}

// TestVMs: a guest's packets are filtered at the bridge port, by the same policies and as strictly as anywhere:
// in both directions, with replies, for the node itself, and after a policy or a label has changed. The pod's
// namespace has no table.
func TestVMs(t *testing.T) {
	w := newWorld(t)
	w.start()
	web, friend, other := w.pod("shop/web", "app: web"), w.pod("shop/friend", `friend: "yes"`),
		w.pod("shop/other", "app: other")
	web1, friend1, other1 := w.vm(web, 2), w.vm(friend, 3), w.vm(other, 4)
	w.serve(web, 80)
	w.serve(friend, 80)
	w.eventually("the bridge carries packets", func() bool {
		return reaches(friend1.ns, web1, 80) && reaches(other1.ns, web1, 80)
	})
	w.manifest("fast", onlyFastFriends)
	w.eventually("the policy denies", func() bool { return !reaches(other.ns, web1, 80) })
	w.eventually("denied packets are counted", func() bool {
		return !reaches(other.ns, web1, 80) && w.Denied()["MultiNetworkPolicy shop/fast ingress"] > 0
	})
	w.eventually("a friend is let in", func() bool { return reaches(friend.ns, web1, 80) })
	w.eventually("the node reaches its own pod", func() bool { return reaches(nil, web1, 80) })
	w.eventually("what the guest sends is not judged", func() bool { return reaches(web.ns, friend1, 80) })
	if out := nettest.Run(t, web.ns, "nft", "list", "ruleset"); strings.Contains(out, "weft") {
		t.Errorf("in the pod: %s", out)
	}
	c, err := dial(friend.ns, netip.AddrPortFrom(web1.addr, 80), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if !echoes(c, long) {
		t.Error("a connection that is allowed carries nothing")
	}
	w.start() // a restarted agent adopts it
	w.object("shop/friend", `friend: "no"`, "n1")
	w.eventually("the label is followed", func() bool { return !reaches(friend.ns, web1, 80) })
	w.eventually("the connection is cut", func() bool { return w.Stats().Cut > 0 && !echoes(c, short) })
	nettest.Run(t, nil, "nft", "flush", "ruleset")
	w.eventually("what is flushed is brought back", func() bool {
		return !reaches(other.ns, web1, 80) && !reaches(friend.ns, web1, 80)
	})
	w.manifest("fast", strings.Replace(onlyFastFriends, "[Ingress]", "[Egress]", 1))
	w.eventually("what is sent is judged", func() bool { return !reaches(web.ns, friend1, 80) })
	w.eventually("what comes is not any more", func() bool { return reaches(other.ns, web1, 80) })
	spoofed := func() bool { // with any source address
		nettest.Run(t, web.ns, "ip", "addr", "replace", "10.8.0.77/24", "dev", "net1")
		nettest.Run(t, web.ns, "ip", "route", "replace", friend1.addr.String(), "dev", "net1", "src", "10.8.0.77")
		return reaches(web.ns, friend1, 80)
	}
	if spoofed() {
		t.Error("a guest with another address is not judged")
	}
	w.remove("fast")
	w.eventually("no table stays", func() bool { return !strings.Contains(ruleset(), "weft-policy") })
	w.eventually("a deleted policy denies nothing", func() bool { return spoofed() && reaches(other.ns, web1, 80) })
	for _, p := range []*pod{web1, friend1, other1} {
		if err := w.Release(t.Context(), p.Attachment); err != nil {
			t.Error(err)
		}
	}
}

// TestVMsBridgeNetfilter: bridge netfilter is enabled when a policy selects a guest at a port, and again after an
// external change, and not before.
func TestVMsBridgeNetfilter(t *testing.T) {
	w := newWorld(t)
	w.start(func(c *policy.Config) {
		c.After = func(d time.Duration) <-chan time.Time {
			if d == 4*time.Second { // it is checked again
				d /= 40
			}
			return time.After(d)
		}
	})
	web, friend := w.pod("shop/web", "app: web"), w.pod("shop/friend", `friend: "yes"`)
	settings := []string{"/proc/sys/net/bridge/bridge-nf-call-iptables", "/proc/sys/net/bridge/bridge-nf-call-ip6tables"}
	turn := func() {
		for _, path := range settings {
			if err := os.WriteFile(path, []byte("0"), 0); err != nil {
				nettest.Skip(t, "bridges cannot be told to show nothing: "+err.Error())
			}
		}
	}
	are := func(want string) bool {
		for _, path := range settings {
			if b, err := os.ReadFile(path); err != nil || strings.TrimSpace(string(b)) != want {
				return false
			}
		}
		return true
	}
	turn()
	t.Cleanup(func() {
		for _, path := range settings {
			_ = os.WriteFile(path, []byte("1"), 0)
		}
	})
	w.vm(web, 2)
	friend1 := w.vm(friend, 3)
	w.serve(friend, 80)
	if !are("0") {
		t.Error("bridges are told to show connections where no policy asks for it")
	}
	// Replies to a connection of the guest need conntrack.
	noneAllowed, _, _ := strings.Cut(onlyFastFriends, "  ingress:")
	w.manifest("fast", noneAllowed)
	w.eventually("they show connections", func() bool { return are("1") })
	w.eventually("the guest gets replies", func() bool { return reaches(web.ns, friend1, 80) })
	for range 3 { // the last time there is no other event
		turn()
		w.eventually("they show them again", func() bool { return are("1") })
	}
}

// TestVMsUntracked: if bridge netfilter cannot be enabled, policies of guests at ports are enforced nevertheless.
func TestVMsUntracked(t *testing.T) {
	w := newWorld(t)
	if out, err := nettest.Try(
		nil, "nft",
		"add table bridge probe; add chain bridge probe c { type filter hook prerouting priority 1; }; delete table bridge probe",
	); err != nil {
		nettest.Skip(t, "this kernel has no rules for bridges: "+out)
	}
	w.start(func(c *policy.Config) { c.Bridges = t.TempDir() })
	web, friend, other := w.pod("shop/web", "app: web"), w.pod("shop/friend", `friend: "yes"`),
		w.pod("shop/other", "app: other")
	vm := func(p *pod, n int) *pod {
		return w.bridged(p, n, func(g *model.WorkloadEndpoint) {
			g.VM, g.HostLink, g.HostEnd = true, fmt.Sprintf("port%d", n), model.HostEndPort
		})
	}
	web1, _, _ := vm(web, 2), vm(friend, 3), vm(other, 4)
	// The real settings do not matter here: they are not read.
	_ = os.WriteFile("/proc/sys/net/bridge/bridge-nf-call-iptables", []byte("0"), 0)
	t.Cleanup(func() { _ = os.WriteFile("/proc/sys/net/bridge/bridge-nf-call-iptables", []byte("1"), 0) })
	w.serve(web, 80)
	w.eventually("the bridge carries packets", func() bool {
		return reaches(friend.ns, web1, 80) && reaches(other.ns, web1, 80)
	})
	w.manifest("fast", onlyFastFriends)
	w.eventually("the policy denies", func() bool { return !reaches(other.ns, web1, 80) })
	w.eventually("a friend is let in", func() bool { return reaches(friend.ns, web1, 80) })
	if out := nettest.Run(t, web.ns, "nft", "list", "ruleset"); strings.Contains(out, "weft") {
		t.Errorf("in the pod, which does not see what the guest sends: %s", out)
	}
	w.eventually("it is said", func() bool { return strings.Contains(w.log.String(), "bridge netfilter is not available") })
}

// TestVMsIPv6: the same for IPv6, where neighbor discovery works and multicast is filtered, too.
func TestVMsIPv6(t *testing.T) {
	w := newWorld(t)
	w.manifest("fast", onlyFastFriends)
	w.start()
	web, friend, other := w.pod("shop/web", "app: web"), w.pod("shop/friend", `friend: "yes"`),
		w.pod("shop/other", "app: other")
	ips := map[*pod]string{}
	for i, p := range []*pod{web, friend, other} {
		addr := fmt.Sprintf("fd00:8::%d", i+2)
		q := w.bridged(p, i+2, func(g *model.WorkloadEndpoint) {
			g.VM, g.HostLink, g.HostEnd = true, fmt.Sprintf("port%d", i+2), model.HostEndPort
			g.Addrs = append(g.Addrs, netip.MustParseAddr(addr))
		})
		nettest.Run(t, q.ns, "ip", "addr", "add", addr+"/64", "dev", "net1", "nodad")
		ips[p] = addr
	}
	l, err := listen6(web)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	call := func(from *pod) bool {
		var c net.Conn
		err := from.ns.Do(func() (err error) {
			c, err = net.DialTimeout("tcp6", net.JoinHostPort(ips[web], "80"), 400*time.Millisecond)
			return err
		})
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}
	w.eventually("a friend is let in", func() bool { return call(friend) })
	if call(other) {
		t.Error("everybody is let in")
	}
	if err := policy.Clear(t.Context(), w.host); err != nil || strings.Contains(ruleset(), "weft-policy") {
		t.Errorf("policies stay (%v)", err)
	}
}

func listen6(p *pod) (net.Listener, error) {
	var l net.Listener
	err := p.ns.Do(func() (err error) { l, err = net.Listen("tcp6", ":80"); return err })
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	return l, nil
}
