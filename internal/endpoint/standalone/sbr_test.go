// SPDX-License-Identifier: Apache-2.0

package standalone_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// twoNets is a container with two networks, the second with both families and two addresses of one, and the result of
// the ADD of the second.
func (h *host) twoNets(ns *netns.NS) string {
	h.t.Helper()
	_, _ = nettest.Try(nil, "ip", "link", "del", "sbr1")
	h.must("bridge", "ADD", conf("1.1.0", "bridge", `,"bridge":"sbr0","isDefaultGateway":true`+hostLocal), ns)
	return h.must("bridge", "ADD", strings.Replace(second, `"name":"n"`, `"name":"m"`, 1), ns, "CNI_IFNAME=net1").stdout
}

const second = `{"cniVersion":"1.1.0","name":"n","type":"bridge","bridge":"sbr1","isGateway":true,"ipam":{"type":"static",
	"addresses":[{"address":"10.7.0.5/24","gateway":"10.7.0.1"},{"address":"fd00:7::5/64","gateway":"fd00:7::1"},{"address":"10.9.0.5/24"}],
	"routes":[{"dst":"172.16.0.0/16","gw":"10.7.0.1"},{"dst":"2001:db8::/32","gw":"fd00:7::1","mtu":1400}]}}`

func (h *host) delSecond(ns *netns.NS) {
	h.must("bridge", "DEL", strings.Replace(second, `"name":"n"`, `"name":"m"`, 1), ns, "CNI_IFNAME=net1")
}

func TestSBR(t *testing.T) {
	h := newHost(t)
	ns := nettest.NS(t, "c1")
	prev := h.twoNets(ns)
	before := stateOf(t, ns)
	c := withPrev(conf("1.1.0", "sbr", ""), prev)
	result := h.must("sbr", "ADD", c, ns, "CNI_IFNAME=net1").stdout
	if strings.Join(strings.Fields(result), "") != strings.Join(strings.Fields(prev), "") {
		t.Errorf("the result changed: %s", result)
	}
	for argv, want := range map[string]string{
		"ip rule":                                    "32764:\tfrom 10.9.0.5 lookup 102",
		"ip -6 rule":                                 "from fd00:7::5 lookup 101",
		"ip route show table 100":                    "default via 10.7.0.1 dev net1",
		"ip route get 192.0.2.1 from 10.7.0.5":       "via 10.7.0.1 dev net1 table 100",
		"ip route get 192.0.2.1":                     "via 10.6.0.1 dev eth0",
		"ip -6 route get 2001:db9::1 from fd00:7::5": "via fd00:7::1 dev net1 table 101",
		"ip -6 route get 2001:db8::1 from fd00:7::5": "mtu 1400",
		"ip -6 route get fe80::1 oif net1":           "dev net1",
	} {
		if out := nettest.Run(t, ns, strings.Fields(argv)...); !strings.Contains(out, want) {
			t.Errorf("%s: %q is missing:\n%s", argv, want, out)
		}
	}
	if out := nettest.Run(t, ns, "ip", "route", "show", "dev", "net1"); out != "" {
		t.Errorf("left in the main table: %s", out)
	}
	if out := nettest.Run(t, ns, "ip", "route", "show", "table", "102"); !strings.Contains(out,
		"default via 10.9.0.1 dev net1") || strings.Contains(out, "10.7") {
		t.Errorf("table of the third address: %s", out)
	}
	nettest.Run(t, ns, "ping", "-c1", "-W20", "-I", "10.7.0.5", "10.7.0.1")
	nettest.Run(t, ns, "ping", "-c1", "-W20", "-I", "fd00:7::5", "fd00:7::1")
	h.must("sbr", "CHECK", withPrev(conf("1.1.0", "sbr", ""), result), ns, "CNI_IFNAME=net1")
	h.must("bridge", "CHECK", withPrev(strings.Replace(second, `"name":"n"`, `"name":"m"`, 1), result), ns,
		"CNI_IFNAME=net1")
	after := stateOf(t, ns)
	for _, change := range []string{
		"ip rule del from 10.7.0.5", "ip route del default table 100", "ip route add 10.7.0.0/24 dev net1 src 10.7.0.5",
	} {
		nettest.Run(t, ns, strings.Fields(change)...)
		if a := h.call("sbr", "CHECK", c, ns, "CNI_IFNAME=net1"); a.code() != 102 {
			t.Errorf("CHECK after %q: %s", change, a.stdout)
		}
		_, _ = nettest.Try(ns, "ip", "route", "del", "10.7.0.0/24", "dev", "net1", "proto", "boot")
		h.must("sbr", "DEL", c, ns, "CNI_IFNAME=net1")
		if got := stateOf(t, ns); got != before {
			t.Errorf("after DEL\n%s\nbefore ADD\n%s", got, before)
		}
		h.must("sbr", "ADD", c, ns, "CNI_IFNAME=net1")
		if got := stateOf(t, ns); got != after {
			t.Errorf("after the second ADD\n%s\nafter the first\n%s", got, after)
		}
	}
	h.must("sbr", "DEL", c, nil, "CNI_IFNAME=net1")
	if left, _ := filepath.Glob(h.journal + "/*/sbr/*.json"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	h.delSecond(ns)
}

func TestSBRWithTable(t *testing.T) {
	h := newHost(t)
	ns := nettest.NS(t, "c1")
	prev := h.twoNets(ns)
	before := stateOf(t, ns)
	c := withPrev(conf("1.1.0", "sbr", `,"table":77`), prev)
	h.must("sbr", "ADD", c, ns, "CNI_IFNAME=net1")
	if out := nettest.Run(t, ns, "ip", "rule"); strings.Count(out, "lookup 77") != 2 {
		t.Errorf("rules: %s", out)
	}
	if out := nettest.Run(t, ns, "ip", "route", "show", "dev", "net1"); !strings.Contains(out, "10.7.0.0/24") {
		t.Errorf("routes moved: %s", out)
	}
	h.must("sbr", "CHECK", c, ns, "CNI_IFNAME=net1")
	h.must("sbr", "DEL", c, ns, "CNI_IFNAME=net1")
	if got := stateOf(t, ns); got != before {
		t.Errorf("after DEL\n%s\nbefore ADD\n%s", got, before)
	}
	h.delSecond(ns)
}

func TestSBRCut(t *testing.T) {
	h := newHost(t)
	ns := nettest.NS(t, "c1")
	prev := h.twoNets(ns)
	before := stateOf(t, ns)
	c := withPrev(conf("1.1.0", "sbr", ""), prev)
	same := func(what string) {
		t.Helper()
		if got := stateOf(t, ns); got != before {
			t.Errorf("%s:\n%s\nbefore:\n%s", what, got, before)
		}
	}
	env := "CNI_IFNAME=net1"
	n := h.eachCut("sbr", "ADD", c, ns, func(step string) {
		h.must("sbr", "DEL", c, ns, env)
		same("ADD cut at " + step + ", DEL")
	}, env)
	h.must("sbr", "ADD", c, ns, env)
	m := h.eachCut("sbr", "DEL", c, ns, func(step string) {
		h.must("sbr", "DEL", c, ns, env)
		same("DEL cut at " + step + ", DEL")
		h.must("sbr", "ADD", c, ns, env)
	}, env)
	if n < 4 || m < 5 {
		t.Errorf("only %d and %d steps were cut", n, m)
	}
	h.must("sbr", "DEL", c, ns, env)
	h.delSecond(ns)
}

// The reference plugin creates the same rules and tables, and each program removes the other's rules.
func TestSBRExchanged(t *testing.T) {
	bin := os.Getenv("WEFT_PEER_BIN_DIR")
	if bin == "" {
		nettest.SkipMissing(t, "WEFT_PEER_BIN_DIR is not set: not exchanged with the reference plugins")
	}
	h := newHost(t)
	tables := func(ns *netns.NS) string {
		out := ""
		for _, argv := range []string{
			"ip rule", "ip -6 rule", "ip route show table 100", "ip -6 route show table 101", "ip route show table 102",
			"ip route show dev net1",
		} {
			part, _ := nettest.Try(ns, strings.Fields(argv)...)
			out += argv + "\n" + strings.ReplaceAll(strings.ReplaceAll(part, " proto kernel", ""), " proto 119", "")
		}
		return out
	}
	theirs, ours := nettest.NS(t, "c1"), nettest.NS(t, "c1")
	prev := h.twoNets(theirs)
	c := withPrev(strings.Replace(conf("1.0.0", "sbr", ""), `"name":"n"`, `"name":"m"`, 1),
		strings.Replace(prev, "1.1.0", "1.0.0", 1))
	h.peer(bin, "sbr", "ADD", c, theirs, "CNI_IFNAME=net1")
	want := tables(theirs)
	rules := func(who string, ns *netns.NS) {
		t.Helper()
		if out := nettest.Run(t, ns, "ip", "rule"); strings.Contains(out, "10.7.0.5") || strings.Contains(out, "10.9.0.5") {
			t.Errorf("%s: rules are left: %s", who, out)
		}
		if out := nettest.Run(t, ns, "ip", "-6", "rule"); strings.Contains(out, "fd00") {
			t.Errorf("%s: rules are left: %s", who, out)
		}
	}
	h.must("sbr", "DEL", c, theirs, "CNI_IFNAME=net1")
	rules("weft's DEL of the peer's ADD", theirs)
	h.delSecond(theirs)
	h.must("bridge", "DEL", conf("1.1.0", "bridge", bridged), theirs)

	h.twoNets(ours)
	h.must("sbr", "ADD", c, ours, "CNI_IFNAME=net1")
	if got := tables(ours); got != want {
		t.Errorf("weft\n%s\nthe peer\n%s", got, want)
	}
	h.peer(bin, "sbr", "DEL", c, ours, "CNI_IFNAME=net1")
	rules("the peer's DEL of weft's ADD", ours)
	h.delSecond(ours)
}
