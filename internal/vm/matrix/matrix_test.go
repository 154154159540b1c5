// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
)

// TestMatrix: with every binding, family and attachment, a guest and another pod connect in both directions, and the
// guest has the pod's source address. A second interface of the VM on another network works, too.
func TestMatrix(t *testing.T) {
	for name, by := range sites() {
		for family, subnets := range families() {
			t.Run(name+"/"+family, func(t *testing.T) {
				if by.needs(t, false); by.vmConf == foreignMacvtap && family != "dual" {
					return // its plugin assigns addresses of both families
				}
				w := newWorld(t, by, subnets...)
				peer := w.pod(true, false)
				serve(t, peer.ns, 81, "peer")
				nettest.Run(t, peer.ns, "ip", "addr", "add", "192.0.2.1/24", "dev", blueLink)
				nettest.Run(t, peer.ns, "ip", "addr", "add", "fd00:2::1/64", "dev", blueLink, "nodad")
				counts := []bool{true}
				if family == "dual" { // with one interface and with two
					counts = []bool{false, true}
				}
				for _, secondary := range counts {
					for _, binding := range by.bindings {
						t.Run(fmt.Sprintf("%s several=%t", binding, secondary), func(t *testing.T) {
							inner := *w
							inner.t = t
							inner.reach(peer, binding, secondary)
							w.n = inner.n
						})
					}
				}
			})
		}
	}
}

// reach connects a VM and a pod in both directions.
func (w *world) reach(peer *pod, binding model.VMBinding, secondary bool) {
	t := w.t
	p := w.pod(secondary, true)
	in := testInput(binding)
	if secondary {
		in = testInput(binding, model.VMBridge)
	}
	guests := w.boot(p, in)
	serve(t, guests[0].NS, 80, "guest")
	for i, a := range p.addrs {
		to := peer.addrs[i].Addr()
		ping(t, guests[0].NS, to)
		expectReply(t, guests[0].NS, to, 81, "peer "+a.Addr().String())
		expectReply(t, peer.ns, a.Addr(), 80, "guest "+to.String())
	}
	if !secondary {
		return
	}
	second := guests[1]
	serve(t, second.NS, 80, "second")
	second.ip(t, "addr add 192.0.2.2/24 dev eth0")
	second.ip(t, "addr add fd00:2::2/64 dev eth0 nodad")
	for from, to := range map[string]string{"192.0.2.1": "192.0.2.2", "fd00:2::1": "fd00:2::2"} {
		ping(t, second.NS, netip.MustParseAddr(from))
		expectReply(t, second.NS, netip.MustParseAddr(from), 81, "peer "+to)
		expectReply(t, peer.ns, netip.MustParseAddr(to), 80, "second "+from)
	}
}
