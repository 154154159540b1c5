// SPDX-License-Identifier: Apache-2.0

package standalone_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// podRoutes returns the routes of a container, without what only one of the two programs sets: the protocol, and that a
// gateway is on-link.
func podRoutes(t *testing.T, ns *netns.NS) string {
	t.Helper()
	var out []string
	for _, family := range []string{"-4", "-6"} {
		text := nettest.Run(t, ns, "ip", family, "route", "show", "table", "all")
		for line := range strings.Lines(text) {
			if strings.Contains(line, "table local") || strings.Contains(line, "fe80::") ||
				strings.HasPrefix(line, "multicast") {
				continue
			}
			words := strings.Fields(strings.ReplaceAll(line, " proto 119", ""))
			out = append(out, strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "onlink" }), " "))
		}
	}
	return strings.Join(out, "\n")
}

// attachment is an interface of a container in a test that makes several.
type attachment struct{ ifName, typ, rest string }

func (a attachment) conf() string {
	return strings.Replace(conf("1.0.0", a.typ, a.rest), `"name":"n"`, `"name":"n-`+a.ifName+`"`, 1)
}

const (
	firstNet  = `"addresses":[{"address":"10.1.0.5/24","gateway":"10.1.0.1"},{"address":"fd01::5/64","gateway":"fd01::1"}]`
	secondNet = `"addresses":[{"address":"10.2.0.5/24","gateway":"10.2.0.1"},{"address":"fd02::5/64","gateway":"fd02::1"}]`
	defaults  = `,"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"}]`
)

func static(words string) string { return `,"ipam":{"type":"static",` + words + `}` }

// Containers have the same routes as with the reference plugins, also unusual ones, and one attachment's DEL leaves the
// routes of the others.
func TestRoutesOfContainers(t *testing.T) {
	for name, all := range map[string][]attachment{
		"two default routes": {
			{"eth0", "bridge", `,"bridge":"sbr0","isGateway":true` + static(firstNet+defaults)},
			{"net1", "bridge", `,"bridge":"sbr1","isGateway":true` + static(secondNet+defaults)},
		},
		"ptp and bridge": {
			{"eth0", "ptp", static(firstNet + defaults)},
			{"net1", "bridge", `,"bridge":"sbr1","isGateway":true` + static(secondNet+defaults)},
		},
		"bridge and macvlan": {
			{"eth0", "bridge", `,"bridge":"sbr0","isGateway":true` + static(firstNet+defaults)},
			{"net1", "macvlan", `,"master":"rlow0"` + static(secondNet+defaults)},
		},
		"own subnet through a gateway": {
			{
				"eth0", "bridge", `,"bridge":"sbr0","isGateway":true` +
					static(firstNet+`,"routes":[{"dst":"10.1.0.0/24","gw":"10.1.0.1"},{"dst":"fd01::/64","gw":"fd01::1"}]`),
			},
		},
		"own subnet of macvlan through a gateway": {
			{
				"eth0", "macvlan", `,"master":"rlow0"` +
					static(firstNet+`,"routes":[{"dst":"10.1.0.0/24","gw":"10.1.0.1"},{"dst":"fd01::/64","gw":"fd01::1"}]`),
			},
		},
		"two gateways": {
			{
				"eth0", "bridge",
				`,"bridge":"sbr0"` +
					static(firstNet+`,"routes":[{"dst":"192.168.0.0/16","gw":"10.1.0.8"},{"dst":"192.168.0.0/16","gw":"10.1.0.9"},
				{"dst":"fd09::/64","gw":"fd01::8"},{"dst":"fd09::/64","gw":"fd01::9"}]`),
			},
		},
		"ptp's neighbor": {
			{
				"eth0", "ptp",
				static(
					firstNet +
						`,"routes":[{"dst":"0.0.0.0/0"},{"dst":"192.168.0.0/16","gw":"10.1.0.9"},{"dst":"fd09::/64","gw":"fd01::9"}]`,
				),
			},
		},
		"tables without a default route": {
			{
				"eth0", "bridge",
				`,"bridge":"sbr0"` + static(firstNet+`,"routes":[{"dst":"192.168.0.0/16","gw":"10.1.0.8","priority":50,"table":300},
				{"dst":"fd09::/64","gw":"fd01::8","priority":70,"table":300},{"dst":"172.16.0.0/16","table":400}]`),
			},
		},
		"host bits": {
			{"eth0", "bridge", `,"bridge":"sbr0"` + static(firstNet+`,"routes":[{"dst":"3ffe:ffff:0:01ff::1/64"}]`)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			_, _ = nettest.Try(nil, "ip", "link", "del", "sbr1")
			if slices.ContainsFunc(all, func(a attachment) bool { return a.typ == "macvlan" }) {
				nettest.Need(t, "macvlan")
				nettest.Run(t, nil, "sh", "-ec", "ip link add rlow0 type veth peer name rlow1; ip link set rlow0 up; ip link set rlow1 up")
				t.Cleanup(func() { nettest.Run(t, nil, "ip", "link", "del", "rlow0") })
			}
			var seen [2][]string
			peer := os.Getenv("WEFT_PEER_BIN_DIR")
			for who := range seen {
				if who == 1 && peer == "" {
					break
				}
				ns := nettest.NS(t, "c1")
				run := func(a attachment, verb, prev string) string {
					c := strings.Replace(a.conf(), "{", "{"+prev, 1)
					if who == 1 {
						return h.peer(peer, a.typ, verb, c, ns, "CNI_IFNAME="+a.ifName)
					}
					return h.must(a.typ, verb, c, ns, "CNI_IFNAME="+a.ifName).stdout
				}
				var results []string
				for _, a := range all {
					results = append(results, `"prevResult":`+run(a, "ADD", "")+`,`)
				}
				if who == 0 {
					for i, a := range all {
						run(a, "CHECK", results[i])
					}
				}
				seen[who] = append(seen[who], podRoutes(t, ns))
				for i, a := range slices.Backward(all) {
					run(a, "DEL", results[i])
					seen[who] = append(seen[who], podRoutes(t, ns))
					if who == 0 && i > 0 {
						run(all[0], "CHECK", results[0])
					}
				}
				if left := seen[who][len(seen[who])-1]; left != "" {
					t.Errorf("routes after the last DEL:\n%s", left)
				}
			}
			if len(all) > 1 {
				for _, want := range []string{"default via 10.1.0.1 dev eth0", "default via fd01::1 dev eth0 metric 1024"} {
					if !strings.Contains(seen[0][1], want) {
						t.Errorf("after the second interface's DEL: no %q in\n%s", want, seen[0][1])
					}
				}
			}
			for i := range seen[1] {
				if seen[0][i] != seen[1][i] {
					t.Errorf("after step %d: weft\n%s\nreference\n%s", i, seen[0][i], seen[1][i])
				}
			}
		})
	}
}

// IPv6 addresses stay while a link is down.
func TestAddressesWhileDown(t *testing.T) {
	for _, a := range []attachment{
		{"eth0", "bridge", `,"bridge":"sbr0"` + static(firstNet)}, {"eth0", "ptp", static(firstNet)},
	} {
		h := newHost(t)
		ns := nettest.NS(t, "c1")
		h.must(a.typ, "ADD", a.conf(), ns)
		nettest.Run(t, ns, "ip", "link", "set", "eth0", "down")
		nettest.Run(t, ns, "ip", "link", "set", "eth0", "up")
		if out := nettest.Run(t, ns, "ip", "-6", "addr", "show", "dev", "eth0"); !strings.Contains(out, "fd01::5/64") {
			t.Errorf("%s: %s", a.typ, out)
		}
		h.must(a.typ, "DEL", a.conf(), ns)
	}
}
