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

// flannels are the lines about flannel in what iptables-save prints, in their order, with how often each is there.
func (n *node) flannels(v6 bool) []string {
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

// nft is a table, empty where it is not there.
func (n *node) nft(family, table string) string {
	out, err := nettest.Try(n.ns, "nft", "list", "table", family, table)
	if err != nil {
		return ""
	}
	return out
}

// TestRules: the rules are flannel's own, are there once, come back when somebody takes them away, and leave when they
// are not wanted any more.
func TestRules(t *testing.T) {
	needReal(t)
	const iptables, changed = `{"Network": "10.5.0.0/16", "Backend": {"Type": "host-gw"}}`,
		`{"Network": "10.6.0.0/16", "Backend": {"Type": "host-gw"}}`
	const nftables = `{"Network": "10.5.0.0/16", "EnableNFTables": true, "Backend": {"Type": "host-gw"}}`
	c, e := leased(t, iptables)
	a := c.node(1)
	again := func(kind string, more ...string) {
		t.Helper()
		a.stop()
		a.start(kind, append(more, "--healthz-port=8081")...)
		c.until("ready", a.ready)
		a.await() // the file of this one
	}
	a.start(real)
	c.until("flannel's rules", func() bool { return len(a.flannels(false)) == 10 })
	theirs := a.flannels(false)
	again(weft)
	c.same("rules", theirs, a.flannels(false))
	nettest.Run(t, a.ns, "iptables", "-t", "nat", "-F", "FLANNEL-POSTRTG")
	nettest.Run(t, a.ns, "iptables", "-F", "FORWARD")
	c.until("the rules again", func() bool { return slices.Equal(theirs, a.flannels(false)) })

	c.put(e, "config", changed)
	again(weft)
	want := strings.NewReplacer("10.5.", "10.6.").Replace(strings.Join(theirs, "\n"))
	subnet := a.env.Subnet.Masked().String()
	for i, line := range a.flannels(false) {
		if strings.Contains(line, "10.5.") || !strings.Contains(line, "10.6.") && strings.Contains(theirs[i], "10.5.") {
			t.Errorf("rule of another network: %s (own subnet %s)\nall: %s", line, subnet, want)
		}
	}

	c.put(e, "config", nftables)
	again(weft)
	if left := a.flannels(false); len(left) > 0 || strings.Contains(nettest.Run(t, a.ns, "iptables-save"), "FLANNEL") {
		t.Errorf("left of the other form: %s", left)
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
	c.until("the tables again", func() bool { return a.nft("ip", "flannel-ipv4") == tables })
	again(weft, "--ip-masq-fully-random-disable", "--iptables-forward-rules=false")
	if now := a.nft("ip", "flannel-ipv4"); strings.Contains(now, "fully-random") ||
		strings.Contains(now, "chain forward") || !strings.Contains(now, "masquerade") {
		t.Errorf("not as the flags say:\n%s", now)
	}

	c.put(e, "config", iptables)
	again(weft, "--ip-blackhole-route")
	if now := a.nft("ip", "flannel-ipv4"); now != "" {
		t.Errorf("left of the other form:\n%s", now)
	}
	c.until("blackhole", func() bool { return strings.Contains(a.routes(), "blackhole "+a.env.Subnet.Masked().String()) })
	again(weft, "--ip-masq=false")
	for _, line := range a.flannels(false) {
		if strings.HasPrefix(line, "nat") {
			t.Errorf("left of masquerading: %s", line)
		}
	}
	if strings.Contains(a.routes(), "blackhole") {
		t.Errorf("left of --ip-blackhole-route:\n%s", a.routes())
	}

	except := filepath.Join(a.dir, "ip-masq-agent")
	write := func(text string) {
		if err := os.WriteFile(except, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	has := func(cidr string) func() bool {
		return func() bool {
			return slices.Contains(a.flannels(false), `nat -A FLANNEL-POSTRTG -s 10.5.0.0/16 -d `+cidr+
				` -m comment --comment "flanneld masq" -j RETURN`)
		}
	}
	write("nonMasqueradeCIDRs: [10.99.0.0/16, 'fd99::/64']\nresyncInterval: 1s\n")
	again(weft, "--ip-masq-config="+except)
	for _, cidr := range []string{"10.99.0.0/16", "169.254.0.0/16"} {
		c.until("exception of "+cidr, has(cidr))
	}
	write("nonMasqueradeCIDRs: [10.98.0.0/16]\nmasqLinkLocal: true\nresyncInterval: 1s\n")
	c.until("another exception", has("10.98.0.0/16"))
	if has("10.99.0.0/16")() || has("169.254.0.0/16")() {
		t.Errorf("exceptions of before: %s", a.flannels(false))
	}
}
