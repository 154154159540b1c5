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
	// pod is the pod's link with its addresses, ways its routes.
	pod  state.Answer
	ways []state.Route
	mtu  int
	out  Network
}

const (
	leastMTU, mostMTU = 68, 65535
	leastIPv6         = 1280
)

// facts takes the pod's link out of the answers, and refuses one that no guest can have.
func (p *planner) facts() error {
	for _, name := range []string{p.names.bridge, p.names.moved} {
		if len(name) > mostName {
			return p.fault(p.nic, "name", model.CodeInvalidConf, "",
				"the pod's link %s has too long a name: %s would have %d letters, at most %d are possible",
				p.names.pod, name, len(name), mostName)
		}
	}
	p.pod, p.ways = p.Answers[link(p.names.pod)], p.Answers[routes(p.names.pod)].Routes
	if p.nic.Binding == model.VMTap && !p.pod.Found {
		p.pod = p.Answers[link(p.names.tap)]
	}
	if !p.pod.Found {
		return p.fault(p.nic, "name", model.CodeInvalidEnv, "the pod must be attached to the network first",
			"network %q: the pod has no link %s", p.nic.Network.Name, p.names.pod)
	}
	p.mtu = p.pod.Link.MTU
	if p.mtu < leastMTU || p.mtu > mostMTU {
		return p.fault(p.nic, "", model.CodeInvalidEnv, "", "the pod's link %s has an MTU of %d, which no guest can have",
			p.names.pod, p.mtu)
	}
	if p.out.Device.MAC == "" {
		p.out.Device.MAC = p.pod.Link.MAC.String()
	}
	p.out.Device.MTU = p.mtu
	return nil
}

// free refuses names that somebody has.
func (p *planner) free(wanted ...string) error {
	for _, name := range wanted {
		if have := p.Answers[link(name)]; have.Found {
			return p.fault(p.nic, "name", model.CodeExists, "take it away, or start the machine in a pod of its own",
				"network %q: the pod has a link %s already (%s)", p.nic.Network.Name, name, have.Link.Kind)
		}
	}
	return nil
}

// addr is the pod's first address of a family that others can reach; invalid when there is none.
func (p *planner) addr(v6 bool) netip.Prefix {
	for _, a := range p.pod.Addrs {
		if ip := a.Prefix.Addr(); ip.Is6() == v6 && ip.IsGlobalUnicast() {
			return a.Prefix
		}
	}
	return netip.Prefix{}
}

// tap is the guest's end of the wire.
func (p *planner) tap() state.Link {
	owner := p.VM.Owner
	return state.Link{
		Name: p.names.tap, Kind: state.Tap, MAC: p.seed("tap"), MTU: p.mtu, Master: p.names.bridge, Up: state.On(),
		Alias: p.mark(),
		// A device of one queue is another one than a device of several, also where it is opened once.
		Tun: &state.TunAttrs{MultiQueue: p.out.Device.Queues > 1, Owner: &owner, Group: &owner},
	}
}

// seed chooses a hardware address of the pod's own.
func (p *planner) seed(what string) state.MAC {
	return state.SeedMAC(p.out.Fragment.Owner + "/" + what + "/mac")
}

// silent keeps links of the guest's wire from having IPv6 addresses of the pod's: they would listen to the routers
// there.
func (p *planner) silent(names ...string) {
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

// set adds a setting to what the pod needs, with what it was.
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

// before is all of the pod's link that becoming a port of a bridge loses.
func (p *planner) before() state.Space {
	l := p.pod.Link
	l.Kind, l.Peer, l.Parent, l.Port, l.Vlans, l.Bridge, l.Shared = "", nil, nil, nil, nil, nil, false
	l.Macvlan, l.Ipvlan, l.Vlan, l.VRF, l.Vxlan, l.Tun, l.IPIP = nil, nil, nil, nil, nil, nil, nil
	addrs := slices.Clone(p.pod.Addrs)
	for i := range addrs {
		addrs[i].NoDAD = true // it was nobody else's when it left
	}
	s := state.Space{
		Links: []state.Link{l}, Addrs: addrs, Routes: p.ways, Neighs: p.Answers[neighs(state.Pod, p.names.pod)].Neighs,
	}
	if was := p.Answers[setting(disableIPv6(p.names.pod))]; was.Found {
		s.Sysctls = []state.Sysctl{{Name: disableIPv6(p.names.pod), Value: was.Value, IfPresent: true}}
	}
	return s
}

// macvtap is the kernel's word for a link that a hypervisor opens, upon another one.
const macvtap state.Kind = "macvtap"

// taken hands to the hypervisor what a CNI plugin has left: a tap, or the link itself.
func (p *planner) taken() error {
	p.out.Device.Target = p.names.pod
	tap := p.Answers[link(p.names.tap)]
	if p.nic.Binding != model.VMTap || !tap.Found {
		if p.pod.Link.Kind == macvtap {
			guard{p}.atLink(p.podAddrs())
		}
		return nil
	}
	p.out.Device.Target = p.names.tap
	if tap.Link.MTU >= leastMTU {
		p.out.Device.MTU = min(p.mtu, tap.Link.MTU) // what is longer is lost there
	}
	return p.fits(tap.Link)
}

// fits refuses a tap that the hypervisor could not open.
func (p *planner) fits(tap state.Link) error {
	if tap.Kind != state.Tap {
		return p.fault(p.nic, "binding", model.CodeInvalidEnv, "the network's CNI plugin must leave a tap of that name",
			"network %q: the pod's link %s is of kind %s, no tap", p.nic.Network.Name, tap.Name, tap.Kind)
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
				"the network's CNI plugin must give it to that one (status.runtimeUser)",
				"network %q: the pod's tap %s belongs to %s %d, the hypervisor runs as %d", p.nic.Network.Name, tap.Name, who.word,
				*who.id, p.VM.Owner)
		}
	}
	if several := p.out.Device.Queues > 1; several != a.MultiQueue {
		return p.fault(p.nic, "binding", model.CodeInvalidEnv,
			"they must be the same: networkInterfaceMultiqueue, and the network's CNI plugin",
			"network %q: the pod's tap %s has several queues: %t, the machine's interface: %t", p.nic.Network.Name, tap.Name,
			a.MultiQueue, several)
	}
	return nil
}

// sriov hands a device of the machine to the hypervisor.
func (p *planner) sriov() error {
	pci, ok := p.Devices[p.nic.Network.Name]
	if !ok {
		return p.fault(p.nic, "sriov", model.CodeInvalidEnv, "the network's device-info must tell it",
			"network %q: the PCI address of its device is not known", p.nic.Network.Name)
	}
	p.out.PodLink, p.out.Device.HostPCI, p.out.Device.Model = "", pci, ""
	p.out.Device.Queues = 0
	return nil
}
