// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/node/explainer"
	"github.com/weft-net/weft/internal/node/policy"
	"github.com/weft-net/weft/internal/plan/explain"
	planpolicy "github.com/weft-net/weft/internal/plan/policy"
	"github.com/weft-net/weft/internal/state"
)

// outside is a host behind the node's interface up0: 192.0.2.2, and the node is 192.0.2.1.
type outside struct {
	ns   *netns.NS
	addr netip.Addr
}

func (w *world) outside() outside {
	w.t.Helper()
	ns := nettest.NS(w.t, "outside")
	run := func(in *netns.NS, line string) { nettest.Run(w.t, in, strings.Fields(line)...) }
	run(nil, "ip link add up0 type veth peer name tmp1")
	w.t.Cleanup(func() { _, _ = nettest.Try(nil, "ip", "link", "del", "up0") })
	run(nil, "ip link set tmp1 name eth0 netns "+ns.Path())
	run(nil, "ip addr add 192.0.2.1/24 dev up0")
	run(nil, "ip link set up0 up")
	run(ns, "ip addr add 192.0.2.2/24 dev eth0")
	run(ns, "ip link set eth0 up")
	run(ns, "ip link set lo up")
	run(ns, "ip route add 10.9.0.0/16 via 192.0.2.1")
	w.carries(nil, "up0")
	w.carries(ns, "eth0")
	return outside{ns, netip.MustParseAddr("192.0.2.2")}
}

// listen answers on a TCP port, on the node if there is no namespace.
func (w *world) listen(ns *netns.NS, port int) {
	w.t.Helper()
	w.serve(&pod{ns: ns}, port)
}

var onNode = netip.MustParseAddr("192.0.2.1")

// why returns the answer of weft policy why about a connection.
func (w *world) why(from, to netip.Addr, port uint16) string {
	w.t.Helper()
	all, err := w.Why(planpolicy.Query{
		From: planpolicy.ConnectionEnd{Addr: from}, To: planpolicy.ConnectionEnd{Addr: to}, Protocol: model.TCP, Port: port,
	})
	if err != nil || len(all) != 1 {
		w.t.Fatal(all, err)
	}
	return sidesText(all[0].Sides)
}

// explained returns what the agent answers to a question of weft explain about host endpoints.
func (w *world) explained(q explain.Question) string {
	w.t.Helper()
	q.Node, q.Kind = "n1", explain.AskHost
	a := explainer.New(explainer.Config{Node: "n1", Policies: w.Enforcer}).Answers(w.t.Context(), []explain.Question{q})[q]
	if a.Error != "" || a.Hosts == nil || !w.DecidesAtHosts() {
		w.t.Fatalf("%+v", a)
	}
	return sidesText(a.Hosts.Sides)
}

// sidesText returns the side that denies.
func sidesText(sides []planpolicy.Side) string {
	for _, s := range sides {
		if !s.Allowed {
			return fmt.Sprintf("denied by %s of %s, %v rule %d", s.Direction, s.HostEndpoint, s.Decided, s.Rule)
		}
	}
	return "allowed"
}

const hostEth = `
apiVersion: projectcalico.org/v3
kind: HostEndpoint
metadata: {name: n1-up0, labels: {host: web}}
spec: {node: n1, interfaceName: up0, expectedIPs: [192.0.2.1], profiles: [projectcalico-default-allow]}
`

// TestHostEndpoint: a policy that selects a host endpoint decides about packets to the node's own processes, but for the
// ports that always stay open. It follows the objects, and nothing is left without them.
func TestHostEndpoint(t *testing.T) {
	w := newWorld(t)
	o := w.outside()
	for _, port := range []int{22, 8080, 8081} {
		w.listen(nil, port)
	}
	w.start()
	w.manifest("hep", hostEth)
	w.manifest("deny", `
apiVersion: projectcalico.org/v3
kind: GlobalNetworkPolicy
metadata: {name: no-8080}
spec:
  selector: host == "web"
  ingress:
  - {action: Deny, protocol: TCP, source: {nets: [192.0.2.0/24]}, destination: {ports: [22, 8080]}}
  - {action: Allow}
`)
	w.eventually("the port is closed", func() bool { return !connects(o.ns, onNode, 8080) })
	if !admits(o.ns, onNode, 8081) || !admits(o.ns, onNode, 22) {
		t.Errorf("more than the policy denies is closed:\n%s", ruleset())
	}
	if !admits(nil, onNode, 8080) {
		t.Errorf("another interface has the policy:\n%s", ruleset())
	}
	w.manifest("lost", "apiVersion: projectcalico.org/v3\nkind: HostEndpoint\nmetadata: {name: a}\nspec: {interfaceName: up0}\n")
	w.eventually("the summary has the host endpoint, and one that cannot be read with the reason", func() bool {
		s, err := w.Summary(t.Context())
		return err == nil && len(s.HostEndpoints) == 2 && strings.Contains(strings.Join(s.HostEndpoints[0].Faults, ""), "spec.node is missing") &&
			s.HostEndpoints[1].Name == "n1-up0" && s.HostEndpoints[1].Interface == "up0" && len(s.HostEndpoints[1].Faults) == 0 &&
			len(s.HostEndpoints[1].Stages) == 2 && s.HostEndpoints[1].Stages[0].Policies[0].Name == "no-8080"
	})
	w.remove("lost")
	w.eventually("the one that cannot be read is gone", func() bool {
		s, err := w.Summary(t.Context())
		return err == nil && len(s.HostEndpoints) == 1
	})
	if got := w.why(o.addr, onNode, 8080); got != "denied by ingress of n1-up0, [GlobalNetworkPolicy no-8080] rule 0" {
		t.Errorf("weft policy why says %s", got)
	}
	seen := planpolicy.Flow{Src: o.addr, Dst: onNode, Protocol: model.TCP, SrcPort: 40000, DstPort: 8080}
	if sides, unknown := w.DecideAtHosts(seen); unknown != "" || !strings.HasPrefix(sidesText(sides), "denied by ingress of n1-up0") {
		t.Errorf("weft observe names %v, %s", sides, unknown)
	}
	for port, want := range map[uint16]string{8080: "denied by ingress of n1-up0, [GlobalNetworkPolicy no-8080] rule 0", 8081: "allowed", 22: "allowed"} {
		if got := w.explained(explain.Question{From: o.addr, To: onNode, Protocol: model.TCP, Port: port, In: "up0"}); got != want {
			t.Errorf("weft explain hears of port %d: %s", port, got)
		}
	}
	if got := w.explained(explain.Question{From: onNode, To: onNode, Protocol: model.TCP, Port: 8080, In: "lo"}); got != "allowed" {
		t.Errorf("weft explain hears of the loopback: %s", got)
	}
	w.manifest("felix", `
apiVersion: projectcalico.org/v3
kind: FelixConfiguration
metadata: {name: default}
spec: {failsafeInboundHostPorts: [{protocol: tcp, port: 8080, net: 192.0.2.2/32}]}
`)
	w.eventually("the ports that stay open are those of the configuration", func() bool {
		return connects(o.ns, onNode, 8080) && !connects(o.ns, onNode, 22)
	})
	w.remove("felix")
	w.remove("deny")
	w.eventually("nothing is left where everything is allowed", func() bool { return !strings.Contains(ruleset(), "host-") })
	w.manifest("hep", strings.Replace(hostEth, ", profiles: [projectcalico-default-allow]", "", 1))
	w.eventually("without policy and profile all other ports are closed", func() bool {
		return !connects(o.ns, onNode, 8081) && connects(o.ns, onNode, 22)
	})
	w.remove("hep")
	w.eventually("nothing is left", func() bool { return !strings.Contains(ruleset(), "weft-policy") && connects(o.ns, onNode, 8080) })
}

// TestHostEndpointForward: only policies that apply on forward decide about packets that the node forwards, at the
// interface where they come in, and at the one by which they leave; the pods' own policies hold as well.
func TestHostEndpointForward(t *testing.T) {
	w := newWorld(t)
	o := w.outside()
	w.start()
	web, other := w.pod("shop/web", "app: web"), w.pod("shop/other", "app: other")
	for _, port := range []int{22, 80, 81, 8080} {
		w.serve(web, port)
		w.listen(o.ns, port)
	}
	w.manifest("hep", hostEth)
	w.manifest("plain", `
apiVersion: projectcalico.org/v3
kind: GlobalNetworkPolicy
metadata: {name: plain}
spec: {selector: host == "web", types: [Ingress, Egress]}
`)
	w.eventually("the node's own packets are denied", func() bool { return !connects(nil, o.addr, 80) })
	if !admits(o.ns, web.addr, 80) || !admits(web.ns, o.addr, 80) {
		t.Errorf("a policy that does not apply on forward decides about forwarded packets:\n%s", ruleset())
	}
	forward := func(more string) string {
		return `
apiVersion: projectcalico.org/v3
kind: GlobalNetworkPolicy
metadata: {name: forward}
spec:
  order: 1
  selector: host == "web"
  applyOnForward: true
` + more
	}
	w.manifest("forward", forward("  ingress: [{action: Allow, protocol: TCP, destination: {ports: [80]}}]\n"))
	w.eventually("what the policy does not allow is denied where it comes in", func() bool {
		return reaches(o.ns, web, 80) && !reaches(o.ns, web, 81)
	})
	if reaches(o.ns, web, 22) {
		t.Errorf("ports that always stay open are those of the node, not of pods:\n%s", ruleset())
	}
	if !admits(web.ns, o.addr, 81) {
		t.Errorf("a policy for ingress decides about what leaves:\n%s", ruleset())
	}
	w.manifest("forward", forward(`  egress: [{action: Deny, protocol: TCP, source: {selector: app == "web"}, destination: {ports: [81]}}, {action: Allow}]`+"\n"))
	w.eventually("a rule by the pods' labels decides about what leaves", func() bool {
		return !connects(web.ns, o.addr, 81) && connects(other.ns, o.addr, 81) && connects(web.ns, o.addr, 80)
	})
	if !admits(o.ns, web.addr, 81) {
		t.Errorf("a policy for egress decides about what comes in:\n%s", ruleset())
	}
}

// TestHostEndpointPreDNAT: such a policy sees the port before it is translated. What it accepts, no other policy of the host
// endpoint denies; the pods' own still can.
func TestHostEndpointPreDNAT(t *testing.T) {
	w := newWorld(t)
	o := w.outside()
	w.start()
	web := w.pod("shop/web", "app: web")
	w.serve(web, 80)
	w.listen(nil, 8080)
	nat := fmt.Sprintf(`table ip services {
	chain pre { type nat hook prerouting priority -100; tcp dport { 30080, 30081 } dnat to %s:80; }
}`, web.addr)
	path := filepath.Join(t.TempDir(), "nat")
	if err := os.WriteFile(path, []byte(nat), 0o600); err != nil {
		t.Fatal(err)
	}
	nettest.Run(t, nil, "nft", "-f", path)
	w.manifest("hep", hostEth)
	w.manifest("pre", `
apiVersion: projectcalico.org/v3
kind: GlobalNetworkPolicy
metadata: {name: pre}
spec:
  selector: host == "web"
  preDNAT: true
  applyOnForward: true
  ingress:
  - {action: Deny, protocol: TCP, destination: {ports: [30081]}}
  - {action: Allow, protocol: TCP, destination: {ports: [8080]}}
`)
	w.eventually("the port is closed before it is translated", func() bool {
		return !connects(o.ns, onNode, 30081) && connects(o.ns, onNode, 30080)
	})
	w.manifest("all", `
apiVersion: projectcalico.org/v3
kind: GlobalNetworkPolicy
metadata: {name: all}
spec: {selector: host == "web", applyOnForward: true, types: [Ingress]}
`)
	w.eventually("another policy denies the rest", func() bool { return !connects(o.ns, onNode, 30080) })
	if !admits(o.ns, onNode, 8080) {
		t.Errorf("what was accepted before the translation is denied later:\n%s", ruleset())
	}
}

// TestHostEndpointUntracked: such a policy sees every packet, answers too; what it accepts is not tracked, and allowed.
func TestHostEndpointUntracked(t *testing.T) {
	w := newWorld(t)
	o := w.outside()
	w.start()
	for _, port := range []int{22, 80, 81, 82} {
		w.listen(nil, port)
	}
	w.manifest("hep", strings.Replace(hostEth, ", profiles: [projectcalico-default-allow]", "", 1))
	w.manifest("raw", `
apiVersion: projectcalico.org/v3
kind: GlobalNetworkPolicy
metadata: {name: raw}
spec:
  selector: host == "web"
  doNotTrack: true
  applyOnForward: true
  ingress: [{action: Deny, protocol: TCP, destination: {ports: [22, 81]}}, {action: Allow, protocol: TCP, destination: {ports: [80]}}]
  egress: [{action: Allow, protocol: TCP, source: {ports: [80]}}]
`)
	w.manifest("rest", `
apiVersion: projectcalico.org/v3
kind: GlobalNetworkPolicy
metadata: {name: rest}
spec: {selector: host == "web", ingress: [{action: Allow, protocol: TCP, destination: {ports: [81, 82]}}]}
`)
	w.eventually("what is not tracked is allowed, and what no such policy decides by the others", func() bool {
		return connects(o.ns, onNode, 80) && connects(o.ns, onNode, 82) && !connects(o.ns, onNode, 81)
	})
	if !admits(o.ns, onNode, 22) {
		t.Errorf("a port that always stays open is closed:\n%s", ruleset())
	}
	c, err := dial(o.ns, netip.AddrPortFrom(onNode, 80), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	// Connections that began before the policy was in force are tracked.
	tracked := fmt.Sprintf("sport=%d dport=80 ", c.LocalAddr().(*net.TCPAddr).Port)
	if out, err := nettest.Try(nil, "cat", "/proc/net/nf_conntrack"); err == nil && strings.Contains(out, tracked) {
		t.Errorf("the connection is tracked:\n%s", out)
	}
}

// TestHostEndpointAutomatic: Calico's controllers would create host endpoints for all interfaces, which deny only by
// policies; they select by the node's labels. A host endpoint of an interface of its own goes before.
func TestHostEndpointAutomatic(t *testing.T) {
	w := newWorld(t)
	o := w.outside()
	w.listen(nil, 80)
	w.manifest("controllers", `
apiVersion: projectcalico.org/v3
kind: KubeControllersConfiguration
metadata: {name: default}
spec: {controllers: {node: {hostEndpoint: {autoCreate: Enabled}}}}
`)
	node := func(labels string) {
		w.manifest("node", "apiVersion: v1\nkind: Node\nmetadata: {name: n1, labels: {"+labels+"}}\nstatus: {addresses: [{type: InternalIP, address: 192.0.2.1}]}\n")
	}
	node("role: edge")
	w.manifest("edge", `
apiVersion: projectcalico.org/v3
kind: GlobalNetworkPolicy
metadata: {name: edge}
spec: {selector: role == "edge", ingress: [{action: Deny, protocol: TCP, destination: {ports: [80]}}, {action: Allow}]}
`)
	w.start()
	web := w.pod("shop/web", "")
	w.serve(web, 80)
	w.eventually("the policy selects by the node's labels, at all interfaces", func() bool {
		return !connects(o.ns, onNode, 80) && !connects(nil, onNode, 80)
	})
	if !admits(nil, web.addr, 80) || !admits(web.ns, onNode, 80) {
		t.Errorf("between the node and its pods there is no host endpoint:\n%s", ruleset())
	}
	for _, from := range []netip.Addr{o.addr, onNode} {
		if got := w.why(from, onNode, 80); got != "denied by ingress of n1-auto-hep, [GlobalNetworkPolicy edge] rule 0" {
			t.Errorf("from %s weft policy why says %s", from, got)
		}
	}
	if got := w.why(web.addr, onNode, 80); got != "allowed" {
		t.Errorf("from a pod weft policy why says %s", got)
	}
	w.manifest("own", strings.Replace(hostEth, "interfaceName: up0, ", "", 1))
	w.eventually("a host endpoint that is found by its address goes before", func() bool { return connects(o.ns, onNode, 80) && !connects(nil, onNode, 80) })
	w.remove("own")
	w.eventually("it is gone", func() bool { return !connects(o.ns, onNode, 80) })
	node("role: core")
	w.eventually("the labels are followed", func() bool { return connects(o.ns, onNode, 80) })
	w.manifest("felix", `
apiVersion: projectcalico.org/v3
kind: FelixConfiguration
metadata: {name: node.n1}
spec: {defaultEndpointToHostAction: Drop}
`)
	w.eventually("the node is closed to its pods", func() bool { return !connects(web.ns, onNode, 80) })
	if got := w.why(web.addr, onNode, 80); got != "denied by ingress of , [FelixConfiguration defaultEndpointToHostAction] rule -1" {
		t.Errorf("from a pod weft policy why says %s", got)
	}
	if !admits(o.ns, onNode, 80) || !admits(nil, web.addr, 80) {
		t.Errorf("more than what pods send to the node is closed:\n%s", ruleset())
	}
}

// TestHostEndpointPeers: rules select host endpoints by their labels, which stand for their addresses.
func TestHostEndpointPeers(t *testing.T) {
	w := newWorld(t)
	o := w.outside()
	w.start()
	web := w.pod("shop/web", "app: web")
	w.serve(web, 80)
	w.manifest("policy", `
apiVersion: projectcalico.org/v3
kind: NetworkPolicy
metadata: {namespace: shop, name: web}
spec: {selector: app == "web", ingress: [{action: Allow, source: {selector: role == "db", namespaceSelector: global()}}]}
`)
	w.eventually("others are denied", func() bool { return !reaches(o.ns, web, 80) })
	w.manifest("db", "apiVersion: projectcalico.org/v3\nkind: HostEndpoint\nmetadata: {name: db, labels: {role: db}}\n"+
		"spec: {node: n2, interfaceName: eth0, expectedIPs: [192.0.2.2]}\n")
	w.eventually("the host endpoint of another node is allowed", func() bool { return reaches(o.ns, web, 80) })
	w.remove("db")
	w.eventually("it is gone", func() bool { return !reaches(o.ns, web, 80) })
}

// TestHostEndpointShim: a host endpoint for all interfaces decides about packets between the node and its own macvlan pods,
// which pass a link of the node itself, the host shim; defaultEndpointToHostAction drops what these pods send to the node.
// A MultiNetworkPolicy of the pods' network decides about other hosts, and not about the node.
func TestHostEndpointShim(t *testing.T) {
	nettest.Need(t, "macvlan")
	w := newWorld(t)
	o := w.outside()
	shim := state.HostShimPrefix + "012345678"
	w.start()
	web, addr := w.pod("shop/web", "app: web"), netip.MustParseAddr("192.0.2.9")
	net1 := model.WorkloadEndpoint{
		Attachment: model.AttachmentKey{Network: "fast", ContainerID: web.Attachment.ContainerID, IfName: "net1"}, Pod: web.Pod,
		Network: "shop/fast", IfName: "net1", Addrs: []netip.Addr{addr}, Netns: web.Netns, NetnsID: web.NetnsID,
	}
	if err := w.Admit(t.Context(), net1); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"link add " + shim + " link up0 type macvlan mode bridge", "addr add 192.0.2.1/32 dev " + shim, "link set " + shim + " up",
		"route add 192.0.2.9/32 dev " + shim + " src 192.0.2.1",
		"link add tmp2 link up0 type macvlan mode bridge", "link set tmp2 name net1 netns " + web.ns.Path(),
	} {
		nettest.IP(t, nil, line)
	}
	pod := web.ns
	nettest.IP(t, pod, "addr add 192.0.2.9/24 dev net1")
	nettest.IP(t, pod, "link set net1 up")
	w.Attached(net1.Attachment)
	for _, port := range []int{8080, 8081} {
		w.listen(nil, port)
		w.listen(pod, port+1000)
	}
	for _, to := range []uint16{8080, 8081} {
		if !admits(pod, onNode, to) || !admits(nil, addr, to+1000) {
			t.Fatalf("port %d: without a policy the node and its pod do not reach each other", to)
		}
	}
	if !admits(o.ns, addr, 9080) {
		t.Fatal("without a policy another host does not reach the pod")
	}
	w.manifest("fast", onlyFastFriends)
	w.eventually("the pod is closed to another host", func() bool { return !connects(o.ns, addr, 9080) })
	if !admits(nil, addr, 9080) {
		t.Errorf("the policy decides about the node:\n%s", nettest.Run(t, pod, "nft", "list", "ruleset"))
	}
	w.manifest("hep", strings.NewReplacer("interfaceName: up0", "interfaceName: '*'").Replace(hostEth))
	w.manifest("deny", `
apiVersion: projectcalico.org/v3
kind: GlobalNetworkPolicy
metadata: {name: no-8080}
spec:
  selector: host == "web"
  ingress:
  - {action: Deny, protocol: TCP, destination: {ports: [8080]}}
  - {action: Allow}
  egress:
  - {action: Deny, protocol: TCP, destination: {ports: [9080]}}
  - {action: Allow}
`)
	w.eventually("the port is closed to another host", func() bool { return !connects(o.ns, onNode, 8080) })
	w.eventually("the port is closed to the pod", func() bool { return !connects(pod, onNode, 8080) })
	w.eventually("the pod's port is closed to the node", func() bool { return !connects(nil, addr, 9080) })
	if !admits(pod, onNode, 8081) || !admits(nil, addr, 9081) {
		t.Errorf("more than the policy denies is closed:\n%s", ruleset())
	}
	w.manifest("felix", `
apiVersion: projectcalico.org/v3
kind: FelixConfiguration
metadata: {name: default}
spec: {defaultEndpointToHostAction: Drop}
`)
	w.eventually("the node is closed to the pod", func() bool { return !connects(pod, onNode, 8081) })
	if !admits(nil, addr, 9081) || !admits(o.ns, onNode, 8081) {
		t.Errorf("more than what the pod sends to the node is closed:\n%s", ruleset())
	}
}

// TestHostEndpointTunnels: a host endpoint that denies everything leaves the mesh's tunnels between nodes, and nothing else of
// their ports. An agent that is killed leaves the last state, and the next one keeps it.
func TestHostEndpointTunnels(t *testing.T) {
	w := newWorld(t)
	o := w.outside()
	received := make(chan string, 64)
	c, err := net.ListenUDP("udp4", &net.UDPAddr{Port: 8472})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	go func() {
		for b := make([]byte, 64); ; {
			n, _, err := c.ReadFromUDP(b)
			if err != nil {
				return
			}
			received <- string(b[:n])
		}
	}()
	send := func(text string) {
		err := o.ns.Do(func() error {
			c, err := net.Dial("udp4", "192.0.2.1:8472")
			if err == nil {
				_, err = c.Write([]byte(text))
				_ = c.Close()
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	w.listen(nil, 8472)
	w.manifest("hep", strings.Replace(hostEth, ", profiles: [projectcalico-default-allow]", "", 1))
	tunnels := func(c *policy.Config) { c.Tunnels = []planpolicy.Tunnel{{Port: 8472}, {Number: 4}} }
	w.start(tunnels)
	w.eventually("everything is denied", func() bool {
		return strings.Contains(ruleset(), "tunnels/in") && !connects(o.ns, onNode, 8472)
	})
	send("of no node")
	w.manifest("node", "apiVersion: v1\nkind: Node\nmetadata: {name: n2}\nstatus: {addresses: [{type: InternalIP, address: 192.0.2.2}]}\n")
	w.eventually("a node's tunnel passes", func() bool {
		send("of a node")
		select {
		case text := <-received:
			if text != "of a node" {
				t.Fatalf("%q has arrived:\n%s", text, ruleset())
			}
			return true
		default:
			return false
		}
	})
	if connects(o.ns, onNode, 8472) {
		t.Errorf("TCP passes, too:\n%s", ruleset())
	}
	w.halt()
	if connects(o.ns, onNode, 8472) {
		t.Errorf("the ended agent has taken its rules along:\n%s", ruleset())
	}
	before, _ := nettest.Try(nil, "nft", "-s", "list", "ruleset")
	w.start(tunnels)
	w.eventually("the next agent is in sync", func() bool { return w.Known() && w.Stats().Rewrites > 0 })
	if after, _ := nettest.Try(nil, "nft", "-s", "list", "ruleset"); before != after {
		t.Errorf("the next agent has changed the rules from\n%s\nto\n%s", before, after)
	}
}
