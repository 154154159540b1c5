// SPDX-License-Identifier: Apache-2.0

package oracletest_test

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/plan/policy/naive"
	"github.com/weft-net/weft/internal/state"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

// lab has two nodes with routed pods, and a host outside the cluster, on one link.
type lab struct {
	testing.TB
	// places are the namespaces by their addresses.
	places map[netip.Addr]*netns.NS
	nodes  map[string]*kernel.Conn
	// bridged pods are at ports of their node's bridge.
	bridged bool
}

// labPods is the number of pods; the odd ones are on the first node.
const labPods = 6

func podNode(number int) int { return 2 - number%2 }

func newLab(t testing.TB, bridged bool) *lab {
	l := &lab{TB: t, places: map[netip.Addr]*netns.NS{}, nodes: map[string]*kernel.Conn{}, bridged: bridged}
	wire := nettest.NS(t, "wire")
	l.run(wire, "link add switch type bridge", "link set switch up")
	for i, name := range []string{"n1", "n2", "out"} {
		ns := nettest.NS(t, name)
		at := []netip.Addr{outside()[0], outside()[2]}
		if name != "out" {
			at = nodeAddrs(name)
			conn, err := kernel.Dial(ns)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
			l.nodes[name] = conn
		}
		l.run(wire, "link add p"+name+" type veth peer name eth0 netns "+ns.Path(), "link set p"+name+" master switch up")
		l.settings(ns)
		l.run(ns, "link set lo up", "link set eth0 address 02:00:00:00:01:0"+fmt.Sprint(i+1), "link set eth0 up")
		if name == "out" {
			l.run(ns, "addr add 192.0.2.9/24 dev eth0", "addr add 2001:db8:1::9/64 dev eth0 nodad",
				"addr add "+at[0].String()+"/32 dev lo", "addr add "+at[1].String()+"/128 dev lo nodad")
		} else {
			l.run(ns, "addr add "+at[0].String()+"/24 dev eth0", "addr add "+at[1].String()+"/64 dev eth0 nodad",
				"route add 203.0.113.0/24 via 192.0.2.9", "route add 2001:db8:ff::/64 via 2001:db8:1::9")
		}
		for n := 1; n <= 2; n++ {
			if name != fmt.Sprintf("n%d", n) {
				l.run(ns, fmt.Sprintf("route add 10.%d.0.0/24 via 192.0.2.%d src %s", n, n, at[0]),
					fmt.Sprintf("route add fd00:%d::/64 via 2001:db8:1::%d src %s", n, n, at[1]))
			}
		}
		for _, a := range at {
			l.places[a] = ns
		}
	}
	for n := 1; n <= 2 && bridged; n++ {
		l.bridge(n)
	}
	for i := 1; i <= labPods; i++ {
		if bridged {
			l.port(i)
		} else {
			l.pod(i)
		}
	}
	return l
}

// pod creates a pod like the routed design, as far as this test needs it: /32 and /128, permanent neighbors.
func (l *lab) pod(number int) {
	node := podNode(number)
	ns, host := nettest.NS(l, fmt.Sprintf("p%d", number)), l.places[nodeAddrs(nodes()[node-1])[0]]
	at, link, mac := podAddrs(node, number, true), fmt.Sprintf("cali-p%d", number),
		fmt.Sprintf("02:00:00:00:00:%02d", number)
	l.run(host, "link add "+link+" address ee:ee:ee:ee:ee:ee type veth peer name eth0 address "+mac+" netns "+ns.Path(),
		"link set "+link+" up",
		fmt.Sprintf("route add %s dev %s", at[0], link), fmt.Sprintf("route add %s dev %s", at[1], link),
		fmt.Sprintf("neigh add %s lladdr %s dev %s nud permanent", at[0], mac, link),
		fmt.Sprintf("neigh add %s lladdr %s dev %s nud permanent", at[1], mac, link))
	l.run(ns, "link set lo up", "link set eth0 up", fmt.Sprintf("addr add %s/32 dev eth0", at[0]),
		fmt.Sprintf("addr add %s/128 dev eth0 nodad", at[1]),
		"neigh add 169.254.1.1 lladdr ee:ee:ee:ee:ee:ee dev eth0 nud permanent",
		"neigh add fe80::1 lladdr ee:ee:ee:ee:ee:ee dev eth0 nud permanent",
		"route add 169.254.1.1 dev eth0", "route add default via 169.254.1.1", "route add default via fe80::1 dev eth0")
	l.places[at[0]], l.places[at[1]] = ns, ns
}

func (l *lab) run(ns *netns.NS, lines ...string) {
	l.Helper()
	file := filepath.Join(l.TempDir(), "batch")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		l.Fatal(err)
	}
	nettest.Run(l, ns, "ip", "-batch", file)
}

func (l *lab) settings(ns *netns.NS) {
	err := ns.Do(func() error {
		for name, v := range map[string]string{
			"ipv4/ip_forward": "1", "ipv6/conf/all/forwarding": "1", "ipv4/conf/all/rp_filter": "0",
			"ipv4/conf/default/rp_filter": "0",
		} {
			if err := os.WriteFile("/proc/sys/net/"+name, []byte(v), 0o644); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		l.Fatal(err)
	}
}

// fit maps a random pod to one of the lab's.
func fit(p naive.Pod) naive.Pod {
	var number int
	_, _ = fmt.Sscanf(p.Name, "p%d", &number)
	node := podNode(number)
	p.Node = nodes()[node-1]
	p.Addrs = map[string][]netip.Addr{"": podAddrs(node, number, len(p.Addrs[""]) > 1)}
	if p.HostNetwork {
		p.Addrs[""] = nodeAddrs(p.Node)
	}
	return p
}

// program applies the tables to the nodes' kernels.
func (l *lab) program(p plans) error {
	for name, conn := range l.nodes {
		tables, err := conn.Netfilter()
		if err != nil {
			return err
		}
		if t, is := p[name][model.PodRef{}]; is {
			err = tables.Apply(l.Context(), []state.Table{t})
		} else {
			err = tables.Remove(l.Context(), []state.Table{{Family: "inet", Name: "weft-policy"}})
		}
		if err != nil {
			return fmt.Errorf("node %s: %w", name, err)
		}
	}
	return nil
}

// reachable returns the packets that the lab can send: those with existing addresses.
func (l *lab) reachable(w naive.World) []naive.Packet {
	return slices.DeleteFunc(packets(w), func(p naive.Packet) bool {
		return l.places[p.Src] == nil || l.places[p.Dst] == nil || l.places[p.Src] == l.places[p.Dst]
	})
}

// rules returns nft's rule sets of the nodes.
func (l *lab) rules() string {
	var b strings.Builder
	for _, n := range nodes() {
		out, err := nettest.Try(l.places[nodeAddrs(n)[0]], "nft", "list", "ruleset")
		fmt.Fprintf(&b, "%s: %v\n%s", n, err, out)
	}
	return b.String()
}
