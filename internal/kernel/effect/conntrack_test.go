// SPDX-License-Identifier: Apache-2.0

package effect

import (
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// tracked adds conntrack entries to a namespace: to a port of the node 192.0.2.1, and to the containers behind it.
func tracked(t *testing.T) *netns.NS {
	t.Helper()
	if _, err := exec.LookPath("conntrack"); err != nil {
		nettest.SkipMissing(t, "no conntrack program")
	}
	ns := nettest.NS(t, "n")
	for _, c := range []string{
		"-p udp -s 198.51.100.1 -d 192.0.2.1 --sport 1000 --dport 53 --dst-nat 10.1.0.5:5353",
		"-p udp -s 198.51.100.2 -d 192.0.2.9 --sport 1000 --dport 53",
		"-p udp -s 198.51.100.1 -d 192.0.2.1 --sport 1001 --dport 54 --dst-nat 10.1.0.6:54",
		"-p tcp -s 198.51.100.1 -d 192.0.2.1 --sport 1000 --dport 53 --state ESTABLISHED --dst-nat 10.1.0.5:5353",
		"-p tcp -s 10.1.0.5 -d 203.0.113.1 --sport 1000 --dport 443 --state ESTABLISHED",
		"-p udp -s 2001:db8::9 -d 2001:db8::1 --sport 1000 --dport 53",
		"-p udp -s 2001:db8::9 -d fd00:1::5 --sport 1000 --dport 99",
	} {
		argv := strings.Fields("conntrack -I " + c + " --timeout 600")
		if out, err := nettest.Try(ns, argv...); err != nil {
			nettest.Skip(t, "the kernel does not take tracked connections: "+out)
		}
	}
	return ns
}

// left lists the conntrack entries briefly.
func left(t *testing.T, ns *netns.NS) string {
	t.Helper()
	var out []string
	for _, family := range []string{"ipv4", "ipv6"} {
		for line := range strings.Lines(nettest.Run(t, ns, "conntrack", "-L", "-f", family)) {
			f := strings.Fields(line)
			var dst, port string
			for i := len(f) - 1; i > 0; i-- { // the first one counts
				if v, ok := strings.CutPrefix(f[i], "dst="); ok {
					dst = v
				}
				if v, ok := strings.CutPrefix(f[i], "dport="); ok {
					port = v
				}
			}
			if dst != "" {
				out = append(out, f[0]+" "+dst+" "+port)
			}
		}
	}
	return strings.Join(sorted(out), ", ")
}

func TestFlushConntrack(t *testing.T) {
	const all = "tcp 192.0.2.1 53, tcp 203.0.113.1 443, udp 192.0.2.1 53, udp 192.0.2.1 54, udp 192.0.2.9 53, udp 2001:db8::1 53, udp fd00:1::5 99"
	without := func(gone ...string) string {
		var out []string
		for one := range strings.SplitSeq(all, ", ") {
			if !strings.Contains(strings.Join(gone, ", ")+",", one+",") {
				out = append(out, one)
			}
		}
		return strings.Join(out, ", ")
	}
	for name, c := range map[string]struct {
		flow state.Flow
		want string
	}{
		"port":     {state.Flow{Proto: "udp", Port: 53}, without("udp 192.0.2.1 53", "udp 192.0.2.9 53")},
		"address":  {state.Flow{Proto: "udp", Port: 53, Dst: netip.MustParseAddr("192.0.2.9")}, without("udp 192.0.2.9 53")},
		"tcp":      {state.Flow{Proto: "tcp", Port: 53}, without("tcp 192.0.2.1 53")},
		"who":      {state.Flow{ReplySrc: netip.MustParseAddr("10.1.0.5")}, without("udp 192.0.2.1 53", "tcp 192.0.2.1 53")},
		"six":      {state.Flow{IPv6: true, Proto: "udp", Port: 53}, without("udp 2001:db8::1 53")},
		"six, who": {state.Flow{IPv6: true, ReplySrc: netip.MustParseAddr("fd00:1::5")}, without("udp fd00:1::5 99")},
		"nothing":  {state.Flow{Proto: "sctp", Port: 53}, all},
	} {
		t.Run(name, func(t *testing.T) {
			ns := tracked(t)
			if got := left(t, ns); got != all {
				t.Fatalf("tracked: %s", got)
			}
			effect := state.Effect{Kind: state.FlushConntrack, Space: state.Host, Flows: []state.Flow{c.flow}}
			if err := Do(t.Context(), ns, new(Conntrack), effect); err != nil {
				t.Fatal(err)
			}
			if got := left(t, ns); got != c.want {
				t.Errorf("%s leaves %s\nwant %s", effect, got, c.want)
			}
			// Both families at once.
			ns = tracked(t)
			k2 := &Conntrack{}
			other := state.Flow{IPv6: !c.flow.IPv6, Proto: "sctp", Port: 5}
			if !c.flow.IPv6 {
				other.ReplySrc = netip.MustParseAddr("2001:db8::77")
			}
			if err := Do(t.Context(), ns, k2, state.Effect{
				Kind: state.FlushConntrack, Flows: []state.Flow{c.flow, other},
			}); err != nil {
				t.Fatal(err)
			}
			if err := k2.Close(); err != nil {
				t.Error(err)
			}
			if got := left(t, ns); got != c.want {
				t.Errorf("with another family, %s leaves %s\nwant %s", c.flow, got, c.want)
			}
			// The fallback for older kernels, and for many flows.
			ns = tracked(t)
			effect.Flows = append(effect.Flows, make([]state.Flow, maxFilteredFlushes)...)
			for i := range maxFilteredFlushes {
				effect.Flows[i+1] = state.Flow{Proto: "udp", Port: 9999}
			}
			if err := Do(t.Context(), ns, new(Conntrack), effect); err != nil {
				t.Fatal(err)
			}
			if got := left(t, ns); got != c.want {
				t.Errorf("with a list, %s leaves %s\nwant %s", effect, got, c.want)
			}
		})
	}
}

// The flows of many containers of both families are flushed at once, and nothing else.
func TestFlushTranslated(t *testing.T) {
	ns := tracked(t)
	flows := []state.Flow{
		{ReplySrc: netip.MustParseAddr("10.1.0.5")}, {IPv6: true, ReplySrc: netip.MustParseAddr("fd00:1::5")},
	}
	for i := range 2 * maxFilteredFlushes {
		flows = append(flows, state.Flow{ReplySrc: netip.AddrFrom4([4]byte{10, 2, 0, byte(i)})})
	}
	flows = append(flows, state.Flow{ReplySrc: netip.MustParseAddr("10.1.0.6")})
	var k Conntrack
	if err := k.FlushTranslated(ns, flows); err != nil {
		t.Fatal(err)
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	if got, want := left(t, ns), "tcp 203.0.113.1 443, udp 192.0.2.9 53, udp 2001:db8::1 53"; got != want {
		t.Errorf("left: %s\nwant: %s", got, want)
	}
}

func FuzzConnection(f *testing.F) {
	var r request
	r.filter(state.Flow{
		Proto: "udp", Port: 53, Dst: netip.MustParseAddr("192.0.2.1"), ReplySrc: netip.MustParseAddr("10.1.0.5"),
	})
	f.Add(r.Bytes())
	f.Fuzz(func(_ *testing.T, body []byte) {
		c := parseConnection(body).clone()
		_ = c.words()
		c.matches([]state.Flow{{Proto: "udp", Port: 53}})
	})
}

func sorted(s []string) []string {
	slices.Sort(s)
	return s
}
