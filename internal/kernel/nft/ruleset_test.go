// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"slices"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// Other programs' chains of a family are read with their rules; of a rule that weft's language lacks the clauses that are
// in it, and what it does.
func TestRuleset(t *testing.T) {
	ns := nettest.NS(t, "ruleset")
	for _, text := range []string{
		"add table inet fw", "add chain inet fw f { type filter hook forward priority 10 ; policy drop ; }", "add chain inet fw mine",
		"add rule inet fw f tcp dport 80 accept", "add rule inet fw f jump mine", "add rule inet fw mine meta length > 1400 tcp dport 81 drop",
		"add rule inet fw mine tcp dport 82 tcp checksum set 0x1234", "add table ip6 other", "add chain ip6 other c",
		"add table inet weft-own", "add chain inet weft-own c", "add table ip four", "add table netdev wire",
		"add chain netdev wire i { type filter hook ingress devices = { lo } priority 0 ; policy drop ; }",
		"add rule netdev wire i udp dport 8472 accept", "add table bridge ports",
		"add chain bridge ports p { type filter hook prerouting priority 0 ; }", "add chain ip four c { type nat hook postrouting priority 100 ; }",
	} {
		nettest.Run(t, ns, "nft", text)
	}
	c, err := Dial(ns)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	got, err := c.Ruleset(t.Context(), 4)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	at := map[string]state.RulesetChain{}
	for _, ch := range got {
		names = append(names, ch.String())
		at[ch.String()] = ch
	}
	slices.Sort(names)
	if want := []string{
		"bridge ports p", "inet fw f", "inet fw mine", "ip four c", "netdev wire i",
	}; !slices.Equal(names, want) {
		t.Fatalf("chains %q, want %q", names, want)
	}
	if f := at["inet fw f"]; f.Hook != "forward" || f.Priority != 10 || f.Policy != "drop" ||
		f.Type != "filter" || len(f.Rules) != 2 ||
		f.Rules[0].Text != "tcp dport 80 accept" || f.Rules[0].Handle == 0 ||
		f.Rules[1].Text != "jump mine" {
		t.Errorf("%+v", f)
	}
	if i := at["netdev wire i"]; i.Hook != "ingress" || !slices.Equal(i.Devices, []string{"lo"}) || i.Policy != "drop" ||
		len(i.Rules) != 1 || i.Rules[0].Partial || i.Rules[0].Text != "udp dport 8472 accept" {
		t.Errorf("%+v", i)
	}
	rules := at["inet fw mine"].Rules
	if len(rules) != 2 || !rules[0].Partial || !strings.HasSuffix(rules[0].Text, "… drop") ||
		!strings.Contains(rules[0].Text, "tcp dport 81") ||
		!rules[1].Partial ||
		rules[1].Text != "tcp dport 82 … rewrite" {
		t.Errorf("%+v", rules)
	}
	if got, err = c.Ruleset(t.Context(), 6); err != nil || len(got) != 5 {
		t.Errorf("IPv6: %+v, %v", got, err)
	}
}

// Rules of the iptables programs are understood as far as they decide: a target that rejects is no accident of reading.
func TestRulesetOfIPTables(t *testing.T) {
	ns := nettest.NS(t, "iptables")
	if out, err := nettest.Try(
		ns,
		"iptables-nft",
		"-A",
		"FORWARD",
		"-p",
		"tcp",
		"--dport",
		"80",
		"-j",
		"REJECT",
	); err != nil {
		nettest.Skip(t, "no iptables-nft here: "+out)
	}
	nettest.Run(
		t,
		ns,
		"iptables-nft",
		"-t",
		"raw",
		"-A",
		"PREROUTING",
		"-m",
		"comment",
		"--comment",
		"x",
		"-j",
		"CT",
		"--notrack",
	)
	c, err := Dial(ns)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	all, err := c.Ruleset(t.Context(), 4)
	if err != nil {
		t.Fatal(err)
	}
	for _, ch := range all {
		for _, r := range ch.Rules {
			if !strings.HasSuffix(r.Text, "reject") && !strings.HasSuffix(r.Text, "decides") {
				t.Errorf("%s: %+v", ch, r)
			}
		}
	}
}
