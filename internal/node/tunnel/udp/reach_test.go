// SPDX-License-Identifier: Apache-2.0

package udp_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/node/tunnel/tun"
	"github.com/weft-net/weft/internal/node/tunnel/udp"
)

func TestMain(m *testing.M) {
	if words := os.Getenv(child); words != "" {
		fmt.Fprintln(os.Stderr, node(strings.Fields(words)))
		os.Exit(1)
	}
	os.Exit(nettest.Main(m))
}

// end is a node at one end of a wire, with its tunnels.
type end struct {
	n     int
	ns    *netns.NS
	paths map[int]*udp.Path // by family
	done  chan error
	stop  func()
}

const port = 8285

func link(family int) string { return map[int]string{4: "flannel0", 6: "flannel0-v6"}[family] }

func (e *end) underlay(family int) netip.Addr {
	return netip.MustParseAddr(fmt.Sprintf(map[int]string{4: "192.168.0.%d", 6: "fd00::%d"}[family], e.n))
}

func (e *end) prefix(family int) netip.Prefix {
	return netip.MustParsePrefix(fmt.Sprintf(map[int]string{4: "10.244.%d.0/24", 6: "fd00:244:%d::/64"}[family], e.n))
}

// pod is an address that answers at the node.
func (e *end) pod(family int) string {
	return fmt.Sprintf(map[int]string{4: "10.244.%d.5", 6: "fd00:244:%d::5"}[family], e.n)
}

func ip(t testing.TB, ns *netns.NS, commands ...string) {
	t.Helper()
	for _, c := range commands {
		nettest.IP(t, ns, c)
	}
}

// wire makes two nodes joined by a cable.
func wire(t testing.TB) (a, b *end) {
	t.Helper()
	nettest.Need(t, "tap")
	a, b = &end{n: 1}, &end{n: 2}
	for _, e := range []*end{a, b} {
		e.ns = nettest.NS(t, fmt.Sprintf("n%d", e.n))
	}
	ip(t, a.ns, "link add eth0 address 02:00:00:00:00:01 type veth peer name eth0 address 02:00:00:00:00:02 netns "+
		b.ns.Path())
	for _, e := range []*end{a, b} {
		o := 3 - e.n
		ip(t, e.ns, "link set lo up", "link set eth0 up")
		for family, bits := range map[int]int{4: 24, 6: 64} {
			dev := link(family)
			peer := &end{n: o}
			mtu := map[int]int{4: 1500 - 28, 6: 1500 - 48}[family]
			ip(t, e.ns, fmt.Sprintf("addr add %s/%d dev eth0%s", e.underlay(family), bits, nodad(family)),
				fmt.Sprintf("neigh add %s lladdr 02:00:00:00:00:0%d dev eth0 nud permanent", peer.underlay(family), o),
				"tuntap add "+dev+" mode tun", fmt.Sprintf("link set %s mtu %d up", dev, mtu),
				"addr add "+e.prefix(family).Addr().String()+" dev "+dev+nodad(family),
				"addr add "+e.pod(family)+" dev lo"+nodad(family),
				fmt.Sprintf("route add %s dev %s src %s", peer.prefix(family), dev, e.pod(family)))
		}
	}
	return a, b
}

func nodad(family int) string {
	if family == 6 {
		return " nodad"
	}
	return ""
}

// start opens both families' tunnels to the peers.
func (e *end) start(t testing.TB, peers ...*end) {
	t.Helper()
	e.paths, e.done = map[int]*udp.Path{}, make(chan error, 2)
	ctx, cancel := context.WithCancel(context.Background())
	for _, family := range []int{4, 6} {
		p, err := udp.Open(udp.Config{
			NS: e.ns, Link: link(family), Listen: netip.AddrPortFrom(e.underlay(family), port),
			Own: e.prefix(family).Addr(), Now: time.Now,
		})
		if err != nil {
			t.Fatal(err)
		}
		e.paths[family] = p
		go func() { e.done <- p.Run(ctx) }()
	}
	e.know(peers...)
	e.stop = func() {
		cancel()
		for range e.paths {
			select {
			case err := <-e.done:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(time.Minute):
				t.Fatal("a tunnel does not end")
			}
		}
		e.stop = func() {}
	}
	t.Cleanup(func() { e.stop() })
}

// know configures the peers of the tunnels.
func (e *end) know(peers ...*end) {
	for family, p := range e.paths {
		var list []udp.Peer
		var accept udp.Accept
		for _, o := range peers {
			list = append(list, udp.Peer{Prefix: o.prefix(family), To: netip.AddrPortFrom(o.underlay(family), port)})
			accept.Senders = append(accept.Senders, udp.Sender{
				Addrs: []netip.Addr{o.underlay(family)}, Prefixes: []netip.Prefix{o.prefix(family)},
			})
		}
		p.SetPeers(list, accept)
	}
}

func ping(t testing.TB, from *end, words ...string) (string, bool) {
	t.Helper()
	out, err := nettest.Try(from.ns, append([]string{"ping", "-n", "-c1", "-W2"}, words...)...)
	return out, err == nil
}

// answered pings until there is an answer: a device whose program has just come drops what is sent before a worker of
// the kernel has heard of it.
func answered(t testing.TB, from *end, words ...string) {
	t.Helper()
	out, ok := "", false
	for begin := time.Now(); !ok && time.Since(begin) < time.Minute; {
		out, ok = ping(t, from, words...)
	}
	if !ok {
		t.Fatalf("no answer:\n%s", out)
	}
}

func TestReach(t *testing.T) {
	a, b := wire(t)
	a.start(t, b)
	b.start(t, a)
	for _, family := range []int{4, 6} {
		t.Run(fmt.Sprint("IPv", family), func(t *testing.T) {
			answered(t, a, b.pod(family))
			most := map[int]string{4: "1444", 6: "1404"}[family] // MTU without the headers of IP and ICMP
			if out, ok := ping(t, a, "-M", "do", "-s", most, b.pod(family)); !ok {
				t.Errorf("a packet of the MTU's size:\n%s", out)
			}
			if out, ok := ping(t, a, "-s", "20000", b.pod(family)); !ok {
				t.Errorf("fragments:\n%s", out)
			}
			stream(t, a, b, family, 8<<20)
			stream(t, b, a, family, 3<<20+17)
			if n := a.paths[family].Stats().Malformed.Load() + b.paths[family].Stats().Malformed.Load(); n != 0 {
				t.Errorf("%d packets were taken for none", n)
			}
		})
	}
}

// stream sends bytes over TCP and compares what arrives.
func stream(t testing.TB, from, to *end, family, size int) {
	t.Helper()
	var l net.Listener
	err := to.ns.Do(func() (err error) {
		l, err = net.Listen("tcp", net.JoinHostPort(to.pod(family), "0"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	got := make(chan [32]byte, 1)
	go func() {
		h := sha256.New()
		if c, err := l.Accept(); err == nil {
			_ = c.SetDeadline(time.Now().Add(30 * time.Second))
			_, _ = io.Copy(h, c)
			_ = c.Close()
		}
		got <- [32]byte(h.Sum(nil))
	}()
	data := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{7}).Read(data)
	err = from.ns.Do(func() error {
		c, err := net.DialTimeout("tcp", l.Addr().String(), time.Minute)
		if err != nil {
			return err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(30 * time.Second))
		_, err = io.Copy(c, bytes.NewReader(data))
		return err
	})
	if err != nil {
		_ = l.Close()
		t.Fatalf("stream of %d bytes: %v", size, err)
	}
	if <-got != sha256.Sum256(data) {
		t.Errorf("stream of %d bytes: what arrived is not what was sent", size)
	}
}

// TestSendersGetErrors: a packet whose TTL expires at either end of the tunnel, or whose destination is no peer's,
// causes an ICMP error.
func TestSendersGetErrors(t *testing.T) {
	a, b := wire(t)
	a.start(t, b)
	b.start(t, a)
	answered(t, a, b.pod(4))
	answered(t, a, b.pod(6))
	ip(t, a.ns, "route add 10.244.9.0/24 dev flannel0", "route add fd00:244:9::/64 dev flannel0-v6")
	for _, c := range []struct {
		name string
		args []string
		want []string
	}{
		{"ends at the near end", []string{"-t", "1", b.pod(4)}, []string{"From 10.244.1.0", "Time to live exceeded"}},
		{"ends at the far end", []string{"-t", "2", b.pod(4)}, []string{"From 10.244.2.0", "Time to live exceeded"}},
		{"arrives with its last", []string{"-t", "3", b.pod(4)}, []string{"1 received", "ttl=62"}},
		{"IPv6: ends at the near end", []string{"-t", "1", b.pod(6)}, []string{"From fd00:244:1::", "Hop limit"}},
		{"IPv6: ends at the far end", []string{"-t", "2", b.pod(6)}, []string{"From fd00:244:2::", "Hop limit"}},
		{"IPv6: arrives with its last", []string{"-t", "3", b.pod(6)}, []string{"1 received", "ttl=62"}},
		{"nobody's", []string{"10.244.9.1"}, []string{"From 10.244.1.0", "Destination Net Unreachable"}},
		{"IPv6: nobody's", []string{"fd00:244:9::1"}, []string{"From fd00:244:1::", "No route"}},
	} {
		out, _ := ping(t, a, c.args...)
		for _, w := range c.want {
			if !strings.Contains(out, w) {
				t.Errorf("%s: %q is not in\n%s", c.name, w, out)
			}
		}
	}
}

// Peers change while packets flow, and a path that ends leaves nothing behind.
func TestPeersChange(t *testing.T) {
	a, b := wire(t)
	a.start(t, b)
	b.start(t, a)
	answered(t, a, b.pod(4))
	a.know()
	if out, ok := ping(t, a, b.pod(4)); ok {
		t.Errorf("answer of one who is no peer:\n%s", out)
	}
	a.know(b)
	answered(t, a, b.pod(4))
	over := make(chan struct{})
	go func() {
		defer close(over)
		for range 200 {
			a.know(&end{n: 7}, b)
			a.know(b)
		}
	}()
	stream(t, a, b, 4, 4<<20)
	<-over
	b.stop()
	if _, ok := ping(t, a, b.pod(4)); ok {
		t.Error("answer though the other end is closed")
	}
	b.start(t, a)
	answered(t, a, b.pod(4))
}

// A path whose device is deleted says so at once.
func TestDeviceDeleted(t *testing.T) {
	a, b := wire(t)
	a.start(t, b)
	b.start(t, a)
	answered(t, a, b.pod(4))
	ip(t, a.ns, "link del flannel0")
	select {
	case err := <-a.done:
		if !errors.Is(err, tun.ErrMissing) {
			t.Errorf("the path ended with %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the path does not see that its device is gone")
	}
	a.done <- nil
	_, err := udp.Open(udp.Config{
		NS: a.ns, Link: "flannel0", Listen: netip.AddrPortFrom(a.underlay(4), port), Now: time.Now,
	})
	if !errors.Is(err, tun.ErrMissing) {
		t.Errorf("opened a device that is not there: %v", err)
	}
	if out, err := nettest.Try(a.ns, "ip", "link", "show", "flannel0"); err == nil {
		t.Errorf("trying made a device:\n%s", out)
	}
}

// A way that carries less than the wire at its beginning says: the kernel cuts nothing then, and packets still arrive.
func TestSmallerWay(t *testing.T) {
	a, b := wire(t)
	a.start(t, b)
	b.start(t, a)
	ip(t, a.ns, "route add 192.168.0.2 dev eth0 mtu 1000", "-6 route add fd00::2 dev eth0 mtu 1300")
	for _, family := range []int{4, 6} {
		answered(t, a, "-s", "1400", b.pod(family))
		stream(t, a, b, family, 2<<20)
	}
	if n := a.paths[4].Stats().Unsent.Load(); n != 0 {
		t.Errorf("%d packets were not sent", n)
	}
}

// A program that is killed leaves the device with its routes, and the next one continues.
func TestKilled(t *testing.T) {
	a, b := wire(t)
	for range 3 {
		stop := proxies(t, a, b)
		answered(t, a, b.pod(4))
		stop()
		if out := nettest.Run(t, a.ns, "ip", "route"); !strings.Contains(out, "10.244.2.0/24 dev flannel0") {
			t.Fatalf("the route is gone:\n%s", out)
		}
	}
}
