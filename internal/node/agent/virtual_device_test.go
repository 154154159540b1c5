// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// TestVMOnDevice: a device of the node that was moved to a pod, and that a VM then uses, returns to the node
// unchanged, whether or not the VM has ended before.
func TestVMOnDevice(t *testing.T) {
	nettest.EndToEnd(t)
	for _, leaves := range []bool{true, false} {
		t.Run(fmt.Sprintf("leaves=%t", leaves), func(t *testing.T) {
			nettest.Need(t, "tap")
			w := newWorld(t)
			far, ns := nettest.NS(t, "far"), nettest.NS(t, "pod")
			nettest.Run(t, w.node, "ip", "link", "add", "card0", "address", "02:11:22:33:44:55", "mtu", "1400", "type", "veth",
				"peer", "name", "port", "netns", far.Path())
			w.start()
			device := func(where *netns.NS) string {
				return strings.ReplaceAll(nettest.Run(t, where, "ip", "-br", "link"), "\n", "; ")
			}
			before := device(w.node)
			list := w.list("1.1.0", fmt.Sprintf(`{"type":"host-device","device":"card0","ipam":%s}`, w.ipam("10.8.0.0/16")))
			if _, err := w.add(list, "c1", ns); err != nil {
				t.Fatal(err)
			}
			w.startVM(ns, vmInput(model.VMBridge))
			if err := w.check(list, "c1", ns); err != nil {
				t.Errorf("CHECK: %v", err)
			}
			if leaves {
				w.stopVM(ns)
			}
			if err := w.del(list, "c1", ns); err != nil {
				t.Fatal(err)
			}
			if after := device(w.node); after != before {
				t.Errorf("before: %s\nafter:  %s", before, after)
			}
			if left := device(ns); strings.Contains(left, "k6t") || strings.Contains(left, "tap0") ||
				strings.Contains(left, "eth0") {
				t.Errorf("left: %s", left)
			}
			w.noVMs()
		})
	}
}
