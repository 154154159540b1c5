// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// TestMTUChanges: the network between the nodes takes larger packets, then only the former ones again, while pods run.
// The tunnels follow without a restart of the agents, new pods get the new MTU, and large packets arrive between all
// pods, old and new. On a bridge this is so for pods of different nodes: within one, packets larger than the
// receiver's MTU are lost until its pod is started again, as on any network segment.
func TestMTUChanges(t *testing.T) {
	nettest.EndToEnd(t)
	nettest.Need(t, "vxlan")
	for _, design := range []string{"routed", "bridge"} {
		t.Run(design, func(t *testing.T) {
			m := &mtuChange{two: newTwo(t, "encapsulation: vxlan, design: "+design), bridged: design == "bridge"}
			m.startPods(1430)
			m.connected("before")
			m.wire(9000)
			m.startPods(8930)
			m.connected("after the MTU was raised")
			m.wire(1500)
			m.startPods(1430)
			m.connected("after the MTU was lowered")
		})
	}
}

// mtuChange are two nodes whose MTU changes, with pods from before and after each change.
type mtuChange struct {
	two
	bridged bool
	pods    []mtuPod
}

type mtuPod struct {
	name  string
	node  *world
	mtu   int
	ns    *netns.NS
	addrs []netip.Addr
}

// startPods starts a pod on each node, which must have that MTU.
func (m *mtuChange) startPods(mtu int) {
	m.t.Helper()
	for i, w := range m.nodes {
		p := mtuPod{name: fmt.Sprintf("pod%d-%d", len(m.pods), i+1), node: w, mtu: mtu}
		m.until(fmt.Sprintf("pods get the MTU %d", mtu), func() bool {
			list, err := w.own()
			return err == nil && strings.Contains(strings.ReplaceAll(string(list.Bytes), " ", ""), fmt.Sprintf(`"mtu":%d`, mtu))
		})
		p.ns, p.addrs = m.pod(w, p.name)
		if out := nettest.Run(m.t, p.ns, "ip", "-o", "link", "show", "eth0"); !strings.Contains(out, fmt.Sprintf(" mtu %d ", mtu)) {
			m.t.Errorf("%s has not the MTU %d: %s", p.name, mtu, out)
		}
		m.pods = append(m.pods, p)
	}
}

// wire sets the MTU of both nodes' interfaces, one after the other, and waits for the tunnels to follow.
func (m *mtuChange) wire(mtu int) {
	m.t.Helper()
	for _, w := range m.nodes {
		nettest.Run(m.t, w.node, "ip", "link", "set", "eth0", "mtu", fmt.Sprint(mtu))
	}
	for _, w := range m.nodes {
		for device, overhead := range map[string]int{"flannel.1": 50, "flannel-v6.1": 70} {
			m.until(fmt.Sprintf("%s has the MTU %d", device, mtu-overhead), func() bool {
				out, _ := nettest.Try(w.node, "ip", "-o", "link", "show", device)
				return strings.Contains(out, fmt.Sprintf(" mtu %d ", mtu-overhead))
			})
		}
	}
}

// connected fails unless small and large packets arrive from each pod at each other one.
func (m *mtuChange) connected(when string) {
	m.t.Helper()
	for _, from := range m.pods {
		for _, to := range m.pods {
			if from.name == to.name || m.bridged && from.node == to.node && from.mtu != to.mtu {
				continue
			}
			for _, a := range to.addrs {
				sizes := []string{"1300", "8800"}
				if a.Is6() { // the source guard drops the later fragments of ICMPv6 packets
					sizes = sizes[:1]
				}
				for _, size := range sizes {
					if !m.answers(from.ns, a, size) {
						m.t.Errorf("%s: %s bytes from %s (MTU %d) do not reach %s (MTU %d) at %s", when, size, from.name, from.mtu,
							to.name, to.mtu, a)
					}
				}
			}
		}
	}
}

// answers reports whether an address answers a packet. The first ones may be lost, by which both sides learn the path's
// MTU.
func (m *mtuChange) answers(from *netns.NS, to netip.Addr, size string) bool {
	for range 8 {
		if _, err := nettest.Try(from, "ping", "-n", "-c1", "-W1", "-M", "want", "-s", size, to.String()); err == nil {
			return true
		}
	}
	return false
}
