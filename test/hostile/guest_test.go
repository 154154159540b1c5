// SPDX-License-Identifier: Apache-2.0

package hostile_test

import (
	"log/slog"
	"net"
	"net/netip"
	"os"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
	plan "github.com/weft-net/weft/internal/plan/vm"
	"github.com/weft-net/weft/internal/vm/host"
)

// guestWire is a guest's side of its tap.
type guestWire struct{ tap *os.File }

func (g guestWire) do(all ...send) []string {
	said := make([]string, len(all))
	for i, s := range all {
		if _, err := g.tap.Write(s.Frame); err != nil {
			said[i] = err.Error()
		}
	}
	return said
}

// boot starts a VM in a pod, by the node's agent, and opens its tap. From then on the pod is the guest.
func (w *world) boot(p *pod) {
	w.Helper()
	nettest.Need(w, "tap")
	h, err := host.Open(w.Context(), host.Config{
		Socket: p.node.socket(), Dir: w.path("none"), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		w.Fatal(err)
	}
	defer func() { _ = h.Close() }()
	vm := model.VM{Namespace: "shop", Name: p.name, Path: "spec", Hostname: p.name, Interfaces: []model.VMInterface{{
		Name: "default", Binding: w.binding, Model: "virtio", Network: model.VMNetwork{
			Name: "default", Primary: true, Pod: true, CIDR4: netip.MustParsePrefix("10.0.2.0/24"),
			CIDR6: netip.MustParsePrefix("fd10:0:2::/120"),
		},
	}}}
	record, err := h.Start(w.Context(), host.Pod{NS: p.ns}, plan.Input{VM: vm})
	if err != nil {
		w.Fatalf("the VM of %s: %v\n%s", p.name, err, p.node.log())
	}
	n := record.Networks[0]
	if p.mac, err = net.ParseMAC(n.Device.MAC); err != nil {
		w.Fatal(err)
	}
	if w.binding == model.VMMasquerade {
		p.addrs = []netip.Addr{n.Guest.DHCP4.Address.Addr(), n.Guest.DHCP6.Address}
	}
	p.tap = nettest.OpenTap(w, p.ns, n.Device.Target, n.Device.Queues > 1)
	go func() {
		for b := make([]byte, 1<<16); ; {
			if _, err := p.tap.Read(b); err != nil { // a guest takes what comes
				return
			}
		}
	}()
}
