// SPDX-License-Identifier: Apache-2.0

package oracletest_test

import (
	"fmt"
	"os"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/plan/policy"
	"github.com/weft-net/weft/internal/plan/policy/naive"
	"github.com/weft-net/weft/internal/state"
)

// bridge creates a bridge on a node that is its pods' gateway, with conntrack.
func (l *lab) bridge(node int) {
	host := l.places[nodeAddrs(nodes()[node-1])[0]]
	l.run(host, fmt.Sprintf("link add br0 address 02:00:00:00:02:%02d type bridge", node), "link set br0 up",
		fmt.Sprintf("addr add 10.%d.0.254/24 dev br0", node), fmt.Sprintf("addr add fd00:%d::fe/64 dev br0 nodad", node))
	err := host.Do(func() error {
		for _, name := range []string{"iptables", "ip6tables"} {
			if err := os.WriteFile("/proc/sys/net/bridge/bridge-nf-call-"+name, []byte("1"), 0o644); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		l.Fatal(err)
	}
}

// port creates a pod at a port of its node's bridge. All neighbor entries are permanent: a packet that waits for
// resolution might be lost.
func (l *lab) port(number int) {
	node := podNode(number)
	ns, host := nettest.NS(l, fmt.Sprintf("p%d", number)), l.places[nodeAddrs(nodes()[node-1])[0]]
	at, mac := podAddrs(node, number, true), func(n int) string { return fmt.Sprintf("02:00:00:00:00:%02d", n) }
	link := fmt.Sprintf("cali-p%d", number)
	l.run(host, "link add "+link+" type veth peer name eth0 address "+mac(number)+" netns "+ns.Path(),
		"link set "+link+" master br0 up",
		fmt.Sprintf("neigh add %s lladdr %s dev br0 nud permanent", at[0], mac(number)),
		fmt.Sprintf("neigh add %s lladdr %s dev br0 nud permanent", at[1], mac(number)))
	lines := []string{
		"link set lo up", "link set eth0 up", fmt.Sprintf("addr add %s/24 dev eth0", at[0]),
		fmt.Sprintf("addr add %s/64 dev eth0 nodad", at[1]),
	}
	for _, gateway := range []string{fmt.Sprintf("10.%d.0.254", node), fmt.Sprintf("fd00:%d::fe", node)} {
		lines = append(lines, fmt.Sprintf("neigh add %s lladdr 02:00:00:00:02:%02d dev eth0 nud permanent", gateway, node),
			"route add default via "+gateway)
	}
	for n := 1; n <= labPods; n++ {
		if n != number && podNode(n) == node {
			for _, a := range podAddrs(node, n, true) {
				lines = append(lines, fmt.Sprintf("neigh add %s lladdr %s dev eth0 nud permanent", a, mac(n)))
			}
		}
	}
	l.run(ns, lines...)
	l.places[at[0]], l.places[at[1]] = ns, ns
}

// programPorts applies the policies of the ports to the nodes' kernels.
func (l *lab) programPorts(w naive.World) error {
	for name, conn := range l.nodes {
		x := policy.New(policy.Config{Node: name})
		learn(x, w)
		for i := range w.Pods {
			if p := &w.Pods[i]; !p.Done && !p.HostNetwork {
				for _, e := range endpoints(p) {
					e.HostEnd = model.HostEndPort
					x.SetEndpoint(e)
				}
			}
		}
		place := policy.EnforcementPoint{Ports: true}
		all := x.Tables()
		var err error
		switch {
		case len(all) == 0:
			err = conn.RemoveTables(l.Context(),
				append(place.AuxiliaryTables(), state.Table{Family: place.Family(), Name: place.Table()}))
		case len(all) > 1 || all[0].Point != place:
			return fmt.Errorf("node %s: tables in other places than the ports: %v", name, all)
		default:
			err = conn.ApplyTables(l.Context(), append(place.AuxiliaryTables(), all[0].Table))
		}
		if err != nil {
			return fmt.Errorf("node %s: %w", name, err)
		}
	}
	return nil
}
