// SPDX-License-Identifier: Apache-2.0

package launch_test

import (
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
)

// TestMacvtap: a guest on the macvtap that a CNI plugin has left in the pod. Nobody tells it anything: the network behind it
// would. That the node has a device of the same number does not matter.
func TestMacvtap(t *testing.T) {
	nettest.Need(t, "macvtap")
	w := newWorld(t)
	if w.owner == 0 {
		nettest.Without(t, "a node for a macvtap needs root")
	}
	w.ip(w.pod, "link del eth0")
	w.ip(w.far, "link add lower type veth peer name wire")
	w.ip(w.far, "link set lower up")
	w.ip(w.far, "link set wire up")
	w.ip(w.far, "addr add 10.244.1.1/24 dev wire")
	if out, err := nettest.Try(w.far, strings.Fields("ip link add link lower name eth0 type macvtap mode bridge")...); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	w.ip(w.far, "link set eth0 netns "+w.pod.Path())
	w.ip(w.pod, "link set eth0 up")
	before := w.looks()
	r := w.run(w.config(w.machine(model.VMMacvtap)))
	r.await("weft-guest: READY")
	r.does("killall udhcpc; true") // it takes addresses away that are not its own
	r.does("ip addr add 10.244.1.5/24 dev eth0")
	r.does("ping -c 1 -W 20 10.244.1.1")
	r.does("answer 80 guest")
	w.called("10.244.1.5:80", "guest hello")
	w.listen(w.far, "10.244.1.1:90")
	if out := r.does("send 10.244.1.1 90 hello"); strings.TrimSpace(out) != "far hello" {
		t.Errorf("the guest was answered %q", out)
	}
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	if after := w.looks(); after != before {
		t.Errorf("the pod was\n%s\nand is\n%s", before, after)
	}
}
