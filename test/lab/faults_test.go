// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/plan/explain"
	"github.com/weft-net/weft/internal/plan/packettrace"
)

// fault is a failure that is injected in a lab with VXLAN, in which pod default/a of node1 connects to port 8080 of
// default/b on node2.
type fault struct {
	name string
	// inject and undo are commands, of which the first word is a place (a node or pod); an empty one waits until the agent
	// has had time to repair. wait is how long the kernel and the agents need afterwards.
	inject, undo []string
	wait         time.Duration
	// fight is a command that another program repeats at a place, against the agent's repair.
	fight string
	// alters are the objects that only one fault at a time can alter.
	alters []string
	// hop, cause and object are of the diagnosis: the hop's id, and parts of the texts. also are the causes of other
	// hops that the same failure has.
	hop, cause, object string
	also               []string
	// lost is where trace finds that a small packet or its answer is lost, as the kernel reports it|or without such reports;
	// empty: it arrives.
	lost string
	// repaired: the agent repairs the failure before a trace sends its packet.
	repaired bool
}

// otherTable are commands for a table of routes to node2's pods that is asked before the main one.
func otherTable(route string) (inject, undo []string) {
	return []string{"node1 ip rule add to 10.42.2.0/24 lookup 100 pref 100", "node1 ip route add " + route + " table 100"},
		[]string{"node1 ip route flush table 100", "node1 ip rule del pref 100"}
}

// otherProgram are commands for a table of another packet filter with one chain and at most one rule.
func otherProgram(node, table, chain, rule string) (inject, undo []string) {
	inject = []string{node + " nft add table " + table, node + " nft add chain " + table + " c { " + chain + " ; }"}
	if rule != "" {
		inject = append(inject, node+" nft add rule "+table+" c "+rule)
	}
	return inject, []string{node + " nft delete table " + table}
}

// faults are the groups of failures that are met most. The tables that are full need the host's own namespace.
func faults() []fault {
	return slices.Concat(routeFaults(), neighborFaults(), filterFaults(), podFaults())
}

func routeFaults() []fault {
	out := []fault{
		{
			name: "reverse path filtering", lost: "node2", inject: []string{
				"node2 sysctl -qw net.ipv4.conf.all.rp_filter=1",
				"node2 ip rule add to 10.42.1.0/24 lookup 100 pref 100", "node2 ip route add 10.42.1.0/24 dev eth1 table 100",
			}, undo: []string{
				"node2 ip route flush table 100", "node2 ip rule del pref 100", "node2 sysctl -qw net.ipv4.conf.all.rp_filter=0",
			},
			hop: "route", cause: "the way back is over eth1", object: "net/ipv4/conf/all/rp_filter of node2",
			also: []string{"over eth1, not over flannel.1"}, // the answer's way
		},
		{
			name: "forwarding is off", repaired: true, inject: []string{"node2 sysctl -qw net.ipv4.ip_forward=0"},
			undo: []string{"node2 sysctl -qw net.ipv4.ip_forward=1"},
			hop:  "route", cause: "node2 does not forward packets", object: "net/ipv4/ip_forward of node2",
		},
	}
	for _, r := range []struct{ name, route, cause, lost string }{
		{"blackhole in another table", "blackhole 10.42.2.0/24", "a blackhole route of node1 drops packets", "node1"},
		{"unreachable in another table", "unreachable 10.42.2.0/24", "unreachable", "node1"},
		{"another interface", "10.42.2.0/24 dev eth1", "over eth1, not over flannel.1", "between node1 and node2|node1"},
	} {
		f := fault{
			name: r.name, lost: r.lost, alters: []string{"routes of node1"}, hop: "route", cause: r.cause, object: "on node1",
		}
		f.inject, f.undo = otherTable(r.route)
		out = append(out, f)
	}
	return out
}

func neighborFaults() []fault {
	return []fault{
		{
			name: "another MAC address on the wire", lost: "node2|between node1 and node2",
			inject: []string{"node1 ip neigh replace 172.18.0.2 lladdr 02:00:00:00:00:99 dev eth0 nud permanent"},
			undo:   []string{"node1 ip neigh del 172.18.0.2 dev eth0", "node1 ping -c1 -W5 172.18.0.2"},
			hop:    "wire",
			cause:  "sends to MAC address 02:00:00:00:00:99, and eth0 of node2 has",
			object: "neighbor 172.18.0.2 of node node1",
		},
		{
			name: "another program owns the forwarding table", lost: "between node1 and node2|node1",
			fight: "node1 mac=${mac:-$(bridge fdb show dev flannel.1 | awk '/dst 172.18.0.2 /{print $1; exit}')}; " +
				"bridge fdb replace $mac dev flannel.1 dst 172.18.0.99 self permanent",
			hop: "tunnel", cause: "to 172.18.0.99, and its node has 172.18.0.2", object: "of flannel.1 on node1",
		},
		{
			name: "stale neighbor in the pod", lost: "node1|default/a on node1", alters: []string{"neighbors of a"},
			inject: []string{"default/a ip neigh replace 169.254.1.1 lladdr 02:00:00:00:00:99 dev eth0 nud permanent"},
			undo:   []string{"default/a ip neigh replace 169.254.1.1 lladdr ee:ee:ee:ee:ee:ee dev eth0 nud permanent"},
			hop:    "source", cause: "sends to MAC address 02:00:00:00:00:99", object: "neighbor 169.254.1.1 of pod default/a",
		},
	}
}

func podFaults() []fault {
	return []fault{
		{
			name: "MTU of the pod", inject: []string{"default/a ip link set eth0 mtu 1500"},
			undo: []string{"default/a ip link set eth0 mtu 1430"},
			hop:  "tunnel", cause: "MTU 1500, and the tunnel's 1450", object: "MTU of interface eth0 of pod default/a",
		},
		{
			// The agent restores it once; a second removal is the pod's will.
			name: "pod's interface is down", lost: "default/a on node1", alters: []string{"neighbors of a"}, inject: []string{
				"default/a ip link set eth0 down", "", "default/a ip link set eth0 down",
			}, wait: 2 * time.Second, undo: []string{
				"default/a ip link set eth0 up",
				"default/a ip neigh replace 169.254.1.1 lladdr ee:ee:ee:ee:ee:ee dev eth0 nud permanent",
				"default/a ip route replace 169.254.1.1 dev eth0",
				"default/a ip route replace default via 169.254.1.1 dev eth0",
			},
			hop: "source", cause: "the pod's interface is down", object: "interface eth0 of pod default/a",
		},
	}
}

func filterFaults() []fault {
	var out []fault
	for _, r := range []struct{ name, lost, node, table, chain, rule, hop, cause, object string }{
		{
			"forwarding is dropped by default", "node2", "node2", "inet forwarding",
			"type filter hook forward priority 10 ; policy drop", "", "filter", "drops the packet in forward",
			"policy of chain inet forwarding c is drop",
		},
		{
			"tunnel's port is closed", "node2", "node2", "inet closed", "type filter hook input priority 0",
			"udp dport 8472 drop", "tunnel filter", "drops the packet in input", "udp dport 8472 drop",
		},
		{
			"tunnel's port is closed at the interface", "node2|between node1 and node2", "node2", "netdev wire",
			"type filter hook ingress device eth0 priority 0", "udp dport 8472 drop", "tunnel filter",
			"drops the packet in ingress", "chain netdev wire c",
		},
		{
			"tunnel's network identifier is changed", "node2", "node2", "netdev vni",
			"type filter hook ingress device eth0 priority 1", "udp dport 8472 @th,96,24 set 99", "tunnel filter",
			"changes the packet's header in ingress", "chain netdev vni c",
		},
		{
			"a rule drops the port", "node1", "node1", "inet port", "type filter hook forward priority 5",
			"tcp dport 8080 drop", "filter", "drops the packet in forward", "tcp dport 8080 drop",
		},
		{
			"a rule rejects", "node1", "node1", "ip rejecting", "type filter hook forward priority 4",
			"ip daddr 10.42.2.0/24 reject", "filter", "rejects the packet in forward", "ip daddr 10.42.2.0/24 reject",
		},
		{
			"a rule in the pod", "default/a on node1", "default/a", "inet own", "type filter hook output priority 0",
			"tcp dport 8080 drop", "filter", "drops the packet in output", "chain inet own c",
		},
		{
			"connection tracking of one direction", "", "node1", "ip untracked", "type filter hook prerouting priority -300",
			"tcp dport 8080 notrack", "filter", "exempts the packet from connection tracking", "tcp dport 8080 notrack",
		},
		{
			"wrong checksums", "", "node2", "ip wrong", "type filter hook prerouting priority -300",
			"tcp dport 8080 tcp checksum set 0x1234", "filter", "changes the packet's header", "tcp dport 8080",
		},
	} {
		f := fault{
			name: r.name, lost: r.lost, hop: r.hop, cause: r.cause, object: r.object,
			alters: []string{r.node + " " + r.hop + " " + strings.Fields(r.cause)[len(strings.Fields(r.cause))-1]},
		}
		f.inject, f.undo = otherProgram(r.node, r.table, r.chain, r.rule)
		out = append(out, f)
	}
	return out
}

// place is the position on the packet's way of where it is lost.
func (f fault) place() int {
	way := []string{"default/a on node1", "node1", "between node1 and node2", "node2", ""}
	return slices.IndexFunc(way, func(place string) bool { return slices.Contains(strings.Split(f.lost, "|"), place) })
}

// apply injects the fault, and returns what undoes it.
func (f fault) apply(t *testing.T, dir string) (undo func()) {
	t.Helper()
	f.run(t, dir, f.inject)
	if f.fight == "" {
		return func() { f.run(t, dir, f.undo) }
	}
	place, script, _ := strings.Cut(f.fight, " ")
	stop := filepath.Join(t.TempDir(), "stop")
	loop := "for i in $(seq 100000); do [ -e " + stop + " ] && exit; " + script + "; done"
	other := command(t, "lab", "exec", "--dir", dir, place, "--", "sh", "-c", loop)
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.WriteFile(stop, nil, 0o600); err != nil {
			t.Error(err)
		}
		_ = other.Wait()
		f.run(t, dir, f.undo)
	}
}

// run runs commands of a fault.
func (f fault) run(t *testing.T, dir string, commands []string) {
	t.Helper()
	for _, c := range commands {
		place, argv, _ := strings.Cut(c, " ")
		if c == "" {
			// The agent restores it once, and not where an earlier fault changed that interface. A check that finds nothing
			// wrong doubles the time until the next, to 30 s.
			sometime(40*time.Second, func() bool { return isUp(t, dir, "default/a") })
			time.Sleep(f.wait)
			continue
		}
		must(t, append([]string{"lab", "exec", "--dir", dir, place, "--"}, strings.Fields(argv)...)...)
	}
	time.Sleep(f.wait)
}

// isUp reports whether a pod's interface is up.
func isUp(t *testing.T, dir, pod string) bool {
	t.Helper()
	out := must(t, "lab", "exec", "--dir", dir, pod, "--", "ip", "-o", "link", "show", "eth0").stdout
	return strings.Contains(out, ",UP")
}

// is reports whether a hop of an explanation is the diagnosis.
func (f fault) is(h explain.Hop) bool {
	return h.ID == f.hop && strings.Contains(h.Cause, f.cause) && strings.Contains(h.Object, f.object)
}

// explains reports whether a hop is the diagnosis, or another consequence of the failure.
func (f fault) explains(h explain.Hop) bool {
	return f.is(h) || slices.ContainsFunc(f.also, func(cause string) bool { return strings.Contains(h.Cause, cause) })
}

// coexists reports whether both failures can be there at the same time.
func (f fault) coexists(g fault) bool {
	shared := func(o string) bool { return slices.Contains(g.alters, o) }
	return !f.repaired && !g.repaired && !slices.ContainsFunc(f.alters, shared)
}

// loses reports whether a trace lost its packet where the fault loses it.
func (f fault) loses(r packettrace.Report) bool {
	return (f.lost == "") == (r.State == packettrace.Arrived) && slices.Contains(strings.Split(f.lost, "|"), r.Where)
}

// blames reports whether a trace names the object that is to blame.
func (f fault) blames(r packettrace.Report) bool {
	return f.lost == "" || strings.Contains(r.Object, f.object) || slices.ContainsFunc(r.Faults, f.is)
}

// traced traces a packet, and again if the agent has just repaired what other programs fight for.
func (f fault) traced(t *testing.T, dir, from, to string, others ...fault) packettrace.Report {
	t.Helper()
	fight := slices.ContainsFunc(append(others, f), func(f fault) bool { return f.fight != "" })
	var r packettrace.Report
	sometime(time.Minute, func() bool {
		r, _ = traced(t, dir, from, to)
		return !fight || f.loses(r) && (len(others) > 0 || f.blames(r))
	})
	return r
}

// verifyTrace checks that a trace names the place where the packet is lost and the object that is to blame, as explain
// does.
func (f fault) verifyTrace(t *testing.T, dir, from, to string) {
	t.Helper()
	r := f.traced(t, dir, from, to)
	if !f.loses(r) {
		t.Errorf("trace: %s at %q, want %q: %s", r.State, r.Where, f.lost, r.Cause)
	}
	if !f.blames(r) {
		t.Errorf("trace blames %q and %+v", r.Object, r.Faults)
	}
}
