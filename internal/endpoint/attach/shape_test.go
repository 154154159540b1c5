// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
)

// TestShapedDevice limits a device that the same list moves into the container: it has no end on the node, or one that
// is not planned. It is returned without limits.
func TestShapedDevice(t *testing.T) {
	nettest.Need(t, "ifb", "macvlan")
	n := newNode(t)
	nettest.Run(t, nil, "ip", "link", "add", "wire0", "type", "veth", "peer", "name", "wire1")
	t.Cleanup(func() { _, _ = nettest.Try(nil, "ip", "link", "del", "wire0") })
	nettest.Run(t, nil, "ip", "link", "add", "link", "wire0", "name", "mv0", "type", "macvlan", "mode", "bridge")
	nettest.Run(t, nil, "ip", "link", "set", "wire0", "up")
	state := regexp.MustCompile(` (UP|DOWN|UNKNOWN|LOWERLAYERDOWN) |NO-CARRIER,`) // carriers follow changes of links
	links := func() string { return state.ReplaceAllString(nettest.Run(t, nil, "ip", "-br", "link"), "") }
	before := links()
	list := n.list(`{"type":"host-device","device":"mv0"}`,
		`{"type":"bandwidth","ingressRate":8000000,"ingressBurst":160000,"egressRate":4000000,"egressBurst":160000}`)
	for range 2 {
		id, ns := n.pod()
		job := n.job(list, id, ns)
		n.add(job)
		if err := n.Check(t.Context(), job); err != nil {
			t.Errorf("CHECK: %v", err)
		}
		out := nettest.Run(t, ns, "tc", "qdisc", "show")
		if strings.Count(out, "tbf 7766:") != 2 || !strings.Contains(out, "ingress ffff: dev eth0") ||
			!strings.Contains(out, "4Mbit") {
			t.Errorf("in the container: %s", out)
		}
		if err := n.Del(t.Context(), job); err != nil {
			t.Fatal(err)
		}
		n.drain()
		if after := links(); after != before {
			t.Errorf("before:\n%s\nafter:\n%s", before, after)
		}
		if out := nettest.Run(t, nil, "tc", "qdisc", "show"); strings.Contains(out, "tbf") ||
			strings.Contains(out, "ingress") {
			t.Errorf("it came back with limits: %s", out)
		}
	}
}

// TestGuardedComeAndGo lets pods that share a bridge, its name in sets and three tables come and go concurrently: the
// last one's tables go while the next one's are created.
func TestGuardedComeAndGo(t *testing.T) {
	n := newNode(t)
	const pods, rounds = 12, 4
	list := n.list(bridge, `{"type":"bandwidth","ingressRate":8000000,"ingressBurst":800000}`,
		`{"type":"firewall","ingressPolicy":"isolated"}`)
	var wg sync.WaitGroup
	for range pods {
		id, ns := n.pod()
		job := n.job(list, id, ns)
		wg.Go(func() {
			for round := range rounds {
				if _, err := n.Add(t.Context(), job); err != nil {
					t.Errorf("%s, round %d: ADD: %v", id, round, err)
				} else if err := n.Check(t.Context(), job); err != nil {
					t.Errorf("%s, round %d: CHECK: %v", id, round, err)
				}
				if err := n.Del(t.Context(), job); err != nil {
					t.Errorf("%s, round %d: DEL: %v", id, round, err)
				}
			}
		})
	}
	wg.Wait()
	n.clean("all")
}
