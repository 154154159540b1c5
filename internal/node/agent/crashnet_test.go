// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"

	"github.com/weft-net/weft/internal/nettest"
)

// threeNetworks are pods with several networks: some that are applied as a batch, and some with a foreign plugin
// between them.
func (w *world) threeNetworks() map[string][]string {
	named := func(name, network string) string {
		return strings.Replace(network, "{", fmt.Sprintf(`{"name":%q,`, name), 1)
	}
	wire := func(i int) string {
		return fmt.Sprintf(
			`{"name":"wire%d","type":"macvlan","master":"up0","ipam":{"type":"host-local","dataDir":%q,"ranges":[[{"subnet":"10.6%d.0.0/24"}]]}}`, i, w.path("addresses"), i,
		)
	}
	return map[string][]string{
		"apart": {named("pods", w.networks()["bridge"]), wire(1), wire(2), wire(3)},
		"mixed": {named("pods", w.networks()["ptp"]), wire(1), named("mixed", w.networks()["chain"]), wire(2), wire(3)},
		"parallel": {
			named("pods", w.networks()["guarded"]), named("one", w.networks()["chain"]),
			named("two", w.networks()["chain"]), wire(1),
		},
	}
}

// newNetCrasher kills the agent of a node whose pods have several networks.
func newNetCrasher(t *testing.T, shape string) *crasher {
	t.Helper()
	nettest.Need(t, "macvlan")
	w := newWorld(t)
	w.uplink()
	w.start()
	list := w.list("1.0.0", w.threeNetworks()[shape]...)
	if shape == "parallel" {
		var err error
		text := strings.Replace(string(list.Bytes), `"delegates"`, `"parallelNetworks":true,"delegates"`, 1)
		if list, err = libcni.NetworkConfFromBytes([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	return &crasher{world: w, list: list, before: w.host()}
}

// TestKilledInAddAll kills the agent at every failpoint of an ADD and of a DEL of several networks: after the restart
// and the runtime's DEL, nothing is left of any of them.
func TestKilledInAddAll(t *testing.T) {
	nettest.EndToEnd(t)
	for _, shape := range []string{"apart", "mixed", "parallel"} {
		t.Run(shape, func(t *testing.T) {
			c := newNetCrasher(t, shape)
			disarm := c.disarm()
			adds, dels := 0, 0
			for c.cycle(c.arm(adds), disarm) {
				adds++
			}
			for c.cycle(disarm, c.arm(dels)) {
				dels++
			}
			c.stop()
			if n := c.records(); n != 0 || adds < 6 || dels < 8 {
				t.Errorf("%d records left, %d steps of ADD and %d of DEL", n, adds, dels)
			}
			t.Logf("%s: killed at %d steps of ADD and %d of DEL, %d before the answer; the host was as before each time", shape,
				adds, dels, c.live)
		})
	}
}

func TestKilledInAddAllAtRandomMoments(t *testing.T) {
	nettest.EndToEnd(t)
	for _, shape := range []string{"apart", "mixed"} {
		t.Run(shape, func(t *testing.T) {
			newNetCrasher(t, shape).atRandom(40, 10*time.Millisecond, rand.New(rand.NewPCG(3, 4)))
		})
	}
}

// TestDelOfNetworksWhileAway: the runtime's DEL of a pod with several networks is queued while no agent runs, and
// executed by the next one, also if the pod's namespace is deleted by then.
func TestDelOfNetworksWhileAway(t *testing.T) {
	nettest.EndToEnd(t)
	for _, shape := range []string{"apart", "mixed"} {
		t.Run(shape, func(t *testing.T) {
			c := newNetCrasher(t, shape)
			for _, id := range []string{"c1", "c2", "c3"} {
				if _, err := c.add(c.list, id, nettest.NS(t, "pod-"+id)); err != nil {
					t.Fatalf("%v\n%s", err, c.log())
				}
			}
			c.kill()
			for _, id := range []string{"c1", "c2", "c3"} {
				conf := runtimeConf(id, c.node)
				conf.NetNS = "/gone"
				if err := c.cni.DelNetworkList(c.ctx(), c.list, conf); err != nil {
					t.Errorf("%s: %v", id, err)
				}
			}
			if n := c.queued(); n != 3 {
				t.Errorf("%d DELs queued", n)
			}
			c.start()
			if diff := c.settled(c.before); diff != "" {
				t.Errorf("left behind: %s", diff)
			}
			c.stop()
			if n := c.records(); n != 0 {
				t.Errorf("%d records left", n)
			}
		})
	}
}
