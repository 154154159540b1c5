// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
)

// TestPoolsWithoutServer: pools and blocks of a real API server. While it is unreachable an agent restarts, repairs the
// routes to the blocks of other nodes, and allocates addresses from the node's blocks to further pods.
func TestPoolsWithoutServer(t *testing.T) {
	nettest.EndToEnd(t)
	k := newKubeWorld(t, 2)
	k.defined("../../../deploy/crds/weft.dev_*.yaml")
	for _, w := range k.nodes {
		w.args = append(w.args, "--config", w.path("weft.yaml"))
		w.configure("pools: [{cidr: 10.77.0.0/24, blockSize: 28, encapsulation: none}]")
		w.start()
	}
	p := two{t: t, nodes: k.nodes}
	n1, n2 := k.nodes[0], k.nodes[1]
	pod1, addrs1 := p.pod(n1, "pod1")
	pod2, addrs2 := p.pod(n2, "pod2")
	p.reaches(pod1, addrs2)
	if got := string(k.Do("GET", "/apis/weft.dev/v1alpha1/addresspools", nil)); strings.Count(got,
		`"kind":"AddressPool"`) != 1 || !strings.Contains(got, "pool-10-77-0-0-24") {
		t.Errorf("pools: %s", got)
	}
	k.routed(1, "10.100.2.0/24 ") // the nodes' prefixes, which are outside of all pools
	ways := func() (out []string) {
		for _, line := range strings.Split(nettest.Run(t, n1.node, "ip", "route", "show", "proto", "119"), "\n") {
			if strings.HasPrefix(line, "10.77.") && strings.Contains(line, " via ") {
				out = append(out, line)
			}
		}
		return out
	}
	k.until("ways to the blocks of the other node, its spare one too, and a snapshot of them", func() bool {
		var all struct {
			Items []struct{ Spec struct{ CIDR, Node string } }
		}
		if err := json.Unmarshal(k.Do("GET", "/apis/weft.dev/v1alpha1/addressblocks", nil), &all); err != nil {
			t.Fatal(err)
		}
		snapshot, _ := os.ReadFile(n1.path("state", "cluster", "addressblocks.json"))
		routes, n := strings.Join(ways(), "\n"), 0
		for _, b := range all.Items {
			if b.Spec.Node == "n2" && strings.Contains(string(snapshot), b.Spec.CIDR) &&
				strings.Contains(routes, b.Spec.CIDR+" ") {
				n++
			}
		}
		return n >= 2
	})
	before := strings.Join(ways(), "\n")
	k.Server.Stop()
	k.Proxy.CloseConnections()
	n1.kill()
	for _, way := range ways() {
		nettest.Run(t, n1.node, append([]string{"ip", "route", "del"}, strings.Fields(way)...)...)
	}
	n1.start()
	k.until("the ways to blocks are back", func() bool { return strings.Join(ways(), "\n") == before })
	p.reaches(pod2, addrs1)
	given := map[string]string{addrs1[0].String(): "pod1", addrs2[0].String(): "pod2"}
	for i, w := range k.nodes {
		id := fmt.Sprint("late", i)
		_, addrs := p.pod(w, id)
		if other, twice := given[addrs[0].String()]; twice {
			t.Errorf("%s has %s of %s", id, addrs[0], other)
		}
		given[addrs[0].String()] = id
		p.reaches(pod1, addrs)
		p.reaches(pod2, addrs)
	}
}
