// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// wireWithHost makes a link in the node's namespace, and a host of no plugin at its other end, which has the first
// addresses that IPAM allocates.
func wireWithHost(t *testing.T, name string) *netns.NS {
	t.Helper()
	host := nettest.NS(t, "host")
	nettest.Run(t, nil, "ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", host.Path())
	t.Cleanup(func() { nettest.Run(t, nil, "ip", "link", "del", name) })
	nettest.Run(t, nil, "ip", "link", "set", name, "up")
	nettest.Run(t, host, "ip", "addr", "add", "10.8.0.2/24", "dev", "eth0")
	nettest.Run(t, host, "ip", "addr", "add", "fd00:8::2/64", "dev", "eth0", "nodad")
	nettest.Run(t, host, "ip", "link", "set", "eth0", "up")
	return host
}

// TestDuplicateOnTheWire: with dadTimeout an address that another host on the link has fails the ADD, which leaves
// nothing; the next address is free.
func TestDuplicateOnTheWire(t *testing.T) {
	const v4, v6 = `[{"subnet":"10.8.0.0/24"}]`, `[{"subnet":"fd00:8::/64"}]`
	for name, plugin := range map[string]string{
		"macvlan": `{"type":"macvlan","master":"wire0","dadTimeout":DAD,"ipam":IPAM}`,
		"bridge":  `{"type":"bridge","bridge":"abr0","dadTimeout":DAD,"ipam":IPAM}`,
	} {
		for family, ranges := range map[string]string{"IPv4": v4, "IPv6": v6} {
			t.Run(name+" "+family, func(t *testing.T) {
				n := newNode(t)
				host := wireWithHost(t, "wire0")
				mac := nettest.MAC(t, host, "eth0").String()
				if name == "bridge" {
					nettest.Run(t, nil, "ip", "link", "add", "abr0", "type", "bridge")
					t.Cleanup(func() { nettest.Run(t, nil, "ip", "link", "del", "abr0") })
					nettest.Run(t, nil, "ip", "link", "set", "abr0", "up")
					nettest.Run(t, nil, "ip", "link", "set", "wire0", "master", "abr0")
				}
				conf := func(ms int) string {
					ipam := fmt.Sprintf(`{"type":"host-local","ranges":[%s],"dataDir":"DATA"}`, ranges)
					return n.list(strings.NewReplacer("DAD", fmt.Sprint(ms), "IPAM", ipam).Replace(plugin))
				}
				links := nettest.Run(t, nil, "ip", "-o", "link")
				id, ns := n.pod()
				_, err := n.Add(t.Context(), n.job(conf(10_000), id, ns))
				addr := map[string]string{"IPv4": "10.8.0.2", "IPv6": "fd00:8::2"}[family]
				wantCode(t, "a taken address", err, model.CodeInUse, `network "net"`, addr, mac, "eth0")
				n.drain()
				if got := n.reserved(); len(got) > 0 {
					t.Errorf("addresses left: %v", got)
				}
				if list, err := n.ledger.List(); err != nil || len(list) > 0 {
					t.Errorf("records left: %d %v", len(list), err)
				}
				if after := nettest.Run(t, nil, "ip", "-o", "link"); strings.Count(after, "\n") != strings.Count(links, "\n") {
					t.Errorf("links before:\n%s\nafter:\n%s", links, after)
				}
				if out := nettest.Run(t, ns, "ip", "-o", "link"); strings.Contains(out, "eth0") {
					t.Errorf("the pod has the interface:\n%s", out)
				}

				job := n.job(conf(300), id, ns)
				r := n.add(job) // host-local continues with the next address
				if got := r.IPs[0].Address.Addr().String(); got == addr {
					t.Errorf("the pod has %s", got)
				}
				if err := n.Check(t.Context(), job); err != nil {
					t.Error(err)
				}
				nettest.Run(t, host, "ping", "-c1", "-W20", r.IPs[0].Address.Addr().String())
				if err := n.Del(t.Context(), job); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestDuplicateIsNotProbed: without dadTimeout two hosts have the address, as with the reference plugins. The key is
// refused where nothing could be probed.
func TestDuplicateIsNotProbed(t *testing.T) {
	n := newNode(t)
	wireWithHost(t, "wire0")
	const static = `"ipam":{"type":"static","addresses":[{"address":"10.8.0.2/24"}]}`
	id, ns := n.pod()
	n.add(n.job(n.list(`{"type":"macvlan","master":"wire0",`+static+`}`), id, ns))
	for plugin, says := range map[string]string{
		`{"type":"ptp","dadTimeout":200,` + static + `}`:                              "ptp: dadTimeout 200: the plugin cannot probe",
		`{"type":"ipvlan","master":"wire0","dadTimeout":200,` + static + `}`:          "ipvlan: dadTimeout 200: the plugin cannot probe",
		`{"type":"bridge","dadTimeout":200}`:                                          "bridge: dadTimeout 200: the interface gets no addresses",
		`{"type":"macvlan","master":"wire0","dadTimeout":10001,` + static + `}`:       "dadTimeout 10001 is not between 0 and 10000",
		`{"type":"vlan","master":"wire0","vlanId":3,"dadTimeout":-1,` + static + `}`:  "dadTimeout -1 is not between",
		`{"type":"host-device","device":"wire0","dadTimeout":"200ms",` + static + `}`: "dadTimeout is string, want int",
	} {
		_, err := n.Add(t.Context(), n.job(n.list(plugin), id+"x", ns))
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", plugin, err)
		}
	}
}
