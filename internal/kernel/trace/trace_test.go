// SPDX-License-Identifier: Apache-2.0

package trace_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/weft-net/weft/internal/kernel/trace"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

// path is a client, a router and a server.
func path(t *testing.T) (client, router, server *netns.NS) {
	t.Helper()
	client, router, server = nettest.NS(t, "client"), nettest.NS(t, "router"), nettest.NS(t, "server")
	for i, ns := range []*netns.NS{client, server} {
		link, net := fmt.Sprintf("to%d", i), fmt.Sprintf("10.%d.0", i+1)
		six := fmt.Sprintf("fd0%d::", i+1)
		nettest.Run(t, router, "ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", ns.Path())
		nettest.Run(t, router, "ip", "addr", "add", net+".1/24", "dev", link)
		nettest.Run(t, router, "ip", "addr", "add", six+"1/64", "dev", link, "nodad")
		nettest.Run(t, router, "ip", "link", "set", link, "up")
		nettest.Run(t, ns, "ip", "addr", "add", net+".2/24", "dev", "eth0")
		nettest.Run(t, ns, "ip", "addr", "add", six+"2/64", "dev", "eth0", "nodad")
		nettest.Run(t, ns, "ip", "link", "set", "eth0", "up")
		nettest.Run(t, ns, "ip", "route", "add", "default", "via", net+".1")
		nettest.Run(t, ns, "ip", "-6", "route", "add", "default", "via", six+"1")
	}
	nettest.Run(t, router, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
	return client, router, server
}

func start(t *testing.T, ns *netns.NS, p trace.Probe) *trace.Session {
	t.Helper()
	s, err := trace.Start(t.Context(), ns, p.Matches(0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// wait returns the steps once they have one that is wanted.
func wait(t *testing.T, s *trace.Session, what string, want func(trace.Seen) bool) []trace.Seen {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		seen, lost := s.Seen()
		if slices.ContainsFunc(seen, want) || lost {
			return seen
		}
		if time.Now().After(end) {
			t.Fatalf("%s was not seen; seen: %+v", what, seen)
		}
	}
}

func probe(from, to string) trace.Probe {
	return trace.Probe{
		Protocol: unix.IPPROTO_TCP, Cookie: 0x5eed1234, From: netip.MustParseAddrPort(from), To: netip.MustParseAddrPort(to),
	}
}

// A probe and its answer are seen where they pass, with the rules that they meet; other packets are not.
func TestTrace(t *testing.T) {
	client, router, server := path(t)
	nettest.Run(
		t,
		router,
		"nft",
		"add table inet fw; add chain inet fw f { type filter hook forward priority 0 ; policy accept ; }; "+
			"add rule inet fw f tcp dport 80 accept",
	)
	for _, p := range []trace.Probe{probe("10.1.0.2:40000", "10.2.0.2:80"), probe("[fd01::2]:40000", "[fd02::2]:80")} {
		r, s := start(t, router, p), start(t, server, p)
		nettest.Run(t, client, "ping", "-c", "1", "-W", "10", p.To.Addr().String())
		if err := p.Send(client); err != nil {
			t.Fatal(err)
		}
		seen := wait(
			t,
			s,
			"the answer at the server",
			func(e trace.Seen) bool { return e.Verdict == trace.Arrived && e.From == p.To },
		)
		if e := seen[0]; e.Verdict != trace.Arrived || e.Chain != "prerouting" || e.In != "eth0" || e.From != p.From ||
			e.To != p.To {
			t.Errorf("at the server: %+v", e)
		}
		seen = wait(t, r, "the answer at the router", func(e trace.Seen) bool { return e.Table == "fw" && e.From == p.To })
		rule := slices.IndexFunc(
			seen,
			func(e trace.Seen) bool { return e.Table == "fw" && e.Handle != 0 && e.From == p.From },
		)
		if rule < 0 || seen[rule].Verdict != "accept" || seen[rule].In != "to0" || seen[rule].Out != "to1" ||
			seen[rule].Chain != "f" {
			t.Errorf("at the router: %+v", seen)
		}
		for _, e := range seen {
			if e.From.Port() != p.From.Port() && e.From.Port() != p.To.Port() {
				t.Errorf("a packet that was not asked for: %+v", e)
			}
		}
		if err := errors.Join(r.Close(), s.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// Datagrams and echo requests arrive whole, and an echo reply is seen, too.
func TestOtherProtocols(t *testing.T) {
	client, _, server := path(t)
	for _, c := range []struct {
		protocol uint8
		from, to string
		answered bool
	}{
		{unix.IPPROTO_UDP, "10.1.0.2:40000", "10.2.0.2:53", false},
		{unix.IPPROTO_UDP, "[fd01::2]:40000", "[fd02::2]:53", false},
		{unix.IPPROTO_ICMP, "10.1.0.2:0", "10.2.0.2:0", true},
		{unix.IPPROTO_ICMPV6, "[fd01::2]:0", "[fd02::2]:0", true},
	} {
		p := probe(c.from, c.to)
		p.Protocol = c.protocol
		s := start(t, server, p)
		if err := p.Send(client); err != nil {
			t.Fatal(err)
		}
		wait(
			t,
			s,
			"the probe",
			func(e trace.Seen) bool { return e.Verdict == trace.Arrived && e.From.Addr() == p.From.Addr() },
		)
		if c.answered {
			wait(
				t,
				s,
				"the reply",
				func(e trace.Seen) bool { return e.Verdict == trace.Arrived && e.From.Addr() == p.To.Addr() },
			)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	received := nettest.Run(t, server, "cat", "/proc/net/snmp")
	for _, line := range strings.Split(received, "\n") { // wrong checksums
		if f := strings.Fields(line); len(f) > 3 && f[0] == "Icmp:" && f[1] != "InMsgs" && f[3] != "0" {
			t.Errorf("errors of ICMP: %s", line)
		}
	}
}

// The rule that drops the probe is the last step; the policy of a chain, too.
func TestDropped(t *testing.T) {
	client, router, _ := path(t)
	p := probe("10.1.0.2:40000", "10.2.0.2:80")
	for name, c := range map[string]struct {
		rules  string
		policy bool
	}{
		"rule":   {"add chain inet fw f { type filter hook forward priority 5 ; policy accept ; }; add rule inet fw f tcp dport 80 drop", false},
		"policy": {"add chain inet fw f { type filter hook forward priority 5 ; policy drop ; }", true},
	} {
		t.Run(name, func(t *testing.T) {
			nettest.Run(t, router, "nft", "add table inet fw; "+c.rules)
			defer nettest.Run(t, router, "nft", "delete table inet fw")
			s := start(t, router, p)
			if err := p.Send(client); err != nil {
				t.Fatal(err)
			}
			seen := wait(t, s, "the drop", func(e trace.Seen) bool { return e.Verdict == "drop" })
			last := seen[len(seen)-1]
			if last.Table != "fw" || last.Chain != "f" || last.Policy != c.policy || (last.Handle != 0) == c.policy {
				t.Errorf("%+v", seen)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A probe of a size is not fragmented; one that is too large for the link of the sender is an error.
func TestSize(t *testing.T) {
	client, _, server := path(t)
	p := probe("10.1.0.2:40000", "10.2.0.2:80")
	p.Size = 1500
	s := start(t, server, p)
	if err := p.Send(client); err != nil {
		t.Fatal(err)
	}
	wait(t, s, "a large probe", func(e trace.Seen) bool { return e.Verdict == trace.Arrived && e.From == p.From })
	p.Size = 1501
	if err := p.Send(client); err == nil {
		t.Error("a probe larger than the MTU was sent")
	}
}

// Nothing is left of a trace that has ended, and two in one namespace are refused.
func TestNothingLeft(t *testing.T) {
	ns := nettest.NS(t, "place")
	p := probe("10.1.0.2:40000", "10.2.0.2:80")
	s := start(t, ns, p)
	if out := nettest.Run(t, ns, "nft", "list", "tables"); !strings.Contains(out, "weft-trace") {
		t.Errorf("tables while tracing: %s", out)
	}
	if other, err := trace.Start(t.Context(), ns, p.Matches(0)); err == nil {
		t.Error("two traces in one namespace")
		_ = other.Close()
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if out := nettest.Run(t, ns, "nft", "list", "tables"); out != "" {
		t.Errorf("tables afterwards: %s", out)
	}
}

// Probes that cannot be sent are refused before anything is done.
func TestCheck(t *testing.T) {
	good := probe("10.1.0.2:40000", "10.2.0.2:80")
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*trace.Probe){
		"no addresses": func(p *trace.Probe) { p.From = netip.AddrPort{} },
		"families":     func(p *trace.Probe) { p.To = netip.MustParseAddrPort("[fd02::2]:80") },
		"size":         func(p *trace.Probe) { p.Size = 65536 },
		"protocol":     func(p *trace.Probe) { p.Protocol = unix.IPPROTO_SCTP },
	} {
		p := good
		change(&p)
		if p.Check() == nil || p.Send(nil) == nil {
			t.Errorf("%s: %+v is accepted", name, p)
		}
	}
}

// A probe and its answer are recognized in a packet's first bytes, also inside of VXLAN; no bytes make it panic.
func TestRecognize(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := trace.Probe{
			Protocol: rapid.SampledFrom([]uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_ICMP}).Draw(t, "protocol"),
			Cookie:   rapid.Uint32Range(1, 1<<31).Draw(t, "cookie"), Live: rapid.Bool().Draw(t, "live"),
			From: netip.MustParseAddrPort("10.1.0.1:0"), To: netip.MustParseAddrPort("10.2.0.2:80"),
		}
		answer, tunnel := rapid.Bool().Draw(t, "answer"), rapid.Bool().Draw(t, "tunnel")
		from, to := p.From, p.To
		if answer {
			from, to = to, from
		}
		packet := make([]byte, 20+20)
		packet[0], packet[9] = 0x45, p.Protocol
		copy(packet[12:], from.Addr().AsSlice())
		copy(packet[16:], to.Addr().AsSlice())
		binary.BigEndian.PutUint16(packet[20:], from.Port())
		binary.BigEndian.PutUint16(packet[22:], to.Port())
		at, value := 28, p.Cookie
		if p.Protocol == unix.IPPROTO_TCP {
			if at = 24; answer {
				at, value = 28, p.Cookie+1
			}
		}
		binary.BigEndian.PutUint32(packet[at:], value)
		if tunnel {
			outer := make([]byte, 20+8+8+14)
			outer[0], outer[9] = 0x45, unix.IPPROTO_UDP
			binary.BigEndian.PutUint16(outer[22:], 8472)
			packet = append(outer, packet...)
		}
		r, ok := p.Recognize(packet, 8472)
		if !ok || r.Answer != answer || r.Tunnel != tunnel {
			t.Fatalf("%+v, %v", r, ok)
		}
		p.Cookie++
		p.To = netip.MustParseAddrPort("10.2.0.2:81")
		if r, ok := p.Recognize(packet, 8472); ok {
			t.Fatalf("another probe: %+v", r)
		}
		_, _ = p.Recognize(packet[:rapid.IntRange(0, len(packet)).Draw(t, "size")], 8472)
		_, _ = p.Recognize(rapid.SliceOfN(rapid.Byte(), 0, 80).Draw(t, "any"), 8472)
	})
}
