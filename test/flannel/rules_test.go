// SPDX-License-Identifier: Apache-2.0

package flannel_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
)

// flannelRules returns the lines of iptables-save about flannel, in order, with their counts.
func (n *node) flannelRules(v6 bool) []string {
	n.c.t.Helper()
	program := "iptables-save"
	if v6 {
		program = "ip6tables-save"
	}
	var out []string
	for _, table := range []string{"nat", "filter"} {
		for line := range strings.Lines(nettest.Run(n.c.t, n.ns, program, "-t", table)) {
			if line = strings.TrimSpace(line); strings.Contains(line, "FLANNEL-") && !strings.HasPrefix(line, ":") {
				out = append(out, table+" "+line)
			}
		}
	}
	return out
}

// nft returns a table; empty if it does not exist.
func (n *node) nft(family, table string) string {
	out, err := nettest.Try(n.ns, "nft", "list", "table", family, table)
	if err != nil {
		return ""
	}
	return out
}

// TestRules: the rules are those of flannel, exist once, are restored when deleted, and are removed when not needed any
// more.
func TestRules(t *testing.T) {
	needFlanneld(t)
	const iptables, changed = `{"Network": "10.5.0.0/16", "Backend": {"Type": "host-gw"}}`,
		`{"Network": "10.6.0.0/16", "Backend": {"Type": "host-gw"}}`
	const nftables = `{"Network": "10.5.0.0/16", "EnableNFTables": true, "Backend": {"Type": "host-gw"}}`
	c, e := newEtcdCluster(t, iptables)
	a := c.node(1)
	again := func(kind string, more ...string) {
		t.Helper()
		a.stop()
		a.start(kind, append(more, "--healthz-port=8081")...)
		c.until("ready", a.ready)
		a.awaitSubnet() // its subnet file
	}
	a.start(flanneld)
	c.until("flannel's rules", func() bool { return len(a.flannelRules(false)) == 10 })
	flannelRules := a.flannelRules(false)
	again(weft)
	c.expectEqual("rules", flannelRules, a.flannelRules(false))
	nettest.Run(t, a.ns, "iptables", "-t", "nat", "-F", "FLANNEL-POSTRTG")
	nettest.Run(t, a.ns, "iptables", "-F", "FORWARD")
	c.until("the restored rules", func() bool { return slices.Equal(flannelRules, a.flannelRules(false)) })

	c.put(e, "config", changed)
	again(weft)
	want := strings.NewReplacer("10.5.", "10.6.").Replace(strings.Join(flannelRules, "\n"))
	subnet := a.env.Subnet.Masked().String()
	for i, line := range a.flannelRules(false) {
		if strings.Contains(line, "10.5.") || !strings.Contains(line, "10.6.") && strings.Contains(flannelRules[i], "10.5.") {
			t.Errorf("rule of another network: %s (own subnet %s)\nall: %s", line, subnet, want)
		}
	}

	c.put(e, "config", nftables)
	again(weft)
	if left := a.flannelRules(false); len(left) > 0 || strings.Contains(nettest.Run(t, a.ns, "iptables-save"), "FLANNEL") {
		t.Errorf("rules of the other kind are left: %s", left)
	}
	c.until("tables", func() bool { return strings.Contains(a.nft("ip", "flannel-ipv4"), "masquerade fully-random") })
	tables := a.nft("ip", "flannel-ipv4")
	for _, line := range []string{
		"meta mark & 0x00004000 == 0x00004000 return", "ip saddr != 10.5.0.0/16 ip daddr " +
			a.env.Subnet.Masked().String() + " return",
	} {
		if !strings.Contains(tables, line) {
			t.Errorf("no %q in\n%s", line, tables)
		}
	}
	nettest.Run(t, a.ns, "nft", "flush", "ruleset")
	c.until("the restored tables", func() bool { return a.nft("ip", "flannel-ipv4") == tables })
	again(weft, "--ip-masq-fully-random-disable", "--iptables-forward-rules=false")
	if now := a.nft("ip", "flannel-ipv4"); strings.Contains(now, "fully-random") ||
		strings.Contains(now, "chain forward") || !strings.Contains(now, "masquerade") {
		t.Errorf("not as configured by flags:\n%s", now)
	}

	c.put(e, "config", iptables)
	again(weft, "--ip-blackhole-route")
	if now := a.nft("ip", "flannel-ipv4"); now != "" {
		t.Errorf("tables of the other kind are left:\n%s", now)
	}
	c.until("blackhole", func() bool { return strings.Contains(a.routes(), "blackhole "+a.env.Subnet.Masked().String()) })
	again(weft, "--ip-masq=false")
	for _, line := range a.flannelRules(false) {
		if strings.HasPrefix(line, "nat") {
			t.Errorf("a masquerade rule is left: %s", line)
		}
	}
	if strings.Contains(a.routes(), "blackhole") {
		t.Errorf("the route of --ip-blackhole-route is left:\n%s", a.routes())
	}

	except := filepath.Join(a.dir, "ip-masq-agent")
	write := func(text string) {
		if err := os.WriteFile(except, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	has := func(cidr string) func() bool {
		return func() bool {
			return slices.Contains(a.flannelRules(false), `nat -A FLANNEL-POSTRTG -s 10.5.0.0/16 -d `+cidr+
				` -m comment --comment "flanneld masq" -j RETURN`)
		}
	}
	write("nonMasqueradeCIDRs: [10.99.0.0/16, 'fd99::/64']\nresyncInterval: 1s\n")
	again(weft, "--ip-masq-config="+except)
	for _, cidr := range []string{"10.99.0.0/16", "169.254.0.0/16"} {
		c.until("exception of "+cidr, has(cidr))
	}
	write("nonMasqueradeCIDRs: [10.98.0.0/16]\nmasqLinkLocal: true\nresyncInterval: 1s\n")
	c.until("the other exception", has("10.98.0.0/16"))
	if has("10.99.0.0/16")() || has("169.254.0.0/16")() {
		t.Errorf("old exceptions: %s", a.flannelRules(false))
	}
}
