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

// plan joins the guest's tap to the pod's link, which keeps its name, MAC, addresses and routes: nothing that arrives
// reaches the pod any more, so nothing of it need be taken away. The guest has that MAC and those addresses.
//
// The tap has the MAC of the pod's gateway. What the guest sends to its gateway leaves over the pod's link like all
// else; that is the gateway's address there, too. What the pod answers itself is DHCP, router advertisements, and who
// has the gateway's address where nobody on the wire would: where pods have single addresses.
func (p direct) plan() error {
	if err := p.canBeJoined(); err != nil {
		return err
	}
	if p.pod.Link.Kind == state.Tap {
		return p.onNode()
	}
	if err := p.free(p.names.tap); err != nil {
		return err
	}
	tap := p.tap()
	tap.Master = ""
	p.out.Device.Target = p.names.tap
	j := state.Join{Tap: p.names.tap, Link: p.names.pod, How: p.Join}
	g := model.Guest{}
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
		p.silent(p.names.tap)
	}
	f.Links = []state.Link{tap}
	f.Joins = []state.Join{j}
	if g.DHCP4 != nil || g.DHCP6 != nil {
		p.tell(g, p.names.tap, tap.MAC, true)
	}
	return nil
}

// onNode hands to the hypervisor the tap on the node that the pod's link stands in for: the node has it routed and
// guarded as a pod's end, and speaks to its guest.
func (p direct) onNode() error {
	end := p.Answers[otherEnd(p.names.pod)]
	if !end.Found {
		return p.fault(p.nic, "binding", model.CodeInvalidEnv, "take a network whose pods have an end of a veth pair",
			"the pod's link %s is of kind tun, and stands in for no tap of the node", p.names.pod)
	}
	p.out.Device.Target, p.out.Device.OnNode = end.Link.Name, true
	if queues := end.Link.Tun != nil && end.Link.Tun.MultiQueue; queues != (p.out.Device.Queues > 1) {
		return p.fault(p.nic, "binding", model.CodeInvalidEnv,
			"num_queues of the network's configuration must suit networkInterfaceMultiqueue",
			"the node's tap %s has several queues: %t, the machine's interface: %t", end.Link.Name, queues, !queues)
	}
	return nil
}

// canBeJoined refuses links that a guest cannot have the place of, and another MAC where the link takes nothing that is
// for that, or where nobody can be told of it.
func (p direct) canBeJoined() error {
	kinds := []state.Kind{state.Ipvlan, state.Dummy, state.Bridge, state.VRF, state.IPIP, state.Wireguard}
	if kind := p.pod.Link.Kind; slices.Contains(kinds, kind) {
		return p.fault(p.nic, "binding", model.CodeInvalidEnv, "take a network whose pods have an end of a veth pair",
			"the pod's link %s is of kind %s, which no guest can have the place of", p.names.pod, kind)
	}
	if p.pod.Link.Master != "" {
		return p.fault(p.nic, "binding", model.CodeInvalidEnv, "", "the pod's link %s is a port of %s already", p.names.pod,
			p.pod.Link.Master)
	}
	if mac := p.pod.Link.MAC.String(); len(p.pod.Addrs) > 0 && p.out.Device.MAC != mac {
		if p.Asker == "" && p.pod.Link.Kind == state.Veth { // whatever arrives there is the guest's, whomever it is for
			p.introduce()
			return nil
		}
		return p.fault(p.nic, "macAddress", model.CodeInvalidConf,
			"leave it out, or have the pod's network give it to the pod",
			"%s is not the pod's address on %s (%s), by which the network knows the guest", p.out.Device.MAC, p.names.pod, mac)
	}
	return nil
}

// ipv4 has DHCP served on the tap, and the gateway's address answered where it is not in the guest's subnet. It
// tells the gateway's MAC, as far as the tap must have it.
func (p direct) ipv4(j *state.Join, g *model.Guest) (state.MAC, error) {
	server, err := netip.ParseAddr("169.254.75.1" + strconv.Itoa(p.nic.Index))
	if err != nil {
		return state.MAC{}, p.fault(p.nic, "", model.CodeInvalidConf, "at most 100 interfaces",
			"interface %d of a machine has no address for its server", p.nic.Index)
	}
	f, tap := &p.out.Fragment.Pod, p.names.tap
	f.Addrs = append(f.Addrs, state.Addr{Link: tap, Prefix: netip.PrefixFrom(server, server.BitLen())})
	j.Own, j.DHCP4 = append(j.Own, server), true
	g.DHCP4 = leases{p.planner}.ofPod(server)
	// The guest speaks from an address that is the pod's own.
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
	case mac.IsZero() && p.Subnet != 0:
		return mac, p.unanswered(gw)
	case mac.IsZero():
		return mac, nil // whoever is on the wire answers
	}
	if p.Subnet == 0 {
		j.Own = append(j.Own, gw)
	} else {
		p.subnetOf(j, g.DHCP4)
	}
	f.Sysctls = append(f.Sysctls,
		state.Sysctl{Name: conf + "forwarding", Value: "1"}, state.Sysctl{Name: conf + "proxy_arp", Value: "1"},
		state.Sysctl{Name: "net/ipv4/neigh/" + tap + "/proxy_delay", Value: "0"})
	return mac, nil
}

// subnetOf has a guest with a single address believe in a subnet with a router, as guests that know no other: whoever
// it asks for there is answered for by the tap's side.
func (p direct) subnetOf(j *state.Join, l *model.GuestDHCP4) {
	own := l.Address.Addr()
	l.Address = netip.PrefixFrom(own, p.Subnet)
	j.Near, j.Guest = l.Address.Masked(), own
	if l.Router = j.Near.Addr().Next(); l.Router == own {
		l.Router = l.Router.Next()
	}
	l.Routes = nil
}

// ipv6 is the guest's router, which has the gateway's MAC.
func (p direct) ipv6(j *state.Join, g *model.Guest) (state.MAC, error) {
	own := p.addr(true)
	if !own.IsValid() {
		return state.MAC{}, nil
	}
	gw := p.gateway(true)
	mac := p.neighbor(gw)
	if mac.IsZero() {
		if gw.IsValid() && p.Answers[gateways(p.names.pod)].Found {
			return mac, p.unanswered(gw)
		}
		return mac, nil
	}
	if p.mtu < leastIPv6 {
		return mac, p.fault(p.nic, "", model.CodeInvalidEnv, "raise the MTU of the pod's network",
			"the pod's link %s has an MTU of %d, IPv6 needs %d", p.names.pod, p.mtu, leastIPv6)
	}
	f, tap := &p.out.Fragment.Pod, p.names.tap
	conf := "net/ipv6/conf/" + tap + "/"
	// Who is no router says so when it is asked for its MAC, and a guest that hears that forgets the way out. Nothing is
	// forwarded.
	f.Sysctls = append(f.Sysctls, state.Sysctl{Name: conf + "addr_gen_mode", Value: "1", IfPresent: true},
		state.Sysctl{Name: conf + "accept_ra", Value: "0", IfPresent: true}, state.Sysctl{
			Name: conf + "forwarding", Value: "1", IfPresent: true,
		})
	f.Addrs = append(f.Addrs, state.Addr{Link: tap, Prefix: netip.PrefixFrom(routerAddr(), 64), NoDAD: true})
	j.Own, j.DHCP6, j.RS = append(j.Own, routerAddr()), true, true
	words := leases{p.planner}
	g.DHCP6 = &model.GuestDHCP6{Address: own.Addr(), DNS: words.nameservers(true), Search: words.search()}
	g.RA = &model.GuestRA{MTU: p.mtu, DNS: words.nameservers(true), Search: words.search()}
	if !own.IsSingleIP() {
		g.RA.Prefix = own.Masked()
	}
	return mac, nil
}

func (p direct) unanswered(gw netip.Addr) error {
	return p.fault(p.nic, "", model.CodeTryAgain, "the pod's network must be there first",
		"network %q: the pod's gateway %s on %s does not answer", p.nic.Network.Name, gw, p.names.pod)
}

// gateway is that of the pod's default route.
func (p direct) gateway(v6 bool) netip.Addr {
	for _, r := range p.ways {
		if r.Dst.Bits() == 0 && r.Gw.IsValid() && r.Gw.Is6() == v6 {
			return r.Gw
		}
	}
	return netip.Addr{}
}

// neighbor is the MAC of an address on the pod's link; zero where it is not known.
func (p direct) neighbor(ip netip.Addr) state.MAC {
	for _, n := range p.Answers[gateways(p.names.pod)].Neighs {
		if n.IP == ip {
			return n.MAC
		}
	}
	return state.MAC{}
}
