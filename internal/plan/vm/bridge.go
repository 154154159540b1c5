// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"net/netip"
	"slices"
	"strconv"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// bridge joins the guest's tap to the pod's link with a bridge.
type bridge struct{ *planner }

// plan replaces the pod by the guest on its network. A placeholder link, which is down, gets the name, the addresses
// and the MAC of the pod's link: CNI plugins find what they created, and the guest uses the addresses. Because of the
// placeholder's local route the pod would answer ARP for the guest; so arp_ignore restricts the answers to each link's
// own addresses.
func (p bridge) plan(pod *Step) error {
	if err := p.canBePort(); err != nil {
		return err
	}
	if err := p.checkNamesFree(p.names.bridge, p.names.tap); err != nil {
		return err
	}
	mark, f := p.mark(), &p.out.Fragment.Pod
	bridge := state.Link{Name: p.names.bridge, Kind: state.Bridge, MAC: p.seed("bridge"), Up: state.On(), Alias: mark}
	if p.SoftChecksums {
		bridge.TxChecksum = state.Off()
	}
	// Its MAC differs from the guest's: a bridge does not forward frames for a port's own MAC to another port.
	port := state.Link{
		Name: p.names.pod, MAC: p.seed("port"), Master: p.names.bridge, Up: state.On(),
		Port: &state.PortAttrs{Learning: state.Off()},
	}
	p.out.Device.Target = p.names.tap
	p.out.Restore.Pod = p.linkState()
	p.replaceMAC()
	if len(p.pod.Addrs) == 0 {
		f.Links = []state.Link{bridge, port, p.tap()}
		p.disableIPv6(p.names.bridge, p.names.pod, p.names.tap)
		return nil
	}
	if err := p.checkNamesFree(p.names.renamed); err != nil {
		return err
	}
	port.Name, port.MovedFrom, port.Alias = p.names.renamed, &state.Origin{
		Space: state.Pod,
		Name:  p.names.pod,
	}, p.names.pod
	standIn := state.Link{
		Name: p.names.pod, Kind: p.StandIn, MAC: p.pod.Link.MAC, MTU: p.mtu, Up: state.Off(), Alias: mark,
	}
	f.Links = []state.Link{bridge, port, p.tap(), standIn}
	for _, a := range p.pod.Addrs {
		f.Addrs = append(f.Addrs, state.Addr{Link: p.names.renamed, Prefix: a.Prefix, Absent: true})
		f.Addrs = append(f.Addrs, state.Addr{
			Link: p.names.pod, Prefix: a.Prefix, Peer: a.Peer, NoDAD: true, NoPrefixRoute: a.NoPrefixRoute,
		})
	}
	p.disableIPv6(p.names.bridge, p.names.renamed, p.names.tap)
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
			"interface %d of a VM has no address for its bridge", p.nic.Index)
	}
	f.Addrs = append(f.Addrs, state.Addr{Link: p.names.bridge, Prefix: netip.PrefixFrom(server, server.BitLen())})
	p.setGuestConfig(model.GuestConfig{DHCP4: leases{p.planner}.podDHCP4(server)}, p.names.bridge, p.seed("bridge"), true)
	return nil
}

// canBePort refuses links that cannot be bridge ports with a second MAC address.
func (p bridge) canBePort() error {
	kinds := []state.Kind{state.Macvlan, state.Ipvlan, state.Dummy, state.Bridge, state.VRF, state.IPIP, state.Wireguard}
	if kind := p.pod.Link.Kind; slices.Contains(kinds, kind) {
		return p.fault(p.nic, "bridge", model.CodeInvalidEnv, "use a network whose pods have an end of a veth pair",
			"the pod's link %s is of kind %s, which cannot be a bridge port for a guest", p.names.pod, kind)
	}
	if p.pod.Link.Master != "" {
		return p.fault(p.nic, "bridge", model.CodeInvalidEnv, "", "the pod's link %s is already a port of %s", p.names.pod,
			p.pod.Link.Master)
	}
	return nil
}
