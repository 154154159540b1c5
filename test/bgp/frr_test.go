// SPDX-License-Identifier: Apache-2.0

package bgp_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// frr is FRR's zebra and bgpd in a namespace.
type frr struct {
	t   *testing.T
	ns  *netns.NS
	dir string
	// bgpd is the speaker.
	bgpd *process
}

// startFRR starts FRR with a configuration of bgpd.
func startFRR(t *testing.T, ns *netns.NS, config string) *frr {
	t.Helper()
	if _, err := os.Stat("/usr/lib/frr/bgpd"); err != nil {
		nettest.SkipMissing(t, "FRR (Debian's frr) is not installed: apt-get install frr, which starts a daemon where systemd runs")
	}
	dir, err := os.MkdirTemp("", "frr") // other users cannot enter those of tests
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	f := &frr{t: t, ns: ns, dir: dir}
	for name, text := range map[string]string{"zebra": "", "bgpd": config} {
		if err := os.WriteFile(f.dir+"/"+name+".conf", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	nettest.Run(t, ns, "chown", "-R", "frr:frr", f.dir) // the user of its daemons
	f.daemon("zebra")
	eventually(t, "zebra listens", func() bool {
		_, err := os.Stat(f.dir + "/zserv")
		return err == nil
	}, func() string { return "" })
	f.bgpd = f.daemon("bgpd")
	return f
}

func (f *frr) daemon(name string) *process {
	f.t.Helper()
	return start(f.t, f.ns, "/usr/lib/frr/"+name, "-f", f.dir+"/"+name+".conf", "-i", f.dir+"/"+name+".pid",
		"-z", f.dir+"/zserv", "--vty_socket", f.dir, "-P", "0", "--log", "stdout")
}

// ask returns the answer of bgpd.
func (f *frr) ask(commands ...string) string {
	argv := []string{"/usr/bin/vtysh", "--vty_socket", f.dir, "-d", "bgpd"}
	for _, c := range commands {
		argv = append(argv, "-c", c)
	}
	out, _ := nettest.Try(f.ns, argv...)
	return out
}

// routes waits until the kernel of FRR's namespace has a route over a gateway, or has none.
func (f *frr) routes(prefix, gateway string, has bool) {
	f.t.Helper()
	family := "-4"
	if strings.Contains(prefix, ":") {
		family = "-6"
	}
	route := func() string {
		out, _ := nettest.Try(f.ns, "ip", family, "route", "show", prefix)
		return out
	}
	eventually(f.t, fmt.Sprintf("FRR's route to %s has %q: %t", prefix, gateway, has),
		func() bool { return strings.Contains(route(), gateway) == has && (has || route() == "") },
		func() string { return route() + f.ask("show bgp summary") })
}

const frrToN1 = `frr defaults datacenter
log stdout
router bgp 65001
 bgp router-id 10.9.0.2
 no bgp ebgp-requires-policy
 no bgp network import-check
 neighbor 10.9.0.1 remote-as 64512
 neighbor fd09::1 remote-as 64512
 address-family ipv4 unicast
  network 203.0.113.0/24
  no neighbor fd09::1 activate
 exit-address-family
 address-family ipv6 unicast
  neighbor fd09::1 activate
  network 2001:db8:99::/48
 exit-address-family
`

// peersTor are the sessions of both families with the router.
const peersTor = peerTor + `---
apiVersion: projectcalico.org/v3
kind: BGPPeer
metadata: {name: tor6}
spec: {peerIP: "fd09::2", asNumber: 65001}
`

// With FRR routes of both families go both ways, into both kernels; a withdrawn one is gone, and no route is lost while
// weft-bgp is killed and started again.
func TestFRR(t *testing.T) {
	n := newNode(t, "n1")
	tor := router(t, n)
	n.put("node.yaml", nodeManifest("n1", "", []string{"10.244.1.0/24", "fd44:1::/64"}, []string{"10.9.0.1", "fd09::1"}))
	n.put("peer.yaml", peersTor)
	f := startFRR(t, tor, frrToN1)
	n.startSpeaker()
	n.startAgent("")
	f.routes("10.244.1.0/24", "via 10.9.0.1", true)
	f.routes("fd44:1::/64", "via f", true) // the node's link-local address, or its global one
	n.learns("203.0.113.0/24", "10.9.0.2")
	eventually(t, "the route of IPv6 is learned", func() bool { return strings.Contains(n.route("2001:db8:99::/48"), "via ") },
		func() string { return fmt.Sprintf("%+v", n.status()) })

	f.ask("configure terminal", "router bgp 65001", "address-family ipv4 unicast", "no network 203.0.113.0/24")
	n.forgets("203.0.113.0/24")

	n.speaker.kill()
	lost := 0
	n.startSpeaker()
	eventually(t, "the session is there again", func() bool {
		if out, _ := nettest.Try(tor, "ip", "route", "show", "10.244.1.0/24"); !strings.Contains(out, "via 10.9.0.1") {
			lost++
		}
		s := n.status()
		return len(s.Peers) == 2 && s.Peers[0].Session == "established" && s.Peers[1].Session == "established" && s.Synced
	}, func() string { return fmt.Sprintf("%+v", n.status()) })
	if lost > 0 {
		t.Errorf("FRR had no route to the pods in %d looks", lost)
	}
}

// Another speaker has the port of BGP on the node: the status names the port, sessions that the node opens are established,
// and when the port is free the trouble is over.
func TestPortTaken(t *testing.T) {
	n := newNode(t, "n1")
	tor := router(t, n)
	n.put("node.yaml", nodeManifest("n1", "", []string{"10.244.1.0/24"}, []string{"10.9.0.1"}))
	other := startFRR(t, n.ns, "router bgp 65099\n bgp router-id 10.9.0.99\n")
	listens := func() bool {
		out, _ := nettest.Try(n.ns, "ss", "-Hltn", "sport", "=", "179")
		return out != ""
	}
	eventually(t, "FRR listens on the node", listens, func() string { return other.ask("show bgp summary") })
	n.startSpeaker()
	n.startAgent("")
	n.put("peer.yaml", peersTor)
	trouble := func(has bool) {
		t.Helper()
		eventually(t, fmt.Sprintf("the status names the port: %t", has), func() bool {
			s := n.status()
			return s.Running && strings.Contains(s.Error, "port 179") == has && (has || s.Error == "")
		}, func() string { return fmt.Sprintf("%+v", n.status()) })
	}
	trouble(true)
	f := startFRR(t, tor, frrToN1)
	f.routes("10.244.1.0/24", "via 10.9.0.1", true)
	n.put("peer.yaml", "")
	if err := os.Remove(n.path("store", "peer.yaml")); err != nil {
		t.Fatal(err)
	}
	other.bgpd.kill()
	trouble(false)
}
