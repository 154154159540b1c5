// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weft-net/weft/internal/kernel/redirect"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }
func addr(s string) netip.Addr     { return netip.MustParseAddr(s) }

// pair opens two new namespaces, the node's and the pod's.
func pair(t testing.TB) Spaces {
	t.Helper()
	host, pod := nettest.NS(t, "host"), nettest.NS(t, "pod")
	return Spaces{Host: dial(t, host), Pod: dial(t, pod), PodNS: pod}
}

func dial(t testing.TB, ns *netns.NS) *Conn {
	t.Helper()
	c, err := Dial(ns)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	c.Programs = redirect.Joins{}
	return c
}

// ptp returns a fragment as the ptp planner makes it.
func ptp(n int) state.Fragment {
	host, alias := fmt.Sprintf("veth%04x", n), fmt.Sprintf("weft:net/%d/eth0", n)
	ip4, ip6 := fmt.Sprintf("10.1.%d.%d", n>>8, n&0xff), fmt.Sprintf("fd00:1::%x", n+2)
	f := state.Fragment{Owner: alias}
	f.Host.Links = []state.Link{{
		Name: host, Kind: state.Veth, MAC: state.SeedMAC(host), MTU: 1400, Up: state.On(), Alias: alias,
		Peer: &state.Peer{Space: state.Pod, Name: "eth0"},
	}}
	f.Pod.Links = []state.Link{{
		Name: "eth0", Kind: state.Veth, MAC: state.SeedMAC(host + "p"), MTU: 1400, Up: state.On(), Alias: alias,
		Peer: &state.Peer{Space: state.Host, Name: host},
	}}
	f.Host.Addrs = []state.Addr{
		{Link: host, Prefix: prefix("10.1.255.1/32")},
		{Link: host, Prefix: prefix("fd00:1::1/128"), NoDAD: true},
		// The source address of the node's neighbor solicitations when it forwards.
		{Link: host, Prefix: prefix("fe80::1/128"), NoDAD: true, NoPrefixRoute: true},
	}
	f.Host.Routes = []state.Route{
		{Dst: prefix(ip4 + "/32"), Link: host}, {Dst: prefix(ip6 + "/128"), Link: host},
	}
	f.Host.Sysctls = []state.Sysctl{
		{Name: "net/ipv4/ip_forward", Value: "1", Shared: true},
		{Name: "net/ipv6/conf/" + host + "/addr_gen_mode", Value: "1", IfPresent: true},
		{Name: "net/ipv4/conf/" + host + "/proxy_arp", Value: "1"},
	}
	f.Pod.Addrs = []state.Addr{
		{Link: "eth0", Prefix: prefix(ip4 + "/16"), NoPrefixRoute: true},
		{Link: "eth0", Prefix: prefix(ip6 + "/64"), NoPrefixRoute: true, NoDAD: true},
	}
	f.Pod.Routes = []state.Route{
		{Dst: prefix("10.1.255.1/32"), Link: "eth0"},
		{Dst: prefix("0.0.0.0/0"), Gw: addr("10.1.255.1"), Link: "eth0"},
		{Dst: prefix("fd00:1::1/128"), Link: "eth0"},
		{Dst: prefix("::/0"), Gw: addr("fd00:1::1"), Link: "eth0"},
	}
	f.Pod.Sysctls = []state.Sysctl{{Name: "net/ipv6/conf/eth0/addr_gen_mode", Value: "1", IfPresent: true}}
	return f
}

// port returns a fragment as the bridge planner makes it.
func port(n int) state.Fragment {
	f := ptp(n)
	f.Host.Links[0].Master = "cni0"
	f.Host.Links[0].Port = &state.PortAttrs{Hairpin: state.On()}
	f.Host.Links = append([]state.Link{{
		Name: "cni0", Kind: state.Bridge, MAC: state.SeedMAC("cni0"), Up: state.On(), Alias: SharedMark, Shared: true,
		Bridge: &state.BridgeAttrs{McastSnooping: state.Off()},
	}}, f.Host.Links...)
	f.Host.Addrs = []state.Addr{{Link: "cni0", Prefix: prefix("10.1.255.1/16"), Shared: true}}
	f.Host.Routes = nil
	f.Pod.Addrs, f.Pod.Routes = f.Pod.Addrs[:1], f.Pod.Routes[1:2]
	f.Pod.Addrs[0].NoPrefixRoute = false
	return f
}

func mustApply(t testing.TB, s Spaces, f state.Fragment) {
	t.Helper()
	if err := s.Apply(t.Context(), f); err != nil {
		t.Fatalf("apply %s: %v", f.Owner, err)
	}
	wantSame(t, s, f)
}

func wantSame(t testing.TB, s Spaces, f state.Fragment) {
	t.Helper()
	d, err := s.Diff(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	if len(d) != 0 {
		t.Fatalf("%s differs from the plan: %v", f.Owner, d)
	}
}

func TestApplyCarriesPackets(t *testing.T) {
	for name, plan := range map[string]func(int) state.Fragment{"ptp": ptp, "bridge": port} {
		t.Run(name, func(t *testing.T) {
			s := pair(t)
			f := plan(1)
			mustApply(t, s, f)
			nettest.Run(t, s.PodNS, "ping", "-c1", "-W20", "10.1.255.1")
			if name == "ptp" {
				nettest.Run(t, s.PodNS, "ping", "-c1", "-W20", "fd00:1::1")
			}
			out := nettest.Run(t, s.PodNS, "ip", "-d", "link", "show", "eth0")
			for _, part := range []string{"mtu 1400", f.Pod.Links[0].MAC.String(), "numtxqueues 1", "addrgenmode none"} {
				if !strings.Contains(out, part) {
					t.Errorf("eth0 lacks %q: %s", part, out)
				}
			}
		})
	}
}

func TestSecondApplyWritesNothing(t *testing.T) {
	for name, plan := range map[string]func(int) state.Fragment{"ptp": ptp, "bridge": port} {
		t.Run(name, func(t *testing.T) {
			s := pair(t)
			mustApply(t, s, plan(1))
			before := s.Host.Writes() + s.Pod.Writes()
			mustApply(t, s, plan(1))
			if n := s.Host.Writes() + s.Pod.Writes() - before; n != 0 {
				t.Errorf("second apply wrote %d requests", n)
			}
		})
	}
}

func TestRemoveLeavesOnlyTheShared(t *testing.T) {
	s := pair(t)
	before := snapshot(t, s)
	for _, f := range []state.Fragment{ptp(1), port(2)} {
		mustApply(t, s, f)
		if err := s.Remove(t.Context(), f); err != nil {
			t.Fatal(err)
		}
		if err := s.Remove(t.Context(), f); err != nil {
			t.Fatalf("second remove: %v", err)
		}
		if err := s.RemoveShared(t.Context(), f); err != nil {
			t.Fatal(err)
		}
		if after := snapshot(t, s); after != before {
			t.Errorf("after remove of %s:\n%s\nbefore:\n%s", f.Owner, after, before)
		}
	}
}

func snapshot(t testing.TB, s Spaces) string {
	t.Helper()
	var b strings.Builder
	for _, c := range []*Conn{s.Host, s.Pod} {
		for _, argv := range [][]string{
			{"ip", "-o", "link"},
			{"ip", "-o", "addr"},
			{"ip", "route"},
			{"ip", "-6", "route"},
			{"ip", "rule"},
			{"nft", "list", "ruleset"},
		} {
			b.WriteString(nettest.Run(t, c.ns, argv...))
		}
	}
	return b.String()
}

func TestReleaseAnswersBeforeTheReaper(t *testing.T) {
	s := pair(t)
	ctx, cancel := context.WithCancel(t.Context())
	r := NewReaper(s.Host, slog.New(slog.DiscardHandler))
	f := port(1)
	mustApply(t, s, f)
	start := time.Now()
	if err := s.Release(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	t.Logf("release took %v", time.Since(start))
	if out := nettest.Run(t, s.Host.ns, "ip", "-o", "link", "show", "veth0001"); !strings.Contains(out, "state DOWN") {
		t.Errorf("the node's end is not down: %s", out)
	}
	host, pod := state.Query{Space: state.Host, Link: "veth0001"}, state.Query{Space: state.Pod, Link: "eth0"}
	answers, err := s.Observe(t.Context(), []state.Query{host, pod})
	if err != nil || answers[host].Found || answers[pod].Found {
		t.Errorf("dead links are seen: %+v, %v", answers, err)
	}
	if d, err := s.Diff(t.Context(), f); err != nil || len(d) == 0 {
		t.Errorf("Diff does not miss dead links: %v, %v", d, err)
	}
	done := make(chan error)
	go func() { done <- r.Run(ctx) }() // it begins with the links that are dead already
	defer func() { cancel(); <-done }()
	if err := r.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	took := time.Since(start)
	if out, err := nettest.Try(s.Host.ns, "ip", "link", "show", "veth0001"); err == nil {
		t.Errorf("a dead link is left: %s", out)
	}
	t.Logf("links were gone after %v", took)
	if took > 30*time.Second {
		t.Errorf("reaper took %v", took)
	}
	mustApply(t, s, f)
}

// The name of a dead link can be reused, with a reaper and without.
func TestDeadLinksAreNotInTheWay(t *testing.T) {
	s := pair(t)
	f := port(1)
	other := port(2)
	other.Pod.Links[0].Name = f.Pod.Links[0].Name // the names in the container are the same
	for _, next := range []state.Fragment{f, other, f} {
		mustApply(t, s, f)
		if err := s.Release(t.Context(), f); err != nil {
			t.Fatal(err)
		}
		mustApply(t, s, next)
		if d, err := s.Diff(t.Context(), next); err != nil || len(d) > 0 {
			t.Errorf("%s after %s: %v, %v", next.Owner, f.Owner, d, err)
		}
		if err := s.Remove(t.Context(), next); err != nil {
			t.Fatal(err)
		}
	}
}

func TestExternalChangesAreRepaired(t *testing.T) {
	acts := map[string][]string{
		"address":  {"ip", "addr", "flush", "dev", "cni0"},
		"mtu":      {"ip", "link", "set", "veth0001", "mtu", "1300"},
		"down":     {"ip", "link", "set", "veth0001", "down"},
		"master":   {"ip", "link", "set", "veth0001", "nomaster"},
		"hairpin":  {"bridge", "link", "set", "dev", "veth0001", "hairpin", "off"},
		"sysctl":   {"sysctl", "-qw", "net.ipv4.ip_forward=0"},
		"bridge":   {"ip", "link", "set", "cni0", "type", "bridge", "mcast_snooping", "1"},
		"mac":      {"ip", "link", "set", "cni0", "address", "02:00:00:00:00:09"},
		"pair":     {"ip", "link", "del", "veth0001"},
		"addrmode": {"ip", "link", "set", "veth0001", "addrgenmode", "eui64"},
		"device":   {"ip", "link", "del", "cni0"},
	}
	s := pair(t)
	f := port(1)
	mustApply(t, s, f)
	for name, argv := range acts {
		nettest.Run(t, s.Host.ns, argv...)
		d, err := s.Diff(t.Context(), f)
		if err != nil || len(d) == 0 {
			t.Errorf("%s: vandalism was not seen (%v)", name, err)
		}
		mustApply(t, s, f)
	}
	pods := map[string][]string{
		"default": {"ip", "route", "del", "default"}, "addr": {"ip", "addr", "flush", "dev", "eth0"},
		"eth0": {"ip", "link", "del", "eth0"},
	}
	for name, argv := range pods {
		nettest.Run(t, s.PodNS, argv...)
		t.Log(name)
		mustApply(t, s, f)
	}
}

func TestForeignLinkStays(t *testing.T) {
	s := pair(t)
	nettest.Run(t, s.Host.ns, "ip", "link", "add", "cni0", "type", "veth", "peer", "name", "other")
	nettest.Run(t, s.Host.ns, "ip", "addr", "add", "10.7.0.1/24", "dev", "cni0")
	before := snapshot(t, s)
	if err := s.Apply(t.Context(), port(1)); !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), "cni0") {
		t.Errorf("apply over a foreign link: %v", err)
	}
	if err := s.Remove(t.Context(), port(1)); err != nil {
		t.Errorf("remove beside a foreign link: %v", err)
	}
	if err := s.RemoveShared(t.Context(), port(1)); err != nil {
		t.Errorf("remove shared beside a foreign link: %v", err)
	}
	if after := snapshot(t, s); after != before {
		t.Errorf("foreign state changed:\n%s\nwas:\n%s", after, before)
	}
}

func TestRefusalNamesTheObject(t *testing.T) {
	s := pair(t)
	f := ptp(1)
	f.Pod.Routes = append(f.Pod.Routes, state.Route{Dst: prefix("192.0.2.0/24"), Gw: addr("198.51.100.1"), Link: "eth0"})
	err := s.Apply(t.Context(), f)
	if err == nil || !strings.Contains(err.Error(), "192.0.2.0/24 via 198.51.100.1") {
		t.Errorf("refusal: %v", err)
	}
	f.Host.Links[0].Master = "nobr"
	if err := pair(t).Apply(t.Context(), f); !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "nobr") {
		t.Errorf("missing master: %v", err)
	}
}

func TestParallelApplies(t *testing.T) {
	host := nettest.NS(t, "host")
	c := dial(t, host)
	var g errgroup.Group
	for i := range 100 {
		pod := nettest.NS(t, fmt.Sprintf("pod%d", i))
		s := Spaces{Host: c, Pod: dial(t, pod), PodNS: pod}
		g.Go(func() error {
			f := port(i + 1)
			if err := s.Apply(t.Context(), f); err != nil {
				return err
			}
			d, err := s.Diff(t.Context(), f)
			if len(d) > 0 {
				return fmt.Errorf("%s: %v", f.Owner, d)
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}

func TestObserve(t *testing.T) {
	s := pair(t)
	mustApply(t, s, port(1))
	link := state.Query{Space: state.Host, Link: "cni0"}
	none := state.Query{Space: state.Host, Link: "none"}
	def := state.Query{Space: state.Pod, DefaultLink: "4"}
	other := state.Query{Space: state.Pod, DefaultLink: "4", Except: "eth0"}
	routes := state.Query{Space: state.Pod, Routes: "eth0"}
	forward := state.Query{Space: state.Host, Sysctl: "net/ipv4/ip_forward"}
	holder := state.Query{Space: state.Host, LinkOf: addr("10.1.255.1")}
	a, err := s.Observe(t.Context(), []state.Query{link, none, def, other, routes, forward, holder})
	if err != nil {
		t.Fatal(err)
	}
	if !a[link].Found || a[link].Link.Kind != state.Bridge || len(a[link].Addrs) == 0 {
		t.Errorf("bridge: %+v", a[link])
	}
	if a[none].Found {
		t.Errorf("a link that does not exist was found")
	}
	if a[def].Link.Name != "eth0" || a[other].Found || a[holder].Link.Name != "cni0" || a[forward].Value != "1" {
		t.Errorf("answers: %+v", a)
	}
	if len(a[routes].Routes) != 1 || a[routes].Routes[0].Gw != addr("10.1.255.1") {
		t.Errorf("routes: %+v", a[routes].Routes)
	}
}
