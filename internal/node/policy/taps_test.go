// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/node/policy"
)

// tapped adds a macvtap on a link to the bridge of the other network to a pod. The pod itself uses it instead of a
// guest, which makes no difference to the rules: the frames take the same path.
func (w *world) tapped(p *pod, n int) *pod {
	w.t.Helper()
	nettest.Need(w.t, "macvtap")
	w.lan()
	run := func(in *netns.NS, format string, args ...any) {
		w.t.Helper()
		nettest.Run(w.t, in, strings.Fields(fmt.Sprintf(format, args...))...)
	}
	q := &pod{ns: p.ns, addr: netip.AddrFrom4([4]byte{10, 8, 0, byte(n)}), link: fmt.Sprintf("port%d", n)}
	run(nil, "ip link add %s type veth peer name under%d", q.link, n)
	run(nil, "ip link set under%d up", n)
	run(nil, "ip link set %s master pbr0 up", q.link)
	run(nil, "ip link add link under%d name new%d type macvtap mode bridge", n, n)
	run(nil, "ip link set new%d name net1 netns %s", n, p.ns.Path())
	q.WorkloadEndpoint = model.WorkloadEndpoint{
		Attachment: model.AttachmentKey{Network: "fast", ContainerID: p.Attachment.ContainerID, IfName: "net1"}, Pod: p.Pod,
		Network: "shop/fast", IfName: "net1",
		Addrs: []netip.Addr{q.addr}, Netns: p.Netns, NetnsID: p.NetnsID, Tap: true,
	}
	if err := w.Admit(w.t.Context(), q.WorkloadEndpoint); err != nil {
		w.t.Fatal(err)
	}
	run(p.ns, "ip addr add %s/24 dev net1", q.addr)
	run(p.ns, "ip link set net1 up")
	w.Attached(q.Attachment)
	w.pods["net1 of "+p.Pod.String()] = q
	return q
}

// taps returns three pods with macvtaps on one network; the first one responds.
func (w *world) taps() (web, friend, other *pod) {
	w.t.Helper()
	for i, one := range []struct{ name, labels string }{
		{"shop/web", "app: web"}, {"shop/friend", `friend: "yes"`}, {"shop/other", "app: other"},
	} {
		q := w.tapped(w.pod(one.name, one.labels), 2+i)
		*[]**pod{&web, &friend, &other}[i] = q
	}
	w.serve(web, 80)
	w.eventually("the bridge carries packets", func() bool {
		return reaches(friend.ns, web, 80) && reaches(other.ns, web, 80)
	})
	return web, friend, other
}

// TestTaps: packets to and from a macvtap are filtered there, by the same policies and as strictly as anywhere: with
// replies, for the node itself, and after a policy or a label has changed, which deletes connections that are denied.
func TestTaps(t *testing.T) {
	w := newWorld(t)
	w.start()
	web, friend, other := w.taps()
	w.manifest("fast", onlyFastFriends)
	w.eventually("the policy denies", func() bool { return !reaches(other.ns, web, 80) })
	w.eventually("denied packets are counted", func() bool {
		return !reaches(other.ns, web, 80) && w.Denied()["MultiNetworkPolicy shop/fast ingress"] > 0
	})
	w.eventually("a friend is let in", func() bool { return reaches(friend.ns, web, 80) })
	w.eventually("the node reaches its own pod", func() bool { return reaches(nil, web, 80) })
	w.serve(other, 81)
	w.eventually("what is begun there is answered", func() bool { return reaches(web.ns, other, 81) })
	c, err := dial(friend.ns, netip.AddrPortFrom(web.addr, 80), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	w.eventually("a connection that is allowed carries something", func() bool { return echoes(c, long) })
	w.start() // a restarted agent adopts it
	w.eventually("the connection goes on", func() bool { return w.Known() && echoes(c, long) })
	w.object("shop/friend", `friend: "no"`, "n1")
	w.eventually("the label is followed", func() bool { return !reaches(friend.ns, web, 80) })
	w.eventually("the connection is cut", func() bool { return w.Stats().Cut > 0 && !echoes(c, short) })
	nettest.Run(t, web.ns, "nft", "flush", "ruleset")
	w.eventually("what is flushed is brought back", func() bool {
		return !reaches(other.ns, web, 80) && !reaches(friend.ns, web, 80)
	})
	w.manifest("fast", strings.Replace(onlyFastFriends, "[Ingress]", "[Egress]", 1))
	w.eventually("what is sent is judged", func() bool { return !reaches(web.ns, other, 81) })
	w.eventually("what comes is not any more", func() bool { return reaches(other.ns, web, 80) })
	w.remove("fast")
	w.eventually("no table stays", func() bool {
		return !strings.Contains(nettest.Run(t, web.ns, "nft", "list", "ruleset"), "weft-policy")
	})
	for _, p := range []*pod{web, friend, other} {
		if err := w.Release(t.Context(), p.Attachment); err != nil {
			t.Error(err)
		}
	}
}

// TestTapsKeep: with Keep, the connections at a macvtap continue.
func TestTapsKeep(t *testing.T) {
	w := newWorld(t)
	w.start(func(c *policy.Config) { c.Keep = true })
	web, friend, other := w.taps()
	w.manifest("fast", onlyFastFriends)
	w.eventually("the policy denies", func() bool { return !reaches(other.ns, web, 80) })
	c, err := dial(friend.ns, netip.AddrPortFrom(web.addr, 80), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	w.object("shop/friend", `friend: "no"`, "n1")
	w.eventually("the label is followed", func() bool { return !reaches(friend.ns, web, 80) })
	w.eventually("the connection goes on", func() bool { return echoes(c, long) })
}

// TestTapsPieces: fragmented datagrams pass a macvtap if their first fragment does, both ways; ICMP errors and ping
// replies return.
func TestTapsPieces(t *testing.T) {
	w := newWorld(t)
	w.start()
	web, friend, other := w.taps()
	text := strings.Replace(onlyFastFriends, "[Ingress]", "[Ingress, Egress]", 1) +
		`    ports: [{port: 4000, protocol: UDP}, {port: 80}]
  egress:
  - to: [{podSelector: {matchLabels: {friend: "yes"}}}]
    ports: [{port: 4001, protocol: UDP}]
`
	w.manifest("fast", text)
	w.eventually("the policy denies", func() bool { return !reaches(other.ns, web, 80) })
	w.eventually("a friend is let in", func() bool { return reaches(friend.ns, web, 80) })
	at := func(p *pod, port int) *net.UDPConn {
		var c *net.UDPConn
		if err := p.ns.Do(func() (err error) {
			c, err = net.ListenUDP("udp4", &net.UDPAddr{Port: port})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	hear := func(c *net.UDPConn, limit time.Duration) (int, net.Addr) {
		_ = c.SetReadDeadline(time.Now().Add(limit))
		n, from, _ := c.ReadFrom(make([]byte, 1<<16))
		return n, from
	}
	long := make([]byte, 6000)
	served, asks, outsider := at(web, 4000), at(friend, 4100), at(other, 4100)
	_, _ = outsider.WriteTo(long, net.UDPAddrFromAddrPort(netip.AddrPortFrom(web.addr, 4000)))
	_, _ = asks.WriteTo(long, net.UDPAddrFromAddrPort(netip.AddrPortFrom(web.addr, 4000)))
	n, from := hear(served, 15*time.Second)
	if n != len(long) || from.String() != "10.8.0.3:4100" {
		t.Fatalf("heard %d bytes of %v", n, from)
	}
	_, _ = served.WriteTo(long, from)
	if n, _ := hear(asks, 15*time.Second); n != len(long) {
		t.Errorf("answered with %d bytes", n)
	}
	_, _ = served.WriteTo(long, net.UDPAddrFromAddrPort(netip.AddrPortFrom(friend.addr, 4002)))
	if n, _ := hear(at(friend, 4002), 200*time.Millisecond); n > 0 {
		t.Errorf("heard %d bytes that policy denies", n)
	}
	var refused net.Conn
	err := web.ns.Do(func() (err error) {
		refused, err = net.Dial("udp4", netip.AddrPortFrom(friend.addr, 4001).String()) // no process listens there
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer refused.Close()
	w.eventually("the error about a datagram comes back", func() bool {
		_, _ = refused.Write([]byte("hello"))
		_ = refused.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		_, err := refused.Read(make([]byte, 10))
		return errors.Is(err, unix.ECONNREFUSED)
	})
	pings := func(from *pod, to netip.Addr) bool {
		_, err := nettest.Try(from.ns, "ping", "-c", "1", "-W", "1", to.String())
		return err == nil
	}
	if pings(web, friend.addr) || pings(friend, web.addr) {
		t.Error("a ping passes that no rule allows")
	}
	w.manifest("fast", strings.ReplaceAll(text, "    ports: [{port: 4001, protocol: UDP}]\n", ""))
	w.eventually("a ping is answered", func() bool { return pings(web, friend.addr) })
	if pings(friend, web.addr) {
		t.Error("a ping the other way passes")
	}
}

// TestTapsClosed: a macvtap for which a later policy cannot be written is down until it can be, also over a restart of
// the agent.
func TestTapsClosed(t *testing.T) {
	w := newWorld(t)
	if out, err := nettest.Try(nil, "nft", "add table netdev probe { flags owner; }; delete table netdev probe"); err !=
		nil {
		nettest.Skip(t, "this kernel has no owners of tables: "+out)
	}
	w.start()
	web, friend, other := w.taps()
	leave := occupy(t, web.ns, "netdev weft-policy-net1")
	w.eventually("the table is another program's", func() bool {
		return strings.Contains(nettest.Run(t, web.ns, "nft", "list", "tables"), "weft-policy-net1")
	})
	w.manifest("fast", onlyFastFriends)
	closed := func() bool {
		return strings.Contains(nettest.Run(t, web.ns, "ip", "-o", "link", "show", "net1"), "state DOWN")
	}
	w.eventually("the macvtap is closed", func() bool {
		return closed() && strings.Contains(w.log.String(), "macvtap is down")
	})
	if n := w.Stats().Quarantined; n != 1 {
		t.Errorf("%d are counted as closed", n)
	}
	if reaches(friend.ns, web, 80) || reaches(other.ns, web, 80) {
		t.Error("somebody reaches a pod that nobody judges")
	}
	w.start()
	w.eventually("it is known", w.Known)
	if !closed() {
		t.Error("an agent that starts opens it")
	}
	leave()
	w.eventually("it opens with its rules", func() bool {
		return reaches(friend.ns, web, 80) && !reaches(other.ns, web, 80)
	})
	leave = occupy(t, friend.ns, "netdev weft-policy-net1")
	defer leave()
	w.manifest("fast", strings.Replace(onlyFastFriends, "app: web", `friend: "yes"`, 1))
	w.eventually("another one is closed", func() bool {
		return strings.Contains(nettest.Run(t, friend.ns, "ip", "-o", "link", "show", "net1"), "state DOWN")
	})
	w.remove("fast")
	w.eventually("it opens when no policy selects it", func() bool {
		return !strings.Contains(nettest.Run(t, friend.ns, "ip", "-o", "link", "show", "net1"), "state DOWN")
	})
}

// TestTapsWithout: if the kernel cannot filter at a macvtap, the error of an ADD has a hint, and pods that no
// policy selects are not affected.
func TestTapsWithout(t *testing.T) {
	w := newWorld(t)
	w.start()
	web := w.pod("shop/web", "app: web")
	// No kernel has a hook for that: some kernels accept the name of a link that does not exist yet.
	const never = "no-link-is-called-so"
	g := model.WorkloadEndpoint{
		Attachment: model.AttachmentKey{Network: "fast", ContainerID: web.Attachment.ContainerID, IfName: never},
		Pod:        web.Pod, Network: "shop/fast", IfName: never,
		Netns: web.Netns, NetnsID: web.NetnsID, Tap: true,
	}
	if err := w.Admit(t.Context(), g); err != nil {
		t.Errorf("without a policy: %v", err)
	}
	w.manifest("fast", onlyFastFriends)
	w.eventually("it is written", func() bool { return strings.Contains(w.log.String(), "could not be written") })
	err := w.Admit(t.Context(), g)
	var e *model.Error
	if !errors.As(err, &e) || e.Code != model.CodeTryAgain ||
		!strings.Contains(e.Hint, "CONFIG_NETFILTER_EGRESS") ||
		!strings.Contains(err.Error(), "macvtap "+never+" of pod shop/web") {
		t.Errorf("ADD: %v", err)
	}
	if err := w.Release(t.Context(), g.Attachment); err != nil {
		t.Error(err)
	}
}
