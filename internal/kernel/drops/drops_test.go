// SPDX-License-Identifier: Apache-2.0

package drops_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/weft-net/weft/internal/kernel/drops"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

// start starts a session, or skips the test where the kernel lacks what it needs.
func start(t *testing.T, f drops.Filter) *drops.Session {
	t.Helper()
	s, err := drops.Start(f, nil)
	if err != nil {
		nettest.Skip(t, "drops are not reported: "+err.Error())
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// pair is two hosts, of which the second is also a router to 198.18.9.0/24.
func pair(t *testing.T) (a, b *netns.NS) {
	t.Helper()
	a, b = nettest.NS(t, "a"), nettest.NS(t, "b")
	for _, c := range []struct {
		ns   *netns.NS
		line string
	}{
		{a, "link add one type veth peer name two netns " + b.Path()},
		{a, "link set one up"},
		{b, "link set two up"},
		{b, "link set lo up"},
		{a, "addr add 198.18.1.1/24 dev one"},
		{b, "addr add 198.18.1.2/24 dev two"},
		{a, "addr add 2001:2:0:1::1/64 dev one nodad"},
		{b, "addr add 2001:2:0:1::2/64 dev two nodad"},
		{a, "route add 198.18.9.0/24 via 198.18.1.2"},
		{b, "route add blackhole 198.18.9.0/25"},
		{b, "link add dark type bridge"},
		{b, "link set dark up"},
		{b, "route add 198.18.9.128/25 dev dark"},
	} {
		nettest.Run(t, c.ns, append([]string{"ip"}, strings.Fields(c.line)...)...)
	}
	nettest.Run(t, b, "sysctl", "-qw", "net.ipv4.ip_forward=1")
	return a, b
}

// datagram sends a datagram from a namespace.
func datagram(t *testing.T, from *netns.NS, to string) {
	t.Helper()
	err := from.Do(func() error {
		c, err := net.Dial("udp", to)
		if err != nil {
			return err
		}
		_, err = c.Write([]byte("x"))
		return errors.Join(err, c.Close())
	})
	if err != nil {
		t.Fatal(err)
	}
}

// await waits for a drop that matches.
func await(t *testing.T, s *drops.Session, match func(drops.Drop) bool) {
	t.Helper()
	var seen []drops.Drop
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		var err error
		if seen, _, err = s.Seen(); err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(seen, match) {
			return
		}
	}
	for i := range seen {
		seen[i].Packet = seen[i].Packet[:28]
	}
	t.Errorf("not among %+v", seen)
}

// Packets that die without a rule have the kernel's reason, function, interface and namespace.
func TestReasons(t *testing.T) {
	a, b := pair(t)
	id, err := b.ID()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, addr, reason string
		prepare            []string // in b
		send               func()
	}{
		{"no socket", "198.18.1.1", "NO_SOCKET", nil, func() { datagram(t, a, "198.18.1.2:9") }},
		{"no socket, IPv6", "2001:2:0:1::1", "NO_SOCKET", nil, func() { datagram(t, a, "[2001:2:0:1::2]:9") }},
		{
			"reverse path filter", "198.18.7.7", "IP_RPFILTER",
			[]string{"sysctl", "-qw", "net.ipv4.conf.all.rp_filter=1"},
			func() {
				nettest.Run(t, a, "sysctl", "-qw", "net.ipv4.conf.one.arp_announce=2") // asks with its own address
				nettest.Run(t, a, "sh", "-c", "ip link set lo up; ip addr add 198.18.7.7/32 dev lo; ping -c1 -W1 -I 198.18.7.7 198.18.1.2 || true")
			},
		},
		{
			"a packet filter", "198.18.1.1", "NETFILTER_DROP", []string{"nft", "add table inet fw; add chain inet fw i { type filter hook input priority 0; policy drop; }"}, func() { datagram(t, a, "198.18.1.2:9") },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := start(t, drops.Filter{Addr: netip.MustParseAddr(c.addr)})
			if c.prepare != nil {
				nettest.Run(t, b, c.prepare...)
			}
			c.send()
			await(t, s, func(d drops.Drop) bool {
				return d.Reason == c.reason && d.Interface == "two" && d.Namespace == id && d.Function != "" &&
					bytes.Contains(d.Packet[:40], netip.MustParseAddr(c.addr).AsSlice())
			})
		})
	}
}

// Packets of other addresses are not reported; those of a tunnel's port are, in both families.
func TestFilter(t *testing.T) {
	a, _ := pair(t)
	other := start(t, drops.Filter{Addr: netip.MustParseAddr("192.0.2.1")})
	tunnel := start(t, drops.Filter{Addr: netip.MustParseAddr("192.0.2.1"), TunnelPort: 8472})
	for _, to := range []string{"198.18.1.2", "[2001:2:0:1::2]"} {
		datagram(t, a, to+":8472")
		datagram(t, a, to+":9")
	}
	for _, version := range []byte{4, 6} {
		await(t, tunnel, func(d drops.Drop) bool { return d.Packet[0]>>4 == version && d.Reason == "NO_SOCKET" })
	}
	if seen, _, err := other.Seen(); err != nil || len(seen) > 0 {
		t.Errorf("%d drops of other addresses, %v", len(seen), err)
	}
}

// Only what is asked for is kept: many other drops do not take its place.
func TestKeep(t *testing.T) {
	a, _ := pair(t)
	s, err := drops.Start(drops.Filter{Addr: netip.MustParseAddr("198.18.1.1")}, func(packet []byte) bool {
		return packet[22] == 0 && packet[23] == 9 // the destination port
	})
	if err != nil {
		nettest.Skip(t, "drops are not reported: "+err.Error())
	}
	defer func() { _ = s.Close() }()
	for range 1100 {
		datagram(t, a, "198.18.1.2:7")
	}
	datagram(t, a, "198.18.1.2:9")
	await(t, s, func(d drops.Drop) bool { return d.Reason == "NO_SOCKET" })
	if seen, lost, err := s.Seen(); len(seen) != 1 || lost || err != nil {
		t.Errorf("%d drops, lost %v, %v", len(seen), lost, err)
	}
}

// A session that is closed leaves no program and no map.
func TestNothingIsLeft(t *testing.T) {
	before := programs(t)
	s, err := drops.Start(drops.Filter{Addr: netip.MustParseAddr("192.0.2.1")}, nil)
	if err != nil {
		nettest.Skip(t, "drops are not reported: "+err.Error())
	}
	ours := slices.DeleteFunc(programs(t), func(id ebpf.ProgramID) bool { return slices.Contains(before, id) })
	if len(ours) == 0 {
		t.Error("no program while it runs")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	left := func() bool {
		return slices.ContainsFunc(programs(t), func(id ebpf.ProgramID) bool { return slices.Contains(ours, id) })
	}
	for end := time.Now().Add(time.Minute); left(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the program is still there")
		}
	}
}

// programs returns the programs of sessions in the kernel, also those of others.
func programs(t *testing.T) (out []ebpf.ProgramID) {
	t.Helper()
	for id := ebpf.ProgramID(0); ; {
		next, err := ebpf.ProgramGetNextID(id)
		if errors.Is(err, os.ErrNotExist) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		id = next
		p, err := ebpf.NewProgramFromID(id)
		if err != nil {
			continue // gone meanwhile
		}
		if info, err := p.Info(); err == nil && info.Name == "weft_drops" {
			out = append(out, id)
		}
		_ = p.Close()
	}
}

// A stream has all drops of the wanted reasons, and no others; what the ring has no room for is counted.
func TestStream(t *testing.T) {
	a, b := pair(t)
	nettest.Run(t, b, "nft", "add table inet t; add chain inet t c { type filter hook input priority 0; }; "+
		"add rule inet t c udp dport 7000-9999 drop")
	id, err := b.ID()
	if err != nil {
		t.Fatal(err)
	}
	const sent = 3000
	hold, count, others := make(chan struct{}), 0, 0
	var first drops.Drop
	s, err := drops.Stream(drops.Filter{Reasons: []string{"NETFILTER_DROP", "NO_SUCH_REASON"}}, func(d drops.Drop) {
		if d.Namespace != id {
			return
		}
		<-hold
		if d.Reason != "NETFILTER_DROP" {
			others++
		}
		if count++; count == 1 {
			first = d
		}
	})
	if err != nil {
		nettest.Skip(t, "drops are not reported: "+err.Error())
	}
	datagram(t, a, "198.18.1.2:9") // no socket: another reason
	for i := range sent {
		datagram(t, a, fmt.Sprintf("198.18.1.2:%d", 7000+i))
	}
	close(hold)
	var missed uint64
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if missed, err = s.Missed(); err != nil {
			t.Fatal(err)
		}
		if s.Idle() {
			break
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// Those of other namespaces may be among the missed ones.
	if count > sent || missed == 0 || uint64(count)+missed < sent || others > 0 || first.Interface != "two" || first.Packet[0]>>4 != 4 {
		t.Errorf("%d of %d, %d missed, %d of other reasons; the first at %q", count, sent, missed, others, first.Interface)
	}
}
