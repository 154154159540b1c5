// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"net/netip"
	"slices"
	"strconv"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// bridge joins the guest's tap to the pod's link by a bridge.
type bridge struct{ *planner }

// plan gives the guest the pod's place on the wire. The pod's link gives its name, its addresses and its MAC to a
// link that stands in for it and is down: plugins of the pod's network find what they made, and the guest has the
// addresses. That link's local route would have the pod answer for the guest; so the pod answers on a link only for
// what is there.
func (p bridge) plan(pod *Step) error {
	if err := p.canBePort(); err != nil {
		return err
	}
	if err := p.free(p.names.bridge, p.names.tap); err != nil {
		return err
	}
	mark, f := p.mark(), &p.out.Fragment.Pod
	bridge := state.Link{Name: p.names.bridge, Kind: state.Bridge, MAC: p.seed("bridge"), Up: state.On(), Alias: mark}
	if p.SoftChecksums {
		bridge.TxChecksum = state.Off()
	}
	// It has another address than the guest: a bridge does not send to a port what is for the port itself.
	port := state.Link{
		Name: p.names.pod, MAC: p.seed("port"), Master: p.names.bridge, Up: state.On(),
		Port: &state.PortAttrs{Learning: state.Off()},
	}
	p.out.Device.Target = p.names.tap
	p.out.Restore.Pod = p.before()
	p.introduce()
	if len(p.pod.Addrs) == 0 {
		f.Links = []state.Link{bridge, port, p.tap()}
		p.silent(p.names.bridge, p.names.pod, p.names.tap)
		return nil
	}
	if err := p.free(p.names.moved); err != nil {
		return err
	}
	port.Name, port.From, port.Alias = p.names.moved, &state.Origin{Space: state.Pod, Name: p.names.pod}, p.names.pod
	standIn := state.Link{
		Name: p.names.pod, Kind: p.StandIn, MAC: p.pod.Link.MAC, MTU: p.mtu, Up: state.Off(), Alias: mark,
	}
	f.Links = []state.Link{bridge, port, p.tap(), standIn}
	for _, a := range p.pod.Addrs {
		f.Addrs = append(f.Addrs, state.Addr{Link: p.names.moved, Prefix: a.Prefix, Absent: true})
		f.Addrs = append(f.Addrs, state.Addr{
			Link: p.names.pod, Prefix: a.Prefix, Peer: a.Peer, NoDAD: true, NoPrefixRoute: a.NoPrefixRoute,
		})
	}
	p.silent(p.names.bridge, p.names.moved, p.names.tap)
	guard{p.planner}.atBridge(p.podAddrs())
	if !p.addr(false).IsValid() {
		return nil
	}
	p.set(pod, arpIgnore, "1")
	if p.nic.Binding == model.VMManagedTap {
		return nil
	}
	server, err := netip.ParseAddr("169.254.75.1" + strconv.Itoa(p.nic.Index))
	if err != nil {
		return p.fault(p.nic, "", model.CodeInvalidConf, "at most 100 interfaces",
			"interface %d of a machine has no address for its bridge", p.nic.Index)
	}
	f.Addrs = append(f.Addrs, state.Addr{Link: p.names.bridge, Prefix: netip.PrefixFrom(server, server.BitLen())})
	p.tell(model.Guest{DHCP4: leases{p.planner}.ofPod(server)}, p.names.bridge, p.seed("bridge"), true)
	return nil
}

// canBePort refuses links that a guest with an address of its own cannot speak through.
func (p bridge) canBePort() error {
	kinds := []state.Kind{state.Macvlan, state.Ipvlan, state.Dummy, state.Bridge, state.VRF, state.IPIP, state.Wireguard}
	if kind := p.pod.Link.Kind; slices.Contains(kinds, kind) {
		return p.fault(p.nic, "bridge", model.CodeInvalidEnv, "take a network whose pods have an end of a veth pair",
			"the pod's link %s is of kind %s, which cannot be a port of a bridge for a guest", p.names.pod, kind)
	}
	if p.pod.Link.Master != "" {
		return p.fault(p.nic, "bridge", model.CodeInvalidEnv, "", "the pod's link %s is a port of %s already", p.names.pod,
			p.pod.Link.Master)
	}
	return nil
}
