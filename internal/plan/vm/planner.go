// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// planner plans one interface.
type planner struct {
	Input
	nic   model.VMInterface
	names names
	// pod is the pod's link with its addresses, routes its routes.
	pod    state.Answer
	routes []state.Route
	mtu    int
	out    Network
}

const (
	leastMTU, mostMTU = 68, 65535
	leastIPv6         = 1280
)

// readPodLink reads the pod's link from the answers, and refuses one that no guest can use.
func (p *planner) readPodLink() error {
	for _, name := range []string{p.names.bridge, p.names.renamed} {
		if len(name) > maxName {
			return p.fault(p.nic, "name", model.CodeInvalidConf, "",
				"the pod's link %s has too long a name: %s would have %d letters, at most %d are possible",
				p.names.pod, name, len(name), maxName)
		}
	}
	p.pod, p.routes = p.Answers[link(p.names.pod)], p.Answers[routes(p.names.pod)].Routes
	if p.nic.Binding == model.VMTap && !p.pod.Found {
		p.pod = p.Answers[link(p.names.tap)]
	}
	if !p.pod.Found {
		return p.fault(p.nic, "name", model.CodeInvalidEnv, "the pod must be attached to the network first",
			"network %q: the pod has no link %s", p.nic.Network.Name, p.names.pod)
	}
	p.mtu = p.pod.Link.MTU
	if p.mtu < leastMTU || p.mtu > mostMTU {
		return p.fault(p.nic, "", model.CodeInvalidEnv, "", "the pod's link %s has an MTU of %d, which is too small for a guest",
			p.names.pod, p.mtu)
	}
	if p.out.Device.MAC == "" {
		p.out.Device.MAC = p.pod.Link.MAC.String()
	}
	p.out.Device.MTU = p.mtu
	return nil
}

// checkNamesFree returns an error if a link with one of the names exists.
func (p *planner) checkNamesFree(wanted ...string) error {
	for _, name := range wanted {
		if have := p.Answers[link(name)]; have.Found {
			return p.fault(p.nic, "name", model.CodeExists, "delete it, or start the VM in a pod of its own",
				"network %q: the pod already has a link %s (%s)", p.nic.Network.Name, name, have.Link.Kind)
		}
	}
	return nil
}

// addr returns the pod's first global unicast address of a family; invalid if there is none.
func (p *planner) addr(v6 bool) netip.Prefix {
	for _, a := range p.pod.Addrs {
		if ip := a.Prefix.Addr(); ip.Is6() == v6 && ip.IsGlobalUnicast() {
			return a.Prefix
		}
	}
	return netip.Prefix{}
}

// tap returns the guest's tap.
func (p *planner) tap() state.Link {
	owner := p.VM.Owner
	return state.Link{
		Name: p.names.tap, Kind: state.Tap, MAC: p.seed("tap"), MTU: p.mtu, Master: p.names.bridge, Up: state.On(),
		Alias: p.mark(),
		// A device with one queue cannot become one with multiple, even if it is opened once.
		Tun: &state.TunAttrs{MultiQueue: p.out.Device.Queues > 1, Owner: &owner, Group: &owner},
	}
}

// seed returns a stable MAC address for one of the pod's links.
func (p *planner) seed(what string) state.MAC {
	return state.SeedMAC(p.out.Fragment.Owner + "/" + what + "/mac")
}

// disableIPv6 disables IPv6 on the guest's links in the pod: the pod would accept router advertisements there.
func (p *planner) disableIPv6(names ...string) {
	for _, name := range names {
		p.out.Fragment.Pod.Sysctls = append(p.out.Fragment.Pod.Sysctls, state.Sysctl{
			Name: disableIPv6(name), Value: "1", IfPresent: true,
		})
	}
}

const (
	arpIgnore = "net/ipv4/conf/all/arp_ignore"
	forward4  = "net/ipv4/ip_forward"
	forward6  = "net/ipv6/conf/all/forwarding"
)

// set adds a setting to the pod's step, with its previous value.
func (p *planner) set(pod *Step, name, value string) {
	for _, s := range pod.Fragment.Pod.Sysctls {
		if s.Name == name {
			return
		}
	}
	s := state.Sysctl{Name: name, Value: value, IfPresent: name == forward6}
	pod.Fragment.Pod.Sysctls = append(pod.Fragment.Pod.Sysctls, s)
	if was := p.Answers[setting(name)]; was.Found {
		s.Value = was.Value
		pod.Restore.Pod.Sysctls = append(pod.Restore.Pod.Sysctls, s)
	}
}

// linkState returns the state of the pod's link that it loses as a bridge port.
func (p *planner) linkState() state.Space {
	l := p.pod.Link
	l.Kind, l.Peer, l.Parent, l.Port, l.VLANs, l.Bridge, l.Shared = "", nil, nil, nil, nil, nil, false
	l.Macvlan, l.Ipvlan, l.VLAN, l.VRF, l.VXLAN, l.Tun, l.IPIP = nil, nil, nil, nil, nil, nil, nil
	addrs := slices.Clone(p.pod.Addrs)
	for i := range addrs {
		addrs[i].NoDAD = true // it was unique before
	}
	s := state.Space{
		Links: []state.Link{l}, Addrs: addrs, Routes: p.routes, Neighs: p.Answers[neighs(state.Pod, p.names.pod)].Neighs,
	}
	if was := p.Answers[setting(disableIPv6(p.names.pod))]; was.Found {
		s.Sysctls = []state.Sysctl{{Name: disableIPv6(p.names.pod), Value: was.Value, IfPresent: true}}
	}
	return s
}

// useExistingTap uses what a CNI plugin has created: a tap, or the link itself.
func (p *planner) useExistingTap() error {
	p.out.Device.Target = p.names.pod
	tap := p.Answers[link(p.names.tap)]
	if p.nic.Binding != model.VMTap || !tap.Found {
		if p.pod.Link.Kind == state.Macvtap {
			guard{p}.atLink(p.podAddrs())
		}
		return nil
	}
	p.out.Device.Target = p.names.tap
	if tap.Link.MTU >= leastMTU {
		p.out.Device.MTU = min(p.mtu, tap.Link.MTU) // longer packets are dropped there
	}
	return p.checkTap(tap.Link)
}

// checkTap returns an error if the hypervisor could not open the tap.
func (p *planner) checkTap(tap state.Link) error {
	if tap.Kind != state.Tap {
		return p.fault(p.nic, "binding", model.CodeInvalidEnv, "the network's CNI plugin must create a tap of that name",
			"network %q: the pod's link %s is of kind %s, not a tap", p.nic.Network.Name, tap.Name, tap.Kind)
	}
	a := tap.Tun
	if a == nil {
		return nil
	}
	for _, who := range []struct {
		word string
		id   *uint32
	}{{"user", a.Owner}, {"group", a.Group}} {
		if who.id != nil && *who.id != p.VM.Owner && p.VM.Owner != 0 {
			return p.fault(p.nic, "binding", model.CodeInvalidEnv,
				"the network's CNI plugin must create it for that user (status.runtimeUser)",
				"network %q: the pod's tap %s belongs to %s %d, the hypervisor runs as %d", p.nic.Network.Name, tap.Name, who.word,
				*who.id, p.VM.Owner)
		}
	}
	if multiple := p.out.Device.Queues > 1; multiple != a.MultiQueue {
		return p.fault(p.nic, "binding", model.CodeInvalidEnv,
			"networkInterfaceMultiqueue and the network's CNI plugin must match",
			"network %q: the pod's tap %s has multiple queues: %t, the VM's interface: %t", p.nic.Network.Name, tap.Name,
			a.MultiQueue, multiple)
	}
	return nil
}

// sriov passes a device of the node through to the VM.
func (p *planner) sriov() error {
	pci, ok := p.Devices[p.nic.Network.Name]
	if !ok {
		return p.fault(p.nic, "sriov", model.CodeInvalidEnv, "the network's device-info must have it",
			"network %q: the PCI address of its device is unknown", p.nic.Network.Name)
	}
	p.out.PodLink, p.out.Device.HostPCI, p.out.Device.Model = "", pci, ""
	p.out.Device.Queues = 0
	return nil
}
