// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"net/netip"
	"slices"
	"strconv"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// direct joins the guest's tap to the pod's network without a bridge.
type direct struct{ *planner }

// plan joins the guest's tap to the pod's link, which keeps its name, MAC, addresses and routes: no packets reach the
// pod any more, so nothing need be removed. The guest has the same MAC and addresses.
//
// The tap has the MAC of the pod's gateway, so that frames to the gateway leave through the pod's link unchanged. The
// pod itself answers DHCP, router solicitations, and ARP for the gateway if nothing else on the link would: if pods
// have single addresses.
func (p direct) plan() error {
	if err := p.canBeJoined(); err != nil {
		return err
	}
	if p.pod.Link.Kind == state.Tap {
		return p.onNode()
	}
	if err := p.checkNamesFree(p.names.tap); err != nil {
		return err
	}
	tap := p.tap()
	tap.Master = ""
	p.out.Device.Target = p.names.tap
	j := state.Join{Tap: p.names.tap, Link: p.names.pod, Method: p.Join}
	g := model.GuestConfig{}
	f := &p.out.Fragment.Pod
	if p.addr(false).IsValid() {
		mac, err := p.ipv4(&j, &g)
		if err != nil {
			return err
		}
		if !mac.IsZero() {
			tap.MAC = mac
		}
	}
	router, err := p.ipv6(&j, &g)
	if err != nil {
		return err
	}
	if !router.IsZero() {
		tap.MAC = router
	}
	if g.RA == nil {
		p.disableIPv6(p.names.tap)
	}
	f.Links = []state.Link{tap}
	f.Joins = []state.Join{j}
	if g.DHCP4 != nil || g.DHCP6 != nil {
		p.setGuestConfig(g, p.names.tap, tap.MAC, true)
	}
	return nil
}

// onNode uses the tap on the node that the pod's link is a placeholder for: the node routes and guards it like a pod's
// veth, and serves DHCP to its guest.
func (p direct) onNode() error {
	end := p.Answers[otherEnd(p.names.pod)]
	if !end.Found {
		return p.fault(p.nic, "binding", model.CodeInvalidEnv, "use a network whose pods have an end of a veth pair",
			"the pod's link %s is of kind tun, but is no placeholder for a tap of the node", p.names.pod)
	}
	p.out.Device.Target, p.out.Device.OnNode = end.Link.Name, true
	if queues := end.Link.Tun != nil && end.Link.Tun.MultiQueue; queues != (p.out.Device.Queues > 1) {
		return p.fault(p.nic, "binding", model.CodeInvalidEnv,
			"num_queues of the network's configuration must match networkInterfaceMultiqueue",
			"the node's tap %s has multiple queues: %t, the VM's interface: %t", end.Link.Name, queues, !queues)
	}
	return nil
}

// canBeJoined refuses links that cannot be joined to a tap, and another MAC if the link does not receive its frames, or
// if the node's configuration cannot be updated to it.
func (p direct) canBeJoined() error {
	kinds := []state.Kind{state.Ipvlan, state.Dummy, state.Bridge, state.VRF, state.IPIP, state.Wireguard}
	if kind := p.pod.Link.Kind; slices.Contains(kinds, kind) {
		return p.fault(p.nic, "binding", model.CodeInvalidEnv, "use a network whose pods have an end of a veth pair",
			"the pod's link %s is of kind %s, which cannot be joined to a guest's tap", p.names.pod, kind)
	}
	if p.pod.Link.Master != "" {
		return p.fault(p.nic, "binding", model.CodeInvalidEnv, "", "the pod's link %s is already a port of %s", p.names.pod,
			p.pod.Link.Master)
	}
	if mac := p.pod.Link.MAC.String(); len(p.pod.Addrs) > 0 && p.out.Device.MAC != mac {
		if p.ErrorPrefix == "" && p.pod.Link.Kind == state.Veth { // all its frames go to the guest, with any destination MAC
			p.replaceMAC()
			return nil
		}
		return p.fault(p.nic, "macAddress", model.CodeInvalidConf,
			"remove it, or configure the pod's network to use it",
			"%s is not the pod's address on %s (%s), by which the network knows the guest", p.out.Device.MAC, p.names.pod, mac)
	}
	return nil
}

// ipv4 plans DHCP on the tap, and proxy ARP for the gateway if it is not in the guest's subnet. It returns the
// gateway's MAC if the tap must have it.
func (p direct) ipv4(j *state.Join, g *model.GuestConfig) (state.MAC, error) {
	server, err := netip.ParseAddr("169.254.75.1" + strconv.Itoa(p.nic.Index))
	if err != nil {
		return state.MAC{}, p.fault(p.nic, "", model.CodeInvalidConf, "at most 100 interfaces",
			"interface %d of a VM has no address for its DHCP server", p.nic.Index)
	}
	f, tap := &p.out.Fragment.Pod, p.names.tap
	f.Addrs = append(f.Addrs, state.Addr{Link: tap, Prefix: netip.PrefixFrom(server, server.BitLen())})
	j.LocalAddrs, j.DHCP4 = append(j.LocalAddrs, server), true
	g.DHCP4 = leases{p.planner}.podDHCP4(server)
	// The guest's source address is also the pod's.
	conf := "net/ipv4/conf/" + tap + "/"
	f.Sysctls = append(f.Sysctls, state.Sysctl{Name: conf + "accept_local", Value: "1"}, state.Sysctl{
		Name: conf + "rp_filter", Value: "2",
	})
	gw := g.DHCP4.Router
	if !gw.IsValid() || p.addr(false).Contains(gw) {
		return state.MAC{}, nil
	}
	mac := p.neighbor(gw)
	switch {
	case mac.IsZero() && p.SubnetBits != 0:
		return mac, p.gatewayError(gw)
	case mac.IsZero():
		return mac, nil // the gateway itself answers ARP
	}
	if p.SubnetBits == 0 {
		j.LocalAddrs = append(j.LocalAddrs, gw)
	} else {
		p.subnetOf(j, g.DHCP4)
	}
	f.Sysctls = append(f.Sysctls,
		state.Sysctl{Name: conf + "forwarding", Value: "1"}, state.Sysctl{Name: conf + "proxy_arp", Value: "1"},
		state.Sysctl{Name: "net/ipv4/neigh/" + tap + "/proxy_delay", Value: "0"})
	return mac, nil
}

// subnetOf sets a subnet with a router in the lease of a guest with a single address, for guests that do not support
// /32: proxy ARP answers for all addresses of the subnet.
func (p direct) subnetOf(j *state.Join, l *model.GuestDHCP4) {
	own := l.Address.Addr()
	l.Address = netip.PrefixFrom(own, p.SubnetBits)
	j.ProxySubnet, j.GuestAddr = l.Address.Masked(), own
	if l.Router = j.ProxySubnet.Addr().Next(); l.Router == own {
		l.Router = l.Router.Next()
	}
	l.Routes = nil
}

// ipv6 plans router advertisements on the tap. It returns the gateway's MAC. On a network without a default route they tell
// the guest its subnet and that it has an address, but no router.
func (p direct) ipv6(j *state.Join, g *model.GuestConfig) (state.MAC, error) {
	own := p.addr(true)
	if !own.IsValid() {
		return state.MAC{}, nil
	}
	gw := p.gateway(true)
	mac := p.neighbor(gw)
	if gw.IsValid() && mac.IsZero() {
		if p.Answers[gateways(p.names.pod)].Found {
			return mac, p.gatewayError(gw)
		}
		return mac, nil
	}
	if p.mtu < leastIPv6 {
		return mac, p.fault(p.nic, "", model.CodeInvalidEnv, "raise the MTU of the pod's network",
			"the pod's link %s has an MTU of %d, IPv6 needs %d", p.names.pod, p.mtu, leastIPv6)
	}
	f, tap := &p.out.Fragment.Pod, p.names.tap
	conf := "net/ipv6/conf/" + tap + "/"
	// Without forwarding, neighbor advertisements lack the router flag, and the guest would remove its default route.
	// Nothing is forwarded.
	f.Sysctls = append(f.Sysctls, state.Sysctl{Name: conf + "addr_gen_mode", Value: "1", IfPresent: true},
		state.Sysctl{Name: conf + "accept_ra", Value: "0", IfPresent: true}, state.Sysctl{
			Name: conf + "forwarding", Value: "1", IfPresent: true,
		})
	f.Addrs = append(f.Addrs, state.Addr{Link: tap, Prefix: netip.PrefixFrom(routerAddr(), 64), NoDAD: true})
	j.LocalAddrs, j.DHCP6, j.RS = append(j.LocalAddrs, routerAddr()), true, true
	dhcp := leases{p.planner}
	g.DHCP6 = &model.GuestDHCP6{Address: own.Addr(), DNS: dhcp.nameservers(true), Search: dhcp.search()}
	g.RA = &model.GuestRA{NoRouter: !gw.IsValid(), MTU: p.mtu, DNS: dhcp.nameservers(true), Search: dhcp.search()}
	if !own.IsSingleIP() {
		g.RA.Prefix = own.Masked()
	}
	return mac, nil
}

func (p direct) gatewayError(gw netip.Addr) error {
	return p.fault(p.nic, "", model.CodeTryAgain, "the pod's network must be up first",
		"network %q: the pod's gateway %s on %s does not answer", p.nic.Network.Name, gw, p.names.pod)
}

// gateway returns the gateway of the pod's default route.
func (p direct) gateway(v6 bool) netip.Addr {
	for _, r := range p.routes {
		if r.Dst.Bits() == 0 && r.Gw.IsValid() && r.Gw.Is6() == v6 {
			return r.Gw
		}
	}
	return netip.Addr{}
}

// neighbor returns the MAC of an address on the pod's link; zero if unknown.
func (p direct) neighbor(ip netip.Addr) state.MAC {
	for _, n := range p.Answers[gateways(p.names.pod)].Neighs {
		if n.IP == ip {
			return n.MAC
		}
	}
	return state.MAC{}
}
