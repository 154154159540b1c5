// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// hears reports whether a datagram from one pod arrives at another one.
func hears(t *testing.T, from, to *netns.NS, addr string) bool {
	t.Helper()
	var in net.PacketConn
	if err := to.Do(func() (err error) {
		in, err = net.ListenPacket("udp", net.JoinHostPort(addr, "7777"))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }()
	var out net.Conn
	if err := from.Do(func() (err error) { out, err = net.Dial("udp", in.LocalAddr().String()); return err }); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	for range 3 {
		_, _ = out.Write([]byte("weft"))
		_ = in.SetReadDeadline(time.Now().Add(time.Second))
		if n, _, err := in.ReadFrom(make([]byte, 16)); err == nil && n == 4 {
			return true
		}
	}
	return false
}

// Through a wire that leaves checksums as they are nothing but ping arrives, until the fault is seen; where there is no
// fault nothing is changed.
func TestChecksums(t *testing.T) {
	nettest.Need(t, "vxlan")
	for _, spoiled := range []bool{false, true} {
		name := map[bool]string{false: "whole", true: "broken"}[spoiled]
		t.Run(name, func(t *testing.T) {
			c := pairOf(t, spoiled)
			n1, n2 := c.nodes[0], c.nodes[1]
			within(t, soon, "ping", func() bool {
				_, err := nettest.Try(n1.pod, "ping", "-n", "-c1", "-W1", n2.addrs[0])
				return err == nil
			})
			addrs := n2.addrs
			if spoiled {
				addrs = addrs[:1] // over IPv6 the outer packets have checksums too, and this wire spoils them as well
			}
			for _, addr := range addrs {
				within(t, soon, "a datagram arrives at "+addr, func() bool { return hears(t, n1.pod, n2.pod, addr) })
			}
			if !spoiled {
				within(t, 2*time.Minute, "a verdict", func() bool { return len(n1.reconciler.Status().Checksums) == 2 })
				if s := n1.reconciler.Status(); s.Checksums["flannel.1"] != "whole" ||
					strings.Contains(s.Topology.Text(), "tx_checksum") {
					t.Errorf("%v\n%s", s.Checksums, s.Topology.Text())
				}
				return
			}
			within(t, soon, "the status has the change", func() bool { // it is stored a moment after the kernel has it
				return strings.Contains(n1.reconciler.Status().Topology.Text(), "tx_checksum off")
			})
		})
	}
}

// pairOf is a cluster with two nodes at the two ends of one link.
func pairOf(t *testing.T, spoiled bool) *cluster {
	t.Helper()
	c := newMesh(t, mesh.Config{Backend: "vxlan"})
	for _, m := range c.nodes {
		m.stop()
	}
	if err := c.store.Delete(t.Context(), store.NodeKey("n3"), ""); err != nil {
		t.Fatal(err)
	}
	a, b := c.nodes[0].node, c.nodes[1].node
	ip(t, a, "link del eth0")
	ip(t, b, "link del eth0")
	if spoiled {
		nettest.NoChecksumWire(t, a, b)
	} else {
		ip(t, a, "link add eth0 type veth peer name eth0 netns "+b.Path(), "link set eth0 up")
		ip(t, b, "link set eth0 up")
	}
	for i := 1; i <= 2; i++ {
		ns := c.nodes[i-1].node
		ip(t, ns, "link set eth0 address "+mac(i), fmt.Sprintf("addr add 192.168.0.%d/24 dev eth0", i),
			fmt.Sprintf("addr add fd00::%d/64 dev eth0 nodad", i))
		neigh(t, ns, "eth0", 3-i, fmt.Sprintf("192.168.0.%d", 3-i), fmt.Sprintf("fd00::%d", 3-i))
		c.nodes[i-1].start(c)
	}
	return c
}
