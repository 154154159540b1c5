// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"net/netip"
	"strings"
	"testing"
)

// web is a packet of a pod to a web server.
func web() packet {
	return packet{
		in:       "cali1",
		out:      "eth0",
		src:      netip.MustParseAddr("10.42.1.2"),
		dst:      netip.MustParseAddr("10.42.2.9"),
		protocol: "tcp",
		sport:    ephemeral,
		dport:    80,
		state:    "new",
	}
}

// Rules decide as nft would; where a rule or a fact is not understood, the packet may be dropped.
func TestRules(t *testing.T) {
	for text, want := range map[string]truth{
		"drop":                                    yes,
		"counter packets 3 bytes 4 drop":          yes,
		"tcp dport 80 drop":                       yes,
		"tcp dport 81 drop":                       no,
		"udp dport 80 drop":                       no,
		"tcp dport != 80 drop":                    no,
		"tcp dport != 22 drop":                    yes,
		"udp dport != 22 drop":                    no, // not a UDP packet
		"tcp dport { 22, 80-90 } drop":            yes,
		"tcp dport {22,443} drop":                 no,
		"tcp sport 1024 drop":                     no,
		"tcp sport 32768-60999 drop":              maybe,
		"ip saddr 10.42.0.0/16 drop":              yes,
		"ip saddr != 10.42.0.0/16 drop":           no,
		"ip daddr 10.42.2.1-10.42.2.20 drop":      yes,
		"ip6 saddr fd00::/8 drop":                 no,
		"ip saddr @known drop":                    maybe,
		`iifname "cali*" drop`:                    yes,
		`iifname "eth0" drop`:                     no,
		`oifname { "eth0", "eth1" } drop`:         yes,
		`iifname != "eth0" oifname "eth0" drop`:   yes,
		"ct state new drop":                       yes,
		"ct state established,related accept":     no,
		"ct state invalid drop":                   no,
		"meta l4proto tcp reject":                 yes,
		"ip protocol 6 drop":                      yes,
		"meta l4proto icmp drop":                  no,
		"icmp type echo-request drop":             no,
		"meta mark 0x4000 drop":                   maybe,
		"meta length > 1400 drop":                 maybe,
		"limit rate 10/second drop":               maybe,
		`log prefix "x drop" group 2 drop`:        yes,
		"return":                                  no,
		"accept":                                  no,
		"jump other":                              yes,
		"goto other":                              yes,
		"jump missing":                            maybe,
		"queue to 3":                              maybe,
		"tcp dport vmap @verdicts":                maybe,
		"iifname vmap @verdicts":                  maybe,
		"udp sport 1 tcp dport vmap @verdicts":    no,
		"iifname . ip saddr @known drop":          maybe,
		"ct mark & 0x1 == 0x1 drop":               maybe,
		"tcp dport 80 … decides":                  maybe,
		"tcp dport 81 … decides":                  no,
		"dnat to 10.0.0.1":                        maybe,
		"ip dscp set cs1":                         no,
		"":                                        no,
		"# something … drop":                      maybe,
		"tcp dport 81 … drop":                     no,
		"tcp dport 80 comment \"no drop\" accept": no,
	} {
		rules := Ruleset{Chains: []Chain{
			{Family: "inet", Table: "fw", Name: "base", Hook: "forward", Policy: "accept", Rules: []Rule{
				{Text: text, Partial: strings.Contains(text, "…")},
			}},
			{Family: "inet", Table: "fw", Name: "other", Rules: []Rule{{Text: "drop"}}},
		}}
		got := run(rules, "forward", web())
		if got.dropped != want {
			t.Errorf("%q: dropped %d, want %d", text, got.dropped, want)
		}
		if got.dropped != no && got.by == "" {
			t.Errorf("%q: no rule is to blame", text)
		}
		if run(rules, "input", web()).dropped != no {
			t.Errorf("%q: drops at another hook", text)
		}
	}
}

// The order of chains and rules, and policies, decide as the kernel has them.
func TestChains(t *testing.T) {
	chain := func(name string, priority int, policy string, rules ...string) Chain {
		c := Chain{Family: "ip", Table: name, Name: "c", Hook: "forward", Priority: priority, Policy: policy}
		for i, text := range rules {
			c.Rules = append(c.Rules, Rule{Handle: uint64(i + 1), Text: text})
		}
		return c
	}
	for _, c := range []struct {
		name    string
		chains  []Chain
		dropped truth
		by      string
	}{
		{"accepted by an earlier rule", []Chain{chain("a", 0, "drop", "tcp dport 80 accept", "drop")}, no, ""},
		{"ping", []Chain{chain("a", 0, "accept", "icmp type 8 drop")}, no, ""},
		{"policy", []Chain{chain("a", 0, "drop", "tcp dport 81 accept")}, yes, "policy of chain ip a c"},
		{"returned to the policy", []Chain{chain("a", 0, "drop", "return", "accept")}, yes, "policy"},
		{"an accept ends its own chain only", []Chain{
			chain("a", 0, "accept", "accept"), chain("b", 10, "accept", "drop"),
		}, yes, "ip b c"},
		{"the first one that drops", []Chain{
			chain("b", 10, "accept", "drop"), chain("a", 0, "accept", "drop"),
		}, yes, "ip a c"},
		{"may have returned before", []Chain{chain("a", 0, "accept", "ct mark 1 return", "drop")}, maybe, "ip a c"},
		{"may be accepted before", []Chain{chain("a", 0, "drop", "ct mark 1 accept")}, maybe, "policy"},
		{"dropped for sure after a maybe", []Chain{
			chain("a", 0, "accept", "ct mark 1 drop"), chain("b", 1, "accept", "drop"),
		}, yes, "ip b c"},
	} {
		got := run(Ruleset{Chains: c.chains}, "forward", web())
		if got.dropped != c.dropped || !strings.Contains(got.by, c.by) {
			t.Errorf("%s: %d by %q", c.name, got.dropped, got.by)
		}
	}
	loop := Ruleset{Chains: []Chain{
		chain("a", 0, "accept", "jump d"), {Family: "ip", Table: "a", Name: "d", Rules: []Rule{{Text: "jump d"}}},
	}}
	if got := run(loop, "forward", web()); got.dropped == yes {
		t.Errorf("a loop of jumps: %+v", got)
	}
	if got := run(
		Ruleset{Unreadable: []string{"table filter of iptables-legacy"}},
		"forward",
		web(),
	); got.dropped != maybe {
		t.Errorf("what cannot be read is %d", got.dropped)
	}
	for text, field := range map[string]func(outcome) string{
		"masquerade": func(o outcome) string { return o.masquerade }, "notrack": func(o outcome) string { return o.notrack },
		"tcp dport 80 … rewrite": func(o outcome) string { return o.rewrite },
		"ip saddr set 10.0.0.1":  func(o outcome) string { return o.rewrite },
	} {
		if got := run(Ruleset{Chains: []Chain{chain("a", 0, "accept", text)}}, "forward", web()); !strings.Contains(
			field(got),
			text,
		) {
			t.Errorf("%s: %+v", text, got)
		}
	}
	answer := web()
	answer.state = "established"
	nat := chain("a", 0, "accept", "drop")
	nat.Type = "nat"
	if got := run(Ruleset{Chains: []Chain{nat}}, "forward", answer); got.dropped != no {
		t.Errorf("an answer meets a chain of type nat: %+v", got)
	}
	if got := run(Ruleset{Chains: []Chain{chain("a", 0, "accept", "ip dscp set cs1")}}, "forward",
		web()); got.rewrite != "" {
		t.Errorf("a DSCP is blamed: %+v", got)
	}
}

// Requests and answers of ping are distinguished by their types.
func TestICMPTypes(t *testing.T) {
	four, six := netip.MustParseAddr("10.42.2.2"), netip.MustParseAddr("fd42::2")
	for _, c := range []struct {
		rule  string
		dst   netip.Addr
		reply bool
		want  truth
	}{
		{"icmp type 8 drop", four, false, yes},
		{"icmp type echo-request drop", four, true, no},
		{"icmp type 0 drop", four, true, yes},
		{"icmp type 13 drop", four, true, no},
		{"icmp type destination-unreachable drop", four, false, maybe},
		{"icmpv6 type echo-reply drop", six, true, yes},
		{"icmpv6 type 128 drop", six, true, no},
		{"icmp type 8 drop", six, false, no},
	} {
		p := leg{dst: End{Addr: c.dst}, reply: c.reply}.packet("in", "out")
		rules := Ruleset{Chains: []Chain{{
			Family: "inet", Table: "fw", Name: "c", Hook: "forward", Type: "filter", Policy: "accept",
			Rules: []Rule{{Handle: 1, Text: c.rule}},
		}}}
		if got := run(rules, "forward", p); got.dropped != c.want {
			t.Errorf("%s, reply %v to %s: %v, want %v", c.rule, c.reply, c.dst, got.dropped, c.want)
		}
	}
}
