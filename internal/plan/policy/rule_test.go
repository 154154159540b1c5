// SPDX-License-Identifier: Apache-2.0

package policy

import "testing"

// A packet of another family or port than the rule's costs no lookup of its address, in a table of any family.
func TestComparisonsBeforeLookups(t *testing.T) {
	peers := &setSpec{name: "peers", six: true, group: &groupSpec{}}
	ports := &setSpec{name: "ports", ports: []portRange{{"TCP", 80, 80}, {"UDP", 53, 53}}}
	peer, port := addrMatch{dir: ingress, six: true, set: peers}, portMatch{one: portRange{"TCP", 80, 80}}
	accept := rule{verdict: verdictAccept}
	plain, listed, only, conditions := accept, accept, accept, accept
	plain.peer, plain.port = peer, port
	listed.peer, listed.port = peer, portMatch{set: ports}
	only.port = portMatch{set: ports}
	conditions.conditions = []condition{
		addrCondition{addrMatch: peer}, portCondition{portMatch: portMatch{set: ports}}, portCondition{portMatch: port, source: true, not: true},
	}
	for _, c := range []struct {
		rule        rule
		table, want string
	}{
		{plain, "", "tcp dport 80 ip6 saddr @peers accept"},
		{plain, TableFamily, "meta nfproto ipv6 tcp dport 80 ip6 saddr @peers accept"},
		{plain, portFamily, "meta protocol ip6 tcp dport 80 ip6 saddr @peers accept"},
		{plain, tapFamily, "meta protocol ip6 tcp dport 80 ip6 saddr @peers accept"},
		{listed, TableFamily, "ip6 saddr @peers meta l4proto . th dport @ports accept"},
		{only, TableFamily, "meta l4proto . th dport @ports accept"},
		{conditions, TableFamily, "meta nfproto ipv6 tcp sport != 80 ip6 saddr @peers meta l4proto . th dport @ports accept"},
	} {
		if got := c.rule.textIn(c.table).Text; got != c.want {
			t.Errorf("in a table of family %q: %s; want %s", c.table, got, c.want)
		}
	}
}
