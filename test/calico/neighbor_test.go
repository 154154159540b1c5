// SPDX-License-Identifier: Apache-2.0

package calico_test

import "testing"

// TestNeighborDiscovery is a difference on purpose: Felix enforces policies of a host endpoint on neighbor discovery, too, so
// that a connection which the policy allows fails once the neighbor is forgotten. weft always allows it. The policies differ
// by the rules for ICMPv6 only, and with known neighbors there is no difference.
func TestNeighborDiscovery(t *testing.T) {
	for name, conf := range map[string]map[string]string{
		"iptables-nft": {"FELIX_IPTABLESBACKEND": "nft"},
		"nft":          {"FELIX_NFTABLESMODE": "Enabled"},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOracle(t, dualStack(conf))
			allow := fields{"action": "Allow", "protocol": "TCP", "destination": fields{"ports": []int{5000}}}
			discovery := fields{"action": "Allow", "protocol": "ICMPv6"}
			for _, c := range []struct {
				rules         []fields
				forget, felix bool
			}{
				{[]fields{allow}, false, true},
				{[]fields{allow}, true, false},
				{[]fields{allow, discovery}, true, true},
			} {
				world := []fields{
					labeled(object("HostEndpoint", "n2", "", fields{"node": "n2", "interfaceName": "eth0"}), fields{"host": "second"}),
					object("GlobalNetworkPolicy", "host", "", fields{
						"selector": "host == 'second'", "types": []string{"Ingress"}, "ingress": c.rules,
					}),
				}
				if len(c.rules) > 1 { // advertisements leave the host endpoint, which no policy allows that is for ingress alone
					world = append(world, object("GlobalNetworkPolicy", "answers", "", fields{
						"selector": "host == 'second'", "types": []string{"Egress"}, "egress": []fields{discovery},
					}))
				}
				for _, a := range []struct {
					*arena
					allowed bool
				}{{o.felix, c.felix}, {o.weft, true}} {
					a.apply(world)
					for _, n := range a.nodes {
						if c.forget {
							ip(t, n.ns, "-6 neigh flush dev eth0 nud all")
						}
					}
					want := map[string]bool{"n1 n2 tcp/5000": true, "n1 n2 tcp6/5000": a.allowed, "n1 n2 tcp6/5001": false}
					var wrong []string
					if !a.tryUntil(func() bool {
						wrong = a.matrix.wrong(want)
						return len(wrong) == 0
					}) {
						t.Errorf("rules %v, forgotten %t: %v\n%s", c.rules, c.forget, wrong, a.nodes[1].ruleset())
					}
				}
			}
		})
	}
}
