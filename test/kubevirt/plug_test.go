// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestPlug: an interface is hot-plugged into a running VM and unplugged. KubeVirt leaves the pod's link configured for
// the VM, without name and addresses; weft restores it. KubeVirt also numbers hot-plugged interfaces from zero: their
// bridge has the address of the first one's, which is not that of the DHCP server.
func TestPlug(t *testing.T) {
	const first, second = "{name: default, bridge: {}}",
		"[{name: default, pod: {}}, {name: blue, multus: {networkName: blue}}]"
	kubevirt, weft, dir := newPod(t, "10.244.0.10/24"), newPod(t, "10.244.0.10/24"), t.TempDir()
	for _, p := range []pod{kubevirt, weft} {
		p.link(t, blue, "02:00:00:00:00:09", "10.7.0.5/24")
	}
	alike := kubevirt.state(t)
	far := "k6t-" + strings.TrimPrefix(blue, "pod")
	for _, c := range []struct{ step, verb, interfaces, networks string }{
		{"start", "phase1", "[" + first + "]", "[{name: default, pod: {}}]"},
		{"plug", "plug", "[" + first + ", {name: blue, bridge: {}}]", second},
		{"unplug", "plug", "[" + first + ", {name: blue, bridge: {}, state: absent}]", second},
	} {
		file := writeVMI(t, c.interfaces, c.networks, "", "")
		must(t, program("kubevirt-net"), c.verb, file, itoa(kubevirt.pid))
		must(t, program("weft"), "vm", "phase1", "--agent", "", "--netns", weft.netns, "--state-dir", dir, file)
		want, got := kubevirt.state(t), weft.state(t)
		bridge, there := want.Links[far]
		if there != (c.step == "plug") {
			t.Errorf("%s: KubeVirt's bridge: %v", c.step, there)
		}
		if there {
			if !slices.Equal(bridge.Addrs, []string{"169.254.75.10/32"}) {
				t.Errorf("KubeVirt's bridge has %v", bridge.Addrs)
			}
			bridge.Addrs = []string{"169.254.75.11/32"}
			want.Links[far] = bridge
		}
		if c.step == "unplug" {
			moved := strings.TrimPrefix(blue, "pod") + "-nic"
			if want.Links[moved].Kind != "veth" || len(want.Links[moved].Addrs) > 0 {
				t.Errorf("KubeVirt leaves %+v", want.Links)
			}
			delete(want.Links, moved)
			want.Links[blue] = alike.Links[blue]
			want.Routes, got.Routes = nil, nil
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-KubeVirt +weft):\n%s", c.step, d)
		}
	}
}
