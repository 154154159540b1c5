// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
)

// TestMTUThatAConfigurationLeavesOpen: with a custom runtime configuration, such as Calico's with "mtu": 0, pods get
// the MTU that fits into the mesh, also from an agent that has just started; the MTU file of Calico's daemon has it,
// too.
func TestMTUThatAConfigurationLeavesOpen(t *testing.T) {
	nettest.EndToEnd(t)
	p := newTwo(t, `encapsulation: vxlan`)
	w := p.nodes[0]
	file := w.path("calico", "mtu")
	for _, tc := range []struct {
		name, network, want string
	}{
		{"vxlan", `encapsulation: vxlan, mtuFile: ` + file, "1430"}, // of a wire of 1500 bytes, for pods with IPv6
		{"configured", `encapsulation: vxlan, mtu: 1300, mtuFile: ` + file, "1300"},
		{"none", `mtuFile: ` + file, "1500"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, again := range []bool{false, true} {
				w.stop()
				w.configure(tc.network)
				w.start()
				list := w.list("1.0.0", fmt.Sprintf(`{"type":"calico","mtu":0,"ipam":%s}`, w.ipam("10.99.1.0/24")))
				id := fmt.Sprintf("pod-%s-%t", tc.want, again)
				ns := nettest.NS(t, id)
				if _, err := w.add(list, id, ns); err != nil {
					t.Fatalf("%v\n%s", err, w.log())
				}
				if out := nettest.Run(t, ns, "ip", "-o", "link", "show", "eth0"); !strings.Contains(out, " mtu "+tc.want+" ") {
					t.Errorf("want MTU %s: %s", tc.want, out)
				}
				if err := w.check(list, id, ns); err != nil {
					t.Errorf("CHECK: %v", err)
				}
				p.until("the file says "+tc.want, func() bool {
					b, err := os.ReadFile(file)
					return err == nil && string(b) == tc.want
				})
				if err := w.del(list, id, ns); err != nil {
					t.Errorf("DEL: %v", err)
				}
			}
		})
	}
}
