// SPDX-License-Identifier: Apache-2.0

package hostile_test

import (
	"encoding/json"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/nettest/forge"
)

// flowtable is a network.fastPath.
const flowtable = "flowtable"

// fastPackets returns how many packets have taken the fast path of a node, by eBPF.
func (n *node) fastPackets() uint64 {
	n.w.Helper()
	// Its exit code is 1 if it finds anything.
	out, _ := nettest.Try(n.ns, filepath.Join(nettest.Programs(n.w), "weft"), "status", "--state-dir", n.w.path(n.name, "state"),
		"-o", "json")
	var status struct {
		Statuses []struct{ FastPath *struct{ Packets uint64 } }
	}
	if err := json.Unmarshal([]byte(out), &status); err != nil || len(status.Statuses) != 1 || status.Statuses[0].FastPath == nil {
		n.w.Fatalf("weft status of %s: %v: %s", n.name, err, out)
	}
	return status.Statuses[0].FastPath.Packets
}

// offloaded reports whether a node has a connection from an address in its flowtable.
func (n *node) offloaded(from net.Addr) bool {
	n.w.Helper()
	_, port, err := net.SplitHostPort(from.String())
	if err != nil {
		n.w.Fatal(err)
	}
	for _, family := range []string{"ipv4", "ipv6"} {
		for line := range strings.Lines(nettest.Run(n.w, n.ns, "conntrack", "-L", "-p", "tcp", "-f", family)) {
			if strings.Contains(line, "sport="+port+" ") && strings.Contains(line, "[OFFLOAD]") {
				return true
			}
		}
	}
	return false
}

// becomesFast uses a connection of a pod of the first node until it takes the fast path there.
func (c *campaign) becomesFast(conn conversation) {
	c.Helper()
	var packets uint64
	if c.fast != flowtable {
		packets = c.nodes[0].fastPackets()
	}
	c.until("a connection takes the fast path", func() bool {
		for range 50 {
			if !conn.echoes(patience) {
				c.Fatalf("%s: nothing comes back", c.spec)
			}
		}
		if c.fast == flowtable {
			return c.nodes[0].offloaded(conn.LocalAddr())
		}
		return c.nodes[0].fastPackets() > packets+50
	})
}

// wasFast checks that connections of the stories have taken the fast path. A flowtable has no count, so one more has to
// take it.
func (c *campaign) wasFast() {
	c.Helper()
	if c.fast == flowtable {
		c.becomesFast(c.stream(c.pods["friend"], c.pods["far"], 0))
		return
	}
	for _, n := range c.nodes {
		if n.fastPackets() < 100 {
			c.Errorf("%s: %d packets have taken the fast path of %s", c.spec, n.fastPackets(), n.name)
		}
	}
}

// outsideOfWindow: a friend has a connection that takes the fast path, and conntrack accepts its packets outside of the
// window. A neighbor sends such packets in the friend's name, and then a policy denies the connection, and the friend sends
// them: no data, acknowledgment or reset arrives, and the first ones do not end the connection.
func outsideOfWindow(c *campaign) (sent, arrived, control int) {
	friend, far := c.pods["friend"], c.pods["far"]
	own := newSender(c, friend.ns, netRaw)
	for i := range 2 {
		conn := c.stream(friend, far, i)
		c.becomesFast(conn)
		at, to := conn.LocalAddr().(*net.TCPAddr).AddrPort(), conn.RemoteAddr().(*net.TCPAddr).AddrPort()
		at, to = netip.AddrPortFrom(at.Addr().Unmap(), at.Port()), netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
		segments := func(by *pod, flags ...byte) []shot {
			s, m := c.stage(by, netRaw), &magazine{next: &c.next}
			for _, f := range flags {
				m.add("", func(w []byte) send {
					return s.to(s.way(to.Addr()), packet{
						src: at.Addr(), dst: to.Addr(), proto: protoTCP, body: forge.TCP(at, to, f, w),
					})
				})
			}
			return m.shots
		}
		try := func(by attacker, shots []shot) (heard int) {
			for range 20 {
				for _, s := range shots {
					by.do(s.send)
				}
			}
			c.fence()
			for _, s := range shots {
				heard += c.ears.times(s.word, "pod:far")
			}
			return heard
		}
		const ack, push, reset, fin = 0x10, 0x18, 0x04, 0x11
		forged := segments(c.pods["mallory"], ack, push, reset, fin)
		sent += 20 * len(forged)
		if n := try(c.frames("mallory"), forged); n > 0 {
			c.Logf("arrived: %d segments in another's name, %s", n, familyName(i))
			arrived += n
		}
		if !conn.echoes(patience) {
			c.Errorf("%s: the connection ends by segments of others", c.spec)
		}
		control += try(own, segments(friend, push))
		c.object("policy-closed", networkPolicy("closed", "closed", []string{"Ingress"}, "nobody"))
		c.until("the connection ends with its policy", func() bool { return !conn.echoes(time.Second / 2) })
		late := segments(friend, ack, push, reset, fin)
		sent += 20 * len(late)
		if n := try(own, late); n > 0 {
			c.Logf("arrived: %d segments after the policy, %s", n, familyName(i))
			arrived += n
		}
		c.object("policy-closed", networkPolicy("closed", "closed", []string{"Ingress"}, "friend"))
	}
	return sent, arrived, control
}

// conversation is a TCP connection to an echo server.
type conversation struct{ net.Conn }

// echoes reports whether bytes come back.
func (c conversation) echoes(limit time.Duration) bool {
	b := make([]byte, 100)
	_ = c.SetDeadline(time.Now().Add(limit))
	if _, err := c.Write(b); err != nil {
		return false
	}
	_, err := io.ReadFull(c, b)
	return err == nil
}

// stream returns a connection from a pod to an echo server in another one, which ends with the test.
func (c *campaign) stream(from, to *pod, family int) conversation {
	c.Helper()
	var l net.Listener
	if err := to.ns.Do(func() (err error) {
		l, err = net.Listen("tcp", netip.AddrPortFrom(to.addrs[family], 0).String())
		return err
	}); err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			s, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(s, s); _ = s.Close() }()
		}
	}()
	var out net.Conn
	c.until("a connection from "+from.name+" to "+to.name, func() bool {
		return from.ns.Do(func() (err error) {
			out, err = net.DialTimeout("tcp", l.Addr().String(), 5*time.Second)
			return err
		}) == nil
	})
	c.Cleanup(func() { _ = out.Close() })
	return conversation{out}
}
