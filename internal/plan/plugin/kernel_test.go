// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/hostlocal"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/plan/plugin"
	"github.com/weft-net/weft/internal/state"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

// node is a network namespace that acts as a node, with what is needed to attach containers to one network.
type node struct {
	t    *testing.T
	ns   *netns.NS
	conn *kernel.Conn
	conf string
	ipam *hostlocal.Allocator

	prepare func(pod *netns.NS) // what the runtime does before ADD
	agent   bool                // plan as an agent does
}

// pod is an attached container.
type pod struct {
	ns       *netns.NS
	spaces   kernel.Spaces
	fragment state.Fragment
	result   model.Result
}

func newNode(t *testing.T, conf string) *node {
	t.Helper()
	ns := nettest.NS(t, "node")
	return &node{t: t, ns: ns, conn: dial(t, ns), conf: conf, ipam: hostlocal.New(hostlocal.Config{DataDir: t.TempDir()})}
}

func dial(t *testing.T, ns *netns.NS) *kernel.Conn {
	t.Helper()
	c, err := kernel.Dial(ns)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// add attaches a container as attach does: addresses, queries, plan, apply.
func (n *node) add(id string) (pod, error) {
	n.t.Helper()
	network, _, err := cni.ParsePlugin([]byte(n.conf))
	if err != nil {
		n.t.Fatal(err)
	}
	conf := network.Plugins[0]
	p := pod{ns: nettest.NS(n.t, id)}
	if n.prepare != nil {
		n.prepare(p.ns)
	}
	p.spaces = kernel.Spaces{Host: n.conn, Pod: dial(n.t, p.ns), PodNS: p.ns}
	r := model.Request{Network: network.Name, CNIVersion: "1.1.0", ContainerID: id, Netns: "/ns/" + id, IfName: "eth0"}
	in := plugin.Input{Conf: conf, Request: r}
	planner := plugin.Builtin()[conf.Type]
	if n.agent {
		planner = plugin.InAgent()[conf.Type]
	}
	if err := plugin.Validate(planner, conf); err != nil {
		return p, err
	}
	section, err := planner.IPAM(conf)
	if err != nil {
		return p, err
	}
	if section != nil {
		given, err := n.ipam.Add(n.t.Context(), ipam.Request{
			Conf: conf.Raw, Network: network.Name, ContainerID: id, IfName: "eth0",
		})
		if err != nil {
			return p, err
		}
		in.IPAM = &given
	}
	queries, err := planner.Observe(in)
	if err != nil {
		return p, err
	}
	if in.Answers, err = p.spaces.Observe(n.t.Context(), queries); err != nil {
		return p, err
	}
	step, err := planner.Plan(in)
	if err != nil {
		return p, err
	}
	p.fragment, p.result = step.Fragment, step.Result
	return p, p.spaces.Apply(n.t.Context(), p.fragment)
}

func (n *node) mustAdd(id string) pod {
	n.t.Helper()
	p, err := n.add(id)
	if err != nil {
		n.t.Fatalf("ADD %s: %v", id, err)
	}
	if d, err := p.spaces.Diff(n.t.Context(), p.fragment); err != nil || len(d) > 0 {
		n.t.Fatalf("ADD %s: the kernel differs from the plan: %v %v", id, d, err)
	}
	return p
}

func ping(t *testing.T, ns *netns.NS, to netip.Addr) {
	t.Helper()
	if out, err := nettest.Try(ns, "ping", "-c1", "-W1", to.String()); err != nil {
		t.Errorf("ping %s: %v\n%s", to, err, out)
	}
}

const ranges = `"ipam":{"type":"host-local","ranges":[[{"subnet":"10.1.0.0/24"}],[{"subnet":"fd00:1::/64"}]],"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"}]}`

func networks() map[string]string {
	head := `{"cniVersion":"1.0.0","name":"net",`
	return map[string]string{
		"ptp":            head + `"type":"ptp","mtu":1400,"ipMasq":true,` + ranges + "}",
		"bridge-gateway": head + `"type":"bridge","bridge":"br0","isGateway":true,"ipMasq":true,"mtu":1400,` + ranges + "}",
		"bridge-default": head +
			`"type":"bridge","bridge":"br0","isDefaultGateway":true,"hairpinMode":true,"ipam":{"type":"host-local","subnet":"10.1.0.0/24"}}`,
		"bridge-spoof": head + `"type":"bridge","bridge":"br0","isGateway":true,"macspoofchk":true,"enabledad":true,` +
			ranges + "}",
		"ptp-six": head + `"type":"ptp","ipMasq":true,"ipam":{"type":"host-local","subnet":"fd00:1::/64"}}`,
		"bridge-six": head +
			`"type":"bridge","bridge":"br0","isDefaultGateway":true,"ipMasq":true,"ipam":{"type":"host-local","subnet":"fd00:1::/64"}}`,
		"bridge-promisc": head +
			`"type":"bridge","bridge":"br0","isGateway":true,"promiscMode":true,"ipam":{"type":"host-local","subnet":"10.1.0.0/24"}}`,
	}
}

// TestPodsReachEachOtherAtOnce attaches two containers and sends packets between them and the gateway, both families,
// without waiting: disabling IPv6 traffic on a bridge must not delay neighbor discovery.
func TestPodsReachEachOtherAtOnce(t *testing.T) {
	for name, conf := range networks() {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, conf)
			a, b := n.mustAdd("a"), n.mustAdd("b")
			for i, ip := range b.result.IPs {
				ping(t, a.ns, ip.Address.Addr())
				ping(t, n.ns, ip.Address.Addr())
				ping(t, b.ns, a.result.IPs[i].Address.Addr())
				ping(t, b.ns, ip.Gateway)
			}
			for _, i := range a.result.Interfaces {
				ns := n.ns
				if i.Sandbox != "" {
					ns = a.ns
				}
				if out := nettest.Run(t, ns, "ip", "link", "show", "dev", i.Name); !strings.Contains(out, i.MAC) {
					t.Errorf("the result says %s %s, the kernel %s", i.Name, i.MAC, out)
				}
			}
			if _, err := n.add("a"); err == nil {
				t.Error("a second ADD of the same container is accepted") // host-local rejects it
			}
			for _, p := range []pod{a, b} {
				if err := p.spaces.Remove(t.Context(), p.fragment); err != nil {
					t.Fatal(err)
				}
			}
			if err := a.spaces.RemoveShared(t.Context(), a.fragment); err != nil {
				t.Fatal(err)
			}
			if left := nettest.Run(t, n.ns, "ip", "-br", "link"); strings.Contains(left, "veth") ||
				strings.Contains(left, "br0") {
				t.Errorf("left on the node:\n%s", left)
			}
			if left := strings.TrimSpace(nettest.Run(t, n.ns, "nft", "list", "ruleset")); left != "" {
				t.Errorf("left in nft:\n%s", left)
			}
		})
	}
}

func byIPTables(name string) string {
	return strings.Replace(networks()[name], `"ipMasq":true`, `"ipMasq":true,"ipMasqBackend":"iptables"`, 1)
}

// TestMasquerade connects a node to an external host that has no route to its pods.
func TestMasquerade(t *testing.T) {
	for name, conf := range map[string]string{
		"ptp": networks()["ptp"], "bridge": networks()["bridge-gateway"], "ptp-iptables": byIPTables("ptp"),
		"bridge-iptables": byIPTables("bridge-gateway"),
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, conf)
			world := nettest.NS(t, "world")
			nettest.Run(t, n.ns, "ip", "link", "add", "wire", "type", "veth", "peer", "name", "wire0")
			nettest.Run(t, n.ns, "ip", "link", "set", "wire0", "netns", world.Path())
			for _, end := range []struct {
				ns   *netns.NS
				link string
				n    int
			}{{n.ns, "wire", 1}, {world, "wire0", 2}} {
				nettest.Run(t, end.ns, "ip", "addr", "add", fmt.Sprintf("192.0.2.%d/24", end.n), "dev", end.link)
				nettest.Run(t, end.ns, "ip", "addr", "add", fmt.Sprintf("2001:db8::%d/64", end.n), "dev", end.link, "nodad")
				nettest.Run(t, end.ns, "ip", "link", "set", end.link, "up")
			}
			a, b := n.mustAdd("a"), n.mustAdd("b")
			ping(t, a.ns, netip.MustParseAddr("192.0.2.2"))
			ping(t, a.ns, netip.MustParseAddr("2001:db8::2"))
			// Traffic in the subnet is not masqueraded: b sees a's address.
			nettest.Run(t, b.ns, "nft", "add table inet t; add chain inet t in { type filter hook input priority 0; }; "+
				"add rule inet t in ip saddr "+a.result.IPs[0].Address.Addr().String()+" counter")
			ping(t, a.ns, b.result.IPs[0].Address.Addr())
			if out := nettest.Run(t, b.ns, "nft", "list", "ruleset"); !strings.Contains(out, "counter packets 1 ") {
				t.Errorf("a packet within the subnet does not keep its source:\n%s", out)
			}
		})
	}
}

func mac(t *testing.T, ns *netns.NS, link string) string {
	t.Helper()
	var links []struct{ Address string }
	if err := json.Unmarshal([]byte(nettest.Run(t, ns, "ip", "-j", "link", "show", link)), &links); err != nil {
		t.Fatal(err)
	}
	return links[0].Address
}

// TestForceAddress replaces a conflicting address, and only if configured.
func TestForceAddress(t *testing.T) {
	conf := func(force string) string {
		return `{"cniVersion":"1.0.0","name":"net","type":"bridge","bridge":"br0","isGateway":true,` + force + ranges + "}"
	}
	n := newNode(t, conf(""))
	nettest.Run(t, n.ns, "ip", "link", "add", "br0", "type", "bridge")
	for _, a := range []string{"10.9.0.1/24", "fd00:1::9/64", "fd00:9::1/64"} {
		nettest.Run(t, n.ns, "ip", "addr", "add", a, "dev", "br0")
	}
	if _, err := n.add("a"); err == nil || !strings.Contains(err.Error(), "10.9.0.1/24") {
		t.Fatalf("another address on the bridge: %v", err)
	}
	n.conf = conf(`"forceAddress":true,`)
	before := mac(t, n.ns, "br0")
	p := n.mustAdd("b")
	if got := p.result.Interfaces[0].MAC; got != before || got != mac(t, n.ns, "br0") {
		t.Errorf("the bridge was %s and is %s, the result says %s", before, mac(t, n.ns, "br0"), got)
	}
	out := nettest.Run(t, n.ns, "ip", "-j", "addr", "show", "br0")
	var links []struct {
		Addrs []struct{ Local, Scope string } `json:"addr_info"`
	}
	if err := json.Unmarshal([]byte(out), &links); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, a := range links[0].Addrs {
		if a.Scope == "global" {
			got = append(got, a.Local)
		}
	}
	slices.Sort(got)
	if want := []string{"10.1.0.1", "fd00:1::1", "fd00:9::1"}; !slices.Equal(got, want) {
		t.Errorf("the bridge has %v, want %v", got, want)
	}
}

// TestIPv6SwitchedOff attaches a container whose runtime disabled IPv6.
func TestIPv6SwitchedOff(t *testing.T) {
	for _, name := range []string{"ptp", "bridge-gateway"} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, networks()[name])
			n.prepare = func(ns *netns.NS) {
				nettest.Run(t, ns, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1")
			}
			a := n.mustAdd("a")
			for _, ip := range a.result.IPs {
				ping(t, n.ns, ip.Address.Addr())
				ping(t, a.ns, ip.Gateway)
			}
		})
	}
}

// TestLoopback sets lo up twice.
func TestLoopback(t *testing.T) {
	n := newNode(t, `{"cniVersion":"1.0.0","name":"lo","type":"loopback"}`)
	a := n.mustAdd("a")
	ping(t, a.ns, netip.MustParseAddr("127.0.0.1"))
	ping(t, a.ns, netip.MustParseAddr("::1"))
	if len(a.result.IPs) != 2 || a.result.Interfaces[0].Sandbox == "" {
		t.Errorf("result %+v", a.result)
	}
}

// TestWireOnly connects two containers to a bridge without addresses; they choose their own.
func TestWireOnly(t *testing.T) {
	n := newNode(t, `{"cniVersion":"1.0.0","name":"net","type":"bridge","bridge":"br0"}`)
	a, b := n.mustAdd("a"), n.mustAdd("b")
	nettest.Run(t, a.ns, "ip", "addr", "add", "10.1.0.1/24", "dev", "eth0")
	nettest.Run(t, b.ns, "ip", "addr", "add", "10.1.0.2/24", "dev", "eth0")
	ping(t, a.ns, netip.MustParseAddr("10.1.0.2"))
	if first, second := a.result.Interfaces[0].MAC, b.result.Interfaces[0].MAC; first != second ||
		first != mac(t, n.ns, "br0") {
		t.Errorf("results say %s and %s, the bridge has %s", first, second, mac(t, n.ns, "br0"))
	}
}

func TestExistingInterface(t *testing.T) {
	n := newNode(t, networks()["ptp"])
	a := n.mustAdd("a")
	conf := model.PluginConf{Type: "ptp", Raw: []byte(networks()["ptp"])}
	queries, err := plugin.PTP{}.Observe(plugin.Input{Conf: conf, Request: model.Request{IfName: "eth0"}})
	if err != nil {
		t.Fatal(err)
	}
	answers, err := a.spaces.Observe(t.Context(), queries)
	if err != nil || !answers[queries[0]].Found {
		t.Errorf("eth0 is not seen: %v %v", answers, err)
	}
}
