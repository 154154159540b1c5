// SPDX-License-Identifier: Apache-2.0

package lookup_test

import (
	"context"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	bpflink "github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/lookup"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

// router opens a namespace with two links: in, from which packets of 10.1.0.2 arrive, and out.
func router(t *testing.T) (*netns.NS, *lookup.Namespace) {
	t.Helper()
	ns := nettest.NS(t, "router")
	for _, c := range [][]string{
		{"ip", "link", "set", "lo", "up"},
		{"ip", "link", "add", "in", "type", "veth", "peer", "name", "inpeer"},
		{"ip", "link", "add", "out", "type", "veth", "peer", "name", "outpeer"},
		{"ip", "link", "add", "br0", "type", "bridge"},
		{"ip", "link", "set", "inpeer", "master", "br0"},
		{"ip", "addr", "add", "10.1.0.1/24", "dev", "in"},
		{"ip", "addr", "add", "10.2.0.1/24", "dev", "out"},
		{"ip", "-6", "addr", "add", "fd02::1/64", "dev", "out", "nodad"},
		{"ip", "link", "set", "in", "up"},
		{"ip", "link", "set", "out", "up"},
		{"ip", "link", "set", "inpeer", "up"},
		{"ip", "link", "set", "outpeer", "up"},
		{"sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.in.rp_filter=0"},
		{"ip", "route", "add", "blackhole", "10.3.0.0/24"},
		{"ip", "route", "add", "unreachable", "10.4.0.0/24"},
		{"ip", "route", "add", "prohibit", "10.5.0.0/24"},
		{"ip", "route", "add", "10.6.0.0/24", "via", "10.2.0.9", "mtu", "1300"},
		{"ip", "neigh", "add", "10.2.0.9", "lladdr", "02:00:00:00:00:09", "dev", "out"},
	} {
		nettest.Run(t, ns, c...)
	}
	n, err := lookup.Open(ns)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	return ns, n
}

// The neighbor table counts entries of all namespaces; the permanent ones of this one are counted, too.
func TestNeighborTable(t *testing.T) {
	ns, n := router(t)
	before, err := n.NeighborTable(t.Context(), false)
	if err != nil || before.Max == 0 || before.Entries < before.Permanent || before.Permanent != 1 {
		t.Fatalf("%+v, %v", before, err)
	}
	nettest.Run(t, ns, "sh", "-c",
		"for i in $(seq 10 40); do ip neigh add 10.2.0.$i lladdr 02:00:00:00:00:09 dev out; done")
	nettest.Run(t, ns, "ip", "neigh", "add", "fd02::9", "lladdr", "02:00:00:00:00:09", "dev", "out")
	after, err := n.NeighborTable(t.Context(), false)
	if err != nil || after.Permanent != 32 || after.Entries < 32 || after.Max != before.Max {
		t.Errorf("%+v, then %+v, %v", before, after, err)
	}
	six, err := n.NeighborTable(t.Context(), true)
	if err != nil || six.Permanent != 1 || six.Max == 0 {
		t.Errorf("IPv6: %+v, %v", six, err)
	}
}

// The kernel's own route lookup answers, for packets that arrive, too.
func TestRoute(t *testing.T) {
	ns, n := router(t)
	from := netip.MustParseAddr("10.1.0.2")
	get := func(to, in string) state.RouteLookup {
		t.Helper()
		p := lookup.Packet{To: netip.MustParseAddr(to), In: in}
		if in != "" {
			p.From = from
		}
		r, err := n.Route(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := get("10.2.0.7", "in"); r.Type != "unicast" || r.Out != "out" || r.Gateway.IsValid() || r.Errno != "" {
		t.Errorf("on-link: %+v", r)
	}
	if r := get(
		"10.6.0.7",
		"",
	); r.Out != "out" || r.Gateway.String() != "10.2.0.9" || r.MTU != 1300 || r.Source.String() != "10.2.0.1" ||
		r.Learned {
		t.Errorf("over a gateway: %+v", r)
	}
	if r := get("10.2.0.1", "in"); r.Type != "local" {
		t.Errorf("local: %+v", r)
	}
	if r := get("fd02::7", ""); r.Out != "out" {
		t.Errorf("IPv6: %+v", r)
	}
	for to, want := range map[string]string{
		"10.3.0.1": "EINVAL", "10.4.0.1": "EHOSTUNREACH", "10.5.0.1": "EACCES", "10.9.0.1": "ENETUNREACH",
	} {
		if r := get(to, ""); r.Errno != want {
			t.Errorf("%s: %+v, want %s", to, r, want)
		}
	}
	if r := get("10.2.0.7", "missing"); r.Errno != "ENODEV" {
		t.Errorf("a missing interface: %+v", r)
	}
	nettest.Run(t, ns, "sysctl", "-qw", "net.ipv4.ip_forward=0")
	if r := get("10.2.0.7", "in"); r.Errno != "EHOSTUNREACH" {
		t.Errorf("without forwarding: %+v", r)
	}
}

// Links, neighbors and addresses are as the kernel has them.
func TestState(t *testing.T) {
	ns, n := router(t)
	l, err := n.Link(t.Context(), "inpeer")
	if err != nil || l == nil || !l.Up || !l.Carrier || l.Kind != "veth" || l.Master != "br0" || l.MTU != 1500 ||
		l.MAC.IsZero() {
		t.Errorf("%+v, %v", l, err)
	}
	nettest.Run(t, ns, "ip", "link", "set", "outpeer", "down")
	if l, err = n.Link(t.Context(), "out"); err != nil || l == nil || !l.Up || l.Carrier {
		t.Errorf("without a carrier: %+v, %v", l, err)
	}
	if l, err = n.Link(t.Context(), "missing"); err != nil || l != nil {
		t.Errorf("missing: %+v, %v", l, err)
	}
	neighbor, err := n.Neighbor(t.Context(), "out", netip.MustParseAddr("10.2.0.9"))
	if err != nil || neighbor == nil || neighbor.State != "permanent" || neighbor.MAC.String() != "02:00:00:00:00:09" {
		t.Errorf("%+v, %v", neighbor, err)
	}
	if neighbor, err = n.Neighbor(t.Context(), "out", netip.MustParseAddr("10.2.0.8")); err != nil || neighbor != nil {
		t.Errorf("missing: %+v, %v", neighbor, err)
	}
	addrs, err := n.Addrs(t.Context())
	if err != nil || !slices.Equal(addrs, []netip.Addr{
		netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("10.2.0.1"), netip.MustParseAddr("fd02::1"),
	}) {
		t.Errorf("%v, %v", addrs, err)
	}
	if name, err := n.LinkOf(t.Context(), netip.MustParseAddr("fd02::1")); err != nil || name != "out" {
		t.Errorf("%q, %v", name, err)
	}
}

// Sockets that receive packets to an address are found; others are not.
func TestListening(t *testing.T) {
	ns, n := router(t)
	listen := func(network, address string) {
		t.Helper()
		err := ns.Do(func() error {
			var c net.ListenConfig
			if network[:3] == "udp" {
				p, err := c.ListenPacket(context.Background(), network, address)
				if err == nil {
					t.Cleanup(func() { _ = p.Close() })
				}
				return err
			}
			l, err := c.Listen(context.Background(), network, address)
			if err == nil {
				t.Cleanup(func() { _ = l.Close() })
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	listen("tcp4", "10.1.0.1:80")
	listen("tcp6", "[::]:81")
	listen("tcp", ":82") // of both families
	listen("udp4", "0.0.0.0:53")
	for _, c := range []struct {
		protocol uint8
		to       string
		port     uint16
		found    bool
	}{
		{unix.IPPROTO_TCP, "10.1.0.1", 80, true},
		{unix.IPPROTO_TCP, "10.2.0.1", 80, false}, // another address
		{unix.IPPROTO_TCP, "10.1.0.1", 81, false}, // IPv6 only
		{unix.IPPROTO_TCP, "fd02::1", 81, true},
		{unix.IPPROTO_TCP, "10.1.0.1", 82, true},
		{unix.IPPROTO_TCP, "fd02::1", 82, true},
		{unix.IPPROTO_UDP, "10.1.0.1", 53, true},
		{unix.IPPROTO_UDP, "fd02::1", 53, false},
		{unix.IPPROTO_TCP, "10.1.0.1", 53, false},
	} {
		got, err := n.Listening(t.Context(), c.protocol, netip.MustParseAddr(c.to), c.port)
		if err != nil || len(got) > 0 != c.found {
			t.Errorf("protocol %d, %s port %d: %+v, %v", c.protocol, c.to, c.port, got, err)
		}
	}
}

// What decides about packets besides netfilter is reported, weft's own filters excepted.
func TestPrograms(t *testing.T) {
	ns, n := router(t)
	expect := func(name string, want ...string) {
		t.Helper()
		l, err := n.Link(t.Context(), name)
		if err != nil || !slices.Equal(l.Programs, want) {
			t.Errorf("%s: %q, %v, want %q", name, l.Programs, err, want)
		}
	}
	expect("in")
	nettest.Run(t, ns, "tc", "qdisc", "add", "dev", "in", "clsact")
	filter := func(device, direction string, priority int) {
		t.Helper()
		nettest.Run(t, ns, "tc", "filter", "add", "dev", device, direction, "pref", strconv.Itoa(priority), "protocol", "ip",
			"u32", "match", "u32", "0", "0", "classid", "1:1")
	}
	filter("in", "egress", 1)
	expect("in", "a tc filter of kind u32 for leaving packets")
	nettest.Run(t, ns, "tc", "qdisc", "add", "dev", "inpeer", "ingress")
	filter("inpeer", "ingress", 0x7766) // weft's
	expect("inpeer")
	load := func(kind ebpf.ProgramType, pass int64) *ebpf.Program {
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
			Type: kind, License: "Dual MIT/GPL",
			Instructions: asm.Instructions{asm.LoadImm(asm.R0, pass, asm.DWord), asm.Return()},
		})
		if err != nil {
			nettest.Skip(t, "eBPF programs cannot be loaded: "+err.Error())
		}
		t.Cleanup(func() { _ = p.Close() })
		return p
	}
	xdp, tcx := load(ebpf.XDP, 2), load(ebpf.SchedCLS, -1)
	index := 0
	err := ns.Do(func() error {
		out, err := net.InterfaceByName("out")
		if err != nil {
			return err
		}
		index = out.Index
		l, err := bpflink.AttachXDP(bpflink.XDPOptions{Program: xdp, Interface: index, Flags: bpflink.XDPGenericMode})
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = l.Close() })
		return nil
	})
	if err != nil {
		nettest.Skip(t, "XDP programs cannot be attached: "+err.Error())
	}
	expect("out", "an XDP program")
	err = ns.Do(func() error {
		l, err := bpflink.AttachTCX(bpflink.TCXOptions{Program: tcx, Interface: index, Attach: ebpf.AttachTCXIngress})
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = l.Close() })
		return nil
	})
	if err != nil {
		nettest.Skip(t, "TCX programs cannot be attached: "+err.Error())
	}
	expect("out", "an XDP program", "a TCX program for arriving packets")
}

// An address that an interface has is resolved; another one has no answer within a second.
func TestResolve(t *testing.T) {
	ns, n := router(t)
	far := nettest.NS(t, "far")
	nettest.IP(t, ns, "link set outpeer netns "+far.Path())
	nettest.IP(t, far, "addr add 10.2.0.2/24 dev outpeer")
	nettest.IP(t, far, "-6 addr add fd02::2/64 dev outpeer nodad")
	nettest.IP(t, far, "link set outpeer address 02:00:00:00:00:0a up")
	for _, there := range []string{"10.2.0.2", "fd02::2"} {
		within := time.Now().Add(time.Minute) // the carrier comes back
		for {
			e, err := n.Resolve(t.Context(), "out", netip.MustParseAddr(there))
			if err != nil {
				t.Fatal(err)
			}
			if e != nil && e.MAC.String() == "02:00:00:00:00:0a" && e.State == "reachable" {
				break
			}
			if time.Now().After(within) {
				t.Fatalf("%s: %+v", there, e)
			}
		}
	}
	e, err := n.Resolve(t.Context(), "out", netip.MustParseAddr("10.2.0.3"))
	if err != nil || e == nil || !e.MAC.IsZero() {
		t.Errorf("no interface: %+v, %v", e, err)
	}
	if e, err := n.Resolve(t.Context(), "nosuch", netip.MustParseAddr("10.2.0.3")); e != nil || err != nil {
		t.Errorf("no link: %+v, %v", e, err)
	}
}
