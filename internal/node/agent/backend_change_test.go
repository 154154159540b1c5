// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
)

// TestBackendChanges: nodes go from vxlan to wireguard one after the other, get new keys, and go back, with pods running.
// Pods keep their addresses and reach each other when both nodes have changed. From when a node has wireguard, no packet
// of its pods to the other node's leaves it in plain text, not even by the default route while the other node has vxlan.
func TestBackendChanges(t *testing.T) {
	nettest.EndToEnd(t)
	nettest.Need(t, "vxlan")
	p := newTwo(t, "encapsulation: vxlan")
	n1, n2 := p.nodes[0], p.nodes[1]
	pod1, addrs1 := p.pod(n1, "pod1")
	pod2, addrs2 := p.pod(n2, "pod2")
	p.reaches(pod1, addrs2)
	nettest.Run(t, n1.node, "ip", "route", "add", "default", "via", "192.168.77.2")
	for _, rule := range []string{
		"table inet plain", "chain inet plain out { type filter hook postrouting priority 500 ; }",
		`rule inet plain out oifname "eth0" ip saddr 10.99.1.0/24 ip daddr 10.99.2.0/24 counter`,
	} {
		nettest.Run(t, n1.node, "nft", "add "+rule)
	}
	become := func(w *world, encapsulation string) {
		t.Helper()
		w.stop()
		w.configure(fmt.Sprintf("encapsulation: %s, wireguardKeyFile: %q", encapsulation, w.path("wg.key")))
		w.start()
	}
	encrypted := func(when string) {
		t.Helper()
		if counted := nettest.Run(t, n1.node, "nft", "list", "table", "inet", "plain"); !strings.Contains(counted, "packets 0 ") {
			t.Errorf("%s: packets leave in plain text:\n%s", when, counted)
		}
	}
	become(n1, "wireguard")
	p.until("the first node has no route over vxlan", func() bool {
		routes, _ := nettest.Try(n1.node, "ip", "route", "show", "dev", "flannel.1")
		return !strings.Contains(routes, "10.99.2.")
	})
	for range 3 {
		_, _ = nettest.Try(pod1, "ping", "-n", "-c1", "-W1", addrs2[0].String())
	}
	encrypted("the other node has vxlan")
	become(n2, "wireguard")
	p.reaches(pod1, addrs2)
	p.reaches(pod2, addrs1)
	encrypted("both have wireguard")

	// A new key: its file is deleted and the agent is started again.
	before, err := os.ReadFile(n2.path("wg.key"))
	if err != nil {
		t.Fatal(err)
	}
	n2.stop()
	if err := os.Remove(n2.path("wg.key")); err != nil {
		t.Fatal(err)
	}
	n2.start()
	p.reaches(pod1, addrs2)
	p.reaches(pod2, addrs1)
	p.until("there is a new key", func() bool { // the process of the tunnels forwards with the old one meanwhile
		after, err := os.ReadFile(n2.path("wg.key"))
		return err == nil && len(after) > 0 && string(after) != string(before)
	})
	p.reaches(pod1, addrs2)
	encrypted("with a new key")

	_, late := p.pod(n2, "pod3") // with the MTU of wireguard
	p.reaches(pod1, late)
	for _, w := range p.nodes {
		become(w, "vxlan")
	}
	p.reaches(pod1, append(late, addrs2...))
	p.reaches(pod2, addrs1)
}
