// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

const denyEverything = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {namespace: shop, name: nothing}
spec: {podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress, Egress]}
`

const denyFast = `
apiVersion: k8s.cni.cncf.io/v1beta1
kind: MultiNetworkPolicy
metadata: {namespace: shop, name: fast, annotations: {k8s.v1.cni.cncf.io/policy-for: fast}}
spec: {podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress, Egress]}
`

// icmp6 returns a raw socket for ICMPv6 in a namespace, on one of its links; reads time out after 20 seconds.
func icmp6(t *testing.T, ns *netns.NS, link string) int {
	t.Helper()
	var fd int
	open := func() (err error) {
		if fd, err = unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMPV6); err == nil {
			err = unix.BindToDevice(fd, link)
		}
		return err
	}
	run := open
	if ns != nil {
		run = func() error { return ns.Do(open) }
	}
	if err := run(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 20}); err != nil {
		t.Fatal(err)
	}
	return fd
}

// forge sends a message of a type with 900 bytes of payload that begin with words.
func forge(t *testing.T, fd int, to string, kind byte, hops int, words string) {
	t.Helper()
	for option, value := range map[int]int{
		unix.IPV6_UNICAST_HOPS: hops, unix.IPV6_MULTICAST_HOPS: hops, unix.IPV6_MULTICAST_LOOP: 0,
	} {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, option, value); err != nil {
			t.Fatal(err)
		}
	}
	packet := append([]byte{kind, 0, 0, 0, 0, 0, 0, 0}, words...)
	packet = append(packet, make([]byte, 900-len(words))...)
	err := unix.Sendto(fd, packet, 0, &unix.SockaddrInet6{Addr: netip.MustParseAddr(to).As16()})
	if err != nil && !errors.Is(err, unix.EPERM) { // a table in the pod returns an error to the sender
		t.Fatal(err)
	}
}

// heard returns the words of the forged messages that arrive before the message with the last words.
func heard(t *testing.T, fd int, last string) []string {
	t.Helper()
	var out []string
	buf := make([]byte, 2048)
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			t.Fatalf("%q never arrives (%v); before it: %q\n%s", last, err, out, ruleset())
		}
		words, _, _ := bytes.Cut(buf[min(8, n):n], []byte{0})
		switch {
		case buf[0] == 129: // the reply to the last one
		case string(words) == last:
			return out
		case strings.HasPrefix(string(words), "forged"):
			out = append(out, string(words))
		}
	}
}

// six assigns an IPv6 address to a routed pod; its gateway is found by neighbor discovery.
func (w *world) six(p *pod, addr string) {
	w.t.Helper()
	nettest.IP(w.t, nil, "addr add fe80::1/64 dev "+p.link+" nodad")
	nettest.IP(w.t, nil, "route add "+addr+" dev "+p.link)
	nettest.IP(w.t, p.ns, "addr add "+addr+"/128 dev eth0 nodad")
	nettest.IP(w.t, p.ns, "route add default via fe80::1 dev eth0")
}

// reaches waits until a pod reaches another address: a link becomes usable some time after it is created.
func (w *world) reaches(from *netns.NS, to string) {
	w.t.Helper()
	w.eventually(to+" is reached", func() bool {
		_, err := nettest.Try(from, "ping", "-6", "-c1", "-W1", to)
		return err == nil
	})
}

// TestNeighborDiscoveryIsNotRouted: a pod that is denied all traffic exchanges no messages of neighbor discovery's
// types with pods of other links, other nodes and external hosts, and its own neighbor discovery works.
func TestNeighborDiscoveryIsNotRouted(t *testing.T) {
	w := newWorld(t)
	nettest.Run(t, nil, "sysctl", "-qw", "net.ipv6.conf.all.forwarding=1")
	w.start()
	out := nettest.NS(t, "outside")
	nettest.IP(t, nil, "link add uplink type veth peer name eth0 netns "+out.Path())
	t.Cleanup(func() { _, _ = nettest.Try(nil, "ip", "link", "del", "uplink") })
	nettest.IP(t, nil, "link set uplink up")
	nettest.IP(t, nil, "addr add fd00:7::1/64 dev uplink nodad")
	for _, line := range []string{
		"link set eth0 up", "addr add fd00:7::2/64 dev eth0 nodad", "route add default via fd00:7::1",
	} {
		nettest.IP(t, out, line)
	}
	web, other := w.pod("shop/web", "app: web"), w.pod("shop/other", "app: other")
	w.six(web, "fd00:9::2")
	w.six(other, "fd00:9::3")
	for _, to := range []string{"fd00:9::2", "fd00:9::3"} {
		w.reaches(nil, to)
		w.reaches(out, to)
	}
	w.reaches(web.ns, "fd00:9::3")
	inWeb, inOther, outside, node := icmp6(t, web.ns, "eth0"), icmp6(t, other.ns, "eth0"), icmp6(t, out, "eth0"),
		icmp6(t, nil, web.link)
	kinds := []byte{133, 134, 135, 136, 137}
	exchange := func() (sent, got []string) {
		for _, kind := range kinds {
			forge(t, inWeb, "fd00:7::2", kind, 255, fmt.Sprint("forged ", kind))
			forge(t, inWeb, "fd00:9::3", kind, 255, fmt.Sprint("forged ", kind))
			forge(t, outside, "fd00:9::2", kind, 255, fmt.Sprint("forged ", kind))
		}
		forge(t, inOther, "fd00:7::2", 128, 64, "last")
		forge(t, outside, "fd00:9::3", 128, 64, "last")
		forge(t, node, "fd00:9::2", 128, 64, "last")
		return append(heard(t, outside, "last"), heard(t, inOther, "last")...), heard(t, inWeb, "last")
	}
	if sent, got := exchange(); len(sent) != 2*len(kinds) || len(got) != len(kinds) {
		t.Fatalf("without a policy sent %q, got %q", sent, got)
	}
	w.manifest("nothing", denyEverything)
	w.eventually("the policy denies", func() bool { return strings.Count(ruleset(), `"`+web.link+`" : goto`) == 2 })
	if sent, got := exchange(); len(sent)+len(got) > 0 {
		t.Errorf("a pod that is denied everything sends %q and gets %q\n%s", sent, got, ruleset())
	}
	nettest.IP(t, web.ns, "neigh flush dev eth0")
	w.eventually("the pod finds its gateway", func() bool {
		_, _ = nettest.Try(web.ns, "ping", "-c1", "-W1", "fe80::1%eth0")
		return strings.Contains(nettest.IP(t, web.ns, "neigh show fe80::1 dev eth0"), "lladdr")
	})
}

// TestNeighborDiscoveryInPods: a table in a pod accepts neighbor discovery and multicast reports of its link only.
func TestNeighborDiscoveryInPods(t *testing.T) {
	w := newWorld(t)
	w.start()
	web, other := w.pod("shop/web", "app: web"), w.pod("shop/other", "app: other")
	for i, p := range []*pod{web, other} {
		addr := fmt.Sprintf("fd00:8::%d", i+2)
		q := w.bridged(p, i+2, func(g *model.WorkloadEndpoint) { g.Addrs = append(g.Addrs, netip.MustParseAddr(addr)) })
		nettest.IP(t, q.ns, "addr add "+addr+"/64 dev net1 nodad")
	}
	nettest.IP(t, nil, "addr add fd00:8::1/64 dev pbr0 nodad")
	for _, to := range []string{"fd00:8::2", "fd00:8::3"} {
		w.reaches(nil, to)
	}
	w.reaches(web.ns, "fd00:8::3")
	w.reaches(other.ns, "fd00:8::2")
	inWeb, inOther, node := icmp6(t, web.ns, "net1"), icmp6(t, other.ns, "net1"), icmp6(t, nil, "pbr0")
	exchange := func(kind byte, hops int, group string) (arrived int) {
		for _, way := range []struct {
			from, to int
			addr     string
		}{{inWeb, inOther, "fd00:8::3"}, {inOther, inWeb, "fd00:8::2"}} {
			to := way.addr
			if group != "" {
				to = group
			}
			forge(t, way.from, to, kind, hops, "forged")
			forge(t, node, way.addr, 128, 64, "last")
			arrived += len(heard(t, way.to, "last"))
		}
		return arrived
	}
	if n := exchange(135, 254, ""); n != 2 {
		t.Fatalf("without a policy %d of 2 arrive", n)
	}
	w.manifest("fast", denyFast)
	w.eventually("the policy denies", func() bool { return exchange(128, 64, "") == 0 })
	for _, c := range []struct {
		kind  byte
		hops  int
		group string
		want  int
	}{
		{133, 254, "", 0},
		{135, 254, "", 0},
		{136, 64, "", 0},
		{137, 254, "", 0},
		{141, 254, "", 0},
		{142, 64, "", 0},
		{130, 64, "", 0},
		{131, 255, "", 0},
		{132, 1, "", 0},
		{143, 64, "", 0},
		{143, 1, "", 0},
		{143, 64, "ff02::1", 0},
		{138, 1, "ff02::1", 0},
		{135, 255, "", 2},
		{136, 255, "", 2},
		{143, 1, "ff02::1", 2},
		{131, 1, "ff02::1", 2},
	} {
		if n := exchange(c.kind, c.hops, c.group); n != c.want {
			t.Errorf("type %d with hop limit %d to %q: %d arrive, want %d", c.kind, c.hops, c.group, n, c.want)
		}
	}
}
