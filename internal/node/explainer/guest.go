// SPDX-License-Identifier: Apache-2.0

package explainer

import (
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// podLink is an interface of a pod, by its sandbox.
type podLink struct{ container, name string }

// guest is how a guest is connected to a pod's interface.
type guest struct {
	tap    string
	onNode bool        // the tap is the node's, not the pod's
	join   *state.Join // nil: by a bridge, or directly
	// leases are the addresses of a guest behind NAT, leaseLink the pod's interface to it.
	leases    []netip.Addr
	leaseLink string
}

// guests returns the guests behind attachments.
func (e *Explainer) guests(attachments []attach.Record) (map[podLink]guest, error) {
	if e.cfg.VMs == nil {
		return guestsOf(attachments), nil
	}
	vms, err := e.cfg.VMs.List()
	return guestsOf(slices.Concat(attachments, vms)), err
}

// guestsOf returns the guests that the records of attachments and VMs know.
func guestsOf(records []attach.Record) map[podLink]guest {
	out := map[podLink]guest{}
	for _, rec := range records {
		for _, j := range rec.Joins() {
			container := rec.Request.ContainerID
			if rec.VM != nil {
				container = rec.VM.Container
			}
			out[podLink{container, j.Link}] = guest{tap: j.Tap, join: &j}
		}
		if rec.VM == nil {
			continue
		}
		for _, act := range rec.Acts {
			i := act.Interface
			if i == nil || i.Device.Target == "" {
				continue
			}
			at := podLink{rec.VM.Container, i.PodLink}
			g := out[at]
			g.tap, g.onNode = i.Device.Target, i.Device.OnNode
			if i.Binding == model.VMMasquerade {
				g.leases, g.leaseLink = leasesOf(act.Guests)
			}
			out[at] = g
		}
	}
	return out
}

// leasesOf returns the addresses that guests are assigned, and the interface that serves them.
func leasesOf(guests []model.GuestConfig) (out []netip.Addr, link string) {
	for _, g := range guests {
		link = g.Link
		if g.DHCP4 != nil {
			out = append(out, g.DHCP4.Address.Addr())
		}
		if g.DHCP6 != nil {
			out = append(out, g.DHCP6.Address)
		}
	}
	return slices.DeleteFunc(out, func(a netip.Addr) bool { return !a.IsValid() }), link
}
