// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/node/policy"
)

const onlyFastFriends = `
apiVersion: k8s.cni.cncf.io/v1beta1
kind: MultiNetworkPolicy
metadata: {namespace: shop, name: fast, annotations: {k8s.v1.cni.cncf.io/policy-for: fast}}
spec:
  podSelector: {matchLabels: {app: web}}
  policyTypes: [Ingress]
  ingress:
  - from: [{podSelector: {matchLabels: {friend: "yes"}}}]
`

// lan returns the bridge of the other network, and creates it if needed.
func (w *world) lan() {
	w.t.Helper()
	if out, err := nettest.Try(nil, "ip", "link", "add", "pbr0", "type", "bridge"); err == nil {
		w.t.Cleanup(func() { _, _ = nettest.Try(nil, "ip", "link", "del", "pbr0") })
		nettest.Run(w.t, nil, "ip", "addr", "add", "10.8.0.1/24", "dev", "pbr0")
		nettest.Run(w.t, nil, "ip", "link", "set", "pbr0", "up")
	} else if !strings.Contains(out, "exists") {
		w.t.Fatal(out)
	}
}

// bridged adds an interface of another network to a pod, at a bridge port: its packets do not pass the node's routing.
func (w *world) bridged(p *pod, n int, changes ...func(*model.WorkloadEndpoint)) *pod {
	w.t.Helper()
	run := func(in *netns.NS, format string, args ...any) {
		nettest.Run(w.t, in, strings.Fields(fmt.Sprintf(format, args...))...)
	}
	w.lan()
	q := &pod{ns: p.ns, addr: netip.AddrFrom4([4]byte{10, 8, 0, byte(n)}), link: fmt.Sprintf("port%d", n)}
	q.WorkloadEndpoint = model.WorkloadEndpoint{
		Attachment: model.AttachmentKey{Network: "fast", ContainerID: p.Attachment.ContainerID, IfName: "net1"}, Pod: p.Pod,
		Network: "shop/fast", IfName: "net1",
		Addrs: []netip.Addr{q.addr}, Netns: p.Netns, NetnsID: p.NetnsID,
	}
	for _, change := range changes {
		change(&q.WorkloadEndpoint)
	}
	if err := w.Admit(w.t.Context(), q.WorkloadEndpoint); err != nil {
		w.t.Fatal(err)
	}
	run(nil, "ip link add %s type veth peer name tmp0", q.link)
	run(nil, "ip link set tmp0 name net1 netns %s", p.ns.Path())
	run(nil, "ip link set %s master pbr0 up", q.link)
	run(p.ns, "ip addr add %s/24 dev net1", q.addr)
	run(p.ns, "ip link set net1 up")
	w.Attached(q.Attachment)
	w.pods["net1 of "+p.Pod.String()] = q
	return q
}

// TestOtherNetworks: an interface whose packets do not pass the node is filtered in the pod, by the same policies and
// those of its own network, which apply to no other.
func TestOtherNetworks(t *testing.T) {
	w := newWorld(t)
	w.start()
	web, friend, other := w.pod("shop/web", "app: web"), w.pod("shop/friend", `friend: "yes"`),
		w.pod("shop/other", "app: other")
	web1, friend1, other1 := w.bridged(web, 2), w.bridged(friend, 3), w.bridged(other, 4)
	w.serve(web, 80) // on all interfaces
	w.eventually("the bridge carries packets", func() bool {
		return reaches(friend1.ns, web1, 80) && reaches(other1.ns, web1, 80)
	})
	w.manifest("fast", onlyFastFriends)
	w.eventually("the policy denies", func() bool { return !reaches(other.ns, web1, 80) })
	w.eventually("a friend is let in", func() bool { return reaches(friend.ns, web1, 80) })
	w.eventually("a policy of another network is not about the cluster's", func() bool {
		return reaches(other.ns, web, 80)
	})
	w.eventually("the node reaches its own pod", func() bool { return reaches(nil, web1, 80) })
	w.start() // a restarted agent adopts it
	w.object("shop/other", `friend: "yes"`, "n1")
	w.eventually("a new label is followed", func() bool { return reaches(other.ns, web1, 80) })
	w.eventually("packets denied in the pod are counted", func() bool {
		return w.Denied()["MultiNetworkPolicy shop/fast ingress"] > 0
	})
	before := w.Denied()["MultiNetworkPolicy shop/fast ingress"]
	nettest.Run(t, web.ns, "nft", "flush", "ruleset")
	w.object("shop/other", `friend: "no"`, "n1")
	w.eventually("a change repairs what somebody flushed", func() bool { return !reaches(other.ns, web1, 80) })
	nettest.Run(t, web.ns, "nft", "flush", "ruleset")
	w.eventually("what somebody flushes is repaired without a change", func() bool { return !reaches(other.ns, web1, 80) })
	w.eventually("a table that is written anew adds to what the one before counted", func() bool {
		return !reaches(other.ns, web1, 80) && w.Denied()["MultiNetworkPolicy shop/fast ingress"] > before
	})
	w.remove("fast")
	w.eventually("no table stays in the pod", func() bool {
		return !strings.Contains(nettest.Run(t, web.ns, "nft", "list", "ruleset"), "weft")
	})
	w.eventually("a deleted policy denies nothing", func() bool { return reaches(other.ns, web1, 80) })
	for _, p := range []*pod{web1, friend1, other1} {
		if err := w.Release(t.Context(), p.Attachment); err != nil {
			t.Error(err)
		}
	}
}

// TestExternalChangesInPod: however often a process in a pod changes its table, it is repaired only a few times in a
// second, and is correct in the end.
func TestExternalChangesInPod(t *testing.T) {
	w := newWorld(t)
	pauses, over := make(chan struct{}), make(chan time.Time)
	w.start(func(c *policy.Config) {
		c.After = func(d time.Duration) <-chan time.Time {
			if d != policy.RepairPause {
				return time.After(d)
			}
			select {
			case pauses <- struct{}{}:
			case <-t.Context().Done():
			}
			return over
		}
	})
	web, other := w.pod("shop/web", "app: web"), w.pod("shop/other", "app: other")
	web1, other1 := w.bridged(web, 2), w.bridged(other, 4)
	w.serve(web, 80)
	w.eventually("the bridge carries packets", func() bool { return reaches(other1.ns, web1, 80) })
	w.manifest("fast", onlyFastFriends)
	w.eventually("the policy denies", func() bool { return !reaches(other.ns, web1, 80) })
	pause := func() {
		t.Helper()
		select {
		case <-pauses:
		case <-time.After(30 * time.Second):
			t.Fatal("nobody pauses")
		}
	}
	for range 2 {
		nettest.Run(t, web.ns, "nft", "flush", "ruleset")
		pause() // the flood causes no repair meanwhile
		for range 20 {
			nettest.Run(t, web.ns, "nft", "add table inet weft-policy; delete table inet weft-policy")
		}
		over <- time.Time{}
		pause() // all of it causes one repair
		w.eventually("the table is right", func() bool { return !reaches(other.ns, web1, 80) })
		over <- time.Time{}
	}
}

// TestClear: where policies are not enforced any more, all tables are deleted, on the node and in pods.
func TestClear(t *testing.T) {
	w := newWorld(t)
	w.manifest("none", denyAll)
	w.manifest("fast", onlyFastFriends)
	w.start()
	web := w.pod("shop/web", "app: web")
	web1 := w.bridged(web, 2)
	inPod := func() bool { return strings.Contains(nettest.Run(t, web.ns, "nft", "list", "ruleset"), "weft-policy") }
	if !strings.Contains(ruleset(), "weft-policy") || !inPod() {
		t.Fatal("there is nothing to clear")
	}
	w.halt()
	if !strings.Contains(ruleset(), "weft-policy") || !inPod() {
		t.Error("an agent that ends opens pods")
	}
	gone := web1.WorkloadEndpoint
	gone.Netns = "/run/netns/nobody"
	if err := policy.Clear(t.Context(), w.host, web.WorkloadEndpoint, web1.WorkloadEndpoint, gone); err != nil {
		t.Error(err)
	}
	if strings.Contains(ruleset(), "weft-policy") || inPod() {
		t.Error("policies stay")
	}
}

// TestClientsOfDHCPAskAllServers: with a table in the pod, a pod that may send nothing can reach the multicast group
// of all DHCPv6 servers, and no other address by these ports.
func TestClientsOfDHCPAskAllServers(t *testing.T) {
	w := newWorld(t)
	w.start()
	web, other := w.pod("shop/web", "app: web"), w.pod("shop/other", "app: other")
	w.bridged(web, 2)
	w.bridged(other, 3)
	local := map[*pod]netip.Addr{web: netip.MustParseAddr("fe80::2"), other: netip.MustParseAddr("fe80::3")}
	for p, a := range local {
		nettest.IP(t, p.ns, "addr add "+a.String()+"/64 dev net1 nodad")
	}
	all := netip.MustParseAddr("ff02::1:2")
	var server, client *net.UDPConn
	zone := ""
	for p, open := range map[*pod]func(*net.Interface) error{
		other: func(link *net.Interface) (err error) {
			server, err = net.ListenMulticastUDP("udp6", link, &net.UDPAddr{IP: all.AsSlice(), Port: 547})
			return err
		},
		web: func(link *net.Interface) (err error) {
			zone = fmt.Sprint(link.Index)
			client, err = net.ListenUDP("udp6", &net.UDPAddr{IP: local[web].AsSlice(), Port: 546, Zone: zone})
			return err
		},
	} {
		if err := p.ns.Do(func() error {
			link, err := net.InterfaceByName("net1")
			if err != nil {
				return err
			}
			return open(link)
		}); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _, _ = server.Close(), client.Close() })
	arrives := func(text string, to netip.Addr) bool {
		_, _ = client.WriteToUDP([]byte(text), &net.UDPAddr{IP: to.AsSlice(), Port: 547, Zone: zone})
		_ = server.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
		for buf := make([]byte, 64); ; {
			n, _, err := server.ReadFromUDP(buf)
			if err != nil || string(buf[:n]) == text {
				return err == nil
			}
		}
	}
	w.eventually("without a policy a server is asked", func() bool { return arrives("before", local[other]) })
	w.manifest("fast", sendsNothing)
	w.eventually("the pod sends nothing to one", func() bool { return !arrives("to one", local[other]) })
	w.eventually("it asks all", func() bool { return arrives("to all", all) })
}
