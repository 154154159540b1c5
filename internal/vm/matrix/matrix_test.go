// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
)

// TestMatrix: whatever the binding, the family and the way the pod is attached, a guest and another pod reach each
// other, and the guest is heard as the pod. What the machine has beside it on another network works as well.
func TestMatrix(t *testing.T) {
	for name, by := range sites() {
		for family, subnets := range families() {
			t.Run(name+"/"+family, func(t *testing.T) {
				if by.needs(t, false); by.machines == tapped && family != "dual" {
					return // its plugin gives addresses of both
				}
				w := newWorld(t, by, subnets...)
				peer := w.pod(true, false)
				serve(t, peer.ns, 81, "peer")
				nettest.Run(t, peer.ns, "ip", "addr", "add", "192.0.2.1/24", "dev", blueLink)
				nettest.Run(t, peer.ns, "ip", "addr", "add", "fd00:2::1/64", "dev", blueLink, "nodad")
				alone := []bool{true}
				if family == "dual" { // one interface is the first of several
					alone = []bool{false, true}
				}
				for _, several := range alone {
					for _, binding := range by.bindings {
						t.Run(fmt.Sprintf("%s several=%t", binding, several), func(t *testing.T) {
							inner := *w
							inner.t = t
							inner.reach(peer, binding, several)
							w.n = inner.n
						})
					}
				}
			})
		}
	}
}

// reach has a machine and a pod call each other.
func (w *world) reach(peer *pod, binding model.VMBinding, several bool) {
	t := w.t
	p := w.pod(several, true)
	in := machine(binding)
	if several {
		in = machine(binding, model.VMBridge)
	}
	guests := w.boot(p, in)
	serve(t, guests[0].NS, 80, "guest")
	for i, a := range p.addrs {
		to := peer.addrs[i].Addr()
		ping(t, guests[0].NS, to)
		called(t, guests[0].NS, to, 81, "peer "+a.Addr().String())
		called(t, peer.ns, a.Addr(), 80, "guest "+to.String())
	}
	if !several {
		return
	}
	second := guests[1]
	serve(t, second.NS, 80, "second")
	second.ip(t, "addr add 192.0.2.2/24 dev eth0")
	second.ip(t, "addr add fd00:2::2/64 dev eth0 nodad")
	for from, to := range map[string]string{"192.0.2.1": "192.0.2.2", "fd00:2::1": "fd00:2::2"} {
		ping(t, second.NS, netip.MustParseAddr(from))
		called(t, second.NS, netip.MustParseAddr(from), 81, "peer "+to)
		called(t, peer.ns, netip.MustParseAddr(to), 80, "second "+from)
	}
}
