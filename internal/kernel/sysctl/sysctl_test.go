// SPDX-License-Identifier: Apache-2.0

package sysctl

import (
	"os"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

// TestReadAgain: an open file returns the current value, not an earlier one.
func TestReadAgain(t *testing.T) {
	ns := nettest.NS(t, "ns")
	f := New(ns)
	defer f.Close()
	const name = "net/ipv4/ip_forward"
	for _, value := range []string{"1", "0", "1"} {
		if err := f.Write([]Pair{{Name: name, Value: value}}); err != nil {
			t.Fatal(err)
		}
		if have, err := f.Read([]string{name}); err != nil || have[name].Text != value {
			t.Errorf("read %v (%v), want %s", have, err, value)
		}
		other := map[string]string{"0": "1", "1": "0"}[value]
		nettest.Run(t, ns, "sysctl", "-qw", "net.ipv4.ip_forward="+other)
		if have, err := f.Read([]string{name}); err != nil || have[name].Text != other {
			t.Errorf("after somebody else wrote: read %v (%v), want %s", have, err, other)
		}
	}
	if len(f.open) != 1 {
		t.Errorf("%d files are open, want 1", len(f.open))
	}
}

// TestLinksAreNotKept: a link's settings end with it, and those of a later link of its name are read.
func TestLinksAreNotKept(t *testing.T) {
	ns := nettest.NS(t, "ns")
	f := New(ns)
	defer f.Close()
	const name = "net/ipv4/conf/br.7/rp_filter" // a name with a dot
	for range 2 {
		if have, err := f.Read([]string{name}); err != nil || !have[name].Missing {
			t.Errorf("before there is a link: %v (%v)", have, err)
		}
		nettest.Run(t, ns, "ip", "link", "add", "br.7", "type", "bridge")
		if err := f.Write([]Pair{{Name: name, Value: "2"}}); err != nil {
			t.Fatal(err)
		}
		if have, err := f.Read([]string{name}); err != nil || have[name].Text != "2" {
			t.Errorf("read %v (%v)", have, err)
		}
		nettest.Run(t, ns, "ip", "link", "del", "br.7")
	}
	if len(f.open) != 0 {
		t.Errorf("files of links are kept open: %v", f.open)
	}
}

func TestNamesOutsideAreRefused(t *testing.T) {
	for _, name := range []string{
		"../../etc/passwd", "/etc/passwd", "net/../../../etc/passwd", "", "net//ipv4/ip_forward", ".",
	} {
		f := New(nil)
		if err := f.Write([]Pair{{Name: name, Value: "x"}}); err == nil || !strings.Contains(err.Error(), "no name below") {
			t.Errorf("write %q: %v", name, err)
		}
		if _, err := f.Read([]string{name}); err == nil {
			t.Errorf("read %q succeeded", name)
		}
	}
}

// TestOf parses names; those of all links, of new ones and of no link are not about one. A setting of neighbors belongs
// to the link, too, and differs from conf's of the same name.
func TestOf(t *testing.T) {
	for name, want := range map[string]Conf{
		"net/ipv4/conf/eth0/rp_filter":        {Link: "eth0", Setting: "rp_filter"},
		"net/ipv6/conf/a.b/disable_ipv6":      {IPv6: true, Link: "a.b", Setting: "disable_ipv6"},
		"net/ipv4/conf/all/rp_filter":         {},
		"net/ipv6/conf/default/disable_ipv6":  {},
		"net/ipv4/ip_forward":                 {},
		"net/ipv4/conf/rp_filter":             {},
		"net/ipv4/neigh/eth0/gc_stale_time":   {Link: "eth0", Setting: "neigh/gc_stale_time"},
		"net/ipv6/neigh/a.b/proxy_delay":      {IPv6: true, Link: "a.b", Setting: "neigh/proxy_delay"},
		"net/ipv4/neigh/default/proxy_delay":  {},
		"net/ipv6/conf/vethabc/addr_gen_mode": {IPv6: true, Link: "vethabc", Setting: AddrGenMode},
	} {
		if got, ok := Of(name); got != want || ok != (want != Conf{}) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestInLinkMessage: a link's message has its settings by the kernel's numbers, those of IPv4 from 1; others are unknown.
func TestInLinkMessage(t *testing.T) {
	conf4, conf6 := make([]uint32, 40), make([]uint32, 70)
	filter, _ := Of("net/ipv4/conf/eth0/rp_filter")
	forward, _ := Of("net/ipv6/conf/eth0/forwarding")
	mode, _ := Of("net/ipv6/conf/eth0/" + AddrGenMode)
	conf4[filter.Number()-1], conf6[forward.Number()] = 2, 1
	for c, want := range map[Conf]string{filter: "2", forward: "1", mode: "3"} {
		if got, ok := c.InLinkMessage(conf4, conf6, 3); !ok || got != want {
			t.Errorf("%s: %q %t, want %s", c.Setting, got, ok, want)
		}
		if got, ok := c.InLinkMessage(nil, nil, -1); ok {
			t.Errorf("%s of a link that tells nothing: %q", c.Setting, got)
		}
	}
}
