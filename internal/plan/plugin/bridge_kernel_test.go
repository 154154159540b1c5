// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
)

func bridged(options, ipam string) string {
	return `{"cniVersion":"1.0.0","name":"net","type":"bridge","bridge":"br0",` + options + ipam + "}"
}

func first(p pod) netip.Addr { return p.result.IPs[0].Address.Addr() }

// silence checks that an address does not reply.
func silence(t *testing.T, from pod, to netip.Addr, why string) {
	t.Helper()
	if out, err := nettest.Try(from.ns, "ping", "-c1", "-W1", to.String()); err == nil {
		t.Errorf("%s: %s answers\n%s", why, to, out)
	}
}

// needVLANs skips the test if the kernel's bridges do not support VLANs, because the attribute is ignored then.
func needVLANs(t *testing.T) {
	t.Helper()
	ns := nettest.NS(t, "probe")
	out, err := nettest.Try(ns, "ip", "link", "add", "br0", "type", "bridge", "vlan_filtering", "1")
	if err == nil {
		out, err = nettest.Try(ns, "bridge", "vlan", "add", "dev", "br0", "vid", "7", "self")
	}
	if err != nil {
		nettest.Skip(t, "this kernel has no bridge VLAN filtering: "+strings.TrimSpace(out))
	}
}

// TestVLANIsolation attaches containers to two VLANs of a bridge; each has its own gateway.
func TestVLANIsolation(t *testing.T) {
	needVLANs(t)
	n := newNode(t, bridged(`"vlan":100,"isDefaultGateway":true,`, ranges))
	a, b := n.mustAdd("a"), n.mustAdd("b")
	n.conf = strings.NewReplacer(`"vlan":100`, `"vlan":200`, "10.1.0.0", "10.2.0.0", "fd00:1::", "fd00:2::", `"net"`,
		`"other"`).Replace(n.conf)
	c := n.mustAdd("c")
	for i := range 2 {
		ping(t, a.ns, b.result.IPs[i].Address.Addr())
		ping(t, a.ns, a.result.IPs[i].Gateway)
		ping(t, c.ns, c.result.IPs[i].Gateway)
		ping(t, a.ns, c.result.IPs[i].Address.Addr()) // routed by the node
	}
	if i := a.result.Interfaces[3]; i.Name != "br0.100" || i.MAC != mac(t, n.ns, "br0.100") || i.Sandbox != "" {
		t.Errorf("the gateway in the result: %+v", i)
	}
	// They are not in one broadcast domain: without routing on the node no pod is reachable.
	nettest.Run(t, n.ns, "sysctl", "-qw", "net.ipv4.ip_forward=0")
	nettest.Run(t, c.ns, "ip", "addr", "add", "10.1.0.200/24", "dev", "eth0")
	silence(t, a, netip.MustParseAddr("10.1.0.200"), "another VLAN")

	nettest.Run(t, n.ns, "sysctl", "-qw", "net.ipv4.ip_forward=1")
	nettest.Run(t, n.ns, "bridge", "vlan", "add", "dev", a.result.Interfaces[1].Name, "vid", "300")
	if d, err := a.spaces.Diff(t.Context(), a.fragment); err != nil || len(d) != 1 ||
		!strings.Contains(d[0].Have, "vlans 100 pvid untagged, 300") {
		t.Errorf("a VLAN more: %v %v", d, err)
	}
	if err := a.spaces.Apply(t.Context(), a.fragment); err != nil {
		t.Fatal(err)
	}
	if d, err := a.spaces.Diff(t.Context(), a.fragment); err != nil || len(d) != 0 {
		t.Errorf("repaired: %v %v", d, err)
	}
	vlanGatewaysGo(t, n, a, b, c)
}

// vlanGatewaysGo deletes the containers: a VLAN's gateway is deleted with its last container, the bridge with the last
// of all.
func vlanGatewaysGo(t *testing.T, n *node, pods ...pod) {
	t.Helper()
	for i, p := range pods {
		if err := p.spaces.Remove(t.Context(), p.fragment); err != nil {
			t.Fatal(err)
		}
		if err := p.spaces.RemoveShared(t.Context(), p.fragment); err != nil {
			t.Fatal(err)
		}
		links := nettest.Run(t, n.ns, "ip", "-br", "link")
		if one, other := strings.Contains(links, "br0.100"), strings.Contains(links, "br0.200"); one != (i < 1) ||
			other != (i < 2) {
			t.Errorf("after %d are gone:\n%s", i+1, links)
		}
	}
	if left := nettest.Run(t, n.ns, "ip", "-br", "link"); strings.Contains(left, "veth") || strings.Contains(left, "br0") {
		t.Errorf("left on the node:\n%s", left)
	}
}

// TestPortVLANs checks the kernel's state for each option.
func TestPortVLANs(t *testing.T) {
	needVLANs(t)
	for name, tc := range map[string]struct{ options, want string }{
		"vlan":     {`"vlan":100`, "100 PVID Egress Untagged"},
		"preserve": {`"vlan":100,"preserveDefaultVlan":true`, "1 Egress Untagged 100 PVID Egress Untagged"},
		"trunk":    {`"vlanTrunk":[{"minID":5,"maxID":6},{"id":9}]`, "1 PVID Egress Untagged 5 6 9"},
		"both":     {`"vlan":6,"vlanTrunk":[{"minID":5,"maxID":7}]`, "5 6 PVID Egress Untagged 7"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, bridged(tc.options, ""))
			a := n.mustAdd("a")
			port := a.result.Interfaces[1].Name
			out := nettest.Run(t, n.ns, "bridge", "vlan", "show", "dev", port)
			words := strings.Fields(strings.SplitN(out, port, 2)[1])
			if got := strings.Join(words, " "); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

// TestWithoutVLANs: the error reports that the kernel does not support VLANs.
func TestWithoutVLANs(t *testing.T) {
	ns := nettest.NS(t, "probe")
	nettest.Run(t, ns, "ip", "link", "add", "br0", "type", "bridge")
	if _, err := nettest.Try(ns, "bridge", "vlan", "add", "dev", "br0", "vid", "7", "self"); err == nil {
		t.Skip("this kernel has bridge VLAN filtering")
	}
	n := newNode(t, bridged(`"vlan":100`, ""))
	if _, err := n.add("a"); err == nil || !strings.Contains(err.Error(), "this kernel has no bridge VLAN filtering") {
		t.Errorf("error %v", err)
	}
}

// TestSpoofCheck: packets with another MAC address than the container's are dropped.
func TestSpoofCheck(t *testing.T) {
	for name, options := range map[string]string{
		"with": `"macspoofchk":true,"isGateway":true,`, "without": `"isGateway":true,`,
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, bridged(options, ranges))
			a, b := n.mustAdd("a"), n.mustAdd("b")
			ping(t, a.ns, first(b))
			nettest.Run(t, a.ns, "ip", "link", "set", "eth0", "address", "02:00:00:00:00:99")
			if name == "with" {
				silence(t, a, first(b), "a spoofed address")
				silence(t, a, a.result.IPs[0].Gateway, "a spoofed address")
			} else {
				ping(t, a.ns, first(b))
			}
			ping(t, b.ns, b.result.IPs[0].Gateway)
		})
	}
}

// TestPortIsolation: isolated ports reach the gateway and not each other.
func TestPortIsolation(t *testing.T) {
	n := newNode(t, bridged(`"portIsolation":true,"isGateway":true,`, ranges))
	a, b := n.mustAdd("a"), n.mustAdd("b")
	ping(t, a.ns, a.result.IPs[0].Gateway)
	ping(t, b.ns, b.result.IPs[0].Gateway)
	silence(t, a, first(b), "an isolated port")
}

// TestFlags: options take effect if set, and only then.
func TestFlags(t *testing.T) {
	for option, words := range map[string]struct{ of, on, off string }{
		`"hairpinMode":true`:   {"port", "hairpin on", "hairpin off"},
		`"portIsolation":true`: {"port", "isolated on", "isolated off"},
		`"promiscMode":true`:   {"bridge", "PROMISC", "BROADCAST"},
	} {
		for _, on := range []bool{true, false} {
			conf, want := bridged(`"mtu":1400`, ""), words.off
			if on {
				conf, want = bridged(option, ""), words.on
			}
			n := newNode(t, conf)
			a := n.mustAdd("a")
			argv := []string{"bridge", "-d", "link", "show", "dev", a.result.Interfaces[1].Name}
			if words.of == "bridge" {
				argv = []string{"ip", "link", "show", "br0"}
			}
			out := nettest.Run(t, n.ns, argv...)
			if !strings.Contains(out, want) || !on && strings.Contains(out, words.on) {
				t.Errorf("%s %v: %s", option, on, out)
			}
		}
	}
}

// TestDuplicateAddress: with enabledad a duplicate address on the link is detected, without it is not.
func TestDuplicateAddress(t *testing.T) {
	six := `"ipam":{"type":"host-local","subnet":"fd00:1::/64"}`
	for _, tc := range []struct {
		options string
		refused bool
	}{{`"enabledad":true,`, true}, {"", false}} {
		n := newNode(t, bridged(tc.options, six))
		other := n.mustAdd("other")
		nettest.Run(t, other.ns, "ip", "addr", "add", "fd00:1::3/64", "dev", "eth0", "nodad")
		_, err := n.add("a")
		if refused := err != nil; refused != tc.refused {
			t.Errorf("%s: error %v", tc.options, err)
		} else if refused && !strings.Contains(err.Error(), "fd00:1::3") {
			t.Errorf("the error does not name the address: %v", err)
		}
	}
}

// TestInterfaceStaysDown: another program can bring it up later.
func TestInterfaceStaysDown(t *testing.T) {
	n := newNode(t, bridged(`"disableContainerInterface":true`, ""))
	a := n.mustAdd("a")
	if out := nettest.Run(t, a.ns, "ip", "-br", "link", "show", "eth0"); !strings.Contains(out, "DOWN") {
		t.Errorf("eth0: %s", out)
	}
	nettest.Run(t, a.ns, "ip", "link", "set", "eth0", "up")
	if d, err := a.spaces.Diff(t.Context(), a.fragment); err != nil || len(d) != 0 {
		t.Errorf("up: %v %v", d, err)
	}
}
